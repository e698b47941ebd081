"""Accelerator utilization as DLIO computes it, and what its time was made of.

Of a block of steps it is compute over the time of the block, both without the first steps. The
time of a block is not written; it follows from the throughput, which was divided by it. Releases
before 2.1 divide all samples by the whole time, later ones the samples of the steps that count by
the time without what is left out: all steps but two, or since MLPerf Storage 3.0 (DLIO 3.0.1) the
steps of utilization. An epoch is the mean of its blocks, each weighted with its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.run_facts import EpochTimes
from vanidl.readers.dlio.results import EVALUATION, Block, Interval, RankOutput, Settings, Times
from vanidl.schema.dataclass import dataclass

_NOT_COUNTED = 2  # steps whose samples releases from 2.1 to 3.0.0 leave out of the throughput
_CLOSE = 0.01  # relative: a batch size that follows from clocks is whole within that


@dataclass(frozen=True, slots=True)
class BlockStamps:
    """Blocks of one rank: (epoch, name of the block) -> when it was."""

    of_block: Mapping[tuple[int, str], Interval]

    @classmethod
    def of(cls, times: Times | None) -> BlockStamps:
        """As its rank, or the first one, wrote them."""
        epochs = times.epochs.items() if times else ()
        return cls({(k, name): each for k, e in epochs for name, each in e.parts.items()})

    def wall_s(self, epoch: int, block: str) -> float | None:
        """How long a block took."""
        interval = self.of_block.get((epoch, block))
        return None if interval is None else (interval[1] - interval[0]) / 1e9


@dataclass(frozen=True, slots=True)
class Formula:
    """How one release computes: `later` ones measure the time of compute and can leave out more."""

    later: bool
    settings: Settings

    def counted(self, steps: int) -> slice:
        """Which steps of a block count, of so many in the epoch."""
        if not self.later:
            return slice(1, None)
        return slice(self.settings.exclude_start, max(0, steps - self.settings.exclude_end))

    def total_s(self, block: Block, counted: slice, wall_s: float | None) -> float | None:
        """The time that utilization divides by; None where nothing tells it."""
        left_out = float(block.proc.sum() - block.proc[counted].sum())
        batch = self.settings.batch_size
        if self.later:
            if wall_s is None:
                return None
            by_clock = max(0.0, wall_s - left_out)
            if not block.throughput or not batch:
                return by_clock
            # Of how many steps the throughput is: the number that fits the clock, a step apart.
            steps = (len(block) - _NOT_COUNTED, len(block.proc[counted]))
            times = [n * batch / block.throughput for n in steps if n > 0]
            return min(times, key=lambda each: abs(each - by_clock), default=by_clock)

        # The batch of a result without its configuration, by clocks.
        if not batch and wall_s is not None and block.throughput:
            samples_a_step = block.throughput * wall_s / len(block)
            near = round(samples_a_step)
            batch = near if near and abs(samples_a_step / near - 1) < _CLOSE else None
        whole_s = len(block) * batch / block.throughput if block.throughput and batch else wall_s
        return None if whole_s is None else max(0.0, whole_s - left_out)


def find_slowest(
    outputs: Sequence[RankOutput], epoch: int, block: str
) -> NDArray[np.float64] | None:
    """The slowest rank's time of each step; None where ranks took different numbers of steps."""
    lengths = [b.proc for o in outputs for b in o.epochs.get(epoch, ()) if b.name == block]
    if len(lengths) != len(outputs) or len({len(each) for each in lengths}) != 1:
        return None
    slowest: NDArray[np.float64] = np.max(lengths, axis=0)
    return slowest


Slowest = Mapping[tuple[int, str], NDArray[np.float64] | None]
"""(epoch, block) -> the slowest rank's time of each step."""


def compute_epoch_times(
    output: RankOutput, stamps: BlockStamps, formula: Formula, slowest: Slowest
) -> list[EpochTimes]:
    """Every epoch of a rank in which it trained, where the time of its blocks is known."""
    epoch_times = []
    first = 0
    for epoch, all_blocks in output.epochs.items():
        blocks = [b for b in all_blocks if b.name != EVALUATION and len(b)]
        parts = []
        for block in blocks:
            parts.append(_measure_block(block, epoch, stamps, formula, slowest, first))
            first += len(block)
        measured = [part for part in parts if part is not None]
        if blocks and len(measured) == len(blocks):
            epoch_times.append(_sum_blocks(output.rank, epoch, blocks, measured))
    return epoch_times


@dataclass(frozen=True, slots=True)
class _Part:
    """One block's share of an epoch."""

    total_s: float
    compute_s: float
    load_s: float
    proc_s: float
    barrier_s: float | None
    counted: tuple[int, int]


def _measure_block(
    block: Block, epoch: int, stamps: BlockStamps, formula: Formula, slowest: Slowest, first: int
) -> _Part | None:
    # The time that utilization divides by, without the steps that do not count.
    counted = formula.counted(formula.settings.steps_per_epoch or len(block))
    low, high, _ = counted.indices(len(block))
    total_s = formula.total_s(block, counted, stamps.wall_s(epoch, block.name))
    if total_s is None:
        return None

    # What that time was made of; a barrier lasts no longer than what steps leave of it.
    proc_s = float(block.proc[counted].sum())
    slow = slowest.get((epoch, block.name))
    behind = None if slow is None else float((slow - block.proc).sum())  # of every step
    return _Part(
        total_s=total_s,
        compute_s=float(block.compute[counted].sum()),
        load_s=float(block.load[counted].sum()),
        proc_s=proc_s,
        barrier_s=None if behind is None else min(behind, max(0.0, total_s - proc_s)),
        counted=(first + low, first + max(low, high)),
    )


def _sum_blocks(
    rank: int, epoch: int, blocks: Sequence[Block], parts: Sequence[_Part]
) -> EpochTimes:
    steps = [len(block) for block in blocks]
    own = [100 * p.compute_s / p.total_s if p.compute_s and p.total_s else 0.0 for p in parts]
    # What one block lacks cannot be told of the epoch.
    recorded = [b.utilization_percent for b in blocks]
    waits = [part.barrier_s for part in parts]
    total_s, proc_s = sum(p.total_s for p in parts), sum(p.proc_s for p in parts)
    compute_s, load_s = sum(p.compute_s for p in parts), sum(p.load_s for p in parts)
    return EpochTimes(
        rank=rank,
        epoch=epoch,
        steps=sum(steps),
        total_s=total_s,
        compute_s=compute_s,
        load_s=load_s,
        other_s=proc_s - load_s - compute_s,
        outside_s=total_s - proc_s,
        barrier_s=None if None in waits else sum(w for w in waits if w is not None),
        utilization_percent=_weigh_by_steps(own, steps),
        recorded_percent=None
        if None in recorded
        else _weigh_by_steps([each for each in recorded if each is not None], steps),
        counted=tuple(part.counted for part in parts),
    )


def _weigh_by_steps(values: Sequence[float], steps: Sequence[int]) -> float:
    return sum(v * n for v, n in zip(values, steps, strict=True)) / sum(steps)
