"""Requests of one process -> a log like those of system tracers, with the one layer OBJECT.

GET and PUT are its reads and writes. HEAD, listings, deletions and the like are its metadata calls.
A request that failed stays an operation of 0 bytes: training waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.dataclass import dataclass
from vanidl.model import intervals
from vanidl.model import trace as model
from vanidl.model.warnings import Notice
from vanidl.readers.objects.operations import (
    LIST,
    OTHER,
    READ,
    STAT,
    WRITE,
    OperationsFile,
    Requests,
)
from vanidl.readers.records import (
    LONGEST_NS,
    CounterFile,
    CounterRecords,
    OperationTable,
    TracerLog,
)

Int64Array = NDArray[np.int64]

TRACER = "vanidl-record"


@dataclass(frozen=True, slots=True)
class _Placed:
    """The requests of one process, and when it began and ended."""

    file: OperationsFile
    start_ns: int
    end_ns: int


def build_log(file: OperationsFile) -> TracerLog:
    """The log of one process."""
    placed = _place_file(file)
    process, requests = file.process, file.requests
    used = np.unique(requests.name).tolist()
    value = process.get("command")
    words = value if isinstance(value, list) else ()
    return TracerLog(
        path=file.path,
        tracer=TRACER,
        version="1",
        job_id="",
        host=str(process.get("host", "")),
        pid=_to_count(process.get("pid")),
        parent_pid=_to_count(process.get("parent_pid")),
        user_id=_get_owner(file.path),
        nprocs=1,
        start_ns=placed.start_ns,
        end_ns=placed.end_ns,
        start_resolution_ns=0,
        start_error_ns=0,  # every operation is stamped with the clock of the system
        command=" ".join(map(str, words)),
        metadata={},
        mounts=(),
        names={code: file.names[code] for code in used},
        modules=(model.OBJECT,),
        operations=_build_tables(placed),
        partial_layers=(),
        whole=not file.losses,
        losses=file.losses,
        rank=_to_count(process.get("rank")),
        metadata_calls=_find_metadata_calls(placed),
        beside=True,
    )


def build_counters(file: OperationsFile) -> CounterFile:
    """Totals of each object, under names like Darshan's."""
    requests = file.requests
    names = np.unique(requests.name)
    read, write = requests.of_kind(READ), requests.of_kind(WRITE)
    rest = ~(read | write)
    masks = {
        "READS": read,
        "WRITES": write,
        "STATS": requests.of_kind(STAT),
        "LISTS": requests.of_kind(LIST),
        "OTHERS": requests.of_kind(OTHER),
        "FAILED": requests.failed,
        "UNSIZED": requests.unsized,
    }
    place = np.searchsorted(names, requests.name)
    counts = {
        f"OBJECT_{what}": _sum_by_place(place, mask * 1, len(names)) for what, mask in masks.items()
    }
    for what, mask in (("READ", read), ("WRITTEN", write)):
        counts[f"OBJECT_BYTES_{what}"] = _sum_by_place(place, requests.nbytes * mask, len(names))
    spent = requests.end - requests.begin
    seconds = {
        f"OBJECT_F_{what}_TIME": _sum_by_place(place, spent * mask, len(names)) / 1e9
        for what, mask in (("READ", read), ("WRITE", write), ("META", rest))
    }
    ranks = np.zeros(len(names), np.int64)
    records = CounterRecords(model.OBJECT, names.astype(np.uint64), ranks, counts, seconds)
    return CounterFile((records,) if len(names) else ())


def list_warnings(files: Sequence[OperationsFile]) -> Iterator[Notice]:
    """Files that were not ended."""
    for file in files:
        if file.end_ns is None:
            yield Notice(
                "objects_unfinished",
                f"{file.path}: this process was killed or is still running: up to a second of its "
                "last requests to object storage is not recorded.",
                "info",
            )


def _place_file(file: OperationsFile) -> _Placed:
    """When the process began and ended: as it says, where that holds its requests."""
    requests = file.requests
    first, last = int(requests.begin.min()), int(requests.end.max())
    start = first if file.start_ns is None else min(file.start_ns, first)
    end = file.end_ns
    ends_there = end is not None and last <= end < last + LONGEST_NS
    return _Placed(file, start, end if end is not None and ends_there else last)


def _build_tables(placed: _Placed) -> tuple[OperationTable, ...]:
    requests = placed.file.requests
    moves = np.flatnonzero(requests.of_kind(READ, WRITE))
    if not len(moves):
        return ()
    names, record = np.unique(requests.name[moves], return_inverse=True)
    op = np.where(requests.kind[moves] == WRITE, model.WRITE, model.READ).astype(np.uint8)
    order = np.lexsort((requests.begin[moves], -op.astype(np.int8), record.ravel()))
    rows = moves[order]
    columns = (
        record.ravel()[order].astype(np.int32),
        op[order],
        requests.offset[rows],
        requests.nbytes[rows],
        requests.begin[rows] - placed.start_ns,
        requests.end[rows] - placed.start_ns,
        requests.thread[rows].astype(np.uint64),
    )
    for column in columns:
        column.flags.writeable = False
    ranks = np.zeros(len(names), np.int64)
    host = str(placed.file.process.get("host", ""))
    hosts = (host,) * len(names)
    return (OperationTable(model.OBJECT, names.astype(np.uint64), ranks, hosts, *columns),)


def _find_metadata_calls(placed: _Placed) -> intervals.Intervals:
    requests: Requests = placed.file.requests
    calls = requests.of_kind(STAT, LIST, OTHER)
    since = placed.start_ns
    return intervals.union(requests.begin[calls] - since, requests.end[calls] - since)


def _sum_by_place(place: Int64Array, values: Int64Array, names: int) -> Int64Array:
    total = np.zeros(names, np.int64)
    np.add.at(total, place, values)
    return total


def _get_owner(path: str) -> int:
    """User id of the file's owner, -1 where the file is gone."""
    try:
        return Path(path).stat().st_uid
    except OSError:
        return -1


def _to_count(value: Any) -> int | None:  # noqa: ANN401
    return value if type(value) is int and 0 <= value < 1 << 62 else None
