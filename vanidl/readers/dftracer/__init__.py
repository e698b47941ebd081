"""DFTracer traces (`.pfw`, `.pfw.gz`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.dftracer.processes import possible_events
from vanidl.readers.dftracer.run import combine
from vanidl.readers.dftracer.trace_file import NOT_RECORDED, read_file
from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading
from vanidl.readers.records import CounterFile
from vanidl.readers.sniff import Opening
from vanidl.readers.verdict import CUT, DAMAGED, PARTIAL, WHOLE, ends_early

_TRACE = "dftracer"
_TITLE = "DFTracer traces"


def _read(files: Files, reading: Reading) -> Records:
    run = combine(reading.each(_TITLE, read_file, files.get(_TRACE, ())))
    counters = {path: CounterFile(layers) for path, layers in run.counters.items()}
    return Records(run.logs, lambda: counters, run.profiles, notices=run.notices)


def _state(losses: Sequence[str]) -> str:
    """What was never recorded leaves a file whole: that is partial, not damaged."""
    if ends_early(losses):
        return CUT
    lost = [loss for loss in losses if not any(text in loss for text in NOT_RECORDED)]
    return DAMAGED if lost else PARTIAL if losses else WHOLE


def _losses(path: Path) -> Sequence[str]:
    file = read_file(path)
    return (*possible_events(file)[2], *file.never_written)


def _sniff(opening: Opening) -> str:
    return _TRACE if opening.is_event_a_line else ""


FORMAT = Format(
    name="dftracer",
    title=_TITLE,
    patterns=(".pfw", ".pfw.gz"),
    kinds=(FileKind(_TRACE, "DFTracer trace", (".pfw", ".pfw.gz")),),
    read=_read,
    check=check_by_reading({_TRACE: _losses}, _state),
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.pfw(\.gz)?$",
)
