from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Operations of low <= size < high bytes; high is None for the open last bin."""

    low: int
    high: int | None
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class CommonSize:
    """One exact transfer size and how often it occurred."""

    nbytes: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Exact transfer sizes. All numbers are None or empty where no operation was traced."""

    min: int | None
    max: int | None
    mean: float | None
    median: float | None
    histogram: tuple[SizeBin, ...]  # powers of two, from the first to the last used bin
    darshan_histogram: tuple[SizeBin, ...]  # Darshan's ten bins
    common: tuple[CommonSize, ...]  # the ten most frequent sizes
    distinct: int
