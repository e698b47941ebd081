"""What is known of a run at one time; plain records that every output shows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from vanidl.advice.facts import BOUND_SHARE
from vanidl.formatting.units import count, percent, plural, seconds
from vanidl.model.run_facts import Ending
from vanidl.readers.steps.journal import ITER, KIND, LOADER_SHIFT, OTHER_STEP, WAIT
from vanidl.readers.steps.live import LiveJournal
from vanidl.readers.steps.spans import EVALUATION
from vanidl.record.alive import SAVE, Call, Life
from vanidl.schema.dataclass import dataclass
from vanidl.watch.resources import MemoryState
from vanidl.wording.cells import mark_cell, settle

# What a run is doing: training, waiting, stalled, dead, from what each of its processes does.
#
# A run is one thing, though it has many processes: where one saves or validates, the others wait
# for it; it has stalled where every process that trains has, each by its own usual steps.
#
# Of a process speak its journal, and its page of memory if that is here (`judge_activity`). A
# journal says what has ended, a second late; the page what goes on now. On another host there is
# the journal alone: a wait or a save that goes on is a silence there.

STALL_S = 15.0
"""A silence shorter than this is none, however short the steps are."""
STALL_STEPS = 10
"""Nor is one shorter than so many of the longest usual steps (the 99th percentile)."""
_WAIT_STEPS = 2  # usual steps: a shorter wait is part of the loop
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


def judge_condition(activities: Sequence[Activity]) -> Condition:
    """What a run does whose recorder is there, by what its processes do.

    Args:
        activities: of the processes that train and have not ended.
    """
    # A save or a validation holds the others up: it goes first.
    training = [one for one in activities if one.steps]
    for state in (State.SAVING, State.VALIDATING):
        busy = [one for one in activities if one.within is state]
        if busy:
            return Condition(state, why=_name_troubles(busy))
    # One process that goes on is enough for the run to go on.
    if training and all(one.has_stalled for one in training):
        return Condition(
            State.STALLED, min(one.silent_s for one in training), _explain_stall(training)
        )
    # Waits that are long enough for a word; the longest speaks.
    held_up = [one for one in training or activities if one.is_held_up]
    if held_up:
        worst = max(held_up, key=lambda one: one.within_s)
        of = worst.label if len(training) > 1 else ""
        return Condition(State.WAITING, worst.within_s, _join_words(of, worst.trouble))
    why = _name_troubles(training or activities)
    return Condition(State.TRAINING if training else State.STARTING, why=why)


def _explain_stall(stalled: Sequence[Activity]) -> str:
    waiting = [one for one in stalled if one.within is State.WAITING]
    worst = max(waiting, key=lambda one: one.within_s, default=None)
    wait = f"in a wait for input of {seconds(worst.within_s)}" if worst else ""
    usual_s = stalled[0].usual_s
    usual = f"a step takes {seconds(usual_s)}" if usual_s is not None else ""
    return _join_words(_name_troubles(stalled), wait, usual)


def _name_troubles(activities: Sequence[Activity]) -> str:
    """What the kernel says of the first that it says something of."""
    troubled = [one for one in activities if one.trouble]
    if not troubled:
        return ""
    more = f" and {len(troubled) - 1} more" if len(troubled) > 1 else ""
    return f"{troubled[0].label}{more}: {troubled[0].trouble}"


def _join_words(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


_NOTHING = Call(0, 0)


def judge_activity(
    label: str, journal: LiveJournal, life: Life | None, now_ns: int, news_ns: int
) -> Activity:
    """What a process does now.

    Args:
        label: how it is called.
        journal: what it has recorded.
        life: what is seen of it on this host, None where nothing is.
        now_ns: of the monotonic clock.
        news_ns: when its journal last grew, by that clock.
    """
    # The page of memory says what goes on now; without it the journal's last entry has to do.
    doing = (life.doing if life else None) or _NOTHING
    last = (life.last if life else None) or _NOTHING
    if last.code == 0:
        last = Call(journal.last, news_ns)
    silent_s = max(now_ns - max(doing.at_ns, last.at_ns), 0) / 1e9
    within, since_ns = (
        (None, now_ns) if life and life.is_gone else _find_current_call(journal, doing, last)
    )
    # A stall is judged by the process's own steps: the median, and the 99th percentile.
    usual, longest = (journal.totals.step_quantile_ns(share) for share in (0.5, 0.99))
    return Activity(
        label=label,
        steps=journal.totals.steps,
        usual_s=None if usual is None else usual / 1e9,
        longest_s=None if longest is None else longest / 1e9,
        silent_s=silent_s,
        within=within,
        within_s=max(now_ns - since_ns, 0) / 1e9,
        trouble=life.trouble if life else "",
    )


def _find_current_call(journal: LiveJournal, doing: Call, last: Call) -> tuple[State | None, int]:
    """What the process is in the midst of, and since when.

    A call of one thread does not hold up another that goes on meanwhile: a save in the background,
    a thread that fetches ahead. So events since it began say that training is not in it.
    """
    kind, passed = doing.code & KIND, last.at_ns > doing.at_ns
    if kind == SAVE and not (passed and last.code & KIND != SAVE):
        return State.SAVING, doing.at_ns
    if kind == OTHER_STEP or (kind == WAIT and _is_validation(journal, doing.code)):
        return State.VALIDATING, doing.at_ns
    if kind in (WAIT, ITER):
        return State.WAITING, max(doing.at_ns, last.at_ns)
    if last.code & KIND == WAIT and _is_validation(journal, last.code):
        return State.VALIDATING, last.at_ns
    return None, doing.at_ns


def _is_validation(journal: LiveJournal, code: int) -> bool:
    """Whether a call is one of a loader that gives no batches of steps."""
    return journal.role(code >> LOADER_SHIFT) == EVALUATION


WAITS = "mean/input_wait/"
"""The key of the cell that the breakdown of the ended run has for what training waited."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What training waited for one loader."""

    loader: str
    waits: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class RankState:
    """One training process; `now_...` is of the last seconds, None where that is not known yet."""

    label: str
    steps: int
    steps_s: float  # sum of how long they took
    wait_s: float  # for batches of these steps; of all loaders where no step was recorded
    window_s: float  # from its first recorded call to its last
    silent_s: float  # since its last event
    now_steps_per_s: float | None
    now_wait_share: float | None
    loaders: tuple[Waited, ...] = ()
    validation_steps: int = 0

    @property
    def trained_s(self) -> float:
        """What waits are a share of: the steps; the window where none was recorded."""
        return self.steps_s if self.steps else self.window_s

    @property
    def wait_share(self) -> float | None:
        """Of the steps."""
        return self.wait_s / self.trained_s if self.trained_s > 0 else None

    @property
    def latest_share(self) -> float | None:
        """Of the last seconds, else of the run so far."""
        return self.wait_share if self.now_wait_share is None else self.now_wait_share


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One process that fetches batches."""

    label: str
    batches: int
    fetch_s: float

    @property
    def batch_s(self) -> float:
        """For one batch."""
        return self.fetch_s / self.batches


@dataclass(frozen=True, slots=True)
class ReadState:
    """What one source says of reads; `per_s` is of the last seconds."""

    source: str  # calls, storage or objects
    nbytes: int
    per_s: float | None


@dataclass(frozen=True, slots=True)
class RunState:
    """The run as far as it was recorded."""

    name: str
    condition: Condition = STARTING
    ranks: tuple[RankState, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    reads: tuple[ReadState, ...] = ()
    journals: int = 0
    problems: tuple[str, ...] = ()
    is_behind: bool = False
    is_exact: bool = True
    memory: MemoryState | None = None  # None: not looked at
    ending: Ending | None = None  # None: it goes on, or its record cannot be read

    @property
    def ended(self) -> bool:
        """Whether the recorder has left its record."""
        return self.condition.state is State.ENDED

    @property
    def failed(self) -> bool:
        """Whether it has ended, and not well as far as is known."""
        return self.ended and (self.ending is None or self.ending.failed)

    @property
    def steps(self) -> int:
        """Of all ranks together."""
        return sum(rank.steps for rank in self.ranks)

    @property
    def wait_s(self) -> float:
        """Of all ranks together."""
        return sum(rank.wait_s for rank in self.ranks)

    @property
    def window_s(self) -> float:
        """Of all ranks together."""
        return sum(rank.window_s for rank in self.ranks)

    @property
    def trained_s(self) -> float:
        """Of all ranks together."""
        return sum(rank.trained_s for rank in self.ranks)

    @property
    def wait_share(self) -> float | None:
        """Of the steps of all ranks."""
        return self.wait_s / self.trained_s if self.trained_s > 0 else None

    @property
    def steps_per_s(self) -> float | None:
        """Of one rank, over the run so far."""
        return self.steps / self.window_s if self.window_s > 0 else None

    @property
    def now_steps_per_s(self) -> float | None:
        """Of one rank on average, in the last seconds."""
        return _average_known([rank.now_steps_per_s for rank in self.ranks])

    @property
    def now_wait_share(self) -> float | None:
        """Mean over ranks, in the last seconds."""
        return _average_known([rank.now_wait_share for rank in self.ranks])

    @property
    def slowest_rank(self) -> RankState | None:
        """The one that waits most for input: in synchronous training all others wait for it."""
        ranks = [rank for rank in self.ranks if rank.latest_share is not None]
        return max(ranks, key=lambda rank: rank.latest_share or 0.0, default=None)

    @property
    def slowest_worker(self) -> WorkerState | None:
        """The one that took longest for a batch."""
        return max(self.workers, key=lambda worker: worker.batch_s, default=None)


def _average_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def describe_wait(state: RunState) -> str:
    """The sentence of the report's headline: what training waited, averaged over ranks."""
    ranks = len(state.ranks)
    if not ranks:
        return "No step was recorded."
    if not any(rank.loaders for rank in state.ranks):
        return "Input wait was not recorded."
    average = f", averaged over {count(ranks)} ranks" if ranks > 1 else ""
    waited = mark_cell(WAITS, seconds(state.wait_s / ranks))
    share = mark_cell("" if state.wait_share is None else WAITS, percent(state.wait_share))
    window = seconds(state.trained_s / ranks)
    return settle(f"Training waited {waited} of {window} ({share}) for input{average}.")


def give_verdict(state: RunState) -> str:
    """Whether input holds training up, as far as was recorded; "" where that is not known."""
    share = state.wait_share
    if share is None or not state.ranks or not any(rank.loaders for rank in state.ranks):
        return ""
    ended = "" if state.ended else " so far"
    if share < BOUND_SHARE:
        return f"Input keeps up{ended}."
    said = mark_cell(WAITS, percent(share))
    return settle(f"Input holds training up{ended}: {said} of the time.")


def describe_steps(state: RunState) -> str:
    """`400 steps per rank`, `398 to 400 steps per rank`."""
    if not state.ranks:
        return "no steps"
    least, most = (pick(rank.steps for rank in state.ranks) for pick in (min, max))
    many = plural(most, "step") if least == most else f"{count(least)} to {count(most)} steps"
    return many if len(state.ranks) == 1 else f"{many} per rank"
