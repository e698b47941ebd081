"""Whether what fetches read came from devices or from the page cache, epoch by epoch.

Of every process the kernel counts bytes that went through calls that read (rchar), and bytes that
came from a device for it (read_bytes); the recorder takes both down, ten times a second. Network
file systems and FUSE may not count the second: where no epoch has any, it cannot be told.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.model.states import RCHAR, READ_BYTES, SampledThread
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

_LEAST_NBYTES = 64 << 20  # of an epoch: below, reading costs little, and other reads count
_LEAST_NS = 1_000_000_000
_FROM_DEVICE, _FROM_CACHE = 0.5, 0.05


@dataclass(frozen=True, slots=True)
class EpochReads:
    """What the processes that fetched read in one epoch, and how much of it came from devices."""

    epoch: int
    read_nbytes: int
    device_nbytes: int

    @property
    def from_device(self) -> bool:
        """Whether devices served most of it."""
        return self.device_nbytes >= _FROM_DEVICE * self.read_nbytes

    @property
    def from_cache(self) -> bool:
        """Whether devices served next to none of it."""
        return self.device_nbytes <= _FROM_CACHE * self.read_nbytes


def find_epoch_reads(trace: Trace) -> tuple[EpochReads, ...]:
    """The epochs whose fetches read much and were long enough to be told apart, in order."""
    fetches = trace.fetches.pick(trace.fetches.wait_end > trace.fetches.wait_begin)
    if not len(trace.states) or not len(fetches):
        return ()
    # Fetches of other loaders, as for validation, are left out.
    loader = int(np.bincount(np.maximum(fetches.name, 0)).argmax())  # that of training
    fetches = fetches.pick(np.maximum(fetches.name, 0) == loader)
    found = []
    for epoch in np.unique(fetches.epoch).tolist():
        mine = fetches.pick(fetches.epoch == epoch)
        begin, end = int(mine.begin.min()), int(mine.wait_end.max())
        # What the processes that fetched read, and how much of it came from a device.
        of_processes = np.unique(np.stack([mine.trainer, mine.pid]), axis=1).T.tolist()
        counted = [
            thread
            for trainer, pid in of_processes
            for thread in trace.states.of_process(trace.processes[trainer].host, pid)
            if thread.is_first and len(thread.moved)
        ]
        read, device = (
            sum(_count_moved(thread, what, begin, end) for thread in counted)
            for what in (RCHAR, READ_BYTES)
        )
        if read >= _LEAST_NBYTES and end - begin >= _LEAST_NS:
            found.append(EpochReads(epoch, read, device))
    return tuple(found)


def _count_moved(thread: SampledThread, what: int, begin: int, end: int) -> int:
    """What a process moved between two times, by the last counts until then."""
    rows: NDArray[np.int64] = thread.moved[thread.moved[:, 1] == what]
    values = np.concatenate([[0], rows[:, 2]])
    first, last = np.searchsorted(rows[:, 0], [begin, end], side="right")
    return int(values[last] - values[first])
