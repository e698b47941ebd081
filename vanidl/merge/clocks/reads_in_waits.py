"""Reads matched to input waits, where the process that waits does the reading itself.

Shifted by the right offset, (nearly) all reads lie in waits. That says nothing where worker
processes read: their reads lie anywhere, and the best match of a recorded run was 3.96 s
wrong and looked certain. So no worker may read, and at least 95 % of the reads must fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import percent
from vanidl.merge.clocks.evidence import AlignmentInputs, Evidence, Int64Array, keep_meeting
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, SpanKind
from vanidl.schema.dataclass import dataclass

READS_IN_WAITS = "reads in waits"

Floats = NDArray[np.float64]

INSIDE = 0.95  # share of the reads that must lie in waits
_LOOSE = 0.7  # the same on the coarse grid
_WORKERS_SHARE = 0.05  # of the bytes: at this share workers read, too
_FEWEST_WAITS = 8
_MOST_WAITS = 2_000
_MOST_BINS = 1 << 21
_BINS_A_WAIT = 32
_MOST_PEAKS = 64
_PROBES = 256
_LITTLE_IO = 0.3  # of the most I/O in a window: less is no match
_USED_WAITS = 0.5  # share of the waits that must hold a read
_FLAT = 0.002  # a match is as good as the best where it lacks no more of the reads
_EDGE_NS = 1_000


@dataclass(frozen=True, slots=True)
class _Match:
    """Reads and waits; `share` says how well an offset makes them fit."""

    reads: Intervals
    waits: Intervals
    enough_ns: int  # time in reads that a window must hold

    def holds(self, lag: int) -> bool:
        """Whether the window holds enough reads, in enough of its waits, at an offset."""
        start, end = self.waits.start + lag, self.waits.end + lag
        used = (intervals.covered_within(self.reads, start, end) > 0).mean()
        return bool(used >= _USED_WAITS and self.io_ns(np.array([lag]))[0] >= self.enough_ns)

    def share(self, lags: Int64Array) -> Floats:
        """For each offset: the share of the reads under the waits' window that waits cover."""
        start = (self.waits.start[None, :] + lags[:, None]).ravel()
        end = (self.waits.end[None, :] + lags[:, None]).ravel()
        # All offsets times all waits in one call.
        inside = intervals.covered_within(self.reads, start, end).reshape(len(lags), -1).sum(1)
        share: Floats = inside / np.maximum(self.io_ns(lags), 1)
        return share

    def io_ns(self, lags: Int64Array) -> Int64Array:
        """For each offset: the time in reads from the first to the last wait."""
        low, high = self.waits.start[0] + lags, self.waits.end[-1] + lags
        return intervals.covered_within(self.reads, low, high)


def find_reads_in_waits(inputs: AlignmentInputs, within: Intervals) -> Evidence | None:
    """Offsets in `within` at which the reads of the waiting process lie in its waits.

    None where workers read, too few waits were recorded, or no offset makes 95 % fit.
    """
    match = _make_match(inputs)
    if match is None or not len(within.start):
        return None
    # Peaks of a coarse scan, each made exact.
    found = [_refine_peak(match, lag, step) for lag, step in _find_peaks(match, within)]
    kept = [f for f in found if f is not None]
    if not kept:
        return None
    low, high = np.array([f[:2] for f in kept], np.int64).T
    offsets = keep_meeting(intervals.union(low, high + 1), within)
    share = max(f[2] for f in kept)
    reason = (
        f"{percent(share)} of the time that the waiting process read lies in its "
        f"{len(match.waits.start):,} input waits"
    )
    return Evidence(READS_IN_WAITS, offsets, reason) if len(offsets.start) else None


def _make_match(inputs: AlignmentInputs) -> _Match | None:
    start, end = inputs.kind(SpanKind.INPUT_WAIT)
    waits = intervals.union(start, end)
    if inputs.own is None or len(waits.start) < _FEWEST_WAITS or not len(inputs.lifetime.start):
        return None
    own_reads = inputs.own.operations(READ)
    own = int(own_reads.nbytes.sum())
    others = sum(int(w.operations(READ).nbytes.sum()) for w in inputs.workers)
    reads = intervals.union(own_reads.start, own_reads.end)
    # Where workers read, the waiting process's own reads say nothing of its waits.
    if not len(reads.start) or others > _WORKERS_SHARE * (own + others):
        return None
    kept = slice(0, _MOST_WAITS)
    match = _Match(reads, Intervals(waits.start[kept], waits.end[kept]), 0)
    life = inputs.lifetime
    # At a lag at which hardly any I/O meets the waits a match would be chance.
    lags = np.linspace(life.start[0], life.end[-1], _PROBES).astype(np.int64)
    return replace(match, enough_ns=int(_LITTLE_IO * match.io_ns(lags).max()))


