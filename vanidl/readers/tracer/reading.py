"""Files of vanidl's own tracer: what a run's say, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers.format import FileKind, Reading, Records
from vanidl.readers.tracer.log import Recorded, notices, recorded
from vanidl.readers.verdict import (
    PARTIAL,
    WHOLE,
    LayerCheck,
    Verdict,
    refused,
    state_by_losses,
)

_MOVES = ("READS", "WRITES")


def read(paths: Sequence[Path], reading: Reading) -> Records:
    """What the calls files of a run say."""
    every = reading.each("recorded calls", recorded, paths)
    counted = {one.log.path: one.counters for one in every}
    said = tuple(notices(every))
    return Records(tuple(one.log for one in every), counted, notices=said)


def check(files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]) -> list[Verdict]:
    """One verdict a file, in turn."""
    found = []
    for kind, path in files:
        before_each()
        try:
            found.append(_verdict(kind, path, read_one(recorded, path)))
        except InputError as error:
            found.append(refused(path, kind.title, str(error)))
    return found


def _verdict(kind: FileKind, path: Path, found: Recorded) -> Verdict:
    """The verdict on a file that could be read: partial where calls have no slot."""
    log, header = found.log, found.header
    state, missing = state_by_losses(log.losses), log.losses
    if header.missing_calls:
        state = PARTIAL if state == WHOLE else state
        missing = (*missing, f"{plural(header.missing_calls, 'call')} of it are in totals alone")
    traced = {table.layer: len(table.op) for table in log.operations}
    layers = tuple(
        LayerCheck(
            records.layer,
            sum(int(records.counters[f"{records.layer}_{what}"].sum()) for what in _MOVES),
            traced.get(records.layer, 0),
        )
        for records in found.counters.layers
    )
    return Verdict(
        str(path), kind.title, state, read=True, version=header.tracer, missing=missing,
        layers=layers,
    )  # fmt: skip
