"""Traces of the PyTorch profiler (`*.pt.trace.json`)."""

from __future__ import annotations

from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading
from vanidl.readers.pytorch.trace import read_trace
from vanidl.readers.sniff import Opening

_TRACE = "profiler"


def _read(files: Files, reading: Reading) -> Records:
    profiles = reading.each(
        "profiler traces",
        lambda path: read_trace(path, wait_names=reading.wait_names),
        files.get(_TRACE, ()),
    )
    return Records(profiles=tuple(profiles))


def _sniff(opening: Opening) -> str:
    return _TRACE if opening.is_json and not opening.is_event_a_line else ""


FORMAT = Format(
    name="pytorch",
    title="PyTorch profiler traces",
    patterns=(".pt.trace.json", ".pt.trace.json.gz"),
    kinds=(FileKind(_TRACE, "PyTorch profiler trace", (".pt.trace.json", ".pt.trace.json.gz")),),
    read=_read,
    check=check_by_reading({_TRACE: lambda path: read_trace(path).losses}),
    sniff=_sniff,
    outputs=r"\.trace\.json",
)
