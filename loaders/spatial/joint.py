"""Reading in two phases: each rank reads a share of the array in one piece, then ranks exchange.

Worth it where a block consists of short runs. Each share has as many elements as its rank's
block, so every byte of the array is read once, also with a halo, and each rank reads exactly as
much as its block holds. It is what MPI-IO's collective reads do, with two differences: it works
without MPI, and ranks agree that all have read before they exchange.

With everything in the first share it is the scatter that spatial parallelism replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .boxes import (
    Box,
    boxes_of_range,
    extent,
    intersection,
    slices,
    volume,
    within,
)
from .grid import Division, Window


@dataclass(frozen=True)
class Transfer:
    """A box of the array that `sender` has read and `receiver` needs.

    Attributes:
        sender: Part that read it.
        receiver: Part whose window holds it.
        begin: First element of `held`, counted from the begin of the sender's share.
        held: The box in C order in the sender's share, of which `cut` is sent.
        cut: What is sent, counted from the corner of `held`.
        target: Where it goes in the array that the receiver's window reads.
    """

    sender: int
    receiver: int
    begin: int
    held: Box
    cut: Box
    target: Box

    def view(self, share: NDArray[Any]) -> NDArray[Any]:
        """The elements in the sender's share (flat)."""
        held = share[self.begin : self.begin + volume(self.held)].reshape(extent(self.held))
        return held[slices(self.cut)]

    def take(self, share: NDArray[Any]) -> NDArray[Any]:
        """The elements to send, contiguous."""
        return np.ascontiguousarray(self.view(share))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is sent."""
        return extent(self.cut)


@dataclass(frozen=True)
class Joint:
    """Shares of all parts, [start, stop) in C order of the array, and what they exchange."""

    shares: tuple[tuple[int, int], ...]
    transfers: tuple[Transfer, ...]

    def sent(self, part: int) -> list[Transfer]:
        """What a part gives away, in order."""
        return [each for each in self.transfers if each.sender == part != each.receiver]

    def received(self, part: int) -> list[Transfer]:
        """What a part gets, in order."""
        return [each for each in self.transfers if each.receiver == part != each.sender]

    def kept(self, part: int) -> list[Transfer]:
        """What a part has read itself."""
        return [each for each in self.transfers if each.receiver == part == each.sender]


def level_shares(shape: tuple[int, ...], division: Division) -> Joint:
    """Shares as large as the blocks."""
    sizes = [volume(division.block(shape, part)) for part in range(division.parts)]
    ends = list(accumulate(sizes, initial=0))
    return _joint(shape, division, list(pairwise(ends)))


def first_has_all(shape: tuple[int, ...], division: Division) -> Joint:
    """All in the share of part 0."""
    everything = volume(tuple((0, n) for n in shape))
    rest = [(everything, everything)] * (division.parts - 1)
    return _joint(shape, division, [(0, everything), *rest])


def _joint(shape: tuple[int, ...], division: Division, shares: Sequence[tuple[int, int]]) -> Joint:
    windows = [division.window(shape, part) for part in range(division.parts)]
    transfers = [
        each
        for sender, share in enumerate(shares)
        for receiver, window in enumerate(windows)
        for each in _between(shape, share, window, (sender, receiver))
    ]
    return Joint(tuple(shares), tuple(transfers))


def _between(
    shape: tuple[int, ...], share: tuple[int, int], window: Window, ends: tuple[int, int]
) -> list[Transfer]:
    found, begin = [], 0
    for held in boxes_of_range(shape, *share):
        for piece in window.pieces:
            common = intersection(held, piece.source)
            if common is not None:
                low = within(common, piece.source)
                target = tuple(
                    (a + t, b + t) for (a, b), (t, _) in zip(low, piece.target, strict=True)
                )
                found.append(Transfer(*ends, begin, held, within(common, held), target))
        begin += volume(held)
    return found
