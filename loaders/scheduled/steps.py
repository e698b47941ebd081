"""What one rank does in an epoch: its steps, and what it still needs of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..data.pool import Outcome
from .plan import Plan, StepPlan

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class RankStep:
    """One step of one rank.

    Attributes:
        ids: What it trains on, in this order.
        load: Which of them the plan has it read.
        weight: n_r * R / B; see `StepPlan.weight`.
        source: The node that each comes from; None: all from its own.
    """

    ids: Int64Array
    load: NDArray[np.bool_]
    weight: float
    source: NDArray[np.int32] | None = None


def rank_steps(plan: Plan, rank: int, *, epoch: int, start: int = 0) -> list[RankStep]:
    """The steps of a rank in an epoch, from step `start` on.

    Raises:
        UsageError: The plan has no such epoch.
    """
    # One rank takes whole steps; else those of its node are made, and its own part is copied.
    if plan.settings.ranks == 1 and not plan.settings.exchange:
        return [RankStep(ids, load, 1.0) for ids, load in islice(plan.alone(epoch), start, None)]
    node = plan.settings.node(rank)
    steps = plan.steps(epoch, range(node, node + 1))
    return [_copy_for_rank(step, rank, node) for step in islice(steps, start, None)]


def _copy_for_rank(step: StepPlan, rank: int, node: int) -> RankStep:
    """Copies: a view would keep the ids of all ranks."""
    (ids, load), source = step.of_rank(rank), step.source_of_rank(rank)
    if source is None:
        return RankStep(ids.copy(), load.copy(), step.weight(rank))
    return RankStep(ids.copy(), load & (source == node), step.weight(rank), source.copy())


LARGE = 1 << 14
"""Samples of a plan whose steps take so long to make that a thread makes them ahead."""


class StepsAhead:
    """The steps of a rank, epoch by epoch: large plans' next are made while one is used.

    Args:
        plan: Of all ranks.
        rank: This one.
        make: Gives its steps in an epoch; None: from the plan.
    """

    def __init__(
        self, plan: Plan, rank: int, make: Callable[[int], list[RankStep]] | None = None
    ) -> None:
        self._ahead = plan.settings.epochs if plan.settings.samples >= LARGE else 0
        self._make = make or (lambda epoch: rank_steps(plan, rank, epoch=epoch))
        self._made: dict[int, Future[list[RankStep]]] = {}

    def of(self, epoch: int, start: int = 0) -> list[RankStep]:
        """The steps from step `start` on; those of the next epoch are begun, of a large plan.

        Raises:
            UsageError: The plan has no such epoch.
        """
        made = self._made.pop(epoch, None)
        steps = made.result() if made else self._make(epoch)
        self._made = {}
        # The next epoch's are made while this one is trained on: making them takes the processor.
        if epoch + 1 < self._ahead:
            self._made[epoch + 1] = future = Future[list[RankStep]]()

            def make_next() -> None:
                with Outcome(future):
                    future.set_result(self._make(epoch + 1))

            threading.Thread(target=make_next, name="plan-ahead", daemon=True).start()
        return steps[start:]


class Walk:
    """Steps taken window by window, and the uses of each sample that are still to come.

    Windows grow from one step to `look_ahead`, so that the first batch does not wait for many.
    Uses are counted when they are first asked for: where all is in the buffer nobody asks.
    """

    def __init__(self, steps: list[RankStep], look_ahead: int) -> None:
        self._steps, self._most, self._size = steps, max(look_ahead, 1), 1
        self._taken, self._used = Uses(steps), Uses(steps)
        self._source = dict[int, int]()
        for step in steps:
            if step.source is not None:  # no rank of DistributedSampler's has a sample twice
                self._source.update(zip(step.ids.tolist(), step.source.tolist(), strict=True))

    def take_straight(self, most: int) -> list[RankStep]:
        """The next steps, at most so many; none behind the last."""
        at = self._taken.at
        return self._take(self._steps[at : at + most])

    def take(self, most: int, need: Callable[[Int64Array], set[int]]) -> list[RankStep]:
        """The next window; none behind the last step.

        At most so many steps, and (but for its first step) at most `most` samples that `need`
        says of their ids.
        """
        window: list[RankStep] = []
        needed: set[int] = set()
        # A window ends where its samples would not fit, but never before its first step.
        for step in self._steps[self._taken.at : self._taken.at + self._size]:
            more = needed | need(step.ids)
            if window and len(more) > most:
                break
            window.append(step)
            needed = more
        # Twice as many steps each time: the first batch comes early, later reads are merged
        # further.
        self._size = min(2 * self._size, self._most)
        return self._take(window)

    def _take(self, window: list[RankStep]) -> list[RankStep]:
        self._taken.go_on(len(window))
        return window

    @cached_property
    def once(self) -> bool:
        """True where no two uses in these steps are of the same sample."""
        ids = np.concatenate([step.ids for step in self._steps] or [np.empty(0, np.int64)])
        return len(np.unique(ids)) == len(ids)

    def uses(self, sample: int) -> int:
        """Uses of the sample that are still to come."""
        return self._used.left[sample]

    def is_to_come(self, sample: int) -> bool:
        """True where a step that was not yet used up needs the sample."""
        return self._used.left[sample] > 0

    def is_needed_later(self, sample: int) -> bool:
        """True where a step that was not yet taken needs the sample."""
        return self._taken.left[sample] > 0

    def source(self, sample: int, node: int) -> int:
        """The node that a sample of the steps comes from; `node`, this one, where none is named."""
        return self._source.get(sample, node)

    def is_load(self, sample: int) -> bool:
        """True where the plan has the sample read in one of the steps."""
        return sample in self._loads

    def use(self) -> None:
        """The next step is used up."""
        self._used.go_on(1)

    @cached_property
    def _loads(self) -> set[int]:
        return {i for step in self._steps for i in step.ids[step.load].tolist()}


class Uses:
    """How often each sample is used in the steps from one that moves on.

    Attributes:
        at: That step.
    """

    def __init__(self, steps: list[RankStep]) -> None:
        self._steps, self.at = steps, 0

    @cached_property
    def left(self) -> Counter[int]:
        """Sample -> uses."""
        return Counter(i for step in self._steps[self.at :] for i in step.ids.tolist())

    def go_on(self, steps: int) -> None:
        """So many steps are over."""
        # Nothing to subtract from before the first question.
        if "left" in self.__dict__:
            for step in self._steps[self.at : self.at + steps]:
                self.left.subtract(step.ids.tolist())
        self.at += steps
