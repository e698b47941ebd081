"""What is known of a run at one time; plain records that every output shows."""

from __future__ import annotations

from vanidl.advice.input_waits import BOUND_SHARE
from vanidl.dataclass import dataclass
from vanidl.formatting.units import count, percent, plural, seconds
from vanidl.model.run_facts import Ending
from vanidl.watch.condition import STARTING, Condition, State
from vanidl.watch.resources import MemoryState
from vanidl.wording.cells import mark_cell, settle

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
