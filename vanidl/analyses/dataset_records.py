"""What the dataset view consists of: its files, the share of each rank, reads over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

NO_RANK = "no rank"
"""The label of what processes read that count for no rank."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One dataset file. Times in seconds since the start of the job; None: not recorded."""

    path: str
    size: int | None  # bytes on disk, known only where the file was found here
    extent: int | None  # highest byte read + 1
    bytes_read: int
    reads: int
    unique_bytes: int | None  # length of the union of all byte ranges read
    reread_factor: float | None  # bytes read / unique bytes
    visits: int | None
    opens: int | None
    ranks: int | None
    samples: int | None  # in the part of the file that was read
    first_s: float | None
    last_s: float | None


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank read of the dataset."""

    label: str
    rank: int | None
    files: int
    bytes_read: int
    unique_bytes: int
    share: float | None  # unique bytes / (size of the dataset where known, else bytes read by any)


@dataclass(frozen=True, slots=True)
class ReadGrid:
    """Bytes that were asked for over time, shape (files, bins); a read counts where it starts.

    `file` are positions in Dataset.files, in the order of the first visit.
    """

    file: Int64Array
    edges_s: NDArray[np.float64]
    nbytes: Int64Array
    files: int  # how many dataset files were read in all
