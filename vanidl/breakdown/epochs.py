"""Where epochs begin, by whatever evidence the run holds.

Kinds of evidence, strongest first: spans that name an epoch; the training loop's loader made
again (PyTorch's loader ends an epoch with one wait more, in which it raises StopIteration);
worker processes started again; the dataset read again. A profile shows the borders within it, the
others those of the whole run. Without any, there are no epochs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataset import Dataset
from vanidl.analyses.profiled_steps import group_rank_spans
from vanidl.analyses.reducing import batch_small_parts, join_columns
from vanidl.analyses.workers import Files, WorkerLife, find_files_read, group_workers_by_trainer
from vanidl.formatting.units import plural, times
from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, Part, SpanKind, Trace
from vanidl.parallel.threads import in_threads
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

_NUMBER = re.compile(r"(?<!\d)(\d+)\s*$")  # from the first digit: in linear time
_WHOLE_WINDOW = 0.8  # a profile must cover this share of the dataset's reads to number epochs
_SAME_FILES = 0.25  # of the smaller of two sets
_SHORT = 0.02  # of the longest pass over the dataset
_AGAIN = 1.2  # times the unique bytes
_LITTLE = 0.01  # of the bytes read from the largest file: a description, not samples


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """Starts in ns, ascending, and the evidence in words. Empty: why there is none."""

    starts: tuple[int, ...]
    evidence: str


@dataclass(frozen=True, slots=True)
class Borders:
    """Where epochs begin, but for the first, as profiles show it; ns.

    `first` is the beginning of the first epoch, None where profiles began within one. Borders are
    `complete` where the program named them.
    """

    borders: tuple[int, ...]
    window: tuple[int, int] = (0, 0)  # what the profiles saw
    first: int | None = None
    complete: bool = False


NO_BORDERS = Borders(())


def find_epoch_starts(trace: Trace, data: Dataset | None) -> EpochStarts:
    """All starts that the evidence shows, and which evidence shows all or some of them.

    Inside a profile those of the profile count, unless the rest of the run shows more there: then
    some borders do not show in it. Named epochs are never added to.
    """
    seen = [(name, rule(trace, data)) for name, rule in IN_PROFILES]
    whole = [(name, starts) for name, rule in IN_RUN if len(starts := rule(trace, data)) > 1]
    # The strongest evidence of a profile, joined with the strongest of the whole run.
    named = next(((name, found) for name, found in seen if found.borders), None)
    starts = whole[0][1] if whole else ()
    if named is not None:
        starts = _join_borders(named[1], starts)
    if len(starts) < 2:
        return EpochStarts((), _explain_missing_epochs(seen, data))

    # Which evidence shows all of the borders, and which some of them.
    shown = [(name, len(found.borders)) for name, found in seen if found.borders]
    shown += [(name, len(found) - 1) for name, found in whole]
    borders = len(starts) - 1
    full = [name for name, count in shown if count == borders]
    part = [f"{name} ({count} of {borders} borders)" for name, count in shown if count < borders]
    return EpochStarts(starts, "; also ".join([*full, *part]))


def _join_borders(seen: Borders, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Borders that a profile shows, and those of the whole run where it does not look."""
    low, high = seen.window
    inside = [start for start in whole[1:] if low <= start < high]
    if len(inside) > len(seen.borders) and not seen.complete:
        return whole
    outside = [start for start in whole[1:] if not low <= start < high]
    first = seen.first if seen.first is not None else next(iter(whole), None)
    if first is None:
        return ()
    first = min(first, *whole[:1]) if whole else first
    return (first, *sorted({*seen.borders, *outside} - {first}))


def _explain_missing_epochs(seen: Sequence[tuple[str, Borders]], data: Dataset | None) -> str:
    """Why no epochs are shown."""
    for name, found in seen:
        if found.borders:
            count = plural(len(found.borders), "border")
            return f"{name}: {count} within the profile, and nothing shows those outside of it"
    factor = 1.0 if data is None else data.reread_factor or 1.0
    if factor >= _AGAIN:
        return (
            f"the dataset was read {times(factor)} over, but not in whole passes that "
            "can be told apart: samples are drawn at random, or parts read again within an epoch"
        )
    return "nothing in the run marks the border between two epochs"


