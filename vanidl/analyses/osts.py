"""Which of Lustre's targets moved how much, when: traced operations laid over files' stripes.

Byte x of a file lies in stripe x // size of its component, and stripe k on target k % count
(lov_stripe_number of Lustre's client). Of mirrored components the first is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import ByFile, Rows
from vanidl.analyses.timeline import Sums, add_spread, compute_edges
from vanidl.model.counter_tables import Stripes
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import means

Int64Array = NDArray[np.int64]

BINS = 128
METADATA_TARGET = -1
"""Stands for the metadata servers, which hold the first bytes of files ("data on MDT")."""

_AT_ONCE = 1 << 16  # operations that are laid over stripes at a time
_SUMS = 3  # operations, bytes, ns of those operations
_SIDE = _SUMS + BINS


@dataclass(frozen=True, slots=True)
class OstUse:
    """What one target moved. An operation over several targets counts on each of them."""

    ost: Annotated[
        int | None, means("Number of the object storage target; null: a metadata server")
    ]
    reads: Annotated[int, means("Reads that touched it", "count")]
    writes: Annotated[int, means("Writes that touched it", "count")]
    bytes_read: Annotated[int, means("Bytes read from it", "bytes")]
    bytes_written: Annotated[int, means("Bytes written to it", "bytes")]
    read_s: Annotated[float, means("Sum of durations of those reads", "s")]
    write_s: Annotated[float, means("Sum of durations of those writes", "s")]


@dataclass(frozen=True, slots=True)
class OstTimeline:
    """Use of each target, and the bytes that it moved in equal bins of time."""

    rows: tuple[OstUse, ...]
    edges_s: NDArray[np.float64]
    bytes_moved: Int64Array  # (targets, bins)
    layer: str  # whose operations were laid over the stripes


OstSums = dict[int, Int64Array]
"""Target -> operations, bytes, ns and bytes of each bin, of reads and then of writes."""


@dataclass(frozen=True, slots=True)
class _Components:
    """The k-th component of every file's layout; one entry a file code in every array."""

    start: Int64Array  # of the bytes that it holds
    end: Int64Array  # 0 where a file has no such component
    stripe: Int64Array  # bytes; 1 where it is on a metadata server
    count: Int64Array  # targets
    first: Int64Array  # place of its first target in `targets`
    targets: Int64Array  # of all components behind each other


@dataclass(frozen=True, slots=True)
class OfTargets:
    """The reduction for the files of a trace whose stripes are recorded."""

    components: tuple[_Components, ...]

    @property
    def NOTHING(self) -> OstSums:
        """The value of no part."""
        return {}

    def partial(self, rows: Rows, trace: Trace) -> OstSums:
        """What some operations moved on each target."""
        sums: OstSums = {}
        if not self.components or not len(rows):
            return sums
        edges = compute_edges(trace.job.start_ns, trace.job.end_ns, BINS)
        for side, ops in enumerate((rows.reads.with_offset, rows.writes.with_offset)):
            if len(ops):
                _add_operations(sums, side, ops, self.components, edges)
        return sums

    def combine(self, a: OstSums, b: OstSums) -> OstSums:
        """The sums of both."""
        return {ost: _add_sums(ost, a, b) for ost in a.keys() | b.keys()}


def _add_sums(ost: int, a: OstSums, b: OstSums) -> Int64Array:
    """The sums of one target that at least one of both has."""
    if ost in a and ost in b:
        total: Int64Array = a[ost] + b[ost]
        return total
    return a[ost] if ost in a else b[ost]


def make_reduction(trace: Trace) -> OfTargets:
    """The reduction for the layouts that the trace knows; of mirrors only the first."""
    layouts: dict[int, list[Stripes]] = {}
    for part in sorted(trace.stripes, key=lambda part: (part.file, part.extent_start)):
        parts = layouts.setdefault(part.file, [])
        is_mirror = bool(parts) and part.extent_start < _end_of(parts[-1])
        # Targets that were not recorded are none of a metadata server.
        if not is_mirror and (part.stripe_count == 0 or (part.osts and part.stripe_nbytes > 0)):
            parts.append(part)
    most = max(map(len, layouts.values()), default=0)
    return OfTargets(tuple(_lay_out(layouts, k, len(trace.files)) for k in range(most)))


def _end_of(part: Stripes) -> int:
    return int(np.iinfo(np.int64).max) if part.extent_end is None else part.extent_end


