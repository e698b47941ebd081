"""What is changed about a run's input, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.errors import UsageError
from vanidl.whatif.loader_calls import LoaderCall


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
        self._check_sharing()
        if min(self.bandwidth, self.decode) <= 0 or self.latency < 0:
            raise UsageError("expected speeds above 0 and a latency of at least 0 times itself")
        if not 0 <= self.kept <= 1:
            raise UsageError(f"expected a kept share between 0 and 1, found {self.kept}")
        if (self.workers or 0) < 0 or (self.ahead is not None and self.ahead < 1):
            raise UsageError("expected workers from 0 and batches ahead from 1 on")

    def _check_sharing(self) -> None:
        if self.divided < 1 or not 0 <= (self.exchanged or 0) <= 1:
            raise UsageError(
                f"expected samples divided by 1 or more and an exchanged share between 0 and 1, "
                f"found {self.divided} and {self.exchanged}"
            )
        limits = (self.link_bytes_per_s, self.total_bytes_per_s)
        if any(limit is not None and limit <= 0 for limit in limits):
            raise UsageError(f"expected bandwidths above 0, found {limits}")


EVERY_WORKER = (
    "The dataset is an IterableDataset: unless its __iter__ splits the samples by "
    "get_worker_info(), every worker yields every sample."
)
"""What more workers do to a stream."""

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
