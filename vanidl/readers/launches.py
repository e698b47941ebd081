"""When work was handed to a device, and when it lay in the device's queue: of every profiler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.model.intervals import Intervals, union
from vanidl.model.ordering import stable_order

Int64Array = NDArray[np.int64]

NOT_LAUNCHED = np.iinfo(np.int64).min
"""Time of a launch that was not recorded."""

_MOST_LAUNCHES = 0.9  # of the work on a device, for what it waited for to be told
_NEVER = np.iinfo(np.int64).min


def match_launches(
    correlation: Int64Array, of_launch: Int64Array, launched_ns: Int64Array
) -> Int64Array:
    """When each piece of work was handed over: the first call with its number, else NOT_LAUNCHED.

    Args:
        correlation: Number of each piece of work.
        of_launch: Numbers of the calls of the host, in any order.
        launched_ns: When these began.
    """
    if not len(of_launch):
        return np.full(len(correlation), NOT_LAUNCHED)
    order = np.lexsort((launched_ns, of_launch))
    of_launch, launched_ns = of_launch[order], launched_ns[order]
    place = np.minimum(np.searchsorted(of_launch, correlation), len(of_launch) - 1)
    return np.where(of_launch[place] == correlation, launched_ns[place], NOT_LAUNCHED)


def find_queued(
    start_ns: Int64Array, end_ns: Int64Array, launch_ns: Int64Array
) -> Intervals | None:
    """When devices did nothing though work had been handed to them; None where that is not known.

    Such time passes between a call that launches a kernel and the kernel's start: the launch
    itself, or what the kernel waits for on its device. For the rest of the time without work the
    host gave the device none. HolisticTraceAnalysis (idle time breakdown) tells host wait and
    kernel wait apart by the next kernel alone; here any later one may have been waiting.

    Args:
        start_ns: When each piece of work on the devices of one process began.
        end_ns: When it ended.
        launch_ns: When it was handed over, or NOT_LAUNCHED.
    """
    launched = np.count_nonzero(launch_ns != NOT_LAUNCHED)
    if not len(start_ns) or launched < _MOST_LAUNCHES * len(start_ns):
        return None

    # Work in order of its start, and when each was handed over: at its start where nothing tells.
    order = stable_order(start_ns)
    start, launch = start_ns[order], launch_ns[order]
    launch = np.where(launch == NOT_LAUNCHED, start, launch)

    # Devices wait from when they are free, and something later has been handed over, to the start.
    earliest = np.minimum.accumulate(launch[::-1])[::-1]
    free = np.append(_NEVER, np.maximum.accumulate(end_ns[order])[:-1])
    since = np.maximum(free, earliest)
    waits = since < start
    return union(since[waits], start[waits])
