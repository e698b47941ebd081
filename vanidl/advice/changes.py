"""What can be changed about a run's input, what comes of it, and the loaders that do it."""

from __future__ import annotations

from dataclasses import replace

from vanidl.analyses.results import Results
from vanidl.breakdown import Breakdown
from vanidl.errors import UsageError
from vanidl.model.run_facts import Ceiling
from vanidl.model.trace import SpanKind, Trace
from vanidl.schema.dataclass import dataclass

_EXPLANATIONS = {
    "scheduled": "It plans the shuffles of all epochs in advance, keeps the samples that are "
    "needed again soonest in memory, and merges neighbouring reads; every batch is that of the "
    "global shuffle.",
    "pls": "Partial local shuffling: each rank keeps its share of the samples near and exchanges "
    "a tenth of it with the others every epoch.",
    "spatial": "Where all ranks need the same samples, as in spatial parallelism, each reads only "
    "its block of every sample.",
    "decoded": "It reads samples that python -m vanidl_loaders encode has packed, and decodes "
    "them on the GPU where there is one.",
    "webdataset": "It reads tar shards, which python -m vanidl_loaders convert --to tar makes of "
    "the samples: one open for thousands of samples.",
}
_OF_LEVERS = {
    "kept": ("scheduled", " --buffer-fraction {:g}"),
    "exchanged": ("pls", " --exchange-fraction {:g}"),
    "divided": ("spatial", ""),
    "decode": ("decoded", " --encoded ENCODED --decode-on auto"),
}


@dataclass(frozen=True, slots=True)
class LoaderCall:
    """A loader of vanidl_loaders, the command that trains with it, and a sentence on it."""

    name: str
    command: str
    explanation: str


def make_loader_call(name: str, options: str = "", *, ranks: int = 1, hosts: int = 1) -> LoaderCall:
    """The call of a loader with these options, by so many ranks on so many hosts."""
    launch = _format_launch(ranks, hosts)
    command = f"{launch} -m vanidl_loaders train --data DATA --loader {name}{options}"
    return LoaderCall(name, command, _EXPLANATIONS[name])


