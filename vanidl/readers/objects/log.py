"""Requests of one process -> a log like those of system tracers, with the one layer OBJECT.

GET and PUT are its reads and writes. HEAD, listings, deletions and the like are its metadata calls.
A request that failed stays an operation of 0 bytes: training waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model import trace as model
from vanidl.model.intervals import union
from vanidl.model.warnings import Notice
from vanidl.readers.objects.operations import (
    LIST,
    OTHER,
    READ,
    STAT,
    WRITE,
    OperationsFile,
)
from vanidl.readers.records import (
    LONGEST_NS,
    CounterFile,
    CounterRecords,
    OperationTable,
    TracerLog,
    find_owner,
)

Int64Array = NDArray[np.int64]

TRACER = "vanidl-record"


def build_log(file: OperationsFile) -> TracerLog:
    """The log of one process."""
    # When the process began and ended: as it says, where that holds its requests.
    process, requests = file.process, file.requests
    first_ns, last_ns = int(requests.begin.min()), int(requests.end.max())
    start_ns = first_ns if file.start_ns is None else min(file.start_ns, first_ns)
    end_ns = last_ns
    if file.end_ns is not None and last_ns <= file.end_ns < last_ns + LONGEST_NS:
        end_ns = file.end_ns

    # What it asked of storage beside reads and writes, and the names that it used.
    others = requests.of_kind(STAT, LIST, OTHER)
    metadata_calls = union(requests.begin[others] - start_ns, requests.end[others] - start_ns)
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
        user_id=find_owner(file.path),
        nprocs=1,
        start_ns=start_ns,
        end_ns=end_ns,
        start_resolution_ns=0,
        start_error_ns=0,  # every operation is stamped with the clock of the system
        command=" ".join(map(str, words)),
        metadata={},
        mounts=(),
        names={code: file.names[code] for code in used},
        modules=(model.OBJECT,),
        operations=_build_tables(file, start_ns),
        partial_layers=(),
        whole=not file.losses,
        losses=file.losses,
        rank=_to_count(process.get("rank")),
        metadata_calls=metadata_calls,
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
    # How many of each kind, how many bytes, and how long they took.
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


def _build_tables(file: OperationsFile, since_ns: int) -> tuple[OperationTable, ...]:
    # Reads and writes in the order of Darshan's tables: by name, writes before reads, by start.
    requests = file.requests
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
        requests.begin[rows] - since_ns,
        requests.end[rows] - since_ns,
        requests.thread[rows].astype(np.uint64),
    )
    for column in columns:
        column.flags.writeable = False
    ranks = np.zeros(len(names), np.int64)
    host = str(file.process.get("host", ""))
    hosts = (host,) * len(names)
    return (OperationTable(model.OBJECT, names.astype(np.uint64), ranks, hosts, *columns),)


def _sum_by_place(place: Int64Array, values: Int64Array, names: int) -> Int64Array:
    total = np.zeros(names, np.int64)
    np.add.at(total, place, values)
    return total


def _to_count(value: Any) -> int | None:  # noqa: ANN401
    return value if type(value) is int and 0 <= value < 1 << 62 else None
