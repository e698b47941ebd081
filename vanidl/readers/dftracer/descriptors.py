"""Whether DFTracer lost track of descriptors: opens after which nothing of the file was seen.

DFTracer knows a file by its descriptor from open to close. Where one thread closes a file and
another is given the same number before DFTracer has forgotten the old one, it forgets the new
one: what is read through it, and its close, leave no event. The order of the calls of each
thread tells. A *visit* is an open and what its thread did with the file before its next open.
A visit without a close lost something where its file was closed less often than opened, unless

- other threads used the file, as one that stays open for all;
- it was still under way when the process ended.

DFTracer 2.2.0 does not record whether an open succeeded. So an open that nothing follows of a
file that was never used is *unclear*, and counts only where another thread had closed a file
and not called again yet, and the process closes most files that it opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.dataclass import dataclass
from vanidl.formatting.units import plural
from vanidl.model.file_kinds import kind_of
from vanidl.model.ordering import stable_order
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import CLOSES, OPENS, READS, WRITES, is_call
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import ABSENT

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_POSIX = "POSIX"
_NEVER_DATA = ("code", "system")


def warn_of_lost_descriptors(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    """A warning where opens in several threads lack what should follow them."""
    sure: list[str] = []
    unclear: list[str] = []
    for process in traced:
        names = process.events.files
        lost, perhaps = _find_lost(process)
        sure += [names[code] for code in lost.tolist()]
        unclear += [names[code] for code in perhaps.tolist()]
    if sure or unclear:
        said = " ".join((*_describe_sure(sure), *_describe_unclear(unclear)))
        yield Notice(
            "descriptors_lost",
            f"{said} Where threads open and close files at the same time, DFTracer forgets "
            "descriptors. What was read through them is not recorded, not zero: bytes, operations "
            "and times here are lower bounds. Give --data to compare with the sizes of the files. "
            "Trace with Darshan, or open files in one thread of each process.",
        )


def _describe_sure(files: Sequence[str]) -> Iterator[str]:
    if files:
        yield (
            f"{_count_opens(files)} followed by no close, and by no or too few reads, in the "
            "thread that opened."
        )


def _describe_unclear(files: Sequence[str]) -> Iterator[str]:
    if files:
        yield (
            f"{_count_opens(files)} followed by nothing at all: they failed, which the trace does "
            "not say, or were forgotten."
        )


def _count_opens(files: Sequence[str]) -> str:
    of_files = plural(len(set(files)), "file")
    verb = "was" if len(files) == 1 else "were"
    return f"{plural(len(files), 'open')} of {of_files} (for example {min(files)}) {verb}"


@dataclass(frozen=True, slots=True)
class _Calls:
    """Opens, closes, reads and writes of files, sorted by thread and start; one entry each."""

    thread: Int64Array
    file: Int64Array
    ts: Int64Array
    end: Int64Array
    ret: Int64Array
    opens: Mask
    closes: Mask
    open_ended: Int64Array  # when its thread called next; the end of the process for the last

    @property
    def moves(self) -> Mask:
        return ~self.opens & ~self.closes


def _sort_calls(process: TracedProcess) -> _Calls:
    events = process.events
    columns = events.columns
    opens = is_call(events, _POSIX, OPENS[_POSIX])
    opens &= (columns["ret"] >= 0) | (columns["ret"] == ABSENT)
    closes = is_call(events, _POSIX, CLOSES)
    moves = is_call(events, _POSIX, (*READS[_POSIX], *WRITES[_POSIX]))

    # By thread and start; an open lasts, at most, until its thread calls next.
    order = stable_order(columns["tid"])  # events are sorted by start
    thread, ts = columns["tid"][order], columns["ts"][order]
    following = np.full(len(order), process.end_ns, np.int64)
    following[:-1] = np.where(thread[1:] == thread[:-1], ts[1:], process.end_ns)
    used = ((opens | closes | moves) & (columns["file"] >= 0))[order]
    rows = order[used]
    return _Calls(
        thread=thread[used],
        file=columns["file"][rows],
        ts=ts[used],
        end=ts[used] + columns["dur"][rows],
        ret=columns["ret"][rows],
        opens=opens[rows],
        closes=closes[rows],
        open_ended=following[used],
    )


@dataclass(frozen=True, slots=True)
class _Visits:
    """Opens in several threads, and what each thread did before its next open; an entry each."""

    opened: Int64Array  # index into the calls
    file: Int64Array
    nbytes: Int64Array
    end: Int64Array  # of its last call; 0 without one
    closed: Mask
    followed: Mask
    shared: Mask  # the file was used outside of its visits
    less_closed: Mask  # the file was closed less often than opened
    used: Mask  # something followed another open of the file


def _find_visits(calls: _Calls) -> _Visits:
    opened = np.flatnonzero(calls.opens)
    visit = np.cumsum(calls.opens) - 1  # the open before each call, in its thread
    own = (visit >= 0) & ~calls.opens
    at = opened[visit[own]]
    own[own] = (calls.file[at] == calls.file[own]) & (calls.thread[at] == calls.thread[own])

    # What each visit moved, and when it ended.
    moves, file, number = calls.moves, calls.file[opened], len(opened)
    files = int(calls.file.max()) + 1
    closes = np.bincount(calls.file[calls.closes], minlength=files)
    nbytes = np.zeros(number, np.int64)
    np.add.at(nbytes, visit[own & moves], np.maximum(calls.ret[own & moves], 0))
    end = np.zeros(number, np.int64)
    np.maximum.at(end, visit[own], calls.end[own])
    return _Visits(
        opened,
        file,
        nbytes,
        end,
        closed=np.bincount(visit[own & calls.closes], minlength=number) > 0,
        followed=np.bincount(visit[own], minlength=number) > 0,
        shared=(np.bincount(calls.file[moves & ~own], minlength=files) > 0)[file],
        less_closed=(np.bincount(file, minlength=files) > closes)[file],
        used=(np.bincount(calls.file[~calls.opens], minlength=files) > 0)[file],
    )


def _find_lost(process: TracedProcess) -> tuple[Int64Array, Int64Array]:
    """The file of each open of one process that lost something, surely and perhaps."""
    calls = _sort_calls(process)
    if len(np.unique(calls.thread[calls.opens])) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)

    # A visit without a close lost something, unless others used the file or it still went on.
    visits = _find_visits(calls)
    lost = ~visits.closed & visits.less_closed & ~visits.shared
    lost &= ~_are_under_way(calls, visits, process.end_ns)
    succeeded = visits.used | (calls.ret[visits.opened] >= 0)
    sure = lost & np.where(visits.followed, _are_short(visits), succeeded)

    # An open of which nobody knows whether it succeeded counts only where threads raced.
    unclear = lost & ~visits.followed & ~succeeded
    unclear &= 2 * int(visits.closed.sum()) >= len(visits.closed)
    unclear[unclear] = _have_raced(calls, visits.opened[unclear])
    names = process.events.files
    unclear[unclear] = [kind_of(names[c], 1, 0) not in _NEVER_DATA for c in visits.file[unclear]]
    return visits.file[sure], visits.file[unclear]


def _are_short(visits: _Visits) -> Mask:
    """Visits that moved less than every visit of the same file that was closed, all alike."""
    files = int(visits.file.max()) + 1
    low = np.full(files, np.iinfo(np.int64).max)
    high = np.full(files, -1, np.int64)
    np.minimum.at(low, visits.file[visits.closed], visits.nbytes[visits.closed])
    np.maximum.at(high, visits.file[visits.closed], visits.nbytes[visits.closed])
    short: Mask = ((low == high)[visits.file]) & (visits.nbytes < high[visits.file])
    return short


def _are_under_way(calls: _Calls, visits: _Visits, end_ns: int) -> Mask:
    """The last visit of each thread, where one as long as the longest seen reaches the end."""
    thread, begun = calls.thread[visits.opened], calls.ts[visits.opened]
    last = np.append(thread[1:] != thread[:-1], True)
    longest = int((visits.end - begun)[visits.closed].max()) if visits.closed.any() else 0
    under_way: Mask = last & (begun + longest >= end_ns)
    return under_way


def _have_raced(calls: _Calls, opened: Int64Array) -> Mask:
    """Opens during which another thread was between a close and its next call."""
    low, high = calls.ts[opened], calls.end[opened]
    thread = calls.thread[opened]
    since, until = np.sort(calls.ts[calls.closes]), np.sort(calls.open_ended[calls.closes])
    others = _count_overlaps(since, until, low, high)
    for one in np.unique(thread).tolist():
        mine, rows = calls.closes & (calls.thread == one), thread == one
        others[rows] -= _count_overlaps(
            calls.ts[mine], np.sort(calls.open_ended[mine]), low[rows], high[rows]
        )
    raced: Mask = others > 0
    return raced


def _count_overlaps(
    since: Int64Array, until: Int64Array, low: Int64Array, high: Int64Array
) -> Int64Array:
    """How many of the times from `since` to `until`, both sorted, touch each of the others."""
    found: Int64Array = np.searchsorted(since, high, "right") - np.searchsorted(until, low, "left")
    return found
