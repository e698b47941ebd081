"""Calls of programs as vanidl's own tracer recorded them (`.calls`, `.calls.gz`)."""

from __future__ import annotations

from vanidl.readers.format import (
    FileKind,
    Files,
    Format,
    Reading,
    Records,
    check_by_reading,
)
from vanidl.readers.sniff import Opening
from vanidl.readers.tracer.calls_file import read_calls
from vanidl.readers.tracer.layout import MAGIC
from vanidl.readers.tracer.log import TRACER, notices, recorded

_CALLS = "calls"
_TITLE = "recorded calls"


def _read(files: Files, reading: Reading) -> Records:
    every = reading.each(_TITLE, recorded, files.get(_CALLS, ()))
    counted = {one.log.path: one.counters for one in every}
    said = tuple(notices(every))
    return Records(tuple(one.log for one in every), counted, notices=said)


def _sniff(opening: Opening) -> str:
    return _CALLS if opening.head.startswith(MAGIC) else ""


FORMAT = Format(
    name=TRACER,
    title=_TITLE,
    patterns=(".calls", ".calls.gz"),
    kinds=(FileKind(_CALLS, "recorded calls", (".calls", ".calls.gz"), is_log=True),),
    read=_read,
    check=check_by_reading({_CALLS: lambda path: read_calls(path).losses}),
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.calls(\.gz)?$",
)