def _find_peaks(match: _Match, within: Intervals) -> list[tuple[int, int]]:
    """(offset, width of the coarse grid there) of everything that may be a match."""
    low, high = int(within.start[0]), int(within.end[-1])
    wait = match.waits.length // len(match.waits.start)
    step = max(min(wait, high - low) // 64, _EDGE_NS)
    # Every offset of a fine grid where they are few; else by Fourier transform.
    if (high - low) // step * len(match.waits.start) <= _MOST_BINS:
        lags = np.arange(low, high, step, dtype=np.int64)
        share = match.share(lags)
    else:
        lags, share, step = _scan_coarsely(match, low, high)
    return [(int(lags[i]), step) for i in _find_maxima(share)]


def _scan_coarsely(match: _Match, low: int, high: int) -> tuple[Int64Array, Floats, int]:
    """(offsets, share at each, their distance) on a grid, by Fourier transform."""
    waits = match.waits
    first, last = int(waits.start[0]), int(waits.end[-1])
    span = last - first
    # Bins are fine enough for a wait of mean length, unless there would be too many.
    wait = waits.length // len(waits.start)
    step = max(wait // _BINS_A_WAIT, (high - low + 2 * span) // _MOST_BINS, 1)
    bins = span // step + 1
    offsets = (high - low) // step + 1
    waited = _fill_bins(waits, first, bins, step)
    read = _fill_bins(match.reads, first + low, bins + offsets, step)
    # No offset here moves the waits past the reads: none comes around.
    size = _choose_fast_size(len(read))
    # The correlation of reads with waits, at all offsets at once.
    product = np.fft.rfft(read, size) * np.conj(np.fft.rfft(waited, size))
    inside = np.fft.irfft(product, size)[:offsets]
    lags = low + step * np.arange(offsets, dtype=np.int64)
    amount = match.io_ns(lags) / step
    return (
        lags,
        np.where(amount * step >= match.enough_ns, inside / np.maximum(amount, 1e-9), 0.0),
        step,
    )


def _fill_bins(spans: Intervals, start: int, bins: int, step: int) -> Floats:
    """Share of each bin that the spans cover."""
    edges = start + step * np.arange(bins + 1, dtype=np.int64)
    return intervals.covered_between(spans, edges) / step


def _choose_fast_size(bins: int) -> int:
    """The next number of bins whose factors are 2, 3 and 5: others are transformed slowly."""
    return min(odd << ((bins - 1) // odd).bit_length() for odd in (1, 3, 5, 9, 15, 25, 27))


def _find_maxima(share: Floats) -> list[int]:
    """The best of each group of neighbours that may be a match, best first, not too many."""
    good = share >= _LOOSE
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]])))
    best = [int(a + share[a:b].argmax()) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return sorted(best, key=lambda i: -share[i])[:_MOST_PEAKS]


def _refine_peak(match: _Match, lag: int, step: int) -> tuple[int, int, float] | None:
    """(lowest, highest offset, best share) around an offset that fits about as well as any."""
    # Grids of 65 offsets, each 16 times finer than the one before.
    while True:
        lags = lag + np.linspace(-2 * step, 2 * step, 65).astype(np.int64)
        share = match.share(lags)
        top = np.flatnonzero(share >= share.max() - 1e-9)
        lag, best = int(lags[top[len(top) // 2]]), float(share.max())
        if step <= _EDGE_NS:
            break
        step //= 16
    if best < INSIDE or not match.holds(lag):
        return None
    # A tenth of what lies outside anyway is tolerated on top.
    enough = best - _FLAT - 0.1 * (1 - best)
    return _find_edge(match, lag, -1, enough), _find_edge(match, lag, 1, enough), best


def _find_edge(match: _Match, lag: int, sign: int, enough: float) -> int:
    """The last offset on one side of `lag` at which the share is still enough, to 1 us."""

    def fits(distance: int) -> bool:
        return bool(match.share(np.array([lag + sign * distance], np.int64))[0] >= enough)

    far = _EDGE_NS
    # Out in doubling distances, then back by bisection.
    while fits(far):
        far *= 2
    near = far // 2
    while far - near > _EDGE_NS:
        middle = (near + far) // 2
        near, far = (middle, far) if fits(middle) else (near, middle)
    return lag + sign * far
