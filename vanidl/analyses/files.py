from __future__ import annotations
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file. Times are sums of durations over all ranks, in seconds."""

    path: str
    kind: str
    mount: str
    file_system: str
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    io_s: float | None  # None where only counters of another layer know the file
    ranks: int  # how many ranks touched it
    first_s: float | None  # since the start of the job
    last_s: float | None
    layers: tuple[str, ...]  # layers that recorded it


@dataclass(frozen=True, slots=True)
class GroupRow:
    """All files of one kind, or of one mount point."""

    name: str
    files: int
    bytes_read: int
    bytes_written: int
    busy_s: float | None  # mean over ranks of the union, as in BusyTime.per_rank_mean_s


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Files touched through the chosen layer, largest traffic first, and their groups."""

    rows: tuple[FileRow, ...]
    by_kind: tuple[GroupRow, ...]
    by_mount: tuple[GroupRow, ...]
