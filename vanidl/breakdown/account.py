"""Where the time of every rank went: the cells of its run, its mean step, its waits, its phases.

A cell has a key, `rank|mean/window/cause[.part]`, as "mean/step/storage.read". Windows are `run`,
`step` (the mean training step), `input_wait` (the waits of training steps together), the phases
and the parts of the mean step. Everything that prints a duration or share takes it from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown import windows
from vanidl.breakdown.causes import (
    BLOCKED,
    BLOCKED_PARTS,
    CAUSES,
    DEVICE_IDLE,
    EXCHANGE,
    FAULT,
    IDLE_PARTS,
    INPUT_CPU,
    INPUT_CPU_PARTS,
    METADATA,
    OBJECT,
    PHASES,
    READ,
    STORAGE,
    SYNC,
    WORKERS,
    WORKERS_PARTS,
    WRITE,
    Cell,
    narrow_bounds,
)
from vanidl.model.states import SAMPLED
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.breakdown.input_wait import Served
    from vanidl.breakdown.overlap import Overlap, RankFates
    from vanidl.breakdown.phases import Phases
    from vanidl.breakdown.sources.counters import StorageBounds
    from vanidl.breakdown.step_records import StepRecords

Int64Array = NDArray[np.int64]

MEAN = "mean"
RUN, STEP, WAIT, STEP_PART, PHASE = "run", "step", "input_wait", "step_part", "phase"
EPOCH_END, EPOCH = "epoch_end", "epoch"
STEP_WAIT, STEPS = "step_wait", "steps"
"""The input waits of the mean step: those of all steps together by their number; all steps of a
rank together."""
TRACED, MARKED, PROFILED, FETCHED = "traced calls", "marks", "profile", "fetches"
TIMED = "the recorder's timing of a call"
CALLS = (READ, WRITE, METADATA, SYNC, OBJECT, EXCHANGE)
"""Parts of storage that are calls."""

_OF: Mapping[str, Sequence[str]] = {
    STORAGE: (*CALLS, FAULT), BLOCKED: BLOCKED_PARTS, WORKERS: WORKERS_PARTS,
    DEVICE_IDLE: tuple(IDLE_PARTS), INPUT_CPU: INPUT_CPU_PARTS,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One cell of every rank, summed over its windows, and of their mean, ns."""

    low: Int64Array  # (ranks,)
    high: Int64Array
    mean_low: float
    mean_high: float
    evidence: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def bound_imbalance_ns(self) -> tuple[float, float]:
        """What the slowest rank takes more than the mean, at least and at most.

        For runs without steps, in which the chain of each rank is its run.
        """
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        ranks = len(low)
        if ranks < 2:
            return 0.0, 0.0
        least = low * (1 - 1 / ranks) - (high.sum() - high) / ranks
        most = high * (1 - 1 / ranks) - (low.sum() - low) / ranks
        return max(float(least.max()), 0.0), max(float(most.max()), 0.0)


