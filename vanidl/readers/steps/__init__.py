"""Steps and input waits that `vanidl record` recorded inside the program (`*.steps`)."""

from __future__ import annotations

from pathlib import Path

from vanidl.errors import InputError
from vanidl.model.warnings import Notice
from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading
from vanidl.readers.sniff import Opening
from vanidl.readers.steps.fetches import fetch_tables
from vanidl.readers.steps.journal import MAGICS, read_journal
from vanidl.readers.steps.loop import profile

_STEPS = "steps"
_FAILURE = "steps_failure"


def _read(files: Files, reading: Reading) -> Records:
    journals = reading.each("recorded steps", read_journal, files.get(_STEPS, ()))
    profiles = [profile(journal) for journal in journals]
    failures = reading.each("recorded steps", _failures, files.get(_FAILURE, ()))
    return Records(
        profiles=tuple(each for each in profiles if len(each.start_ns)),
        fetches=fetch_tables(journals),
        notices=tuple(notice for each in failures for notice in each),
    )


def _failures(path: Path) -> tuple[Notice, ...]:
    """What a process left whose recording of something ended with an error: one a line."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path}: permission denied or missing ({error.strerror})") from error
    return tuple(
        Notice(
            "steps_incomplete",
            f"{path}: recording ended in this process because of an error ({why}); the program "
            "went on. What that hook records is missing from then on.",
        )
        for why in lines
    )


def _sniff(opening: Opening) -> str:
    begins = any(magic.startswith(opening.head) for magic in MAGICS)
    return _STEPS if begins and opening.head else ""


FORMAT = Format(
    name="steps",
    title="recorded steps",
    patterns=(".steps",),
    kinds=(
        FileKind(_STEPS, "recorded steps", (".steps",)),
        FileKind(_FAILURE, "note of a failed recording of steps", (".steps-error",)),
    ),
    read=_read,
    check=check_by_reading({_STEPS: lambda path: read_journal(path).losses}),
    sniff=_sniff,
    outputs=r"\.steps(-error)?$",
)
