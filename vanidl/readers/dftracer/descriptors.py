"""Whether DFTracer lost track of descriptors: opens after which nothing of the file was seen.

DFTracer knows a file by its descriptor from open to close. Where one thread closes a file and
another is given the same number at once, the new descriptor is forgotten: what is read through
it, and its close, leave no event. So the order of the calls of each thread tells: an open that
neither a read, a write nor a close of the file follows before the thread opens the next one,
of a file that was closed less often than opened. A file that other threads than the one that
opened it read, as one that stays open for all, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import CLOSES, OPENS, READS, WRITES, is_call
from vanidl.readers.dftracer.processes import TracedProcess

_POSIX = "POSIX"


def descriptors_lost(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    """A warning where opens in several threads have nothing that follows them."""
    lost = [process.events.files[code] for process in traced for code in _lost(process).tolist()]
    if lost:
        yield Notice(
            "descriptors_lost",
            f"{len(lost):,} opens of {len(set(lost)):,} files (for example {min(lost)}) were "
            "followed by no read, write or close: where threads open and close files at the same "
            "time, DFTracer forgets descriptors. What was read through them is not recorded, not "
            "zero: bytes, operations and times here are lower bounds. Trace with Darshan, or open "
            "files in one thread of each process.",
        )


def _lost(process: TracedProcess) -> NDArray[np.int64]:
    """The file of each open of one process after which nothing of it was seen."""
    none = np.empty(0, np.int64)
    events = process.events
    opens = is_call(events, _POSIX, OPENS[_POSIX]) & (events.columns["ret"] >= 0)
    closes = is_call(events, _POSIX, CLOSES)
    moves = is_call(events, _POSIX, (*READS[_POSIX], *WRITES[_POSIX]))
    rows = np.flatnonzero((opens | closes | moves) & (events.columns["file"] >= 0))
    thread, file = events.columns["tid"][rows], events.columns["file"][rows]
    is_open = opens[rows]
    if len(np.unique(thread[is_open])) < 2:
        return none
    order = np.lexsort((events.columns["ts"][rows], thread))
    rows, thread, file, is_open = rows[order], thread[order], file[order], is_open[order]
    visit = np.cumsum(is_open) - 1  # the open before each call, in its thread
    opened, by = file[is_open], thread[is_open]
    own = (visit >= 0) & ~is_open
    own[own] &= (opened[visit[own]] == file[own]) & (by[visit[own]] == thread[own])
    files = int(file.max()) + 1
    followed = np.bincount(visit[own], minlength=len(opened)) > 0
    unclosed = np.bincount(opened, minlength=files)
    unclosed -= np.bincount(file[closes[rows]], minlength=files)
    shared = np.bincount(file[moves[rows] & ~own], minlength=files) > 0
    found: NDArray[np.int64] = opened[~followed & (unclosed > 0)[opened] & ~shared[opened]]
    return found