def _format_launch(ranks: int, hosts: int) -> str:
    """How so many ranks are started: on each of several hosts with one command."""
    if ranks < 2:
        return "python"
    # Ranks that hosts do not share evenly are written as if on one host.
    if hosts < 2 or ranks % hosts:
        return f"torchrun --nproc-per-node {ranks}"
    meet = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nnodes {hosts} --nproc-per-node {ranks // hosts} {meet}"


def call_of_change(
    lever: str, amount: float | None, *, ranks: int, hosts: int
) -> LoaderCall | None:
    """The loader that makes a change of the what-if; None: an argument or hardware does."""
    if lever not in _OF_LEVERS:
        return None
    name, options = _OF_LEVERS[lever]
    return make_loader_call(name, options.format(amount), ranks=ranks, hosts=hosts)


@dataclass(frozen=True, slots=True)
class Change:
    """How a run's input would differ; the defaults change nothing.

    Raises:
        UsageError: a number is out of its range.
    """

    workers: int | None = None  # of each rank; 0: in the training process; None: as it was
    ahead: int | None = None  # batches that a worker prepares ahead; None: as it was, else 2
    bandwidth: float = 1.0  # bytes a second of each reader, times that
    latency: float = 1.0  # of a request, or how many requests there are, times that
    decode: float = 1.0  # speed of what is not I/O in loading, times that
    kept: float = 0.0  # share of the data that is not read a second time
    divided: int = 1  # ranks that share a sample, each loading its block of it (spatial)
    exchanged: float | None = None  # Q of partial local shuffling (pls); None: not used
    link_bytes_per_s: float | None = None  # of a rank, for what is exchanged; None: no limit
    total_bytes_per_s: float | None = None  # of the storage, to all ranks; None: not known

    def __post_init__(self) -> None:
        if self.divided < 1 or not 0 <= (self.exchanged or 0) <= 1:
            raise UsageError(
                f"expected samples divided by 1 or more and an exchanged share between 0 and 1, "
                f"found {self.divided} and {self.exchanged}"
            )
        limits = (self.link_bytes_per_s, self.total_bytes_per_s)
        if any(limit is not None and limit <= 0 for limit in limits):
            raise UsageError(f"expected bandwidths above 0, found {limits}")
        if min(self.bandwidth, self.decode) <= 0 or self.latency < 0:
            raise UsageError("expected speeds above 0 and a latency of at least 0 times itself")
        if not 0 <= self.kept <= 1:
            raise UsageError(f"expected a kept share between 0 and 1, found {self.kept}")
        if (self.workers or 0) < 0 or (self.ahead is not None and self.ahead < 1):
            raise UsageError("expected workers from 0 and batches ahead from 1 on")


EVERY_WORKER = (
    "The dataset is an IterableDataset: unless its __iter__ splits the samples by "
    "get_worker_info(), every worker yields every sample."
)
"""What more workers do to a stream."""

_SMALL_BATCH_S = (0.6e-3, 2e-3)
_OF_A_BYTE_S = (0.1e-9, 0.6e-9)


def bound_handing_over_s(batch_nbytes: float = 0.0) -> tuple[float, float]:
    """Seconds of the training process to take a batch from a worker, at least and at most.

    Measured with torch 2.8 and 2.13 on two cores: steps of 67 us on tensors in memory took 675 us
    with a worker; beside 10 ms of compute a batch of 4 KiB took 1.5 to 2.4 ms, of 1 MiB
    2.0 to 2.9, of 4 MiB 3.2 to 4.3, of 16 MiB 8.8 to 12: its memory is mapped, and freed. What is
    loaded as fast is best loaded where it is used.

    Args:
        batch_nbytes: of its tensors; 0 where that was not measured.
    """
    (least_s, most_s), (least, most) = _SMALL_BATCH_S, _OF_A_BYTE_S
    return least_s + batch_nbytes * least, most_s + batch_nbytes * most


STARTING_S = (16e-3, 100e-3)
"""Of a worker that is forked, until it hands over its first batch and until it has stopped, at
least and at most: the training process starts one after the other. 16 ms were measured with four
on two cores, 25 ms for the first of a program, 50 to 120 ms where other work ran beside it."""

FEW_WORKERS = 2
"""That are advised for what the loop does to batches, where cores allow it."""

_FEWEST_STEPS = 4

NO_GAIN = 0.001
"""Share of the mean step time under which a predicted gain is none.

Steps of one run differ by more than that, and replaying adds rounding of its own.
"""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Mean step time of a change, and what it saves over the profiled steps.

    `gain_at_most_s` is per rank: (step time now - then) times profiled steps; 0, no gain, where
    the step is not shorter by 0.1 % (`NO_GAIN`) of its time now, both than now and than what the
    model itself replays with nothing changed. `lever` is the field of `Change` that was
    changed, "" where the row is no change that anybody can make, and `amount` its value.
    """

    name: str
    step_s: float
    ratio: float  # of the mean step time now
    gain_at_most_s: float
    lever: str = ""
    amount: float | None = None
    replayed_s: float | None = None
    """What the model says, where that is below the measured ceiling, at which `step_s` is then."""
    loader: LoaderCall | None = None
    """The loader of vanidl_loaders that makes the change, where one does."""
    step_at_most_s: float | None = None
    """The same step where readers beside each other share the storage, and handing over takes its
    time; None: no other than `step_s`."""

    @property
    def middle_step_s(self) -> float:
        """Between the step at best and at worst."""
        worst_s = self.step_s if self.step_at_most_s is None else self.step_at_most_s
        return (self.step_s + worst_s) / 2

    @property
    def ratio_at_least(self) -> float:
        """`ratio` where the change brings as little as it may: 1 where it may bring nothing."""
        if self.step_at_most_s is None or self.step_s <= 0:
            return self.ratio
        return min(self.ratio * self.step_at_most_s / self.step_s, 1.0)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Predictions for one run. `replayed_s` is the model's own mean step time with no change.

    How far it is from `step_s`, which was measured, is the least error of every prediction.
    `rows` holds the changes that gain anything: see `NO_GAIN`. `refused` says why there are
    none where the run's way of loading cannot be replayed; `replayed_s` is None then.
    `beyond_ceiling` names the changes whose predictions were below the measured ceiling.
    """

    step_s: float
    replayed_s: float | None
    rows: tuple[Predicted, ...]
    assumptions: tuple[str, ...]
    refused: str = ""
    beyond_ceiling: tuple[str, ...] = ()


def can_replay(trace: Trace, results: Results, account: Breakdown) -> bool:
    """Whether steps, input waits and single reads were recorded, on one clock.

    Not where ranks have different numbers of profiled steps, nor for results of a part of the
    time: its steps would not be those of the trace.
    """
    steps, overlap = results.steps, account.overlap
    if steps is None or overlap is None or overlap.mean.input_wait_io_s is None:
        return False
    is_whole = len(steps.table.step) == int((trace.spans.kind == SpanKind.STEP).sum())
    return is_whole and steps.per_rank_min == steps.per_rank_max >= _FEWEST_STEPS


def limit_predictions(found: WhatIf | None, ceiling: Ceiling | None) -> WhatIf | None:
    """The predictions, those that go below the ceiling's step at that, or gone if it gains nothing.

    What was measured with batches from memory holds for the steps after the warm-up; the bound
    is the same share of the mean step here.
    """
    if found is None or ceiling is None or found.replayed_s is None:
        return found
    rows = [limit_prediction(row, ceiling) for row in found.rows]
    beyond = tuple(row.name for row in rows if row.replayed_s is not None)
    return replace(
        found, rows=tuple(row for row in rows if row.gain_at_most_s > 0), beyond_ceiling=beyond
    )


def limit_prediction(row: Predicted, ceiling: Ceiling | None) -> Predicted:
    """One prediction, at the ceiling where it is below; `replayed_s` then says what it was."""
    least = compute_least_ratio(ceiling)
    if row.ratio >= least or row.ratio <= 0:
        return row
    now_s = row.step_s / row.ratio
    saved = 1 - least
    # The gain shrinks as the step does; below `NO_GAIN` it is none.
    gain = row.gain_at_most_s * saved / (1 - row.ratio) if saved >= NO_GAIN else 0.0
    return replace(
        row, step_s=now_s * least, ratio=least, gain_at_most_s=gain, replayed_s=row.step_s
    )


def compute_least_ratio(ceiling: Ceiling | None) -> float:
    """The smallest share of the mean step that a change of the input can leave of it."""
    return 0.0 if ceiling is None else min(1 - ceiling.high, 1.0)


def describe_limited(found: WhatIf) -> str:
    """Which predictions were below the ceiling, after a blank; "" where none was."""
    if not found.beyond_ceiling:
        return ""
    names = "; ".join(found.beyond_ceiling)
    return f" Replaying promises more than the measured ceiling, which is taken, for: {names}."
