from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepTable:
    """One row a profiled step and rank, sorted by (rank position, start); arrays of equal length.

    Seconds since the start of the job. Bytes are those moved *during step k*, spread over
    time as in the timeline.
    """

    rank: NDArray[np.int32]  # position in Trace.ranks
    step: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    input_wait_s: NDArray[np.float64]  # nan where not recorded
    busy_s: NDArray[np.float64]  # time of the rank's family in I/O, nan where no I/O was traced


@dataclass(frozen=True, slots=True)
class ClockEvidence:
    """How profiler times were put on the clock of the I/O."""

    method: str
    offset_s: float
    uncertainty_s: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Profiled steps over all ranks, in seconds."""

    source: str
    per_rank_min: int
    per_rank_max: int
    ranks: int
    mean_s: float
    median_s: float
    p99_s: float
    clock: ClockEvidence
    table: StepTable
