"""Many small parts reduced at once: the same values, without a cost of its own for each part.

A run of thousands of short logs has a part of a few hundred operations for each. Numpy needs as
long for the call as for such a part, so the parts of many processes are laid into one. Where a
reduction looks at the process, each file of each part gets a number of its own, and the
result is brought back to files and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import (
    access,
    cover,
    dataset,
    files,
    operations,
    timebins,
    timeline,
    visits,
    workers,
)
from vanidl.analyses.cover import Cover
from vanidl.analyses.operations import Totals
from vanidl.analyses.prepared import prepared
from vanidl.analyses.sorting import added, compact, distinct, extremes
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import COLUMNS, READ, WRITE, Files, Part, Trace

Int64Array = NDArray[np.int64]

SMALL_ROWS = 1 << 15
"""Operations of a part from which on it is reduced alone, by a thread of its own."""

_ROWS = 1 << 18  # operations of small parts that are reduced at once
_SAFE = 2**62
_POSITIONS = 1 << 20  # as in the keys of `files` and `dataset`


class Reduction(Protocol):
    """A module that folds parts into one small value."""

    @property
    def NOTHING(self) -> Any:  # noqa: ANN401
        """The value of no part."""

    def partial(self, part: Part, trace: Trace) -> Any:  # noqa: ANN401
        """The value of one part."""

    def combine(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The value of both; associative and commutative."""


