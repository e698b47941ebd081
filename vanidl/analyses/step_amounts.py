"""What single operations moved during each profiled step, and which files they took longest for.

Bytes of an operation are spread in proportion to time, in exact integers, and operations count
where they start, as in the timeline: over all steps and the time outside them they add up to the
totals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.analyses.operations import add_sparse
from vanidl.analyses.rows import Rows
from vanidl.analyses.steps import rank_spans
from vanidl.model.trace import WRITE, Trace

Int64Array = NDArray[np.int64]

SLOWEST = 3
AMOUNTS = 4  # reads, writes, bytes read, bytes written


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sparse sums: `amounts[i]` of step row `row[i]`, and `spent` ns at `key` = row, file."""

    row: Int64Array
    amounts: Int64Array  # shape (n, 4): reads, writes, bytes read, bytes written
    key: Int64Array
    spent: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = StepSums(_NONE, np.empty((0, AMOUNTS), np.int64), _NONE, _NONE)


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
    total = np.zeros((len(keys), AMOUNTS), np.int64)
    np.add.at(total, place.ravel(), np.concatenate([a[1], b[1]]))
    return keys, total


def _summed(keys: Int64Array, values: Int64Array) -> tuple[Int64Array, Int64Array]:
    distinct, place = np.unique(keys, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place.ravel(), values)
    return distinct, total


def slowest_files(
    sums: StepSums, steps: int, trace: Trace
) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Of each step the files with most time in I/O."""
    found: list[tuple[tuple[str, float], ...]] = [()] * steps
    row, file = np.divmod(sums.key, max(len(trace.files), 1))
    order = np.lexsort((file, -sums.spent, row))
    row, file, spent = row[order], file[order], sums.spent[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    for i in np.flatnonzero(place < SLOWEST):
        found[row[i]] += ((trace.files.path[int(file[i])], int(spent[i]) / 1e9),)
    return tuple(found)
