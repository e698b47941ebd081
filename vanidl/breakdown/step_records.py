"""What happened during each profiled step: bytes, operations, where its I/O fell, slow files.

Everything is of the time of the step, whichever step the data is for. Bytes of an operation
are spread in proportion to time, in exact integers, and operations count where they start, as
in the timeline: over all steps and the time outside them they add up to the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import Results
from vanidl.analyses.step_amounts import AMOUNTS, slowest_files
from vanidl.analyses.steps import StepTable
from vanidl.breakdown.overlap import Split, StepWaits
from vanidl.breakdown.stages import Phase, Phases
from vanidl.model import intervals
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]

ORDINARY, FIRST, CHECKPOINT = "", "first of epoch", "checkpoint"
_AT_ONCE = 0.5  # of a usual step
_MOSTLY = 0.5  # of a step


@dataclass(frozen=True, slots=True)
class StepRecords:
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
    input_wait_io_s: Floats  # of the wait, to storage, at least
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


def record_steps(
    trace: Trace,
    results: Results,
    splits: Mapping[int, Split],
    waits: Mapping[int, StepWaits],
    phases: Phases | None,
) -> StepRecords | None:
    """One row a profiled step; None where no step has a place in time."""
    if results.steps is None or not splits:
        return None
    table, sums = results.steps.table, results.step_sums
    traced = not np.isnan(table.busy_s).all()
    amounts = np.zeros((AMOUNTS, len(table.step)), np.int64)
    amounts[:, sums.row] = sums.amounts.T
    columns = [
        _columns(splits[position], waits[position]) for position in np.unique(table.rank).tolist()
    ]
    times = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return StepRecords(
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
        slowest_files(sums, len(table.step), trace),
    )


def mean_by_kind(table: StepTable, each: StepRecords) -> tuple[KindMeans, ...]:
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


def _columns(split: Split, waits: StepWaits) -> tuple[Floats, ...]:
    """in_wait, hidden, behind communication, other, and storage of the waits, of each step."""
    steps = split.spans.steps
    parts = [split.in_wait, split.hidden, split.behind_communication, split.other]
    missing = np.full(len(steps), np.nan)
    times = [
        missing if part is None else intervals.covered_within(part, steps.start, steps.end) / 1e9
        for part in parts
    ]
    return (*times, missing if split.in_wait is None else waits.of_step_in_storage / 1e9)


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
