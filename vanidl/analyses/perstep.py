"""What happened during each profiled step: bytes, operations, where its I/O fell, slow files.

Everything is of the time of the step, whichever step the data is for. Bytes of an operation
are spread in proportion to time, in exact integers, and operations count where they start, as
in the timeline: over all steps and the time outside them they add up to the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.analyses.operations import add_sparse
from vanidl.analyses.overlap import Split
from vanidl.analyses.phases import Phase, Phases
from vanidl.analyses.rows import Rows
from vanidl.analyses.steps import StepTable, rank_spans
from vanidl.model import intervals
from vanidl.model.trace import WRITE, Trace

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]

ORDINARY, FIRST, CHECKPOINT = "", "first of epoch", "checkpoint"
SLOWEST = 3
_AT_ONCE = 0.5  # of a usual step
_MOSTLY = 0.5  # of a step
_AMOUNTS = 4  # reads, writes, bytes read, bytes written


@dataclass(frozen=True, slots=True)
class PerStep:
    """One entry a row of the step table, in its order; shape (steps,), times in seconds.

    `busy_s` = in_wait_s + hidden_s + behind_communication_s + other_s, the split of the
    overlap. nan: not recorded. `kind` is "", "first of epoch" or "checkpoint"; a step that is
    both counts as a checkpoint. Amounts are None where no operation was traced.
    """

    kind: NDArray[np.object_]
    reads: Int64Array | None
    writes: Int64Array | None
    bytes_read: Int64Array | None
    bytes_written: Int64Array | None
    busy_s: Floats
    in_wait_s: Floats
    hidden_s: Floats
    behind_communication_s: Floats
    other_s: Floats
    input_wait_s: Floats
    input_wait_io_s: Floats
    slowest: tuple[tuple[tuple[str, float], ...], ...]  # (path, time in I/O), longest first


@dataclass(frozen=True, slots=True)
class KindMeans:
    """Means over all steps of one kind, in seconds and bytes; None: not recorded."""

    kind: str
    steps: int
    duration_s: float
    busy_s: float | None
    hidden_s: float | None
    input_wait_s: float | None
    input_wait_io_s: float | None
    bytes_read: float | None
    bytes_written: float | None


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sparse sums: `amounts[i]` of step row `row[i]`, and `spent` ns at `key` = row, file."""

    row: Int64Array
    amounts: Int64Array  # shape (n, 4): reads, writes, bytes read, bytes written
    key: Int64Array
    spent: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = StepSums(_NONE, np.empty((0, _AMOUNTS), np.int64), _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The time of one rank in cells between the borders of its steps."""

    bounds: Int64Array
    row: Int64Array  # cell -> row of the step table, -1 outside steps


@dataclass(frozen=True, slots=True)
class OfSteps:
    """The reduction for the steps of one trace."""

    cells: dict[int, _Cells] = field(default_factory=dict)  # position in Trace.ranks -> cells
    NOTHING: StepSums = NOTHING

    def partial(self, rows: Rows, trace: Trace) -> StepSums:
        """The sums of some rows."""
        value = NOTHING
        for position, own in rows.by_position(self.cells.keys()):
            value = self.combine(value, _step_sums(own, self.cells[position], len(trace.files)))
        return value

    def combine(self, a: StepSums, b: StepSums) -> StepSums:
        """The sums of both."""
        row, amounts = _added((a.row, a.amounts), (b.row, b.amounts))
        return StepSums(row, amounts, *add_sparse((a.key, a.spent), (b.key, b.spent)))


def of_trace(trace: Trace) -> OfSteps:
    """The reduction for the steps of a trace, in the order of its step table."""
    cells, before = {}, 0
    for position, spans in rank_spans(trace).items():
        cells[position] = _cells(spans.steps.start, spans.steps.end, before)
        before += len(spans.steps)
    return OfSteps(cells)


def finish(
    sums: StepSums,
    splits: Mapping[int, Split],
    trace: Trace,
    table: StepTable | None,
    phases: Phases | None,
) -> PerStep | None:
    """One row a profiled step; None where no step has a place in time."""
    if table is None or not splits:
        return None
    traced = not np.isnan(table.busy_s).all()
    amounts = np.zeros((_AMOUNTS, len(table.step)), np.int64)
    amounts[:, sums.row] = sums.amounts.T
    columns = [_columns(splits[position]) for position in np.unique(table.rank).tolist()]
    times = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return PerStep(
        kinds_of(table, phases),
        amounts[0] if traced else None,
        amounts[1] if traced else None,
        amounts[2] if traced else None,
        amounts[3] if traced else None,
        table.busy_s,
        times[0],
        times[1],
        times[2],
        times[3],
        table.input_wait_s,
        times[4],
        _slowest(sums, len(table.step), trace),
    )


def by_kind(table: StepTable, each: PerStep) -> tuple[KindMeans, ...]:
    """Means over ordinary steps, first steps of epochs, and checkpoint steps."""
    found = []
    for kind in (ORDINARY, FIRST, CHECKPOINT):
        rows = np.flatnonzero(each.kind == kind)
        if len(rows):
            names = ("busy_s", "hidden_s", "input_wait_s", "input_wait_io_s", "bytes_read",
                     "bytes_written")  # fmt: skip
            means = [_mean(getattr(each, name), rows) for name in names]
            duration = float(table.duration_s[rows].mean())
            found.append(KindMeans(kind or "ordinary", len(rows), duration, *means))
    return tuple(found)


def _mean(values: NDArray[np.number] | None, rows: NDArray[np.intp]) -> float | None:
    if values is None or np.isnan(values[rows].astype(float)).any():
        return None
    return float(values[rows].mean())


def _cells(start: Int64Array, end: Int64Array, before: int) -> _Cells:
    """Cells of steps in order of start; where two overlap, time counts in the later one."""
    borders = np.unique(np.concatenate([start, end]))
    bounds = np.concatenate([borders[:1] - 1, borders, borders[-1:] + 1])
    step = np.searchsorted(start, bounds[:-1], side="right") - 1
    inside = (step >= 0) & (bounds[:-1] < end[np.maximum(step, 0)])
    return _Cells(bounds, np.where(inside, step + before, -1))


def _step_sums(rows: Rows, cells: _Cells, files: int) -> StepSums:
    """The sums of the rows of one rank."""
    row, amounts = _amounts(rows, cells)
    spent = timebins.shares(rows.start, rows.end, rows.duration, cells.bounds)
    key, total = _NONE, _NONE
    for owner, at, share in spent:
        inside = (cells.row[at] >= 0) & (share > 0)
        keys = cells.row[at[inside]] * files + rows.file[owner[inside]]
        key, total = add_sparse((key, total), _summed(keys, share[inside]))
    return StepSums(row, amounts, key, total)


def _amounts(rows: Rows, cells: _Cells) -> tuple[Int64Array, Int64Array]:
    """(rows ascending, their amounts) of the operations of one rank."""
    write = (rows.op == WRITE).astype(np.int64)
    row = cells.row[timebins.bin_of(rows.start, cells.bounds)]
    blocks = [(row, np.stack([1 - write, write, 0 * write, 0 * write], axis=1))]
    for owner, at, share in timebins.shares(rows.start, rows.end, rows.nbytes, cells.bounds):
        wrote = write[owner]
        moved = np.stack([0 * share, 0 * share, share * (1 - wrote), share * wrote], axis=1)
        blocks.append((cells.row[at], moved))
    at_row = np.concatenate([r for r, _ in blocks])
    amounts = np.concatenate([a for _, a in blocks])
    inside = at_row >= 0
    return _added((_NONE, NOTHING.amounts), (at_row[inside], amounts[inside]))


def _added(
    a: tuple[Int64Array, Int64Array], b: tuple[Int64Array, Int64Array]
) -> tuple[Int64Array, Int64Array]:
    keys, place = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    total = np.zeros((len(keys), _AMOUNTS), np.int64)
    np.add.at(total, place.ravel(), np.concatenate([a[1], b[1]]))
    return keys, total


def _summed(keys: Int64Array, values: Int64Array) -> tuple[Int64Array, Int64Array]:
    distinct, place = np.unique(keys, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place.ravel(), values)
    return distinct, total


def _columns(split: Split) -> tuple[Floats, ...]:
    """in_wait, hidden, behind communication, other and I/O of the waits, of one rank's steps."""
    steps = split.spans.steps
    parts = [split.in_wait, split.hidden, split.behind_communication, split.other]
    parts.append(split.waited_in_io)
    missing = np.full(len(steps), np.nan)
    return tuple(
        missing if part is None else intervals.covered_within(part, steps.start, steps.end) / 1e9
        for part in parts
    )


def kinds_of(table: StepTable, phases: Phases | None) -> NDArray[np.object_]:
    """ORDINARY, FIRST or CHECKPOINT of each row of the table."""
    kind = np.full(len(table.step), ORDINARY, object)
    if phases is None:
        return kind
    for epoch in phases.epochs:
        kind[first_within(table, epoch)] = FIRST
    for saved in phases.checkpoints:
        kind[_during(table, saved.start_s, saved.end_s)] = CHECKPOINT
    return kind


def first_within(table: StepTable, epoch: Phase) -> Sequence[int]:
    """Of each rank the step that fills most of the time of one step from the epoch's start on.

    A border that lies shortly before the end of a step is so of the next one. A profile that
    begins later in the epoch holds no first step of it.
    """
    usual = float(np.median(table.duration_s))
    found = _most(table, epoch.start_s, min(epoch.start_s + usual, epoch.end_s))
    late = table.start_s - epoch.start_s > _AT_ONCE * usual
    inside = (table.end_s > epoch.start_s) & (table.start_s < epoch.end_s)
    first = np.flatnonzero(inside & (table.step == 0)).tolist()  # however late the loop got there
    return sorted({*(i for i in found if not late[i]), *first})


def _during(table: StepTable, start_s: float, end_s: float) -> NDArray[np.bool_]:
    """Of each rank the step with the largest share of a time, and all that it fills mostly."""
    filled = np.minimum(table.end_s, end_s) - np.maximum(table.start_s, start_s)
    rows = filled > _MOSTLY * table.duration_s
    rows[_most(table, start_s, end_s)] = True
    return rows


def _most(table: StepTable, start_s: float, end_s: float) -> list[int]:
    """Of each rank the step with the largest part of a time, the earlier of two."""
    part = np.minimum(table.end_s, end_s) - np.maximum(table.start_s, start_s)
    rows = np.flatnonzero(part > 0)
    rows = rows[np.lexsort((table.start_s[rows], -part[rows], table.rank[rows]))]
    _, first = np.unique(table.rank[rows], return_index=True)
    found: list[int] = rows[first].tolist()
    return found


def _slowest(sums: StepSums, steps: int, trace: Trace) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Of each step the files with most time in I/O."""
    found: list[list[tuple[str, float]]] = [[] for _ in range(steps)]
    row, file = np.divmod(sums.key, max(len(trace.files), 1))
    order = np.lexsort((file, -sums.spent, row))
    row, file, spent = row[order], file[order], sums.spent[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    for i in np.flatnonzero(place < SLOWEST):
        found[row[i]].append((trace.files.path[int(file[i])], int(spent[i]) / 1e9))
    return tuple(tuple(files) for files in found)
