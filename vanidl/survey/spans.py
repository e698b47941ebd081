"""Which logs can be of one job: a bound of the rules of `vanidl.merge.jobs`, for all logs at once.

Logs that Darshan wrote are linked only where they are of one user, and of one job id (without an
id: of one folder) or of lifetimes that meet. What a log is linked to, directly or by others, can
change only with one of those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def touched(
    run: NDArray[np.intp],
    user: NDArray[np.intp],
    lifetimes_ns: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """The logs that changed, and all that can be linked to one of them, directly or by others.

    Args:
        run: number of the user and job id of each log.
        user: number of its user.
        lifetimes_ns: shape (2, logs): begin and end.
        changed: which logs are new, changed or gone.
    """
    span = _spans(user, lifetimes_ns)
    while True:
        reached = np.isin(span, span[changed]) | np.isin(run, run[changed])
        if reached.sum() == changed.sum():
            return reached
        changed = reached


def _spans(user: NDArray[np.intp], lifetimes_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """The same number for logs of one user whose lifetimes meet, directly or by others."""
    times, ranked = np.unique(lifetimes_ns, return_inverse=True)
    begin, end = ranked.reshape(2, -1) + user * len(times)  # users one after the other
    order = np.argsort(begin, kind="stable")
    reach = np.maximum.accumulate(end[order])
    span = np.zeros(len(user), np.intp)
    span[order[1:]] = np.cumsum(begin[order[1:]] > reach[:-1])
    return span
