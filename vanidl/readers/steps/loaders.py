"""Which loaders give the batches of steps, from what the events of the training thread tell.

Events are added in any portions: a whole journal at once, or what a running job has written so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_text
from vanidl.readers.steps.journal import ITER, OPTIMIZER, STEP, WAIT, Events

Int64Array = NDArray[np.int64]

TRAINING, EVALUATION, SETUP, SKIPPED = "training", "evaluation", "setup", "skipped"
"""What loaders are for: of setup, Keras takes a batch to see its shape; skipped: see `passes`."""


@dataclass(slots=True)
class Tally:
    """Counts of one thread's events.

    Attributes:
        batches: loader -> how many it gave.
        trained: those that gave the last batch before a step of an optimizer, or a marked one.
        has_steps: whether there was such a step.
        is_marked: whether the program marks them.
        last: the loader of the latest batch, -1 for none.
    """

    batches: dict[int, int] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)
    has_steps: bool = False
    is_marked: bool = False
    last: int = -1

    def add(self, events: Events) -> None:
        """Counts further events."""
        waits = np.flatnonzero(events.kind == WAIT)
        steps = np.flatnonzero(closes_step(events))
        loader = np.append(np.int64(self.last), events.loader[waits])
        before = np.unique(loader[np.searchsorted(waits, steps)])
        self.trained |= set(before[before >= 0].tolist())
        self.has_steps |= len(steps) > 0
        self.is_marked |= bool((events.kind == STEP).any())
        self.last = int(loader[-1])
        for each, count in zip(*np.unique(loader[1:], return_counts=True), strict=True):
            self.batches[int(each)] = self.batches.get(int(each), 0) + int(count)

    def with_more(self, events: Events) -> Tally:
        """Another one, which counts these as well."""
        more = replace(self, batches=dict(self.batches), trained=set(self.trained))
        more.add(events)
        return more

    def usable(self, roles: Mapping[int, str]) -> set[int]:
        """Loaders that may give the batches of steps."""
        return {k for k in self.batches if roles.get(k) not in (SETUP, SKIPPED)}

    def training(self, roles: Mapping[int, str]) -> set[int]:
        """Loaders that are known to train: as frameworks say, else as the order tells."""
        usable = self.usable(roles)
        said = {k for k in usable if roles.get(k) == TRAINING}
        return said or usable & self.trained

    def main(self, roles: Mapping[int, str]) -> int:
        """The loader with most batches among those that train, -1 for none."""
        known = self.training(roles) or self.usable(roles)
        return max(known, key=lambda each: (self.batches[each], -each), default=-1)


@dataclass(slots=True)
class Along:
    """How many batches of a main loader are followed by batches of each other one."""

    main: int
    borders: int = 0
    followed: dict[int, tuple[int, int]] = field(default_factory=dict)  # number, the latest

    def add(self, events: Events) -> None:
        """Counts further events."""
        loader = events.loader[events.kind == WAIT]
        borders = np.flatnonzero(loader == self.main)
        for other in set(np.unique(loader).tolist()) - {self.main}:
            place = np.searchsorted(borders, np.flatnonzero(loader == other)) + self.borders
            number, latest = self.followed.get(other, (0, -1))
            number += len(np.unique(place)) - int(place[0] == latest)
            self.followed[other] = number, int(place[-1])
        self.borders += len(borders)

    def with_more(self, events: Events) -> Along:
        """Another one, which counts these as well."""
        more = replace(self, followed=dict(self.followed))
        more.add(events)
        return more

    def most(self, other: int) -> bool:
        """Whether a batch of another loader comes with most of those of the main one."""
        return 2 * self.followed.get(other, (0, -1))[0] > self.borders


@dataclass(frozen=True, slots=True)
class Loaders:
    """Which loaders give the batches of steps.

    Attributes:
        main: the one with most batches among these, -1 for none.
        of_steps: those whose batches are of steps.
        beginning: those of whose batches each can begin a step.
        has_steps: whether steps of optimizers, or marked ones, were recorded.
        is_marked: whether the program marks its steps.
        roles: what frameworks say that loaders are for.
    """

    main: int
    of_steps: frozenset[int]
    beginning: frozenset[int]
    has_steps: bool
    is_marked: bool
    roles: Mapping[int, str]

    @classmethod
    def told(cls, tally: Tally, along: Along, roles: Mapping[int, str]) -> Loaders:
        """What counts tell; `along` is of the main loader."""
        main, trained = tally.main(roles), tally.training(roles)
        if main < 0:
            return cls(-1, frozenset(), frozenset(), tally.has_steps, tally.is_marked, roles)
        other = {k for k in tally.usable(roles) - {main} if not roles.get(k)}
        beside = {each for each in other if along.most(each)}
        of_steps = frozenset(trained | beside if trained else tally.usable(roles))
        beginning = of_steps if tally.has_steps else of_steps - beside
        return cls(main, of_steps, beginning, tally.has_steps, tally.is_marked, roles)

    @classmethod
    def of(cls, events: Events, roles: Mapping[int, str]) -> Loaders:
        """What all events of the training thread tell."""
        tally = Tally()
        tally.add(events)
        along = Along(tally.main(roles))
        along.add(events)
        return cls.told(tally, along, roles)

    @property
    def of_training(self) -> bool:
        """Whether it is known which loaders train."""
        return self.has_steps or TRAINING in self.roles.values()

    def role(self, loader: int) -> str:
        """What a loader's batches are for, "" where nothing tells."""
        if self.roles.get(loader) or not self.of_training or self.main < 0:
            return self.roles.get(loader, "")
        return TRAINING if loader in self.of_steps else EVALUATION


def closes_step(events: Events) -> NDArray[np.bool_]:
    """Which events end the batches of a step: an optimizer's steps, or those that are marked."""
    closes: NDArray[np.bool_] = (events.kind == OPTIMIZER) | (events.kind == STEP)
    return closes


def is_call(events: Events) -> NDArray[np.bool_]:
    """Which events are calls of loaders."""
    calls: NDArray[np.bool_] = (events.kind >= WAIT) & (events.kind <= ITER)  # WAIT, END, ITER
    return calls


def roles_of(loaders: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """What frameworks say that loaders are for, by number."""
    return {k: str(loader.get("role", "")) for k, loader in loaders.items()}


TOLD_APART = 1 << 40
"""Numbers from here on are those of loaders that `passes` tells apart from one that trains."""


def loader_name(number: int, loader: Mapping[str, Any], role: str) -> str:
    """`DataLoader 0 (Images, training)`."""
    number %= TOLD_APART
    details = ", ".join(word for word in (str(loader.get("dataset", "")), role) if word)
    return clean_text(
        f"{loader.get('class', 'loader')} {number}{f' ({details})' if details else ''}"
    )