def find_first_read_ns(trace: Trace, data: Dataset | None) -> int | None:
    """When the first dataset file was first read, None where no such read was traced."""
    return _pick_extreme_ns(trace, [f.first_s for f in data.files] if data else [], min)


def find_last_read_ns(trace: Trace, data: Dataset | None) -> int | None:
    """When the last read of a dataset file ended, None where no such read was traced."""
    return _pick_extreme_ns(trace, [f.last_s for f in data.files] if data else [], max)


def _pick_extreme_ns(
    trace: Trace, values: Sequence[float | None], pick: Callable[[list[float]], float]
) -> int | None:
    known = [v for v in values if v is not None]
    return trace.job.start_ns + round(pick(known) * 1e9) if known else None


def _find_annotated_epochs(trace: Trace, data: Dataset | None) -> Borders:
    del data
    spans = trace.spans.pick(trace.spans.kind == SpanKind.EPOCH)
    first: dict[int, int] = {}
    for name, start in zip(spans.name.tolist(), spans.start.tolist(), strict=True):
        match = _NUMBER.search(spans.names[name])
        number = int(match[1]) if match else -1
        first[number] = min(first.get(number, start), start)
    starts = sorted(first.values())
    if len(starts) < 2:
        return NO_BORDERS
    window = (starts[0], int(spans.end.max()))
    return Borders(tuple(starts[1:]), window, starts[0], complete=True)


def _find_loader_epochs(trace: Trace, data: Dataset | None) -> Borders:
    """Steps with more waits than the others: the first of them ended the epoch before."""
    found, begin, end = list[list[int]](), [], []
    for position, own in group_rank_spans(trace).items():
        if not len(own.windows.start):  # steps of no length, which only damage makes
            return NO_BORDERS
        mine = trace.spans_of(position)
        waits = mine.pick(mine.kind == SpanKind.INPUT_WAIT)
        order = np.argsort(own.steps.start, kind="stable")
        steps = own.steps.pick(order)
        # Until when waits belong to the last step. A step that was found by waits may hold those of
        # a validation after training: only another step after it would show that an epoch began.
        derived = trace.profiles[int(steps.source[-1])].steps_from
        last_step_end = int(steps.start[-1] if derived else steps.end[-1])
        until = np.append(steps.start[1:], last_step_end)
        found.append(_find_extra_waits(waits.start, waits.end, steps.start, until))
        if not found[0] or len(found[-1]) != len(found[0]):
            return NO_BORDERS
        begin.append(int(own.windows.start[0]))
        end.append(int(own.windows.end[-1]))
    if not found:
        return NO_BORDERS
    window = (min(begin), max(end))
    borders = tuple(min(column) for column in zip(*found, strict=True))
    return Borders(borders, window, _find_first_epoch_ns(trace, data, window))


def _find_first_epoch_ns(trace: Trace, data: Dataset | None, window: tuple[int, int]) -> int | None:
    """The beginning of the first epoch, where a profile saw (nearly) all of the run's reads."""
    # First and last read of samples: what describes them may be read long before training.
    files = data.files if data else ()
    most = max((f.bytes_read for f in files), default=0)
    files = tuple(f for f in files if f.bytes_read >= _LITTLE * most)
    first, last = (
        _pick_extreme_ns(trace, [f.first_s for f in files], min),
        _pick_extreme_ns(trace, [f.last_s for f in files], max),
    )
    low, high = window
    if first is None or last is None:
        return low
    covered = min(high, last) - max(low, first)
    return min(first, low) if covered >= _WHOLE_WINDOW * (last - first) else None


def _find_extra_waits(
    wait_start: Int64Array, wait_end: Int64Array, start: Int64Array, until: Int64Array
) -> list[int]:
    """Ends of the first wait wherever there are several until the next step, and usually one.

    Several are those of a loader that ended and of the one that follows, with those of a
    validation between them.
    """
    low = np.searchsorted(wait_start, start)
    counts = np.searchsorted(wait_start, until) - low
    if (counts == 1).sum() < 0.8 * len(counts):
        return []
    return [int(wait_end[low[i]]) for i in np.flatnonzero(counts > 1)]


