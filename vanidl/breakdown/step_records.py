"""What happened during each profiled step: bytes, operations, where its I/O fell, slow files.

Everything is of the time of the step, whichever step the data is for. Bytes of an operation
are spread in proportion to time, in exact integers, and operations count where they start, as
in the timeline: over all steps and the time outside them they add up to the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.profiled_steps import AMOUNTS, NO_SUMS, StepTable, find_slowest_files
from vanidl.analyses.results import Results
from vanidl.breakdown.overlap import Split
from vanidl.breakdown.phases import Phase, Phases
from vanidl.model import intervals
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

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


class StepTimes:
    """Where the I/O of each step fell, gathered rank by rank, in the order of a step table."""

    def __init__(self, table: StepTable) -> None:
        self._rank = table.rank
        self._columns: dict[str, Floats] = {}

    def add(self, position: int, times: Mapping[str, Floats]) -> None:
        """The steps of one rank, as `measure_steps` has them."""
        first = int(np.searchsorted(self._rank, self._rank.dtype.type(position)))
        for name, seconds in times.items():
            self._column(name)[first : first + len(seconds)] = seconds

    def _column(self, name: str) -> Floats:
        """Made when there is something to put in it."""
        return self._columns.setdefault(name, np.full(len(self._rank), np.nan))

    def column(self, name: str) -> Floats:
        """One of `StepRecords`; nan where nothing was recorded."""
        return self._columns.get(name, np.broadcast_to(np.nan, len(self._rank)))


def measure_steps(split: Split, in_storage: Int64Array) -> dict[str, Floats]:
    """Where the I/O of each step of one rank fell, s; `in_storage`: of its waits, ns at least."""
    start, end = split.spans.steps.start, split.spans.steps.end
    parts = {
        "in_wait_s": split.in_wait,
        "hidden_s": split.hidden,
        "behind_communication_s": split.behind_communication,
        "other_s": split.other,
    }
    times = {
        name: intervals.covered_within(part, start, end) / 1e9
        for name, part in parts.items()
        if part is not None
    }
    if split.in_wait is not None:
        times["input_wait_io_s"] = in_storage / 1e9
    return times


def record_steps(
    trace: Trace, results: Results, times: StepTimes, phases: Phases | None
) -> StepRecords | None:
    """One row a profiled step; None where no step has a place in time."""
    if results.steps is None:
        return None
    table, sums = results.steps.table, results.step_sums or NO_SUMS
    # Amounts are known where single operations were traced.
    reads, writes, read, written = [None] * AMOUNTS
    if not np.isnan(table.busy_s).all():
        amounts = np.zeros((AMOUNTS, len(table.step)), np.int64)
        amounts[:, sums.row] = sums.amounts.T
        reads, writes, read, written = amounts
    return StepRecords(
        kind=classify_steps(table, phases),
        reads=reads,
        writes=writes,
        bytes_read=read,
        bytes_written=written,
        busy_s=table.busy_s,
        in_wait_s=times.column("in_wait_s"),
        hidden_s=times.column("hidden_s"),
        behind_communication_s=times.column("behind_communication_s"),
        other_s=times.column("other_s"),
        input_wait_s=table.input_wait_s,
        input_wait_io_s=times.column("input_wait_io_s"),
        slowest=find_slowest_files(sums, len(table.step), trace),
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


def classify_steps(table: StepTable, phases: Phases | None) -> NDArray[np.object_]:
    """ORDINARY, FIRST or CHECKPOINT of each row of the table."""
    kind = np.full(len(table.step), ORDINARY, object)
    if phases is None:
        return kind
    for epoch in phases.epochs:
        kind[find_first_steps(table, epoch)] = FIRST
    for saved in phases.checkpoints:
        # Of each rank the step with the largest share of a time, and all that it fills mostly.
        filled = np.minimum(table.end_s, saved.end_s) - np.maximum(table.start_s, saved.start_s)
        rows = filled > _MOSTLY * table.duration_s
        rows[_find_longest_overlap(table, saved.start_s, saved.end_s)] = True
        kind[rows] = CHECKPOINT
    return kind


def find_first_steps(table: StepTable, epoch: Phase) -> Sequence[int]:
    """Of each rank the step that fills most of the time of one step from the epoch's start on.

    A border that lies shortly before the end of a step is so of the next one. A profile that
    begins later in the epoch holds no first step of it.
    """
    usual = float(np.median(table.duration_s))
    found = _find_longest_overlap(table, epoch.start_s, min(epoch.start_s + usual, epoch.end_s))
    late = table.start_s - epoch.start_s > _AT_ONCE * usual
    inside = (table.end_s > epoch.start_s) & (table.start_s < epoch.end_s)
    first = np.flatnonzero(inside & (table.step == 0)).tolist()  # however late the loop got there
    return sorted({*(i for i in found if not late[i]), *first})


def _find_longest_overlap(table: StepTable, start_s: float, end_s: float) -> list[int]:
    """Of each rank the step with the largest part of a time, the earlier of two."""
    part = np.minimum(table.end_s, end_s) - np.maximum(table.start_s, start_s)
    rows = np.flatnonzero(part > 0)
    rows = rows[np.lexsort((table.start_s[rows], -part[rows], table.rank[rows]))]
    _, first = np.unique(table.rank[rows], return_index=True)
    found: list[int] = rows[first].tolist()
    return found
