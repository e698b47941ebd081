"""What a run is doing: training, waiting, stalled, dead, from what each of its processes does.

A run is one thing, though it has many processes: where one saves or validates, the others wait for
it; it has stalled where every process that trains has, each by its own usual steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vanidl.formatting.units import seconds

STALL_S = 15.0
"""A silence shorter than this is none, however short the steps are."""
STALL_STEPS = 10
"""Nor is one shorter than so many of the longest usual steps (the 99th percentile)."""
_WAIT_STEPS = 2
_WAIT_S = 1.0  # a wait that is worth a word, where steps are shorter than half of it


class State(str, Enum):
    """What a run is doing; the words of metrics and of `--alert`."""

    STARTING = "starting"
    TRAINING = "training"
    VALIDATING = "validating"
    SAVING = "saving"
    WAITING = "waiting"
    STALLED = "stalled"
    ENDED = "ended"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a run, for how long, and what more is known of it."""

    state: State
    for_s: float = 0.0
    why: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in (State.ENDED, State.DEAD)

    @property
    def alerts(self) -> bool:
        """Whether somebody should look after the run."""
        return self.state in (State.STALLED, State.DEAD)

    def __str__(self) -> str:
        """`training`, `waiting for input for 12.0 s`, `stalled: no event for 40.0 s (...)`."""
        why = f" ({self.why})" if self.why else ""
        if self.state is State.STALLED:
            return f"stalled: no event for {seconds(self.for_s)}{why}"
        if self.state is State.WAITING:
            return f"waiting for input for {seconds(self.for_s)}{why}"
        if self.state is State.DEAD:
            return f"dead: {self.why}"
        long = self.state is not State.TRAINING and self.for_s >= 1
        return f"{self.state.value}{f' for {seconds(self.for_s)}' if long else ''}{why}"


STARTING = Condition(State.STARTING)


@dataclass(frozen=True, slots=True)
class Activity:
    """What one process does that trains, or is about to."""

    label: str
    steps: int
    usual_s: float | None  # the median of its steps
    longest_s: float | None  # their 99th percentile
    silent_s: float  # since its last event, or since what it is doing began
    within: State | None = None  # SAVING, VALIDATING or WAITING: a call that goes on
    within_s: float = 0.0
    trouble: str = ""  # what the kernel says of it

    @property
    def has_stalled(self) -> bool:
        """Whether it has been silent for longer than it takes for anything it does."""
        longest_s = self.longest_s or 0.0
        return bool(self.steps) and self.silent_s >= max(STALL_STEPS * longest_s, STALL_S)

    @property
    def is_held_up(self) -> bool:
        """Whether it waits for input for longer than usual."""
        usual_s = self.usual_s or 0.0
        return self.within is State.WAITING and self.within_s > max(_WAIT_STEPS * usual_s, _WAIT_S)


def condition_of(activities: Sequence[Activity]) -> Condition:
    """What a run does whose recorder is there, by what its processes do.

    Args:
        activities: of the processes that train and have not ended.
    """
    training = [one for one in activities if one.steps]
    for state in (State.SAVING, State.VALIDATING):
        busy = [one for one in activities if one.within is state]
        if busy:
            return Condition(state, why=_troubles(busy))
    if training and all(one.has_stalled for one in training):
        return Condition(State.STALLED, min(one.silent_s for one in training), _reasons(training))
    held_up = [one for one in training or activities if one.is_held_up]
    if held_up:
        worst = max(held_up, key=lambda one: one.within_s)
        of = worst.label if len(training) > 1 else ""
        return Condition(State.WAITING, worst.within_s, _said(of, worst.trouble))
    why = _troubles(training or activities)
    return Condition(State.TRAINING if training else State.STARTING, why=why)


def _reasons(stalled: Sequence[Activity]) -> str:
    waiting = [one for one in stalled if one.within is State.WAITING]
    worst = max(waiting, key=lambda one: one.within_s, default=None)
    wait = f"in a wait for input of {seconds(worst.within_s)}" if worst else ""
    usual_s = stalled[0].usual_s
    usual = f"a step takes {seconds(usual_s)}" if usual_s is not None else ""
    return _said(_troubles(stalled), wait, usual)


def _troubles(activities: Sequence[Activity]) -> str:
    """What the kernel says of the first that it says something of."""
    troubled = [one for one in activities if one.trouble]
    if not troubled:
        return ""
    more = f" and {len(troubled) - 1} more" if len(troubled) > 1 else ""
    return f"{troubled[0].label}{more}: {troubled[0].trouble}"


def _said(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
