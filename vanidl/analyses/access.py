"""Where each operation starts relative to the one before it, per process and file.

Two rules side by side. Ours is exclusive: first, consecutive (offset = previous end),
forward or backward. Darshan's own (darshan-posix.c, POSIX_RECORD_READ): the last byte
touched starts at 0; sequential where offset > last byte, consecutive where offset = last
byte + 1. On a complete single-threaded trace Darshan's rule reproduces its counters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import ByFile, Rows
from vanidl.model.counter_totals import prefix_of
from vanidl.model.ordering import sort_rows
from vanidl.model.trace import READ, WRITE, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Operations by where they start, per process and file, in order of their start.

    first + consecutive + forward + backward == ops. The two Darshan figures follow
    Darshan's own rule, in which consecutive is a part of sequential. From counters alone
    only `ops` and these two are known, the rest is None.
    """

    ops: int
    first: int | None
    consecutive: int | None
    forward: int | None
    backward: int | None
    sequential_darshan: int | None
    consecutive_darshan: int | None


@dataclass(frozen=True, slots=True)
class Access:
    """Access pattern of reads and writes, and Darshan's counters beside it where known."""

    read: AccessCounts
    write: AccessCounts
    counted_sequential: tuple[int | None, int | None]  # (reads, writes) by Darshan's counters
    counted_consecutive: tuple[int | None, int | None]
    source: str = "trace"  # or "counters"


RUN_COLUMNS = ("process", "file", "op", "start", "offset", "end_offset")


@dataclass(frozen=True, slots=True)
class Runs:
    """Counts inside parts, and what their borders need to be stitched.

    `inside` has shape (2, 3): consecutive, forward, backward for reads and writes. `border`
    has one row a (part, file, op): the RUN_COLUMNS, with the start and offset of the first
    operation and the end offset of the last.
    """

    inside: Int64Array
    border: Int64Array


NOTHING = Runs(np.zeros((2, 3), np.int64), np.empty((0, len(RUN_COLUMNS)), np.int64))


def partial(rows: Rows, trace: Trace) -> Runs:  # noqa: ARG001  (all analyses share this signature)
    """The pattern inside each part."""
    return combine(count_runs(rows.reads, READ), count_runs(rows.writes, WRITE))


def count_runs(rows: ByFile, op: int) -> Runs:
    """The pattern of reads or writes; those whose offset was not recorded (-1) are left out."""
    rows = rows.with_offset
    if len(rows) == 0:
        return NOTHING
    inside = np.zeros((2, 3), np.int64)
    inside[op] = rows.neighbours
    first, last = rows.first[:-1], rows.first[1:] - 1
    columns = (rows.process, rows.file, np.full(len(first), op),
               rows.start[first], rows.offset[first], rows.end_offset[last])  # fmt: skip
    return Runs(inside, np.stack(columns, axis=1))


def combine(a: Runs, b: Runs) -> Runs:
    """The pattern of both; borders are stitched in `finish`."""
    return Runs(a.inside + b.inside, np.concatenate([a.border, b.border]))


def finish(runs: Runs, trace: Trace, layer: str) -> Access | None:
    """Counts of every class; None where no offset was recorded."""
    if len(runs.border) == 0:
        return None
    process, file, op, _, offset, end_offset = sort_rows(runs.border).T
    # Borders of parts: the last row of one and the first of the next of the same file.
    same = (process[1:] == process[:-1]) & (file[1:] == file[:-1]) & (op[1:] == op[:-1])
    inside = runs.inside + _count_classes(offset[1:][same], end_offset[:-1][same], op[1:][same])
    begins = np.concatenate([[True], ~same])
    return Access(
        _sum_counts(inside[READ], offset[begins & (op == READ)]),
        _sum_counts(inside[WRITE], offset[begins & (op == WRITE)]),
        _get_counted(trace, layer, "SEQ"),
        _get_counted(trace, layer, "CONSEC"),
    )


def _count_classes(offset: Int64Array, previous_end: Int64Array, op: Int64Array) -> Int64Array:
    """Counts (consecutive, forward, backward) for reads and writes, shape (2, 3)."""
    kind = np.where(offset == previous_end, 0, np.where(offset > previous_end, 1, 2))
    return np.bincount(op * 3 + kind, minlength=6).reshape(2, 3)


def _sum_counts(inside: Int64Array, first_offset: Int64Array) -> AccessCounts:
    consecutive, forward, backward = inside.tolist()
    # For the first operation Darshan takes byte 0 as already touched.
    sequential_first = int((first_offset > 0).sum())
    consecutive_first = int((first_offset == 1).sum())
    return AccessCounts(
        len(first_offset) + consecutive + forward + backward,
        len(first_offset),
        consecutive,
        forward,
        backward,
        consecutive + forward + sequential_first,
        consecutive + consecutive_first,
    )


def _get_counted(trace: Trace, layer: str, kind: str) -> tuple[int | None, int | None]:
    table = trace.counters.get(layer)
    if table is None:
        return None, None
    prefix = prefix_of(layer)
    return table.total(f"{prefix}_{kind}_READS"), table.total(f"{prefix}_{kind}_WRITES")
