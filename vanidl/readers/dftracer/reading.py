"""The files of DFTracer: what reading and checking them gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vanidl.encoding.budget import names_limit
from vanidl.readers.dftracer.processes import possible_events
from vanidl.readers.dftracer.run import combine
from vanidl.readers.dftracer.trace_file import NOT_RECORDED, read_file
from vanidl.readers.format import FileKind, Reading, Records, check_by_reading
from vanidl.readers.records import CounterFile
from vanidl.readers.verdict import CUT, DAMAGED, LIMITED, PARTIAL, WHOLE, Verdict, ends_early

_TITLE = "DFTracer traces"


def read(files: Sequence[Path], reading: Reading) -> Records:
    """The records of the processes that wrote these files."""
    run = combine(reading.each(_TITLE, read_file, files))
    counters = {
        path: CounterFile(layers, heatmaps=run.heatmaps[path])
        for path, layers in run.counters.items()
    }
    return Records(run.logs, counters, run.profiles, notices=run.notices)


def _state(losses: Sequence[str]) -> str:
    """What was never recorded leaves a file whole: that is partial, not damaged."""
    if any(map(names_limit, losses)):
        return LIMITED
    if ends_early(losses):
        return CUT
    lost = [loss for loss in losses if not any(text in loss for text in NOT_RECORDED)]
    return DAMAGED if lost else PARTIAL if losses else WHOLE


def check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    """The verdicts, with the versions that the files state."""
    stated: dict[str, str] = {}

    def losses_of(path: Path) -> Sequence[str]:
        file = read_file(path)
        stated[str(path)] = ", ".join(sorted({s.version for s in file.starts if s.version}))
        return (*possible_events(file)[2], *file.never_written)

    verdicts = check_by_reading({kind.name: losses_of for kind, _ in files}, _state)(
        files, before_each
    )
    return [replace(verdict, version=stated.get(verdict.path, "")) for verdict in verdicts]
