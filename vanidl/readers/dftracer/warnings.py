"""What DFTracer traces do not hold, said once a run.

Measured with DFTracer 2.2.0: np.load and np.fromfile read through a duplicated descriptor,
torch.save writes past every wrapped call, preadv, pwritev, memory maps, raw system calls and
io_uring are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.model.file_kinds import kind_of
from vanidl.model.ordering import stable_order
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import (
    CLOSES,
    LAYERS,
    OPENS,
    READS,
    WRITES,
    get_nbytes,
    has_lower_bounds,
    is_call,
    is_layer,
    opens_for_writing,
)
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import ABOVE, ABSENT, GPU, HDF5, MPI_IO, TraceFile
from vanidl.readers.format import warn_of_versions
from vanidl.schema.dataclass import dataclass

# Whether DFTracer lost track of descriptors: opens after which nothing of the file was seen.
#
# DFTracer knows a file by its descriptor from open to close. Where one thread closes a file and
# another is given the same number before DFTracer has forgotten the old one, it forgets the new
# one: what is read through it, and its close, leave no event. The order of the calls of each
# thread tells. A *visit* is an open and what its thread did with the file before its next open.
# A visit without a close lost something where its file was closed less often than opened, unless
#
# - other threads used the file, as one that stays open for all;
# - it was still under way when the process ended.
#
# DFTracer 2.2.0 does not record whether an open succeeded. So an open that nothing follows of a
# file that was never used is *unclear*, and counts only where another thread had closed a file
# and not called again yet, and the process closes most files that it opens.

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
    sentences = []
    if sure:
        sentences.append(
            f"{_count_opens(sure)} followed by no close, and by no or too few reads, in the thread "
            "that opened."
        )
    if unclear:
        sentences.append(
            f"{_count_opens(unclear)} followed by nothing at all: they failed, which the trace "
            "does not say, or were forgotten."
        )
    if sentences:
        said = " ".join(sentences)
        yield Notice(
            "descriptors_lost",
            f"{said} Where threads open and close files at the same time, DFTracer forgets "
            "descriptors. What was read through them is not recorded, not zero: bytes, operations "
            "and times here are lower bounds. Give --data to compare with the sizes of the files. "
            "Trace with Darshan, or open files in one thread of each process.",
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
    calls = _Calls(
        thread=thread[used],
        file=columns["file"][rows],
        ts=ts[used],
        end=ts[used] + columns["dur"][rows],
        ret=columns["ret"][rows],
        opens=opens[rows],
        closes=closes[rows],
        open_ended=following[used],
    )
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
        closes, rows = calls.closes & (calls.thread == one), thread == one
        others[rows] -= _count_overlaps(
            calls.ts[closes], np.sort(calls.open_ended[closes]), low[rows], high[rows]
        )
    raced: Mask = others > 0
    return raced


def _count_overlaps(
    since: Int64Array, until: Int64Array, low: Int64Array, high: Int64Array
) -> Int64Array:
    """How many of the times from `since` to `until`, both sorted, touch each of the others."""
    begun = np.searchsorted(since, high, "right")
    overlaps: Int64Array = begun - np.searchsorted(until, low, "left")
    return overlaps


# What the settings of the tracer, and lines that are no single call, mean for the numbers.

_AMBIGUOUS_SHARE = 0.01  # of the names: from there on it is more than worth knowing


def list_warnings(
    files: Sequence[TraceFile], traced: Sequence[TracedProcess]
) -> tuple[Notice, ...]:
    """Warnings and remarks about all DFTracer traces of a run; none where there is none."""
    if not files:
        return ()
    others = sorted({pair for process in traced for pair in process.other_versions})
    traces_above = any(is_layer(p.events, layer).any() for p in traced for layer in ABOVE)
    above = "" if traces_above else ", and no layer above (MPI-IO, HDF5)"
    blind_spots = Notice(
        "not_traced",
        "DFTracer records calls of POSIX and STDIO. It does not see np.load and np.fromfile of "
        ".npy files, torch.save, preadv and pwritev, duplicated descriptors, memory maps, "
        f"io_uring{above}: what went through these is not recorded, not zero.",
        "info",
    )
    return (
        *warn_of_versions(others),
        *_warn_of_empty_files(files),
        # what the settings of the tracer, and lines that are no single call, mean for the numbers
        *_warn_of_sums(traced),
        *_warn_of_layers_off(files),
        *_warn_of_filter(files),
        *_warn_of_layers_above(traced),
        *_warn_of_unused_events(files, traced),
        *_warn_of_ambiguous_names(files),
        # what was done and left no line
        *_warn_of_unwritten_events(files),
        *warn_of_lost_descriptors(traced),
        *_warn_of_unseen_writes(traced),
        *_warn_of_arrays(traced),
        *_warn_of_offsets(traced),
        blind_spots,
    )


def _warn_of_sums(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    some = [process for process in traced if len(process.summed)]
    if not some:
        return
    processes = plural(len(some), "process", "processes")
    calls = sum(sum(process.summed.columns["calls"].tolist()) for process in some)
    of_io = any(is_layer(process.summed, layer).any() for process in some for layer in LAYERS)
    # What is of no layer is a region that the program marked.
    regions = any(
        not any(category == layer for layer in LAYERS)
        for process in some
        for code in np.unique(process.summed.columns["name"]).tolist()
        for category, _ in [process.summed.names[code]]
    )
    lost = [
        "No single operation of them is known: busy time, overlap, access pattern and steps lack "
        "them.",
        "Totals hold their bytes and calls." if of_io else "",
        "Bytes are lower bounds where items differ in size or calls failed."
        if any(has_lower_bounds(process.summed) for process in some)
        else "",
        "Regions that the program marked are among them and in no number." if regions else "",
    ]
    yield Notice(
        "calls_summed",
        f"DFTracer summed up at least {plural(calls, 'call')} in {processes} "
        f"(DFTRACER_ENABLE_AGGREGATION=1). {' '.join(text for text in lost if text)}",
    )


def _warn_of_layers_off(files: Sequence[TraceFile]) -> Iterator[Notice]:
    for layer in LAYERS:
        names = (layer.lower(), "io")
        off = sum(any(file.settings.get(name) == 0 for name in names) for file in files)
        if off:
            yield Notice(
                "layer_switched_off",
                f"{layer} was switched off in {off} of {len(files)} DFTracer files "
                f"(DFTRACER_DISABLE_{layer} or DFTRACER_DISABLE_IO): what went through it there is "
                "not recorded, not zero.",
            )


def _warn_of_filter(files: Sequence[TraceFile]) -> Iterator[Notice]:
    some = sum(file.settings.get("trace_all_files") == 0 for file in files)
    if some:
        yield Notice(
            "files_filtered",
            f"{some} of {len(files)} DFTracer files hold only what was opened under "
            "DFTRACER_DATA_DIR, by the names that the program used: other files are in no number.",
            "info",
        )


def _warn_of_layers_above(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    calls = {layer: _count_layer_calls(traced, layer) for layer in (MPI_IO, HDF5)}
    named = [f"{plural(n, 'call')} of {layer}" for layer, n in calls.items() if n]
    if named:
        yield Notice(
            "layers_above",
            f"{' and '.join(named)} were traced. DFTracer records neither their file nor their "
            "bytes; these went through POSIX and are counted there, so the layers are not added.",
            "info",
        )


def _warn_of_unused_events(
    files: Sequence[TraceFile], traced: Sequence[TracedProcess]
) -> Iterator[Notice]:
    unused = {
        "samples of telemetry or counters of the hardware": sum(file.samples for file in files),
        "events of GPUs": _count_layer_calls(traced, GPU),
        "lines of a kind that vanidl does not know": sum(file.unknown for file in files),
    }
    named = [f"{n:,} {what}" for what, n in unused.items() if n]
    if named:
        yield Notice(
            "events_not_analysed",
            f"DFTracer's files hold {', '.join(named)}. They are in no number; reads, writes and "
            "their times are not touched.",
            "info",
        )


def _count_layer_calls(traced: Sequence[TracedProcess], layer: str) -> int:
    return sum(int(is_layer(process.events, layer).sum()) for process in traced)


def _warn_of_ambiguous_names(files: Sequence[TraceFile]) -> Iterator[Notice]:
    """Versions before 2.0 wrote hashes of 16 bits, of which one can stand for several names."""
    names = sum(file.ambiguous for file in files)
    total = names + sum(len(file.files) for file in files)
    if names:
        yield Notice(
            "names_ambiguous",
            f"{names:,} of {total:,} names of files have a hash that stands for another name as "
            "well, as DFTracer's hashes were short before version 2: what was done to such a file "
            "counts for the one that was named first. Totals are not touched.",
            "warning" if names >= _AMBIGUOUS_SHARE * total else "info",
        )


_SAVED = (".pt", ".pth", ".ckpt", ".safetensors", ".npy", ".npz", ".h5", ".hdf5", ".keras", ".bin")
_ARRAY = ".npy"
_LOST_SHARE = 0.01  # of the events: from there on it is more than worth knowing


def _warn_of_empty_files(files: Sequence[TraceFile]) -> Iterator[Notice]:
    empty = sum(file.empty for file in files)
    if empty:
        yield Notice(
            "empty_traces",
            f"{empty} of {len(files)} DFTracer files are empty: their processes became another "
            "program, which has a file of its own, or were killed before anything was written "
            "out. run.json of vanidl record tells which.",
            "info",
        )


def _warn_of_unwritten_events(files: Sequence[TraceFile]) -> Iterator[Notice]:
    missing = sum(file.unwritten for file in files)
    total = missing + sum(file.numbered for file in files)
    if missing:
        serious = missing >= _LOST_SHARE * total
        yield Notice(
            "events_lost",
            f"{missing:,} of {total:,} events that DFTracer numbered were never written "
            f"({missing / total:.2%}), in {sum(file.unwritten > 0 for file in files)} of "
            f"{plural(len(files), 'file')}: it loses a buffer of events (4 KiB where vanidl "
            "recorded) where a process starts another, and all that follow where the disk is "
            "full. Bytes and operations here are lower bounds.",
            "warning" if serious else "info",
        )


def _warn_of_unseen_writes(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    silent: set[str] = set()
    written: set[str] = set()
    for process in traced:
        for layer in LAYERS:
            wrote = is_call(process.events, layer, WRITES[layer]) & (get_nbytes(process.events) > 0)
            written |= _list_paths(process, wrote)
            silent |= _list_paths(process, opens_for_writing(process.events, layer))

    # Other files are often opened for writing, and never written.
    names = sorted(name for name in silent - written if name.lower().endswith(_SAVED))
    if names:
        yield Notice(
            "writes_not_seen",
            f"{plural(len(names), 'file was', 'files were')} opened for writing and no write to it "
            f"was seen (for example {names[0]}). DFTracer does not see what torch.save and "
            "np.save write: their bytes are not recorded, not zero.",
        )


def _warn_of_arrays(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    names = sorted({n for p in traced for n in _list_opened_paths(p) if n.lower().endswith(_ARRAY)})
    if names:
        yield Notice(
            "reads_not_seen",
            f"{plural(len(names), '.npy file was', '.npy files were')} opened (for "
            f"example {names[0]}). np.load and np.fromfile read past every call that DFTracer "
            "wraps: most of their bytes are not recorded.",
        )


def _list_opened_paths(process: TracedProcess) -> set[str]:
    opened = [is_call(process.events, layer, OPENS[layer]) for layer in LAYERS]
    return _list_paths(process, np.any(opened, axis=0))


def _warn_of_offsets(traced: Sequence[TracedProcess]) -> Iterator[Notice]:
    unknown = total = 0
    for process in traced:
        calls = (*READS["POSIX"], *WRITES["POSIX"])
        rows = is_call(process.events, "POSIX", calls) & (get_nbytes(process.events) >= 0)
        total += int(rows.sum())
        unknown += int((process.events.columns["offset"][rows] < 0).sum())
    if unknown:
        yield Notice(
            "offsets_not_recorded",
            f"DFTracer records no offset for read and write: {unknown:,} of {total:,} POSIX "
            "operations have none and are left out of the access pattern and of what counts "
            "bytes once.",
            "info",
        )


def _list_paths(process: TracedProcess, rows: NDArray[np.bool_]) -> set[str]:
    codes = np.unique(process.events.columns["file"][rows])
    return {process.events.files[code] for code in codes.tolist() if code >= 0}
