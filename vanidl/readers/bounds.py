"""What one operation can be: the same bound for every reader.

A file may say anything. Within these bounds sums over millions of operations stay integers;
what lies outside is left out and counted as a loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural

Int64Array = NDArray[np.int64]

LARGEST_NBYTES = 1 << 40
"""Bytes of one operation: Linux moves at most 2 GiB in a call, MPI-IO's calls can move more."""

FARTHEST_OFFSET = 1 << 62
LATEST_NS = 1 << 62  # 146 years
LONGEST_NS = 1 << 51  # 26 days


def impossible(
    offset: Int64Array, nbytes: Int64Array, start_ns: Int64Array, end_ns: Int64Array
) -> NDArray[np.bool_]:
    """For each operation whether its time, place or length is nonsense.

    Times count from the start of the log. NaN and infinity have become the smallest integer,
    on some machines the largest.
    """
    wrong = (end_ns < start_ns) | (start_ns < 0) | (end_ns > LATEST_NS)
    wrong |= end_ns - start_ns > LONGEST_NS
    wrong |= (nbytes < 0) | (nbytes > LARGEST_NBYTES) | (offset > FARTHEST_OFFSET)
    return wrong


def left_out(wrong: int, of: int) -> str:
    """The sentence about operations that are impossible."""
    return (
        f"{wrong:,} of {plural(of, 'operation')} left out for an impossible time, place or length"
    )
