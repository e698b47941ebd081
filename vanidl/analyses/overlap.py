from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankOverlap:
    """One rank's window, split. All in seconds.

    io_s = unobserved_s + in_wait_s + hidden_s + behind_communication_s + other_s, exactly.
    None: not recorded.
    """

    label: str
    rank: int | None
    window_s: float
    io_s: float | None  # busy time of the rank's family
    unobserved_s: float | None
    in_wait_s: float | None
    hidden_s: float | None
    behind_communication_s: float | None
    other_s: float | None
    exposed_s: float | None
    compute_s: float | None
    communication_s: float | None
    input_wait_s: float | None
    input_wait_io_s: float | None
    starving_wait_s: float | None  # input wait while the device idles; = input_wait_s on basis ops


@dataclass(frozen=True, slots=True)
class Overlap:
    """Is the I/O hidden behind compute, or does training wait for it?"""

    basis: str | None  # "device", "ops" or None where no compute was recorded
    ranks_observed: int
    mean: RankOverlap  # mean over the observed ranks
    per_rank: tuple[RankOverlap, ...]
    hidden_fraction: float | None  # sum of hidden / sum of observed over ranks
    lost_to_input_s: float | None
    input_wait_share: float | None
    accelerator_utilization: float | None  # compute / window (AU of MLPerf Storage)
    pipeline_share: float | None
