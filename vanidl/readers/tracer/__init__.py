"""Calls of programs as vanidl's own tracer recorded them (`.calls`, `.calls.gz`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl.readers.format import FileKind, Files, Format, Opening, Reading, Records

if TYPE_CHECKING:
    from vanidl.readers.verdict import Verdict

_CALLS = "calls"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.tracer import reading as calls  # where there are such files: it takes time

    return calls.read_calls_files(files.get(_CALLS, ()), reading)


def _check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    from vanidl.readers.tracer import reading as calls

    return calls.check_calls_files(files, before_each)


def _sniff(opening: Opening) -> str:
    from vanidl.readers.tracer.slots import MAGIC

    return _CALLS if opening.head.startswith(MAGIC) else ""


FORMAT = Format(
    name="vanidl",
    title="recorded calls",
    patterns=(".calls", ".calls.gz"),
    kinds=(FileKind(_CALLS, "recorded calls", (".calls", ".calls.gz"), is_log=True),),
    read=_read,
    check=_check,
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.calls(\.gz)?$",
)
