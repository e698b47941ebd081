"""What tracers counted beside the operations: totals, heat maps, stripes, time in MPI."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CounterTable:
    """Darshan's counters of one layer: one row a record (file x process).

    `process` is -1 for a record shared by all ranks, `file` an index into Trace.files.
    A negative counter means "not monitored" and is masked by `total`, never added.
    """

    layer: str
    process: Int32Array
    file: Int32Array
    counters: Mapping[str, Int64Array]
    seconds: Mapping[str, NDArray[np.float64]]

    def monitored(self, name: str) -> bool:
        """Whether the counter exists and at least one record holds a value for it."""
        return name in self.counters and bool((self.counters[name] >= 0).any())

    def total(self, name: str) -> int | None:
        """Sum of the monitored values of a counter; None where nothing was monitored."""
        if not self.monitored(name):
            return None
        values = self.counters[name]
        return int(values[values >= 0].sum())

    def total_s(self, name: str) -> float | None:
        """Sum of a time counter, in seconds; None where the log has no such counter."""
        if name not in self.seconds:
            return None
        values = self.seconds[name]
        return float(values[values >= 0].sum())


@dataclass(frozen=True, slots=True)
class Stripes:
    """How Lustre spreads one file, or one component of its layout, over its targets."""

    file: int  # index into Trace.files
    stripe_nbytes: int
    stripe_count: int
    osts: tuple[int, ...]  # object storage targets in order of the stripes
    extent_start: int = 0  # first byte of the file that this component holds
    extent_end: int | None = None  # first byte behind them; None: to the end of the file


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Bytes that one process moved through one layer, in bins [start + i bin, ... + bin)."""

    process: int  # index into Trace.processes, -1 for none
    layer: str
    start_ns: int
    bin_ns: int
    bytes_read: Int64Array
    bytes_written: Int64Array


@dataclass(frozen=True, slots=True)
class MpiTime:
    """How long one process was inside MPI calls, by Darshan's AutoPerf module."""

    process: int  # index into Trace.processes
    total_s: float
    sync_s: float | None  # waiting for others before collectives; None: not measured
