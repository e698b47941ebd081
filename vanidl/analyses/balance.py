from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankLoad:
    """One rank's family: its trainer and workers."""

    label: str
    rank: int | None
    host: str
    processes: int
    ops: int
    bytes_read: int
    bytes_written: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class Balance:
    """Load over ranks. A spread is max / mean, 1.0 where all are equal, None where all are 0."""

    rows: tuple[RankLoad, ...]
    busy_spread: float | None
    bytes_spread: float | None
    silent_ranks: int  # ranks that did no I/O on this layer
