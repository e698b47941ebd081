from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes and operations over time, for the job and for groups of ranks.

    `edges_s` holds the bounds of n equal bins in seconds since the start of the job, shape
    (n + 1,). The other arrays have shape (rows, n): a row is one rank, or a group of
    neighbouring ranks where there are more than 256. Bins sum exactly to the totals.
    """

    edges_s: NDArray[np.float64]
    row_labels: tuple[str, ...]
    ranks: int  # how many ranks the rows stand for
    bytes_read: NDArray[np.int64]
    bytes_written: NDArray[np.int64]
    reads: NDArray[np.int64]  # counted in the bin in which they start
    writes: NDArray[np.int64]
