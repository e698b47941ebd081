"""Exact transfer sizes and their histograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.dataclass import dataclass
from vanidl.model.ordering import stable_order
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]

DARSHAN_EDGES = (0, 101, 1025, 10_241, 102_401, 1_048_577, 4_194_305, 10_485_761,
                 104_857_601, 1_073_741_825)  # fmt: skip
"""First size of each of Darshan's ten bins.

Darshan counts with inclusive upper bounds in powers of 1024 (DARSHAN_BUCKET_INC in
darshan-common.h): 100 B, 1 KiB, 10 KiB, 100 KiB, 1 MiB, 4 MiB, 10 MiB, 100 MiB, 1 GiB.
"""

COMMON_SIZES = 10


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Operations of low <= size < high bytes; high is None for the open last bin.

    Bytes are None where only counters tell how many operations there were.
    """

    low: int
    high: int | None
    reads: int
    writes: int
    bytes_read: int | None
    bytes_written: int | None

    @property
    def nbytes(self) -> int:
        """Bytes read and written, 0 where only counters tell of the bin."""
        return (self.bytes_read or 0) + (self.bytes_written or 0)


@dataclass(frozen=True, slots=True)
class CommonSize:
    """One exact transfer size and how often it occurred."""

    nbytes: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Exact transfer sizes.

    Where no operation was traced all numbers are None or empty, except `darshan_histogram`,
    which then comes from the counters.
    """

    min: int | None
    max: int | None
    mean: float | None
    median: float | None
    histogram: tuple[SizeBin, ...]  # powers of two, from the first to the last used bin
    darshan_histogram: tuple[SizeBin, ...]  # Darshan's ten bins
    common: tuple[CommonSize, ...]  # the ten most frequent sizes
    distinct: int


@dataclass(frozen=True, slots=True)
class SizeCounts:
    """How often each exact size occurred; `nbytes` ascending and distinct."""

    nbytes: Int64Array
    reads: Int64Array
    writes: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = SizeCounts(_NONE, _NONE, _NONE)


def partial(rows: Rows, trace: Trace) -> SizeCounts:  # noqa: ARG001  (all analyses share this signature)
    """The sizes of some rows."""
    (read, reads), (written, writes) = rows.reads.sizes, rows.writes.sizes
    return _gather(
        np.concatenate([read, written]),
        np.concatenate([reads, np.zeros_like(writes)]),
        np.concatenate([np.zeros_like(reads), writes]),
    )


def combine(a: SizeCounts, b: SizeCounts) -> SizeCounts:
    """The sizes of both."""
    return _gather(
        np.concatenate([a.nbytes, b.nbytes]),
        np.concatenate([a.reads, b.reads]),
        np.concatenate([a.writes, b.writes]),
    )


def finish(counts: SizeCounts, trace: Trace) -> Sizes:  # noqa: ARG001
    """Statistics and histograms of the exact sizes."""
    ops = counts.reads + counts.writes
    total = int(ops.sum())
    if total == 0:
        return Sizes(None, None, None, None, (), (), (), 0)
    return Sizes(
        int(counts.nbytes[0]),
        int(counts.nbytes[-1]),
        int((counts.nbytes * ops).sum()) / total,
        _compute_median(counts.nbytes, ops, total),
        _make_power_bins(counts),
        _make_bins(counts, DARSHAN_EDGES),
        _select_common(counts, ops),
        len(counts.nbytes),
    )


def _gather(nbytes: Int64Array, reads: Int64Array, writes: Int64Array) -> SizeCounts:
    order = stable_order(nbytes)
    nbytes = nbytes[order]
    first = np.flatnonzero(np.concatenate([[True], nbytes[1:] != nbytes[:-1]])[: len(nbytes)])
    if len(first) == 0:
        return NOTHING
    return SizeCounts(
        nbytes[first],
        np.add.reduceat(reads[order], first),
        np.add.reduceat(writes[order], first),
    )


def _compute_median(nbytes: Int64Array, ops: Int64Array, total: int) -> float:
    reach = np.cumsum(ops)
    low, high = np.searchsorted(reach, [(total + 1) // 2, total // 2 + 1])
    return (int(nbytes[low]) + int(nbytes[high])) / 2


def _make_power_bins(counts: SizeCounts) -> tuple[SizeBin, ...]:
    top = int(counts.nbytes[-1]).bit_length()
    bins = _make_bins(counts, [0, *(1 << i for i in range(top + 1))])
    used = [i for i, b in enumerate(bins) if b.reads + b.writes]
    return bins[used[0] : used[-1] + 1]


def _make_bins(counts: SizeCounts, edges: Sequence[int]) -> tuple[SizeBin, ...]:
    at = np.searchsorted(counts.nbytes, np.array(edges, np.int64)).tolist()
    spans = zip(at, [*at[1:], len(counts.nbytes)], strict=True)
    bounds = zip(edges, [*edges[1:], None], strict=True)
    return tuple(
        _make_bin(counts, slice(i, j), low, high)
        for (i, j), (low, high) in zip(spans, bounds, strict=True)
    )


def _make_bin(counts: SizeCounts, pick: slice, low: int, high: int | None) -> SizeBin:
    nbytes, reads, writes = counts.nbytes[pick], counts.reads[pick], counts.writes[pick]
    return SizeBin(
        low, high, int(reads.sum()), int(writes.sum()),
        int((nbytes * reads).sum()), int((nbytes * writes).sum()),
    )  # fmt: skip


def _select_common(counts: SizeCounts, ops: Int64Array) -> tuple[CommonSize, ...]:
    top = np.lexsort((counts.nbytes, -ops))[:COMMON_SIZES]
    return tuple(
        CommonSize(int(counts.nbytes[i]), int(counts.reads[i]), int(counts.writes[i])) for i in top
    )
