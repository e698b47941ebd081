"""Calls of programs as vanidl's own tracer recorded them (`.calls`, `.calls.gz`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers.format import FileKind, Files, Format, Reading, Records
from vanidl.readers.sniff import Opening
from vanidl.readers.tracer.layout import MAGIC
from vanidl.readers.tracer.log import TRACER, Recorded, notices, recorded
from vanidl.readers.verdict import (
    PARTIAL,
    WHOLE,
    LayerCheck,
    Verdict,
    refused,
    state_by_losses,
)

_CALLS = "calls"
_TITLE = "recorded calls"


def _read(files: Files, reading: Reading) -> Records:
    every = reading.each(_TITLE, recorded, files.get(_CALLS, ()))
    counted = {one.log.path: one.counters for one in every}
    said = tuple(notices(every))
    return Records(tuple(one.log for one in every), counted, notices=said)


def _check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> list[Verdict]:
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


_MOVES = ("READS", "WRITES")


def _sniff(opening: Opening) -> str:
    return _CALLS if opening.head.startswith(MAGIC) else ""


FORMAT = Format(
    name=TRACER,
    title=_TITLE,
    patterns=(".calls", ".calls.gz"),
    kinds=(FileKind(_CALLS, "recorded calls", (".calls", ".calls.gz"), is_log=True),),
    read=_read,
    check=_check,
    traces_io=True,
    sniff=_sniff,
    outputs=r"\.calls(\.gz)?$",
)