def bundled(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Each large part alone, small ones of a layer in lists."""
    small: dict[str, list[Part]] = {}
    rows: dict[str, int] = {}
    for part in parts:
        if len(part) >= SMALL_ROWS:
            yield [part]
            continue
        small.setdefault(part.layer, []).append(part)
        rows[part.layer] = rows.get(part.layer, 0) + len(part)
        if rows[part.layer] >= _ROWS:
            rows[part.layer] = 0
            yield small.pop(part.layer)
    yield from small.values()


def _laid_together(parts: Sequence[Part]) -> tuple[Part, NDArray[np.intp]]:
    """All operations by start, and the place of each among them."""
    start = np.concatenate([p.start for p in parts])
    order = np.argsort(start, kind="stable")
    columns = {name: np.concatenate([getattr(p, name) for p in parts])[order] for name in COLUMNS}
    for column in columns.values():
        column.setflags(write=False)
    return Part(parts[0].process, parts[0].layer, **columns), order


class Bundle:
    """Parts of one layer, laid into one.

    `rows` are the operations of all by start; `part` tells of each which part it was in.
    """

    def __init__(self, parts: Sequence[Part], trace: Trace) -> None:
        self.parts = parts
        self.trace = trace
        together, order = _laid_together(parts)
        self.rows = prepared(together)
        lengths = [len(p) for p in parts]
        self.part: NDArray[np.intp] = np.repeat(np.arange(len(parts)), lengths)[order]
        process = np.array([p.process for p in parts], np.int64)
        self.process: Int64Array = process
        self.position: Int64Array = trace.family[process].astype(np.int64)

    @cached_property
    def places(self) -> tuple[list[int], NDArray[np.intp]]:
        """(distinct positions in `Trace.ranks` ascending, the place of each row's among them)."""
        positions, of_part = np.unique(self.position, return_inverse=True)
        return positions.tolist(), of_part[self.part]

    def named(self, table: Int64Array) -> Int64Array:
        """A table whose second column is a file number of `apart`, with process and file."""
        named = table.copy()
        named[:, 0] = self.process[self.apart.part[table[:, 1]]]
        named[:, 1] = self.apart.file[table[:, 1]]
        return named

    @cached_property
    def apart(self) -> Apart:
        """The same operations with a file number for each part and file."""
        wide = len(self.trace.files)
        pairs, code = np.unique(self.part * wide + self.rows.file, return_inverse=True)
        rows = prepared(replace(self.rows, file=code.astype(np.int32)))
        return Apart(rows, pairs // wide, pairs % wide)


@dataclass(frozen=True, slots=True)
class Apart:
    """Operations whose file number tells the part, too; by number the part and the file."""

    rows: Part
    part: Int64Array
    file: Int64Array

    def trace(self, trace: Trace) -> Trace:
        """The trace with these file numbers, and all in one family."""
        codes = self.file.tolist()
        kinds = trace.files.kind
        empty = ("",) * len(codes)
        renamed = Files(empty, tuple(kinds[code] for code in codes), empty, empty)
        return replace(trace, files=renamed)


def partial(name: str, reduction: Reduction, bundle: Bundle) -> Any:  # noqa: ANN401
    """The value of the reduction of that name over all parts of a bundle."""
    if name in _BUNDLED:
        return _BUNDLED[name](bundle)
    if name in _ANY_PROCESS:
        return reduction.partial(bundle.rows, bundle.trace)
    value = reduction.NOTHING
    for part in bundle.parts:
        one = reduction.partial(part, bundle.trace)
        value = value if one is reduction.NOTHING else reduction.combine(value, one)
    return value


def _timeline(bundle: Bundle) -> timeline.Bins:
    rows, job = bundle.rows, bundle.trace.job
    ranks = len(bundle.trace.ranks)
    keys = [timeline.row_of(position, ranks) for position in bundle.position.tolist()]
    labels, of_part = np.unique(keys, return_inverse=True)
    row = of_part[bundle.part] * timeline.BINS
    bounds = timebins.edges(job.start_ns, job.end_ns, timeline.JOB_BINS)
    wide = timeline.JOB_BINS // timeline.BINS
    whole = np.zeros((4, timeline.JOB_BINS), np.int64)
    by_row = np.zeros((4, len(labels) * timeline.BINS), np.int64)
    for op in (READ, WRITE):
        mine = np.flatnonzero(rows.op == op)
        start, nbytes = rows.start[mine], rows.nbytes[mine]
        for owner, at, share in timebins.shares(start, rows.end[mine], nbytes, bounds):
            np.add.at(whole[op], at, share)
            np.add.at(by_row[op], row[mine[owner]] + at // wide, share)
        at = timebins.bin_of(start, bounds)
        np.add.at(whole[2 + op], at, 1)
        np.add.at(by_row[2 + op], row[mine] + at // wide, 1)
    rows_of = by_row.reshape(4, len(labels), timeline.BINS).transpose(1, 0, 2)
    return timeline.Bins(whole, dict(zip(labels.tolist(), rows_of, strict=True)))


def _operations(bundle: Bundle) -> operations.Operations:
    rows, (positions, place) = bundle.rows, bundle.places
    n = len(positions)
    both = place * 2 + (rows.op == WRITE)
    counts = np.bincount(both, minlength=2 * n).reshape(n, 2)
    nbytes = added(both, rows.nbytes, 2 * n).reshape(n, 2)
    spent = added(place, rows.end - rows.start, n)
    sums = np.concatenate([counts, nbytes, spent[:, None]], axis=1).tolist()
    whole = operations.partial(rows, bundle.trace)
    return replace(
        whole,
        totals={p: Totals(*row) for p, row in zip(positions, sums, strict=True)},
        busy=dict(zip(positions, unions(place, rows.start, rows.end, n), strict=True)),
    )


def _access(bundle: Bundle) -> access.Runs:
    runs = access.partial(bundle.apart.rows, bundle.trace)
    return replace(runs, border=bundle.named(runs.border))


def _files(bundle: Bundle) -> files.FileSums:
    apart = bundle.apart
    found = files.partial(apart.rows, apart.trace(bundle.trace))
    file, position = apart.file[found.file], bundle.position[apart.part[found.file]]
    order = np.argsort(file, kind="stable")
    columns = (file, found.sums, found.first, found.last)
    touched = distinct(file * _POSITIONS + position + 1)
    return files.FileSums(*files.grouped(*(c[order] for c in columns)), touched, _busy(bundle))


def _busy(bundle: Bundle) -> dict[tuple[str, str, int], Intervals]:
    """Busy time of each group of files and position; equal sets of files share theirs."""
    rows, (positions, place) = bundle.rows, bundle.places
    codes, of_row = compact(rows.file)
    found: dict[bytes, list[Intervals]] = {}
    busy: dict[tuple[str, str, int], Intervals] = {}
    for group in ("kind", "mount", "file_system"):
        values: tuple[str, ...] = getattr(bundle.trace.files, group)
        names = np.array([values[code] for code in codes.tolist()], object)
        for name in sorted(set(names.tolist())):
            members = names == name
            key = members.tobytes()
            if key not in found:
                mine = members[of_row]
                found[key] = unions(place[mine], rows.start[mine], rows.end[mine], len(positions))
            pairs = zip(positions, found[key], strict=True)
            busy |= {(group, name, p): spans for p, spans in pairs if len(spans.start)}
    return busy


def _dataset(bundle: Bundle) -> dataset.Uses:
    apart = bundle.apart
    uses = dataset.partial(apart.rows, apart.trace(bundle.trace))
    if len(uses.key) == 0:
        return dataset.NOTHING
    code = uses.key // _POSITIONS
    key = apart.file[code] * _POSITIONS + bundle.position[apart.part[code]] + 1
    order = np.argsort(key, kind="stable")
    sums = (column[order] for column in (key, uses.sums, uses.first, uses.last))
    (held,) = uses.cover.values()
    code, in_time = np.divmod(uses.grid[0], dataset.TIME_BINS)
    cells, place = np.unique(apart.file[code] * dataset.TIME_BINS + in_time, return_inverse=True)
    return dataset.Uses(
        *files.grouped(*sums),
        dict(_covers(held, bundle)),
        (cells, added(place, uses.grid[1], len(cells))),
        uses.sizes,
        replace(uses.runs, border=bundle.named(uses.runs.border)),
        visits.Borders(bundle.named(uses.borders.border), bundle.named(uses.borders.again)),
    )


def _covers(held: Cover, bundle: Bundle) -> Iterator[tuple[int, Cover]]:
    """(position + 1, the bytes that it read by file)."""
    apart, lengths = bundle.apart, np.diff(held.first)
    part = apart.part[held.key]
    position = bundle.position[part] + 1
    order = np.argsort(position, kind="stable")
    at = np.flatnonzero(np.diff(position[order], prepend=-1))
    for low, high in pairwise([*at.tolist(), len(order)]):
        some = order[low:high]
        file, many = apart.file[held.key[some]], lengths[some]
        first = np.append(0, np.cumsum(many))
        rows = np.repeat(held.first[some] - first[:-1], many) + np.arange(first[-1])
        ranges = held.start[rows], held.end[rows]
        # The files of one part are in order already; of several they may be the same.
        alone = part[some[0]] == part[some[-1]]
        of_files = Cover(file, first, *ranges)
        own = of_files if alone else cover.covered(np.repeat(file, many), *ranges)
        yield int(position[some[0]]), own


def _workers(bundle: Bundle) -> dict[int, workers.Sums]:
    kinds = bundle.trace.files.kind
    is_data = np.array([kind == dataset.KIND for kind in kinds], bool)
    mine = is_data[bundle.rows.file] & (bundle.rows.op == READ)
    processes, place = compact(bundle.process[bundle.part[mine]])
    n = len(processes)
    start, end = bundle.rows.start[mine], bundle.rows.end[mine]
    sums = (added(place, bundle.rows.nbytes[mine], n), added(place, end - start, n))
    columns = (*sums, *extremes(place, start, end, n))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(processes.tolist(), rows, strict=True))


_ANY_PROCESS = frozenset({"checkpoints", "coverage", "filetimeline", "sizes"})
"""Reductions that do not look at the process of a part."""

_BUNDLED: dict[str, Callable[[Bundle], Any]] = {
    "timeline": _timeline,
    "operations": _operations,
    "access": _access,
    "files": _files,
    "dataset": _dataset,
    "workers": _workers,
}
"""By the name of the reduction; what is in neither goes part by part."""


def unions(place: NDArray[np.intp], start: Int64Array, end: Int64Array, n: int) -> list[Intervals]:
    """`intervals.union` of the intervals of each place in [0, n).

    All places are laid out behind one another in time, so that one union does for all.
    """
    if len(start) == 0:
        return [intervals.EMPTY] * n
    since = int(start.min())
    length = int(end.max()) - since + 1
    if n * length > _SAFE:
        return [intervals.union(start[place == i], end[place == i]) for i in range(n)]
    shift = place * length - since
    union = intervals.union(start + shift, end + shift)
    first = np.searchsorted(union.start, np.arange(n + 1) * length)
    back = np.repeat(np.arange(n) * length - since, np.diff(first))
    starts, ends = union.start - back, union.end - back
    return [Intervals(starts[a:b], ends[a:b]) for a, b in pairwise(first.tolist())]
