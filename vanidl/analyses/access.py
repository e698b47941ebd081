from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Operations by where they start, per process and file, in order of their start.

    first + consecutive + forward + backward == ops. The two Darshan figures follow
    Darshan's own rule, in which consecutive is a part of sequential.
    """

    ops: int
    first: int
    consecutive: int
    forward: int
    backward: int
    sequential_darshan: int
    consecutive_darshan: int


@dataclass(frozen=True, slots=True)
class Access:
    """Access pattern of reads and writes, and Darshan's counters beside it where known."""

    read: AccessCounts
    write: AccessCounts
    counted_sequential: tuple[int | None, int | None]  # (reads, writes) by Darshan's counters
    counted_consecutive: tuple[int | None, int | None]
