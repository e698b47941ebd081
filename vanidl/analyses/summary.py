from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Time in I/O, in seconds. `share` is per_rank_mean_s / run time."""

    per_rank_mean_s: float
    per_rank_max_s: float
    any_rank_s: float
    sum_s: float
    share: float | None


@dataclass(frozen=True, slots=True)
class LayerTotals:
    """Darshan's own totals of one layer; None where not monitored."""

    layer: str
    files: int
    reads: int | None
    writes: int | None
    bytes_read: int | None
    bytes_written: int | None
    read_s: float | None
    write_s: float | None
    meta_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """How much I/O there was and how long it took."""

    layer: str
    source: str  # "trace": from single operations; "counters": from Darshan's totals; "" nothing
    ops: int | None
    reads: int | None
    writes: int | None
    bytes_read: int | None
    bytes_written: int | None
    time: BusyTime | None
    aggregate_bytes_per_s: float | None  # bytes / any_rank_s
    per_op_median_bytes_per_s: float | None
    storage_bytes_read: int | None  # POSIX + STDIO
    storage_bytes_written: int | None
    layers: tuple[LayerTotals, ...]
