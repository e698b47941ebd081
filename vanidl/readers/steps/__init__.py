"""Steps and input waits that `vanidl record` recorded inside the program (`*.steps`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Opening,
    Reading,
    Records,
    check_by_reading,
)

_STEPS = "steps"
_FAILURE = "steps_failure"
_SOURCES = "source_lines"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.steps import reading as steps  # where there are such files: it takes time

    journals, failures, sources = (files.get(k, ()) for k in (_STEPS, _FAILURE, _SOURCES))
    return steps.read_steps(journals, failures, sources, reading)


def _read_losses(path: Path) -> Sequence[str]:
    from vanidl.readers.steps.journal import read_journal

    return read_journal(path).losses


def _sniff(opening: Opening) -> str:
    from vanidl.readers.steps.journal import MAGICS

    begins = any(magic.startswith(opening.head) for magic in MAGICS)
    return _STEPS if begins and opening.head else ""


FORMAT = Format(
    name="steps",
    title="recorded steps",
    patterns=(".steps",),
    kinds=(
        FileKind(_STEPS, "recorded steps", (".steps",)),
        FileKind(_FAILURE, "note of a failed recording of steps", (".steps-error",)),
        FileKind(_SOURCES, "source lines of sampled functions", (".source-lines",)),
    ),
    read=_read,
    check=check_by_reading({_STEPS: _read_losses}),
    sniff=_sniff,
    outputs=r"\.(steps(-error)?|source-lines)$",
)
