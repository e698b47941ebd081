"""Memory of a run over time, as its recorder looked at it from outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """One process. Times are ns since the epoch, sizes bytes; one entry a look in every array.

    Resident pages that are shared count in every process, proportional ones by their share.
    """

    pid: int
    parent_pid: int
    at_ns: Int64Array
    resident: Int64Array
    shared: Int64Array  # of it, pages of files and of shared memory
    walked_ns: Int64Array  # when the kernel walked its pages, which is more seldom
    proportional: Int64Array
    private: Int64Array
    shared_memory: Int64Array  # proportional
    swapped: Int64Array


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The processes of one recorder, and what lies around them; -1 where it was not to be seen."""

    host: str
    limit: int  # bytes that the processes may take, with whatever else is in their group
    limit_of: str  # "control group" or "machine"
    processes: tuple[ProcessMemory, ...]
    at_ns: Int64Array
    dev_shm: Int64Array  # bytes in /dev/shm, of whomever
    available: Int64Array  # that the machine could give
    group: Int64Array  # of the control group, page cache included
    group_files: Int64Array  # its page cache