@dataclass(frozen=True)
class Breakdown:
    """The account of a run. `columns`: "window/cause[.part]" -> its cell of every rank.

    Of windows that exist in steps only (`step`, `input_wait`, the parts of steps) the mean is
    over the ranks with steps, of others over all. `steps`: training steps of each rank.
    `window_ns` is the length of the run; where `hosts_apart`, of the host that took longest: what
    lies between hosts that never meet is no run time, as clocks may differ, or one waited.
    """

    labels: tuple[str, ...]
    ranks: tuple[int | None, ...]
    window_ns: int
    steps: Int64Array
    columns: Mapping[str, Column]
    layers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Layer -> seconds of reading, writing and metadata, mean over ranks; not added up."""
    outermost: frozenset[str] = frozenset()
    overlap: Overlap | None = None
    fates: Mapping[int, RankFates] = field(default_factory=dict)  # by position in Trace.ranks
    phases: Phases | None = None
    step_records: StepRecords | None = None
    served: Mapping[int, Served] = field(default_factory=dict, repr=False)
    """Process -> its calls, as gains are worked out from them, too; of ranks with steps."""
    hosts_apart: bool = False
    unseen: frozenset[int] = frozenset()
    """Positions of ranks that were seen in storage beside its recorded calls."""

    def cell(self, key: str) -> Cell:
        """The cell of a key; nothing, [0, 0], of a cause that cannot be in the window.

        Of `step` and `step_part` it is of the mean step: in whole ns, outwards.

        Raises:
            KeyError: no rank or window of that name.
        """
        who, _, name = key.partition("/")
        window = name.partition("/")[0]
        # Windows that follow from those that are kept.
        if window == STEP_WAIT:
            return self._per_step(self.cell(f"{who}/{WAIT}{name[len(STEP_WAIT) :]}"), who)
        if window == STEPS:
            return self._of_all_steps(f"{STEP}{name[len(STEPS) :]}", who)
        column = self.columns.get(name)
        if column is None:
            if window not in (RUN, STEP, WAIT, STEP_PART, EPOCH, PHASE):
                raise KeyError(key)
            return Cell(0, 0)
        if who == MEAN:
            low, high = column.mean_low, column.mean_high
        else:
            place = int(who)
            low, high = float(column.low[place]), float(column.high[place])
            # Columns of a rank hold the sum over its steps.
            if window in (STEP, STEP_PART) and self.steps[place]:
                low, high = low / self.steps[place], high / self.steps[place]
        return Cell(int(np.floor(low)), int(np.ceil(high)), column.evidence, column.assumed)

    def _per_step(self, cell: Cell, who: str) -> Cell:
        """A cell of all steps of a rank, or of the mean rank, as that of its mean step."""
        steps = self.steps[self.observed].mean() if who == MEAN else self.steps[int(who)]
        low, high = (ns / max(float(steps), 1.0) for ns in (cell.low_ns, cell.high_ns))
        return replace(cell, low_ns=int(np.floor(low)), high_ns=int(np.ceil(high)))

    def _of_all_steps(self, name: str, who: str) -> Cell:
        """A cell of steps of a rank, or the mean rank with steps, of all of them together."""
        column = self.columns.get(name)
        if column is None:
            return Cell(0, 0)
        rows = self.observed if who == MEAN else np.array([int(who)])
        low, high = (float(side[rows].mean()) for side in (column.low, column.high))
        return Cell(int(np.floor(low)), int(np.ceil(high)), column.evidence, column.assumed)

    def length_ns(self, window: str, who: str = MEAN) -> float:
        """How long a window is: `run`, `step`, or all `input_wait` or `epoch_end`; 0 without."""
        if window == RUN:
            return float(self.window_ns)
        if window in (WAIT, EPOCH_END):
            total = self.columns.get(f"{window}/")
            if total is None:
                return 0.0
            return total.mean_low if who == MEAN else float(total.low[int(who)])
        total = self.columns.get(f"{STEP}/")
        if total is None:
            return 0.0
        if who == MEAN:
            return total.mean_low
        return float(total.low[int(who)]) / max(int(self.steps[int(who)]), 1)

    @property
    def steps_ns(self) -> float:
        """All training steps of a rank together, mean over those with steps; 0 without."""
        total = self.columns.get(f"{STEP}/")
        return 0.0 if total is None else float(total.low[self.observed].mean())

    @property
    def waits_known(self) -> bool:
        """Whether the input waits of every rank with steps were recorded."""
        part = self.columns.get(f"{STEP_PART}/{windows.PART_NAMES[windows.INPUT_WAIT]}")
        return part is not None and bool((part.low == part.high)[self.observed].all())

    @property
    def waited_share(self) -> float | None:
        """Of the training steps of the mean rank, its input waits; None where not recorded."""
        steps_ns = self.steps_ns
        return self.length_ns(WAIT) / steps_ns if self.waits_known and steps_ns else None

    @property
    def sampled_waits(self) -> dict[int, dict[str, tuple[float, float]]]:
        """Of each rank how much of its waits causes took, as far as samples of threads say it."""
        found: dict[int, dict[str, tuple[float, float]]] = {}
        for name, column in self.columns.items():
            window, _, cause = name.partition("/")
            if window != WAIT or not cause or SAMPLED not in column.evidence:
                continue
            for rank in range(len(self.ranks)):
                cell = self.cell(f"{rank}/{name}")
                found.setdefault(rank, {})[cause] = (cell.low_ns, cell.high_ns)
        return found

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Which ranks have steps."""
        return self.steps > 0

    def causes_of(self, window: str) -> tuple[str, ...]:
        """The causes with a cell in a window, in the order in which bars show them."""
        return tuple(cause for cause in CAUSES if f"{window}/{cause}" in self.columns)


