"""Order of what DataLoader workers read and what the training process takes from them.

PyTorch's loader deals batches to its workers in turn: batch k of an epoch is the (k // W)-th
of worker k mod W. What worker k mod W reads for it ends before the k-th `__next__` returns;
what it reads for batch k + P W begins after the k-th `__next__` began, since only then it is
asked for; and a new epoch's workers read after the last `__next__` of the old one, which finds
nothing (StopIteration). A loop that counts its batches does not ask for that one: where no
wait shows it, both are tried. A wrong mapping leaves no offset open: it shows itself.

P is the loader's prefetch_factor. A worker does not idle before it has read its first P
batches, so it is at most the number of batches before the first pause that stands out; where
none does, nothing is known of when a read was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vanidl.formatting.units import plural
from vanidl.merge.clocks.context import Int64Array, ProcessLog, Rows, Scene
from vanidl.merge.clocks.evidence import Evidence, meeting
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, SpanKind

METHOD = "order of worker reads"

_PAUSE = 3.0  # times the first gap between two batches of a worker
_FEWEST_WAITS = 8
_FEWEST_GAPS = 4
_LEAST_AHEAD = 2  # PyTorch's prefetch_factor unless set
_MOST_CELLS = 20_000_000
_NEVER = 2**62  # beyond any time: a border that limits nothing

Generation = tuple[Rows, ...]
"""What the workers of one epoch read, worker by worker in the order of their start."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """For every `__next__` of the run, what must come before and after it; ns of the log."""

    ends: Int64Array  # the batch's last read ends, -_NEVER where there is none
    asked: Int64Array  # a read that was asked for in it begins, _NEVER where there is none
    after: Int64Array  # a read that comes after it begins
    batches: int
    per_batch: int
    ahead: int  # batches a worker may be ahead, 0 where that is not known


def find(scene: Scene, within: Intervals) -> Evidence | None:
    """Offsets in `within` that keep every read in its order with the waits.

    None where no worker reads, its batches have no visible borders, or no mapping of batches
    to waits leaves an offset open.
    """
    start, end = scene.kind(SpanKind.INPUT_WAIT)
    generations = _generations(scene.workers)
    if len(start) < _FEWEST_WAITS or not generations:
        return None
    stops = _stops(scene, start)
    for unit, pick in _UNITS:
        borders = [tuple(pick(rows) for rows in g) for g in generations]
        found = [
            (low, high, calls)
            for calls in _mappings(borders, len(start), (True,) if len(stops) else (True, False))
            for low, high in _open(calls, start, end, stops)
        ]
        offsets = meeting(intervals.union(*_columns(found)), within)
        if len(offsets.start):
            return Evidence(METHOD, offsets, _reason(found, generations, unit))
    return None


def _columns(found: Sequence[tuple[int, int, _Calls]]) -> tuple[Int64Array, Int64Array]:
    low = np.array([row[0] for row in found], np.int64)
    return low, np.array([row[1] for row in found], np.int64) + 1


def _reason(
    found: Sequence[tuple[int, int, _Calls]], generations: Sequence[Generation], unit: str
) -> str:
    calls = found[0][2]
    workers = len(generations[0])
    later = f", and {calls.ahead * workers} batches later after that" if calls.ahead else ""
    return (
        f"batches of {calls.per_batch} {unit}, {calls.batches} an epoch by "
        f"{plural(workers, 'worker')}: each is read before it is taken{later}"
    )


def _generations(workers: Sequence[ProcessLog]) -> list[Generation]:
    """Workers that ran at the same time, epoch by epoch; empty where their number differs."""
    reading = [(w, w.rows(READ)) for w in workers]
    reading = [(w, rows) for w, rows in reading if len(rows.start)]
    groups: list[list[tuple[ProcessLog, Rows]]] = []
    for worker, rows in reading:
        if not groups or worker.log.start_ns >= min(w.log.end_ns for w, _ in groups[-1]):
            groups.append([])
        groups[-1].append((worker, rows))
    if len({len(g) for g in groups}) != 1:
        return []
    return [tuple(rows for _, rows in g) for g in groups]


def _usual_size(rows: Rows) -> Rows:
    """Reads of the size that moves most bytes: samples, without headers and indices."""
    sizes, which = np.unique(rows.nbytes, return_inverse=True)
    most = np.bincount(which, weights=rows.nbytes).argmax()
    return rows.pick(rows.nbytes == sizes[most])


def _visits(rows: Rows) -> Rows:
    """One row for all reads of a file in a row: a file a sample."""
    first = np.flatnonzero(np.concatenate([[True], rows.file[1:] != rows.file[:-1]]))
    last = np.append(first[1:], len(rows.start)) - 1
    return Rows(
        rows.start[first],
        np.maximum.reduceat(rows.end, first),
        rows.nbytes[last],
        rows.file[first],
    )


_UNITS = (
    ("equal reads", _usual_size),
    ("visits of files", _visits),
    ("reads", lambda rows: rows),
)


def _mappings(
    generations: Sequence[Generation], waits: int, closings: Sequence[bool]
) -> Iterator[_Calls]:
    """Every number of batches an epoch that deals the reads out evenly.

    `closings`: whether an epoch ends with a wait that finds nothing; each is tried.
    """
    counts = [[len(rows.start) for rows in g] for g in generations]
    if counts[0][0] == 0 or any(c != counts[0] for c in counts):
        return
    least = -(-waits // len(generations))
    for batches in range(max(least - 1, 1), sum(counts[0]) + 1):
        per_batch = _per_batch(counts[0], batches)
        for closing in closings if per_batch else ():
            cells = (len(generations) * (batches + closing) - waits + 1) * waits
            if 0 < cells <= _MOST_CELLS:
                yield _calls(generations, batches, per_batch, closing)


def _per_batch(counts: Sequence[int], batches: int) -> int:
    """Reads a batch, 0 where the counts do not divide so; the last batch may be smaller."""
    workers = len(counts)
    mine = [-(-(batches - i) // workers) for i in range(workers)]
    if min(mine) < 1:
        return 0
    size = max(-(-c // b) for c, b in zip(counts, mine, strict=True))
    last = (batches - 1) % workers
    fits = [
        size * (b - 1) < c <= size * b if i == last else c == size * b
        for i, (c, b) in enumerate(zip(counts, mine, strict=True))
    ]
    return size if all(fits) else 0


def _calls(
    generations: Sequence[Generation], batches: int, per_batch: int, closing: bool
) -> _Calls:
    workers = len(generations[0])
    blocks = [_epoch(g, batches, per_batch) for g in generations]
    begins = np.array([int(start.min()) for start, _ in blocks] + [_NEVER], np.int64)
    ends = [np.append(end, [-_NEVER] * closing) for _, end in blocks]
    ahead = _ahead(blocks, workers)
    skipped = min(ahead * workers, batches) if ahead else batches
    never = np.full(skipped + closing, _NEVER, np.int64)
    asked = [np.concatenate([start[skipped:], never]) for start, _ in blocks]
    before = np.full(batches - 1 + closing, _NEVER, np.int64)
    after = [np.append(before, later) for later in begins[1:]]
    columns = [np.concatenate(column) for column in (ends, asked, after)]
    return _Calls(columns[0], columns[1], columns[2], batches, per_batch, ahead)


def _ahead(blocks: Sequence[tuple[Int64Array, Int64Array]], workers: int) -> int:
    """How many batches a worker reads before it has to be asked for more, 0: not known.

    Two workers must agree on it, so that a single stall at the start is not taken for a pause.
    """
    gaps = [start[i::workers][1:] - end[i::workers][:-1] for start, end in blocks
            for i in range(workers)]  # fmt: skip
    if min(len(g) for g in gaps) < _FEWEST_GAPS:
        return 0
    first = max(float(np.median([g[0] for g in gaps])), 1.0)
    usual = float(np.median(np.concatenate([g[len(g) // 2 :] for g in gaps])))
    if usual < _PAUSE * first:
        return 0
    pauses = [np.flatnonzero(g > np.sqrt(first * usual)) for g in gaps]
    before = sorted(int(p[0]) + 1 if len(p) else len(g) for p, g in zip(pauses, gaps, strict=True))
    return max(before[min(1, len(before) - 1)], _LEAST_AHEAD)


def _epoch(generation: Generation, batches: int, per_batch: int) -> tuple[Int64Array, Int64Array]:
    """(first start, last end) of the reads of each batch of an epoch."""
    start, end = np.empty(batches, np.int64), np.empty(batches, np.int64)
    for i, rows in enumerate(generation):
        first = np.arange(0, len(rows.start), per_batch)
        start[i :: len(generation)] = rows.start[first]
        end[i :: len(generation)] = np.maximum.reduceat(rows.end, first)
    return start, end


def _stops(scene: Scene, start: Int64Array) -> Int64Array:
    """Waits that found an epoch's end: the first of two in a step where other steps have one."""
    step_start, step_end = scene.kind(SpanKind.STEP)
    low = np.searchsorted(start, step_start)
    counts = np.searchsorted(start, step_end) - low
    if not len(counts) or np.median(counts) != 1:
        return np.empty(0, np.int64)
    stops: Int64Array = low[counts == 2].astype(np.int64)
    return stops


def _open(
    calls: _Calls, start: Int64Array, end: Int64Array, stops: Int64Array
) -> Iterator[tuple[int, int]]:
    """(lowest, highest offset) for every number of calls before the profile that leaves one.

    `stops` are the waits that are known to have found the end of an epoch.
    """
    limits = (calls.ends, calls.asked, calls.after)
    ends, asked, after = (_sliding(column, len(start)) for column in limits)
    low = np.where(ends > -_NEVER, ends - end, -_NEVER).max(1)
    by_asking = np.where(asked < _NEVER, asked - start, _NEVER).min(1)
    by_ending = np.where(after < _NEVER, after - end, _NEVER).min(1)
    high = np.minimum(by_asking, by_ending)
    fits = (low <= high) & (low > -_NEVER) & (high < _NEVER)
    fits &= (ends[:, stops] == -_NEVER).all(1)
    for i in np.flatnonzero(fits):
        yield int(low[i]), int(high[i])


def _sliding(column: Int64Array, width: int) -> Int64Array:
    windows: Int64Array = np.lib.stride_tricks.sliding_window_view(column, width)
    return windows