def _find_worker_generations(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """Generations of worker processes that read the dataset, over all ranks that have workers."""
    if data is None or data.visits is None or all(p.role != "worker" for p in trace.processes):
        return ()
    visits, first_read = data.visits, dict[int, int]()
    starts = (visits.start + trace.job.start_ns).tolist()
    for process, start in zip(visits.process.tolist(), starts, strict=True):
        first_read[process] = min(first_read.get(process, start), start)
    files = find_files_read(visits)
    groups = group_workers_by_trainer(trace, first_read, visits)
    generations = [groups[trainer] for trainer in trace.ranks if trainer in groups]
    if not generations or len({len(each) for each in generations}) > 1:
        return ()
    return _find_generation_starts([list(side) for side in zip(*generations, strict=True)], files)


def _find_generation_starts(
    generations: list[list[list[WorkerLife]]], files: Files
) -> tuple[int, ...]:
    """Starts of generations of workers, each of all trainers: ranks may share files out again.

    Those that read other files than the largest (validation) are no epochs.
    """
    read = [
        frozenset[int]().union(*(files[worker.process] for group in each for worker in group))
        for each in generations
    ]
    most = max(read, key=len)
    return tuple(
        min(group[0].begin for group in each)
        for each, mine in zip(generations, read, strict=True)
        if len(mine & most) >= _SAME_FILES * min(len(mine), len(most))
    )


def _find_dataset_passes(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """The dataset read again, as `find_pass_starts` finds."""
    if data is None or not data.files:
        return ()
    starts = find_pass_starts(trace)
    since = tuple(start - trace.job.start_ns for start in starts)
    return starts if len(starts) > 1 and _is_pass_each(since, data) else ()


def _is_pass_each(starts: tuple[int, ...], data: Dataset) -> bool:
    """Whether no visit is so short beside the others that it only looked at what files hold."""
    ends = [f.last_s for f in data.files if f.last_s is not None]
    borders = [*starts, round(max(ends, default=0.0) * 1e9)]
    lengths = [after - before for before, after in pairwise(borders)]
    return min(lengths) >= _SHORT * max(lengths)


IN_PROFILES: tuple[tuple[str, Callable[[Trace, Dataset | None], Borders]], ...] = (
    ("epochs named in the profile", _find_annotated_epochs),
    ("the loader was created again (one more wait per border)", _find_loader_epochs),
)
IN_RUN: tuple[tuple[str, Callable[[Trace, Dataset | None], tuple[int, ...]]], ...] = (
    ("worker processes were started again", _find_worker_generations),
    ("the dataset was read again", _find_dataset_passes),
)


_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads neighbours
_ENOUGH_FILES = 256
_MOST_READS = 1 << 16  # beyond it items are sampled, each with all of its reads
_SMALL = 0.1  # of the size of a read of half the bytes: headers, not samples
_NEAR = 0.1  # of the items: read again so soon, it is the same visit
_WINDOW = 0.05  # of the items
_MOSTLY = 0.6  # of the reads of a window were read before in the pass: the next one has begun
_FEWEST = 3
_WHOLE = 0.75  # of all items, in each pass but the last
_FEW_ITEMS = 64
_WHOLE_OF_FEW = 0.85  # of so few items, many may happen not to come again soon
_LACKED = 0.3  # of the items of the last pass, and twice as many as of all
_ONCE = 0.95  # of the reads in a pass are of different items
_SMALL_PART = 0.1  # of the reads of the largest member: too few to tell
_APART = 0.25  # of the shortest pass: members begin each within that time
_FAR = 3  # times the usual time between reads: a pause


@dataclass(frozen=True, slots=True)
class _Reads:
    """Reads of samples, sorted by start; `item` counts from 0."""

    start: Int64Array
    process: Int64Array
    item: Int64Array


@dataclass(frozen=True, slots=True)
class _Passes:
    """Starts in ns; the share of all items that each pass but the last read at least."""

    starts: tuple[int, ...]
    whole: float


_NO_PASSES = _Passes((), 0.0)


def find_pass_starts(trace: Trace) -> tuple[int, ...]:
    """Starts of the passes in ns, ascending; empty where fewer than two show.

    An *item* is a place in a file where a read of a sample begins; a whole file where offsets were
    not recorded. In one pass no item is read twice. So a pass ends where most of what comes next
    was read before in it. Items are looked at in order of time within each rank (its workers share
    them out), within each process, or over the job (ranks share them out again): the first scope in
    which every member shows as many passes, nearly whole and of nearly the same items, counts.
    Draws with replacement, or of other subsets each time, show no passes.
    """
    reads = _sample_reads(trace)
    if reads is None:
        return ()
    family = trace.family[reads.process].astype(np.int64)
    alike = np.array_equal(family, reads.process)  # no process has children: one scope, not two
    scopes = (family, *(() if alike else (reads.process,)), np.zeros_like(family))
    return max(
        (_find_common_passes(reads, member) for member in scopes), key=lambda p: p.whole
    ).starts


def _sample_reads(trace: Trace) -> _Reads | None:
    """Reads of dataset files that are no headers, or of a part of the items; None without any.

    Goes through the parts twice, holding none: of many operations they lie in a file.
    """
    layer = _find_busiest_layer(trace)
    wanted, count = _sample_files(trace.files.is_data, layer)
    if not count:
        return None
    every = -(-count // _MOST_READS)

    def reads_of(parts: list[Part]) -> tuple[Int64Array, _Block]:
        some = _Some(parts)
        rows = np.flatnonzero(_is_read(some, wanted))
        return some.nbytes[rows], _pick_sample(some, rows, every)

    # First of all reads the sizes, thinned out, and a sample of the reads themselves.
    blocks, sizes, before = [], [], 0
    chosen = (parts for parts in batch_small_parts(trace.io) if parts[0].layer == layer.name)
    for sizes_of_all, block in in_threads(reads_of, chosen):
        sizes.append(sizes_of_all[-before % every :: every].copy())  # not a view of all
        before += len(sizes_of_all)
        blocks.append(block)
    start, process, place, nbytes = map(np.concatenate, zip(*blocks, strict=True))
    # Headers are far smaller than usual reads.
    rows = np.flatnonzero(nbytes >= _SMALL * _compute_usual_nbytes(np.concatenate(sizes)))
    rows = rows[stable_order(start[rows])]
    item = np.unique(place[rows], return_inverse=True)[1].reshape(-1).astype(np.int64)
    return _Reads(start[rows], process[rows], item) if len(rows) else None


@dataclass(frozen=True)
class _Some:
    """A part, or small ones that follow each other, row by row: what is asked for."""

    parts: Sequence[Part]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def number(self) -> Int64Array:
        """Of the part."""
        return np.repeat(np.arange(len(self.parts)), [len(part) for part in self.parts])

    @cached_property
    def process(self) -> Int64Array:
        process = np.array([part.process for part in self.parts], np.int64)
        return np.repeat(process, [len(part) for part in self.parts])

    @cached_property
    def start(self) -> Int64Array:
        return _join_column(self.parts, "start")

    @cached_property
    def offset(self) -> Int64Array:
        return _join_column(self.parts, "offset")

    @cached_property
    def nbytes(self) -> Int64Array:
        return _join_column(self.parts, "nbytes")

    @cached_property
    def file(self) -> NDArray[np.int32]:
        return _join_column(self.parts, "file")

    @cached_property
    def op(self) -> NDArray[np.uint8]:
        return _join_column(self.parts, "op")


def _join_column(parts: Sequence[Part], name: str) -> NDArray[Any]:
    (column,) = join_columns(parts, name)
    return column


@dataclass(frozen=True, slots=True)
class _Layer:
    """What the parts of one layer hold."""

    name: str
    reads: Int64Array  # of bytes, by file
    parts: int = 0
    rows: int = 0
    without_offsets: bool = False

    def __add__(self, other: _Layer) -> _Layer:
        without_offsets = self.without_offsets or other.without_offsets
        parts, rows = self.parts + other.parts, self.rows + other.rows
        return _Layer(self.name, self.reads + other.reads, parts, rows, without_offsets)


def _find_busiest_layer(trace: Trace) -> _Layer:
    """The layer with most parts."""
    found: dict[str, _Layer] = {}
    every = np.ones(len(trace.files), bool)

    def layer_of(parts: list[Part]) -> _Layer:
        some = _Some(parts)
        reads = np.bincount(some.file[_is_read(some, every)], minlength=len(every))
        without_offsets = bool((some.offset < 0).any())
        return _Layer(parts[0].layer, reads, len(parts), len(some), without_offsets)

    for one in in_threads(layer_of, batch_small_parts(trace.io)):
        found[one.name] = found[one.name] + one if one.name in found else one
    nothing = _Layer("", np.zeros(len(every), np.int64))
    return max(found.values(), key=lambda layer: (layer.parts, layer.name), default=nothing)


def _is_read(some: _Some, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = wanted[some.file] & (some.op == READ) & (some.nbytes > 0)
    return found


_Block = tuple[Int64Array, Int64Array, NDArray[np.uint64], Int64Array]


def _pick_sample(some: _Some, rows: Int64Array, every: int) -> _Block:
    """Start, process, place and bytes of the reads of every n-th item."""
    file, offset = some.file[rows].astype(np.int64), some.offset[rows]
    place = _hash_pairs(file, offset)
    kept = place % np.uint64(every) == 0
    if (offset < 0).any():
        kept &= ~_is_continuation(some.number[rows], some.start[rows], file, offset)
    chosen = rows[kept]
    return some.start[chosen], some.process[chosen], place[kept], some.nbytes[chosen]


def _hash_pairs(file: Int64Array, offset: Int64Array) -> NDArray[np.uint64]:
    """A number for each pair, the same for equal ones; the low bits are as good as random."""
    with np.errstate(over="ignore"):
        mixed = file.astype(np.uint64) * _ODD + np.maximum(offset, -1).astype(np.uint64)
        mixed ^= mixed >> np.uint64(31)
        mixed *= _ODD
        return mixed ^ (mixed >> np.uint64(29))


def _compute_usual_nbytes(nbytes: Int64Array) -> int:
    """The size that reads of half the bytes do not reach."""
    some = np.sort(nbytes)
    moved = np.cumsum(some.astype(float))
    return int(some[min(int(np.searchsorted(moved, moved[-1] / 2)), len(some) - 1)])


def _sample_files(is_data: NDArray[np.bool_], layer: _Layer) -> tuple[NDArray[np.bool_], int]:
    """The dataset's files, or every n-th of many where there are more reads than are needed.

    Beside them the number of reads of them.
    """
    codes = np.flatnonzero(is_data)
    step = min(layer.rows // _MOST_READS, len(codes) // _ENOUGH_FILES)
    some = is_data
    if step >= 2 and not layer.without_offsets:
        some = np.zeros_like(is_data)
        some[codes[::step]] = True
    return some, int(layer.reads[some].sum())


def _is_continuation(
    number: Int64Array, start: Int64Array, file: Int64Array, offset: Int64Array
) -> NDArray[np.bool_]:
    """Reads without an offset that follow another of the same file, in one part."""
    order = np.lexsort((start, number))
    same = np.zeros(len(order), bool)
    same[order[1:]] = (np.diff(file[order]) == 0) & (np.diff(number[order]) == 0)
    return same & (offset < 0)


def _find_common_passes(reads: _Reads, member: Int64Array) -> _Passes:
    """The passes that every member of a scope shows; each begins where the first of any does.

    Of thousands of members mostly a few are looked at: one that differs is enough.
    """
    # The reads of each member.
    order = stable_order(member)
    borders = np.flatnonzero(np.diff(member[order])) + 1
    groups = [order[low:high] for low, high in pairwise([0, *borders.tolist(), len(order)])]
    most = max(map(len, groups))
    found: list[_Passes] = []
    for group in groups:
        # A member with few reads may miss what others show.
        if len(group) < _SMALL_PART * most:
            continue
        found.append(_find_passes(reads.start[group], reads.item[group]))
        if not len(found[-1].starts) == len(found[0].starts) > 0:
            return _NO_PASSES

    # Passes of one job begin together.
    starts = np.array([passes.starts for passes in found])
    apart, length = np.ptp(starts, axis=0).max(), np.diff(starts, axis=1).min()
    if apart > _APART * length:
        return _NO_PASSES
    return _Passes(tuple(starts.min(axis=0).tolist()), min(passes.whole for passes in found))


def _find_passes(start: Int64Array, item: Int64Array) -> _Passes:
    """The passes of one member."""
    items = len(np.unique(item))
    if items <= _FEWEST:  # the same again and again is no pass
        return _NO_PASSES
    # Reads of items that were not read just before.
    order = stable_order(item)
    near = np.zeros(len(item), bool)
    near[order[1:]] = (np.diff(item[order]) == 0) & (np.diff(order) <= _NEAR * items)
    fresh = np.flatnonzero(~near)
    start, item = start[fresh], item[fresh]
    borders = _find_borders(item, items)
    # By slices: numpy's split takes fifty times as long for each of thousands of parts.
    parts = [item[low:high] for low, high in pairwise([0, *borders, len(item)])]
    if borders and _is_of_its_own(np.unique(parts[0]), np.unique(parts[-1]), items):
        others = ~np.isin(item, parts[-1])
        return _find_passes(start[others], item[others]) if others.any() else _NO_PASSES
    least = _WHOLE_OF_FEW if items < _FEW_ITEMS else _WHOLE
    if min(map(len, parts[:-1]), default=0) / items < least:  # no need to look at the items
        return _NO_PASSES
    sizes = [len(np.unique(part)) for part in parts]
    whole = min(sizes[:-1], default=0) / items
    once = min(size / len(part) for size, part in zip(sizes, parts, strict=True))
    if whole < least or once < _ONCE:
        return _NO_PASSES
    begun = (start[0], *(start[_snap_to_pause(start, border, items)] for border in borders))
    return _Passes(tuple(map(int, begun)), whole)


def _is_of_its_own(first: Int64Array, last: Int64Array, items: int) -> bool:
    """Whether the last pass is of items that the first pass lacked.

    That is a validation of which a little was read before training, as some trainers do.
    """
    lacked = np.isin(last, first, invert=True).mean()
    lacked_in_all = 1 - len(first) / items
    return len(last) < _WHOLE * items and bool(lacked > max(_LACKED, 2 * lacked_in_all))


def _find_borders(item: Int64Array, items: int) -> list[int]:
    """Where most of the reads of a window were made before in the pass: its first such read.

    A loop: of random draws over few items borders come by thousands, each worth several calls
    of numpy.
    """
    window = min(items, max(_FEWEST, int(_WINDOW * items)))
    before = _read_before(item).tolist()
    borders: list[int] = []
    again: deque[int] = deque()  # reads of the window of what was read before in the pass
    begun, at = 0, 0
    while at < len(before):
        if before[at] >= begun:
            again.append(at)
            while again[0] <= at - window:
                again.popleft()
            if len(again) >= _MOSTLY * window:
                # The first window of a pass begins with it. What showed this pass tells nothing
                # of its end.
                at = max(at, begun + window - 1)
                if at >= len(before):
                    break
                begun = again[0]
                borders.append(begun)
                again.clear()
        at += 1
    return borders


def _read_before(item: Int64Array) -> Int64Array:
    """For each read the read of the same item before it, -1 for the first."""
    order = stable_order(item)
    same = np.flatnonzero(np.diff(item[order]) == 0)
    before = np.full(len(item), -1, np.int64)
    before[order[same + 1]] = order[same]
    return before


def _snap_to_pause(start: Int64Array, border: int, items: int) -> int:
    """The border, or the end of the last long pause shortly before it.

    What was left out of the pass before may be read first in the next one.
    """
    first = max(border - max(_FEWEST, int(_NEAR * items)), 1)
    pauses = np.diff(start[first - 1 : border + 1])
    long = pauses > max(_FAR * float(np.median(np.diff(start))), pauses.max() / 2)
    return first + int(np.flatnonzero(long)[-1]) if long.any() else border
