"""Dividing an array among the ranks that share a sample: boxes, a process grid, halos and edges.

A box is half-open ranges, one an axis: what boxes share, and how they lie in a file in C order.
`Division` says which box, with which halo, each part needs; `Sharing` which ranks are the parts of
a sample: groups of P ranks, as many groups as there are times P ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..loader.loader import Settings
from ..ranks.world import World

Box = tuple[tuple[int, int], ...]
"""(start, stop) of each axis, half-open."""


def whole(shape: tuple[int, ...]) -> Box:
    """The box that is all of an array."""
    return tuple((0, n) for n in shape)


def count_extent(box: Box) -> tuple[int, ...]:
    """Shape of a box."""
    return tuple(stop - start for start, stop in box)


def count_elements(box: Box) -> int:
    """Elements of a box; 1 for no axes."""
    return math.prod(count_extent(box))


def index_slices(box: Box) -> tuple[Any, ...]:
    """The box as an index of NumPy and h5py: a view, of an array without axes too."""
    return (..., *(slice(*each) for each in box))


def shift_into(box: Box, outer: Box) -> Box:
    """The same box, counted from the corner of `outer`."""
    return tuple((a - low, b - low) for (a, b), (low, _) in zip(box, outer, strict=True))


def shift_out_of(box: Box, outer: Box) -> Box:
    """A box that is counted from the corner of `outer`, counted as that is: undoes `shift_into`."""
    return tuple((a + low, b + low) for (a, b), (low, _) in zip(box, outer, strict=True))


def intersect(one: Box, other: Box) -> Box | None:
    """What two boxes share; None where that is empty."""
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return shared if all(start < stop for start, stop in shared) else None


def run_length(shape: tuple[int, ...], box: Box) -> int:
    """Elements of the box that lie one behind the other in a C-ordered array of `shape`."""
    length = 1
    for n, (start, stop) in zip(reversed(shape), reversed(box), strict=True):
        length *= stop - start
        # The run goes on over the next axis only where the box covers this one.
        if stop - start != n:
            break
    return length


def run_starts(shape: tuple[int, ...], box: Box) -> NDArray[np.int64]:
    """First element of each contiguous run of the box, ascending, counted in the whole array."""
    starts, stride = np.zeros(1, np.int64), 1
    merged = True
    for n, (start, stop) in zip(reversed(shape), reversed(box), strict=True):
        if merged:  # the run goes on through this axis
            starts = starts + start * stride
            merged = stop - start == n
        else:
            # An axis in front of a broken one: a run begins at each of its places.
            along = np.arange(start, stop, dtype=np.int64) * stride
            starts = (along[:, None] + starts[None, :]).ravel()
        stride *= n
    return starts


def split_range_into_boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Boxes that together are the elements [start, stop) of a C-ordered array, in that order.

    At most 2 * axes - 1 of them: whole rows in the middle, broken ones at the ends.
    """
    if start >= stop:
        return
    if len(shape) == 1:
        yield ((start, stop),)
        return
    # Rows of the first axis that are whole are one box; the ends of the range are cut further.
    inner = math.prod(shape[1:])
    first, last = -(-start // inner), stop // inner
    if first > last:  # both ends in one row
        yield from _split_row(shape, last, start - last * inner, stop - last * inner)
        return
    if start < first * inner:
        yield from _split_row(shape, first - 1, start - (first - 1) * inner, inner)
    if first < last:
        yield ((first, last), *whole(shape[1:]))
    if last * inner < stop:
        yield from _split_row(shape, last, 0, stop - last * inner)


def _split_row(shape: tuple[int, ...], row: int, start: int, stop: int) -> Iterator[Box]:
    for box in split_range_into_boxes(shape[1:], start, stop):
        yield ((row, row + 1), *box)


EDGES = ("zero", "clamp", "periodic")
"""What a halo holds beyond the array: zeros, the nearest element, or the opposite side."""


@dataclass(frozen=True)
class Piece:
    """A box of the stored array, and where it goes in the array that is read."""

    source: Box
    target: Box


@dataclass(frozen=True)
class Window:
    """One rank's block with its halo: what to read, and what to make of it.

    Attributes:
        shape: Of the array that is read: the part of block and halo inside the stored array.
        pieces: Boxes that fill it, each element once.
        pads: Elements to add before and after each axis, beyond the array's edges.
        wraps: For each axis that is read in full because the window goes around it: its first
            index, which may be negative, and its length; else None.
        edges: One of `EDGES`.
    """

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    pads: tuple[tuple[int, int], ...]
    wraps: tuple[tuple[int, int] | None, ...]
    edges: str = "zero"

    @property
    def plain(self) -> bool:
        """True where what is read is the window itself."""
        return not any(any(pad) for pad in self.pads) and not any(self.wraps)

    @property
    def full_shape(self) -> tuple[int, ...]:
        """Shape of the window, halo included."""
        pairs = zip(self.shape, self.pads, self.wraps, strict=True)
        return tuple(wrap[1] if wrap else n + sum(pad) for n, pad, wrap in pairs)

    def finish(self, read: NDArray[Any]) -> NDArray[Any]:
        """The window, made from the array that was read."""
        for axis, wrap in enumerate(self.wraps):
            if wrap:
                # Periodic: indices go around the axis, which was read in full.
                around = np.arange(wrap[0], wrap[0] + wrap[1]) % read.shape[axis]
                read = np.take(read, around, axis)
        if not any(any(pad) for pad in self.pads):
            return read
        return np.pad(read, self.pads, mode="edge" if self.edges == "clamp" else "constant")


@dataclass(frozen=True)
class Division:
    """How an array is divided.

    Attributes:
        grid: Parts along each axis; their product is the number of ranks that share a sample.
        halo: Elements read beyond the block: along each axis, or one number for each axis that
            the grid divides. Where ranks exchange halos themselves, as DistConv does, leave 0.
        edges: One of `EDGES`.
    """

    grid: tuple[int, ...]
    halo: int | tuple[int, ...] = 0
    edges: str = "zero"

    def __post_init__(self) -> None:
        widths = self.halo if isinstance(self.halo, tuple) else (self.halo,)
        if min(self.grid, default=1) < 1 or min(widths, default=0) < 0:
            raise UsageError(f"expected parts of 1 or more and a halo of 0 or more, found {self}")
        if self.edges not in EDGES:
            raise UsageError(f"expected edges among {', '.join(EDGES)}, found {self.edges}")
        if isinstance(self.halo, tuple) and len(self.halo) != len(self.grid):
            raise UsageError(f"expected a halo width an axis of {self.grid}, found {self.halo}")

    @property
    def parts(self) -> int:
        """Ranks that share a sample."""
        return math.prod(self.grid)

    @property
    def widths(self) -> tuple[int, ...]:
        """Halo of each axis."""
        if isinstance(self.halo, tuple):
            return self.halo
        return tuple(self.halo if parts > 1 else 0 for parts in self.grid)

    def block(self, shape: tuple[int, ...], part: int) -> Box:
        """The block of one part, without halo. Parts are numbered in C order of the grid.

        Raises:
            UsageError: The array has other axes than the grid, or one shorter than its parts.
        """
        if len(shape) != len(self.grid) or any(
            n < parts for n, parts in zip(shape, self.grid, strict=True)
        ):
            raise UsageError(
                f"expected an array with the axes of the grid {self.grid}, none shorter than its "
                f"parts, found shape {shape}: choose another grid"
            )
        # Parts are numbered in C order of the grid; axes are cut on their own.
        place = np.unravel_index(part, self.grid)
        cuts = (divide_evenly(n, parts) for n, parts in zip(shape, self.grid, strict=True))
        return tuple((cut[i], cut[i + 1]) for cut, i in zip(cuts, place, strict=True))

    def window(self, shape: tuple[int, ...], part: int) -> Window:
        """The block of one part with its halo.

        Raises:
            UsageError: See `block`.
        """
        block = self.block(shape, part)
        # Axes are independent: ranges to read, padding and wrapping of each, then their product.
        axes = [
            _divide_axis(n, start - width, stop + width, self.edges)
            for n, (start, stop), width in zip(shape, block, self.widths, strict=True)
        ]
        # Ranges of an axis are read one behind the other.
        placed = []
        for axis in axes:
            ends = np.cumsum([0, *(b - a for a, b in axis.sources)]).tolist()
            placed.append(list(zip(axis.sources, pairwise(ends), strict=True)))
        pieces = (
            Piece(tuple(source for source, _ in each), tuple(target for _, target in each))
            for each in product(*placed)
        )
        return Window(
            tuple(sum(b - a for a, b in axis.sources) for axis in axes),
            tuple(pieces),
            tuple(axis.pad for axis in axes),
            tuple(axis.wrap for axis in axes),
            self.edges,
        )


def divide_evenly(n: int, parts: int) -> tuple[int, ...]:
    """Where `parts` blocks of n elements begin, and n: sizes differ by 1 at most, larger first."""
    size, larger = divmod(n, parts)
    return tuple(i * size + min(i, larger) for i in range(parts + 1))


def make_plain_window(shape: tuple[int, ...], box: Box) -> Window:
    """The window that is a box inside an array of `shape`."""
    assert len(shape) == len(box)
    target = tuple((0, n) for n in count_extent(box))
    none: tuple[tuple[int, int] | None, ...] = (None,) * len(box)
    return Window(count_extent(box), (Piece(box, target),), ((0, 0),) * len(box), none)


@dataclass(frozen=True)
class _Axis:
    """Ranges to read along one axis in order, and what is to be added."""

    sources: tuple[tuple[int, int], ...]
    pad: tuple[int, int] = (0, 0)
    wrap: tuple[int, int] | None = None


def _divide_axis(n: int, low: int, high: int, edges: str) -> _Axis:
    """[low, high) along an axis of n elements, of which a part may be outside."""
    # Inside, padded, around the whole axis, or from the opposite side: in this order.
    inside = (max(low, 0), min(high, n))
    if inside == (low, high):
        return _Axis((inside,))
    if edges != "periodic":
        return _Axis((inside,), (inside[0] - low, high - inside[1]))
    if high - low >= n:  # around the whole axis: every element is read once, then repeated
        return _Axis(((0, n),), wrap=(low, high - low))
    before = ((low + n, n),) if low < 0 else ()
    after = ((0, high - n),) if high > n else ()
    return _Axis((*before, inside, *after))


@dataclass(frozen=True)
class Sharing:
    """Ranks in groups: rank r is part r mod P of group r div P."""

    world: World
    parts: int

    def __post_init__(self) -> None:
        if self.world.ranks % self.parts:
            raise UsageError(
                f"expected a number of ranks that {self.parts} parts per sample divide, found "
                f"{self.world.ranks}: choose another grid or number of ranks"
            )

    @property
    def groups(self) -> int:
        """Samples that are under way at a time."""
        return self.world.ranks // self.parts

    @property
    def group(self) -> int:
        """Of this rank."""
        return self.world.rank // self.parts

    @property
    def part(self) -> int:
        """Of this rank in its group."""
        return self.world.rank % self.parts

    def rank_of(self, group: int, part: int) -> int:
        """The rank that is a part of a group."""
        return group * self.parts + part

    def of_groups(self, settings: Settings) -> Settings:
        """The settings in which a group is what a rank is elsewhere: ids are dealt to groups."""
        world = World(self.group, self.groups, 0, 1, self.world.source)
        return replace(settings, world=world)