class CellTable:
    """Cells of all ranks while they are gathered, ns; sums, not means."""

    def __init__(self, ranks: int, window_ns: int) -> None:
        self.ranks = ranks
        self.window_ns = window_ns
        self.observed = np.zeros(ranks, bool)
        self._low: dict[str, Int64Array] = {}
        self._high: dict[str, Int64Array] = {}
        self._evidence: dict[str, dict[str, None]] = {}
        self._assumed: dict[str, dict[str, None]] = {}

    def add(
        self,
        name: str,
        at: int | slice | Int64Array,
        low: int | np.int64 | Int64Array,
        high: int | np.int64 | Int64Array,
        evidence: Sequence[str] = (),
        assumed: Sequence[str] = (),
    ) -> None:
        """Sets a cell of one rank, of some, or of all."""
        if name not in self._low:
            for side in (self._low, self._high):
                side[name] = np.zeros(self.ranks, np.int64)
            self._evidence[name], self._assumed[name] = {}, {}
        self._low[name][at], self._high[name][at] = low, high
        for what in evidence:
            self._evidence[name][what] = None
        for what in assumed:
            self._assumed[name][what] = None

    def of(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Both ends of a cell of every rank; 0 where nothing was set."""
        none = np.zeros(self.ranks, np.int64)
        return self._low.get(name, none), self._high.get(name, none)

    def length_ns(self, window: str) -> Int64Array:
        """How long a window is, of every rank; a phase of unknown length at most."""
        if window == RUN:
            return np.full(self.ranks, self.window_ns, np.int64)
        return self.of(window if window.startswith(PHASE) else f"{window}/")[1]

    def columns(self, steps: Int64Array, bounds: StorageBounds | None) -> dict[str, Column]:
        """All cells, consistent within their windows, with means."""
        self._settle(RUN, np.full(self.ranks, self.window_ns, np.int64))
        for window in (STEP, WAIT):
            self._settle(window, self.of(f"{window}/")[0])
        for phase in PHASES:
            self._settle(f"{PHASE}/{phase}", self.of(f"{PHASE}/{phase}")[0], exactly=False)
        columns = {}
        for name, low in self._low.items():
            high, window = self._high[name], name.partition("/")[0]
            of_steps = window in (STEP, WAIT, STEP_PART, EPOCH_END, EPOCH)
            mine = self.observed if of_steps else np.ones(self.ranks, bool)
            per = np.maximum(steps, 1) if window in (STEP, STEP_PART) else np.ones_like(steps)
            count = max(int(mine.sum()), 1)
            mean = [float((side / per)[mine].sum()) / count for side in (low, high)]
            if window == RUN and bounds is not None and not self.observed.any():
                part = name.partition("/")[2].removeprefix(STORAGE).removeprefix(".")
                if name.startswith(f"{RUN}/{STORAGE}") and part in bounds.mean_low:
                    # Sums over ranks know their mean, whatever is open of each rank.
                    mean[0] = max(mean[0], min(bounds.mean_low[part] * 1e9, self.window_ns))
                    mean[1] = max(min(mean[1], bounds.mean_high[part] * 1e9), mean[0])
            evidence, assumed = tuple(self._evidence[name]), tuple(self._assumed[name])
            columns[name] = Column(low, high, mean[0], mean[1], evidence, assumed)
        return columns

    def _settle(self, window: str, length: Int64Array, exactly: bool = True) -> None:
        names = [name for cause in CAUSES if (name := f"{window}/{cause}") in self._low]
        if not names:
            return
        low = {name: self._low[name] for name in names}
        high = {name: self._high[name] for name in names}
        if exactly:
            low, high = narrow_bounds(length, low, high)
            # What a cell may be is tightened by all others, and by what these rest on.
            of_window = {what: None for name in names for what in self._assumed[name]}
            for name in names:
                moved = (low[name] != self._low[name]) | (high[name] != self._high[name])
                self._assumed[name].update(of_window if moved.any() else {})
        self._low.update(low)
        self._high.update(high)
        for name in names:
            parts = _OF.get(name.rpartition("/")[2], ())
            keys = [key for part in parts if (key := f"{name}.{part}") in self._low]
            # Calls of two threads at once are in two sums: either part may lack what both had.
            both = [self._low[key] for key in keys if not key.endswith(EXCHANGE)]
            excess = np.maximum(sum(both, np.zeros_like(length)) - high[name], 0)
            for key in keys:
                self._assumed[key].update(self._assumed[name])
                self._low[key] = np.maximum(self._low[key] - excess, 0)
                self._high[key] = np.clip(self._high[key], self._low[key], high[name])
            if name.endswith(f"/{INPUT_CPU}"):  # its parts are all there is of it
                most = sum((self._high[key] for key in keys), np.zeros_like(length))
                for key in keys:
                    rest = low[name] - (most - self._high[key])
                    self._low[key] = np.clip(rest, self._low[key], self._high[key])
