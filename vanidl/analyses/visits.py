"""When a process begins to read a file, and when it begins again.

A visit of a file by a process begins with its first read of the file, and again whenever it
reads the lowest byte it ever reads there after having read elsewhere. So a file read from
start to end four times has four visits, whether alone or in turns with others; a file that
stays open and is read in random order has as many visits as its lowest sample was read. Where
the first read is not at the lowest byte, the first arrival there belongs to the first visit.
Reads of no bytes (at the end of a file) and reads without a recorded offset are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.by_file import ByFile
from vanidl.analyses.sorting import sorted_rows
from vanidl.model.ordering import stable_order
from vanidl.model.trace import Files

Int64Array = NDArray[np.int64]

BORDER = ("process", "file", "start", "offset", "nbytes",
          "last_start", "last_offset", "last_nbytes", "lowest")  # fmt: skip
MOST_ORDERED = 1 << 17


@dataclass(frozen=True, slots=True)
class Borders:
    """What parts need to be stitched: integers.

    `border` has one row a (part, file), the BORDER columns: first read, last read, lowest
    offset. `again` has one row for each return to that lowest offset inside a part: process,
    file, lowest, start in ns.
    """

    border: Int64Array
    again: Int64Array


NOTHING = Borders(np.empty((0, len(BORDER)), np.int64), np.empty((0, 4), np.int64))


@dataclass(frozen=True, slots=True)
class Visits:
    """All visits, sorted by (process, file, start); `ordinal` counts from 0 within both."""

    process: Int64Array
    file: Int64Array
    start: Int64Array  # ns since the start of the job
    ordinal: Int64Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class VisitOrder:
    """In which order processes begin to read files.

    `concordance` is the share of pairs of files, read by one process in one pass, that come in
    the order of their names (Kendall): 1 in order, 0.5 shuffled, 0 in reverse. `repeated` is
    the same against the process's own first pass: 1 where every pass has the same order.
    None: fewer than two files in a pass, or fewer than two passes.
    """

    name: str  # "in order", "reversed", "shuffled", "one file" or "not clear"
    concordance: float | None
    repeated: float | None
    visits: int  # how many visits the figures rest on


def partial(reads: ByFile) -> Borders:
    """The visits inside each part: of reads with offset and bytes."""
    if len(reads) == 0:
        return NOTHING
    start, offset, nbytes = reads.start, reads.offset, reads.nbytes
    first, last = reads.first[:-1], reads.first[1:] - 1
    lowest = np.minimum.reduceat(offset, first)
    low = np.flatnonzero(offset == reads.each_row(lowest))
    group = reads.each_of(np.arange(len(first)), low)
    # A return: not the first read of the file, nor right after another at the lowest byte.
    returns = (low > first[group]) & (np.diff(low, prepend=-2) > 1)
    again, group = low[returns], group[returns]
    border = (reads.process, reads.file, start[first], offset[first],
              nbytes[first], start[last], offset[last], nbytes[last], lowest)  # fmt: skip
    back = (reads.process[group], reads.file[group], lowest[group], start[again])
    return Borders(np.stack(border, axis=1), np.stack(back, axis=1))


def combine(a: Borders, b: Borders) -> Borders:
    """The visits of both; borders are stitched in `visits`."""
    return Borders(np.concatenate([a.border, b.border]), np.concatenate([a.again, b.again]))


def visits(borders: Borders, since_ns: int) -> Visits:
    """Every visit of every file by every process; starts counted from `since_ns`."""
    border = sorted_rows(borders.border)
    if len(border) == 0:
        none = np.empty(0, np.int64)
        return Visits(none, none, none, none)
    process, file, start, offset, _, _, last_offset, _, part_lowest = border.T
    begins = _changes(process, file)
    group = np.cumsum(begins) - 1
    lowest = np.minimum.reduceat(part_lowest, np.flatnonzero(begins))
    arrives = offset == lowest[group]
    was_there = np.concatenate([[False], (last_offset == lowest[group])[:-1]])
    stitched = ~begins & arrives & ~was_there
    inner = _returns(borders.again, process[begins], file[begins], lowest)
    stitches = np.stack([group[stitched], start[stitched]], axis=1)
    later = sorted_rows(np.concatenate([stitches, inner]))
    all_group = np.concatenate([group[begins], later[:, 0]])
    all_start = np.concatenate([start[begins], later[:, 1]])
    if len(later):  # else in order as they are
        order = stable_order(all_group)  # of each the first read, then the returns by start
        all_group, all_start = all_group[order], all_start[order]
    ordinal = _ordinal(all_group)
    # A first read elsewhere and the first arrival at the lowest byte are one visit.
    keep = arrives[begins][all_group] | (ordinal != 1)
    all_group, all_start = all_group[keep], all_start[keep]
    return Visits(
        process[begins][all_group],
        file[begins][all_group],
        all_start - since_ns,
        _ordinal(all_group),
    )


def visit_order(found: Visits, files: Files) -> VisitOrder:
    """In which order processes begin to read files, over all passes."""
    order = _in_passes(found)[:MOST_ORDERED]
    process, ordinal, file = (c[order] for c in (found.process, found.ordinal, found.file))
    sequence = np.cumsum(_changes(process, ordinal)) - 1
    by_name = _natural_rank(np.unique(file), files)
    concordance, deviation = _concordance(sequence, by_name[np.searchsorted(np.unique(file), file)])
    first = ordinal == 0
    own = np.full(len(file), -1, np.int64)
    own[first] = np.arange(int(first.sum()))
    key = process * (len(files) + 1) + file
    place = stable_order(key[first])
    at = np.searchsorted(key[first][place], key)
    own = own[first][place][np.minimum(at, len(place) - 1)] if len(place) else own
    repeated, _ = _concordance(sequence[~first], own[~first])
    name = "one file" if len(by_name) == 1 else _order_name(concordance, deviation)
    return VisitOrder(name, concordance, repeated, len(file))


def _in_passes(found: Visits) -> NDArray[np.intp]:
    """Places of visits by process, pass and start; equal ones stay by file, as visits come."""
    order = stable_order(found.start)
    for key in (found.ordinal, found.process):
        order = order[stable_order(key[order])]
    return order


def _order_name(concordance: float | None, deviation: float) -> str:
    """What the figure shows beyond chance: three standard deviations of a random order."""
    if concordance is None:
        return "not clear"
    far = abs(concordance - 0.5) > 3 * deviation
    if far and abs(concordance - 0.5) >= 0.25:
        return "in order" if concordance > 0.5 else "reversed"
    return "shuffled" if deviation < 0.1 else "not clear"


def _concordance(sequence: Int64Array, value: Int64Array) -> tuple[float | None, float]:
    """Share of pairs in ascending order within sequences, and its deviation under chance.

    Variance of Kendall's tau of n items in random order: 2 (2n + 5) / (9 n (n - 1)).
    """
    counts = np.bincount(sequence)
    n = counts[counts > 1].astype(float)
    pairs = n * (n - 1) / 2
    if pairs.sum() == 0:
        return None, 0.0
    wide = int(value.max()) + 1
    discordant = inversions(sequence * wide + value)
    variance = (2 * (2 * n + 5) / (9 * n * (n - 1)) / 4 * pairs**2).sum() / pairs.sum() ** 2
    return 1 - discordant / float(pairs.sum()), float(np.sqrt(variance))


def inversions(values: Int64Array) -> int:
    """How many pairs i < j have values[i] > values[j].

    Merge sort, all blocks of a level at once, until all is in order: mostly it is at once.
    """
    total, width, n = 0, 1, len(values)
    position = np.arange(n)
    while width < n and (values[1:] < values[:-1]).any():
        block = position // (2 * width)
        order = np.lexsort((values, block))  # equal ones stay as they are
        is_left = (order // width) % 2 == 0
        seen = np.cumsum(is_left)
        lefts = np.bincount(block[is_left.nonzero()[0]], minlength=int(block[-1]) + 1)
        reach = np.cumsum(lefts)
        total += int((reach[block] - seen)[~is_left].sum())
        values, width = values[order], 2 * width
    return total


def _natural_rank(codes: Int64Array, files: Files) -> Int64Array:
    """Place of each file by name, numbers in names as numbers: part-2 before part-10."""
    if files.place:
        return np.argsort(np.argsort(np.array(files.place)[codes]))
    names = [natural(files.path[code]) for code in codes.tolist()]
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return rank


def natural(path: str) -> list[tuple[int, str]]:
    """A key that sorts names as people do: part-2 before part-10."""
    pieces = re.split(r"(\d{1,18})", path)
    return [(int(p), "") if i % 2 else (-1, p) for i, p in enumerate(pieces)]


def _changes(*columns: Int64Array) -> NDArray[np.bool_]:
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _ordinal(group: Int64Array) -> Int64Array:
    at = np.arange(len(group))
    begins = _changes(group)
    return at - np.maximum.accumulate(np.where(begins, at, 0))


def _returns(
    again: Int64Array, process: Int64Array, file: Int64Array, lowest: Int64Array
) -> Int64Array:
    """Group and start of the returns inside parts that reach the lowest byte of all parts."""
    wide = int(max(file.max(), again[:, 1].max(initial=0))) + 1
    group = np.searchsorted(process * wide + file, again[:, 0] * wide + again[:, 1])
    real = again[:, 2] == lowest[group]
    return np.stack([group[real], again[real, 3]], axis=1)
