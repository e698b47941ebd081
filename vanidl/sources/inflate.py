"""Decompression of untrusted regions: stream by stream, bounded, salvaging what is whole."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

try:
    from isal import isal_zlib as fastest
except ImportError:  # no wheel for every platform; zlib is slower and says the same
    import zlib as fastest  # type: ignore[no-redef]

FREE_BYTES = 64 << 20
LARGEST_RATIO = 128
"""A region may inflate to FREE_BYTES + LARGEST_RATIO times its size: real ones reach 20."""

_FIRST_PIECE = 16 << 10
_LARGEST_PIECE = 4 << 20


class _Inflater(Protocol):
    """What zlib's, isal's and bz2's objects have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: memoryview, max_length: int, /) -> bytes: ...


_OPENERS: dict[str, Callable[[], _Inflater]] = {
    "zlib": fastest.decompressobj,
    "bz2": bz2.BZ2Decompressor,
}
_ERRORS: tuple[Any, ...] = (fastest.error, OSError)


@dataclass(frozen=True, slots=True)
class Stream:
    """One decompressed stream of a region.

    `problem` is "" for a whole one, else what is wrong with it as half a sentence; then
    it is the last one. `data` holds what may be trusted: of a stream whose end is missing
    all that came before, of a damaged stream nothing.
    """

    data: bytes | memoryview
    end: int  # bytes of the region used so far
    problem: str = ""


def streams(region: memoryview, compression: str, *, cut: bool) -> Iterator[Stream]:
    """The streams of a region in turn, up to the first damage.

    Args:
        region: The compressed bytes at hand.
        compression: "zlib", "bz2" or "none".
        cut: The file ends before the region does. Only then is the beginning of an
            unfinished stream trusted: else its end is missing because it is damaged.
    """
    if compression == "none":
        yield Stream(region, len(region), _CUT if cut else "")
        return
    position, budget, piece = 0, FREE_BYTES + LARGEST_RATIO * len(region), _FIRST_PIECE
    while position < len(region):
        stream = _next_stream(region, position, _OPENERS[compression](), (piece, budget))
        if stream.problem:
            yield stream if cut and stream.problem == _CUT else _dropped(stream)
            return
        yield stream
        # The next stream is likely as long: one piece then holds it, and little is copied.
        piece = min(_LARGEST_PIECE, max(_FIRST_PIECE, (stream.end - position) * 9 // 8))
        position, budget = stream.end, budget - len(stream.data)
    if cut:
        yield Stream(b"", position, _CUT)


def joined(region: memoryview, compression: str, *, cut: bool) -> tuple[bytes, str]:
    """All trusted bytes of a region, and what is wrong with it ("" for nothing)."""
    parts = list(streams(region, compression, cut=cut))
    return b"".join(part.data for part in parts), parts[-1].problem if parts else ""


_CUT = "its end is missing"


def _dropped(stream: Stream) -> Stream:
    problem = "its last stream is damaged" if stream.problem == _CUT else stream.problem
    return Stream(b"", stream.end, problem)


def _next_stream(
    region: memoryview, start: int, inflater: _Inflater, limits: tuple[int, int]
) -> Stream:
    """The stream that begins at `start`; limits: first piece to feed, bytes to return."""
    piece, budget = limits
    parts: list[bytes] = []
    position = start
    while not inflater.eof:
        if position >= len(region):
            return Stream(b"".join(parts), position, _CUT)
        try:
            parts.append(inflater.decompress(region[position : position + piece], budget + 1))
        except _ERRORS as error:
            return Stream(b"", position, f"damaged data after byte {start:,} of it ({error})")
        position += piece
        budget -= len(parts[-1])
        if budget < 0:
            return Stream(b"", position, "it inflates beyond all measure")
        piece = min(2 * piece, _LARGEST_PIECE)
    end = min(position, len(region)) - len(inflater.unused_data)
    return Stream(parts[0] if len(parts) == 1 else b"".join(parts), end)