def _lay_out(layouts: Mapping[int, list[Stripes]], k: int, files: int) -> _Components:
    start, end, first = (np.zeros(files, np.int64) for _ in range(3))
    stripe, count = np.ones(files, np.int64), np.ones(files, np.int64)
    targets: list[int] = []
    for file, parts in layouts.items():
        if k < len(parts):
            part = parts[k]
            # No stripes: the file's first bytes lie on the metadata server (Lustre's Data-on-MDT).
            on_server = part.stripe_count == 0
            osts = (METADATA_TARGET,) if on_server else part.osts
            start[file], end[file] = part.extent_start, _end_of(part)
            stripe[file] = 1 if on_server else part.stripe_nbytes
            count[file], first[file] = len(osts), len(targets)
            targets += osts
    return _Components(start, end, stripe, count, first, np.array(targets, np.int64))


def finish(sums: OstSums, trace: Trace, layer: str) -> OstTimeline | None:
    """Targets in order of their numbers; None where no traced file is on Lustre."""
    if not sums:
        return None
    order = sorted(sums)
    rows = tuple(_make_row(ost, sums[ost]) for ost in order)
    start = trace.job.start_ns
    edges_s = (compute_edges(start, trace.job.end_ns, BINS) - start) / 1e9
    moved = np.stack([sums[ost].reshape(2, _SIDE)[:, _SUMS:].sum(axis=0) for ost in order])
    return OstTimeline(rows, edges_s, moved, layer)


def _make_row(ost: int, sums: Int64Array) -> OstUse:
    (reads, read, read_ns), (writes, written, write_ns) = (
        side[:_SUMS].tolist() for side in sums.reshape(2, _SIDE)
    )
    number = None if ost == METADATA_TARGET else ost
    return OstUse(number, reads, writes, read, written, read_ns / 1e9, write_ns / 1e9)


def _add_operations(
    sums: OstSums, side: int, ops: ByFile, components: tuple[_Components, ...], edges: Int64Array
) -> None:
    """Adds what the reads or the writes moved on the targets of their files."""
    file = ops.each_row(ops.file)
    for low in range(0, len(ops), _AT_ONCE):
        rows = slice(low, low + _AT_ONCE)
        begin, stop = ops.offset[rows], ops.end_offset[rows]
        pieces = [_cut_at_targets(begin, stop, file[rows], each) for each in components]
        op, ost, nbytes = (np.concatenate(column) for column in zip(*pieces, strict=True))
        if not len(op):
            continue
        start, end = ops.start[rows], ops.end[rows]

        # By target: each operation once, its bytes, and these over time.
        known, place = np.unique(ost, return_inverse=True)
        op_of, place_of = np.divmod(np.unique(op * len(known) + place), len(known))
        total = np.zeros((len(known), _SUMS), np.int64)
        np.add.at(total[:, 0], place_of, 1)
        np.add.at(total[:, 1], place, nbytes)
        np.add.at(total[:, 2], place_of, (end - start)[op_of])
        bins = np.zeros(len(known) * BINS, np.int64)
        add_spread((start[op], end[op], nbytes), edges, Sums(bins, base=place * BINS))
        for i, target in enumerate(known.tolist()):
            into = sums.setdefault(target, np.zeros(2 * _SIDE, np.int64))[side * _SIDE :]
            into[:_SUMS] += total[i]
            into[_SUMS:_SIDE] += bins[i * BINS : (i + 1) * BINS]


def _cut_at_targets(
    offset: Int64Array, end_offset: Int64Array, file: Int64Array, part: _Components
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(operation, target, bytes) of what operations moved within one component of their files.

    Each pair of operation and target occurs once.
    """
    begin = np.maximum(offset, part.start[file])
    stop = np.minimum(end_offset, part.end[file])
    op = np.flatnonzero(stop > begin)
    begin, stop, file = begin[op], stop[op], file[op]
    stripe, count = part.stripe[file], part.count[file]

    # As many stripes as the operation reaches into, at most one round over the targets.
    first = begin // stripe
    touched = np.minimum((stop - 1) // stripe - first + 1, count)
    row = np.repeat(np.arange(len(op)), touched)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(touched) - touched, touched)
    place = (first[row] + nth) % count[row]
    stripe, count = stripe[row], count[row]
    moved = _count_bytes_before(stop[row], place, stripe, count)
    moved -= _count_bytes_before(begin[row], place, stripe, count)
    return op[row], part.targets[part.first[file[row]] + place], moved


def _count_bytes_before(
    at: Int64Array, place: Int64Array, stripe: Int64Array, count: Int64Array
) -> Int64Array:
    """Bytes of a target, by its place in the layout, among the first `at` bytes of the file."""
    rounds, rest = np.divmod(at, stripe * count)
    found: Int64Array = rounds * stripe + np.clip(rest - place * stripe, 0, stripe)
    return found
