"""Exact transfer sizes, their histograms, and what sizes of dataset reads are typical of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.model.ordering import stable_order
from vanidl.model.run_facts import Block, UserData
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

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
    # The median, found where half of all operations are reached.
    reach = np.cumsum(ops)
    low, high = np.searchsorted(reach, [(total + 1) // 2, total // 2 + 1])
    median = (int(counts.nbytes[low]) + int(counts.nbytes[high])) / 2

    # Powers of two, without the empty bins at both ends.
    top = int(counts.nbytes[-1]).bit_length()
    bins = _make_bins(counts, [0, *(1 << i for i in range(top + 1))])
    used = [i for i, b in enumerate(bins) if b.reads + b.writes]
    power_bins = bins[used[0] : used[-1] + 1]
    return Sizes(
        int(counts.nbytes[0]),
        int(counts.nbytes[-1]),
        int((counts.nbytes * ops).sum()) / total,
        median,
        power_bins,
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


# Sizes of dataset reads that belong together, and what they come from.

_LEAST = 0.02  # of the reads or of the bytes makes a mode
_MANY = 16  # different sizes that lie together


@dataclass(frozen=True, slots=True)
class TransferMode:
    """Dataset reads of one size, or of sizes that belong together: low <= size <= high bytes.

    `certain`: the cause was found in opened files; else it is what such a size is typical of.
    `cause` None: unknown.
    """

    low: int
    high: int
    reads: int
    share_of_reads: float
    share_of_bytes: float
    cause: str | None
    certain: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Distinct sizes with their number of reads, and the totals that shares are of."""

    nbytes: Int64Array
    reads: Int64Array
    all_reads: int
    all_bytes: int

    def pick(self, rows: NDArray[np.bool_]) -> _Sizes:
        """Some of the sizes, with the same totals."""
        return _Sizes(self.nbytes[rows], self.reads[rows], self.all_reads, self.all_bytes)

    @property
    def large_alone(self) -> NDArray[np.bool_]:
        """For each size whether it is a mode by itself."""
        often: NDArray[np.bool_] = self.reads >= _LEAST * self.all_reads
        return often | (self.nbytes * self.reads >= _LEAST * self.all_bytes)

    @property
    def large(self) -> bool:
        """Whether all sizes together are a mode."""
        volume = int((self.nbytes * self.reads).sum())
        return int(self.reads.sum()) >= _LEAST * self.all_reads or volume >= _LEAST * self.all_bytes


def find_transfer_modes(
    sizes: tuple[Int64Array, Int64Array], paths: Sequence[str], user_data: UserData
) -> tuple[TransferMode, ...]:
    """Modes that hold 2 % of the reads or bytes, most bytes first.

    First sizes that opened files account for, by cause; then single sizes; then what is left,
    by powers of two.
    """
    # Reads of 0 bytes, as at the end of a file, are of no mode.
    nbytes, reads = (column[sizes[0] > 0] for column in sizes)
    total = _Sizes(nbytes, reads, int(reads.sum()), int((nbytes * reads).sum()))
    if len(nbytes) == 0:
        return ()

    # Sizes that opened files account for.
    known = _collect_blocks(paths, user_data)
    found: list[TransferMode] = []
    cause = np.array([known[n].what if n in known else "" for n in nbytes.tolist()], object)
    for what in sorted(set(cause.tolist()) - {""}):
        mine = total.pick(cause == what)
        if mine.large:
            found.append(_make_mode(mine, what, True, _describe_blocks(mine, known)))

    # Of what they do not, sizes that hold much alone.
    rest = total.pick(cause == "")
    single = rest.large_alone
    alone = rest.nbytes[single].tolist()
    found += [_guess_mode(rest.pick(rest.nbytes == size), paths) for size in alone]

    # The rest by powers of two.
    rest = rest.pick(~single)
    octave = np.frexp(rest.nbytes.astype(float))[1]
    groups = [rest.pick(octave == k) for k in np.unique(octave).tolist()]
    found += [_guess_mode(group, paths) for group in groups if group.large]
    return tuple(sorted(found, key=lambda m: (-m.share_of_bytes, -m.reads, m.low)))


def _make_mode(mine: _Sizes, cause: str | None, certain: bool, evidence: str) -> TransferMode:
    return TransferMode(
        int(mine.nbytes.min()),
        int(mine.nbytes.max()),
        int(mine.reads.sum()),
        int(mine.reads.sum()) / mine.all_reads,
        int((mine.nbytes * mine.reads).sum()) / mine.all_bytes,
        cause,
        certain,
        evidence,
    )


def _collect_blocks(paths: Sequence[str], user_data: UserData) -> dict[int, Block]:
    """Size -> what opened files have of it; the reader's buffer of TFRecord files first."""
    from vanidl.dataset.tfrecord import READ_BUFFER

    facts = [user_data.facts[path] for path in paths if path in user_data.facts]
    known: dict[int, Block] = {}
    for file in facts:
        for block in file.blocks:
            known.setdefault(block.nbytes, block)
        if file.format == "TFRecord":
            known[READ_BUFFER] = Block(READ_BUFFER, 0, "TFRecord reader's buffer")
    return known


def _describe_blocks(mine: _Sizes, known: dict[int, Block]) -> str:
    pieces = sum(known[n].count for n in mine.nbytes.tolist())
    if not pieces:
        return "the opened files are TFRecord; 256 KiB is what their reader asks for by default"
    return f"{pieces:,} pieces of exactly these sizes in the opened files"


def _guess_mode(mine: _Sizes, paths: Sequence[str]) -> TransferMode:
    for hint in _HINTS:
        text = hint(mine.nbytes, paths)
        if text:
            evidence = "by size and file names; no file was opened to confirm it"
            return _make_mode(mine, f"typical of {text}", False, evidence)
    return _make_mode(mine, None, False, "unknown")


def _suggest_tfrecord(nbytes: Int64Array, paths: Sequence[str]) -> str:
    from vanidl.dataset.tfrecord import READ_BUFFER

    named = any("tfrecord" in p.rsplit("/", 1)[-1].lower() for p in paths)
    if named and nbytes.tolist() == [READ_BUFFER]:
        return "the TFRecord reader's buffer (256 KiB by default)"
    return ""


def _suggest_hdf5(nbytes: Int64Array, paths: Sequence[str]) -> str:
    if not any(p.lower().endswith((".h5", ".hdf5", ".he5", ".nc")) for p in paths):
        return ""
    if len(nbytes) == 1:
        from vanidl.dataset.hdf5 import INDEX_NODES

        return INDEX_NODES.get(int(nbytes[0]), "")
    return "compressed HDF5 chunks (many sizes close together)" if len(nbytes) >= _MANY else ""


def _suggest_buffering(nbytes: Int64Array, paths: Sequence[str]) -> str:
    del paths
    names = {4096: "a page or C's stdio buffer", 8192: "Python's file buffer"}
    return names.get(int(nbytes[0]), "") if len(nbytes) == 1 else ""


_HINTS: tuple[Callable[[Int64Array, Sequence[str]], str], ...] = (
    _suggest_tfrecord,
    _suggest_hdf5,
    _suggest_buffering,
)
