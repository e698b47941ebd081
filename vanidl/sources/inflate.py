"""Decompression of untrusted regions: stream by stream, bounded, salvaging what is whole."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
_PROBE = 4 << 10
_AHEAD_BYTES = (1 << 20, 256 << 20)  # worth a second thread; and still held in memory


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
    opener = _OPENERS[compression]
    second = _later_start(region) if compression == "zlib" else len(region)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(_all_from, region, second, opener) if second < len(region) else None
        last = Stream(b"", 0)
        for last in _sequence(region, 0, second, opener):
            yield _trusted(last, cut=cut)
        if last.problem:
            return
        # The guess was right if the streams before it end exactly there.
        guessed = ahead is not None and last.end == second
        rest = ahead.result() if ahead and guessed else _sequence(region, last.end, None, opener)
        for last in rest:
            yield _trusted(last, cut=cut)
    if cut and not last.problem:
        yield Stream(b"", last.end, _CUT)


def joined(region: memoryview, compression: str, *, cut: bool) -> tuple[bytes, str]:
    """All trusted bytes of a region, and what is wrong with it ("" for nothing)."""
    parts = list(streams(region, compression, cut=cut))
    return b"".join(part.data for part in parts), parts[-1].problem if parts else ""


_CUT = "its end is missing"


def _trusted(stream: Stream, *, cut: bool) -> Stream:
    if not stream.problem or (cut and stream.problem == _CUT):
        return stream
    problem = "its last stream is damaged" if stream.problem == _CUT else stream.problem
    return Stream(b"", stream.end, problem)


def _later_start(region: memoryview) -> int:
    """Where about the middle of a region a stream seems to start; its length for nowhere.

    A guess: what follows is inflated ahead by a second thread, and used only if the
    streams before it lead there.
    """
    if not _AHEAD_BYTES[0] <= len(region) <= _AHEAD_BYTES[1]:
        return len(region)
    start = len(region) // 2
    window = bytes(region[start : start + _LARGEST_PIECE])
    at = -1
    while (at := window.find(region[:2], at + 1)) >= 0:
        try:
            # Chance bytes are found out within a few hundred.
            fastest.decompressobj().decompress(window[at : at + _PROBE], _PROBE)
        except _ERRORS:
            continue
        return start + at
    return len(region)


def _all_from(region: memoryview, start: int, opener: Callable[[], _Inflater]) -> list[Stream]:
    return list(_sequence(region, start, None, opener))


def _sequence(
    region: memoryview, position: int, stop: int | None, opener: Callable[[], _Inflater]
) -> Iterator[Stream]:
    """The streams from a position on that start before `stop`, up to the first damage."""
    stop = len(region) if stop is None else stop
    budget, piece = FREE_BYTES + LARGEST_RATIO * (len(region) - position), _FIRST_PIECE
    while position < stop:
        stream = _next_stream(region, position, opener(), (piece, budget))
        yield stream
        if stream.problem:
            return
        # The next stream is likely as long: one piece then holds it, and little is copied.
        piece = min(_LARGEST_PIECE, max(_FIRST_PIECE, (stream.end - position) * 9 // 8))
        position, budget = stream.end, budget - len(stream.data)


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
