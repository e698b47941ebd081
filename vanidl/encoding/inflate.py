"""Decompression of untrusted regions: stream by stream, bounded, salvaging what is whole."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from typing import Any, Protocol

from vanidl.encoding.budget import Budget
from vanidl.encoding.file_bytes import AnyBytes
from vanidl.schema.dataclass import dataclass

try:
    from isal import isal_zlib as fastest
except ImportError:  # no wheel for every platform; zlib is slower and says the same
    import zlib as fastest  # type: ignore[no-redef]

_FIRST_PIECE = 16 << 10
_LARGEST_PIECE = 4 << 20
_PROBE = 4 << 10  # bytes behind what looks like the begin of a stream, to see whether it is one
_MOST_PART = 1 << 20  # inflated at a time
_MOST_AT_ONCE = 4 << 20  # of a short region: real ones reach half of it
_AHEAD_STREAM = 64 << 10  # from here on a second thread is worth it
_AHEAD_WINDOW = 64 << 20  # most of it is held inflated in memory
_OWN_SHARE = 40  # percent of a window: what is inflated here is also decoded here meanwhile


class _Inflater(Protocol):
    """What zlib's, isal's and bz2's objects have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: memoryview | bytes, max_length: int, /) -> bytes: ...


_Opener = Callable[[], _Inflater]
_OPENERS: dict[str, _Opener] = {
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


def streams(
    region: AnyBytes, compression: str, *, cut: bool, budget: Budget | None = None
) -> Iterator[Stream]:
    """The streams of a region in turn, up to the first damage.

    Args:
        region: The compressed bytes at hand.
        compression: "zlib", "bz2" or "none".
        cut: The file ends before the region does. Only then is the beginning of an
            unfinished stream trusted: else its end is missing because it is damaged.
        budget: Of the file; by default that of a file which is the region.
    """
    if compression == "none":
        yield Stream(region[:], len(region), _CUT if cut else "")
        return
    budget = budget or Budget.of_file(len(region))
    last = Stream(b"", 0)
    if only := only_stream(region, compression, budget):
        last = only
        yield only
    elif len(region) <= _AHEAD_STREAM:  # starting a thread would take longer
        for last in _inflate_streams(region, 0, len(region), _OPENERS[compression], budget):
            yield _trust_stream(last, cut=cut)
    else:
        with ThreadPoolExecutor(1) as pool:
            for last in _inflate_windows(region, _OPENERS[compression], pool, budget):
                yield _trust_stream(last, cut=cut)
    if cut and not last.problem:
        yield Stream(b"", last.end, _CUT)


def joined(
    region: AnyBytes, compression: str, *, cut: bool, budget: Budget | None = None
) -> tuple[bytes, str]:
    """All trusted bytes of a region, and what is wrong with it ("" for nothing)."""
    budget = budget or Budget.of_file(len(region))
    if only := only_stream(region, compression, budget):
        if not budget.hold(len(only.data)):
            return b"", _describe_excess(budget)
        return bytes(only.data), ""
    text, problem = BytesIO(), ""
    for part in streams(region, compression, cut=cut, budget=budget):
        if not budget.hold(len(part.data)):
            return text.getvalue(), _describe_excess(budget)
        text.write(part.data)
        problem = part.problem
    return text.getvalue(), problem


def damage(region: AnyBytes, compression: str, budget: Budget) -> str:
    """What is wrong with a whole region whose content is of no use; "" for nothing."""
    problem = ""
    for part in streams(region, compression, cut=False, budget=budget):
        problem = part.problem
    return problem


def only_stream(region: AnyBytes, compression: str, budget: Budget) -> Stream | None:
    """The stream that fills a short region, as in logs of one process; None for anything else."""
    if len(region) > _FIRST_PIECE or compression not in _OPENERS:
        return None
    inflater, most = _OPENERS[compression](), min(_MOST_AT_ONCE, max(0, budget.text_bytes))
    try:
        data = inflater.decompress(region[:], most + 1)
    except _ERRORS:
        return None
    if not inflater.eof or inflater.unused_data or len(data) > most:
        return None
    return Stream(data, len(region)) if budget.inflate(len(data)) else None


_CUT = "its end is missing"


def _describe_excess(budget: Budget) -> str:
    limit = budget.text_limit if budget.text_bytes < 0 else budget.memory_limit
    return f"decompressed size exceeds {limit}"


def _trust_stream(stream: Stream, *, cut: bool) -> Stream:
    if not stream.problem or (cut and stream.problem == _CUT):
        return stream
    problem = "its last stream is damaged" if stream.problem == _CUT else stream.problem
    return Stream(b"", stream.end, problem)


def _inflate_windows(
    region: AnyBytes, opener: _Opener, pool: ThreadPoolExecutor, budget: Budget
) -> Iterator[Stream]:
    """The streams of a region, window by window, of each the later part by a second thread."""
    last = Stream(b"", 0)
    for last in _inflate_streams(region, 0, 1, opener, budget):
        yield last
    # Then this thread inflates the first part of a window and a second thread the later one.
    first = last.end
    ahead = _start_ahead(region, (first, first), opener, pool, budget)
    while last.end < len(region) and not last.problem:
        begin = last.end
        for last in _inflate_streams(region, begin, ahead.start, opener, budget):
            yield last
        if last.problem:
            return
        begin = last.end
        found = ahead.behind(begin)
        if found:  # the next ones are inflated while these are used
            ahead = _start_ahead(region, (first, found[-1].end), opener, pool, budget)
        for last in found or _inflate_streams(region, begin, ahead.stop, opener, budget):
            yield last
        if not found:
            ahead = _start_ahead(region, (first, last.end), opener, pool, budget)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What a second thread inflates: the streams from where one seems to start up to `stop`."""

    start: int
    stop: int
    streams: Future[list[Stream]] | None

    def behind(self, position: int) -> list[Stream]:
        """The streams from a position on; none where they were looked for elsewhere."""
        return self.streams.result() if self.streams and position == self.start else []


def _start_ahead(
    region: AnyBytes,
    places: tuple[int, int],
    opener: _Opener,
    pool: ThreadPoolExecutor,
    budget: Budget,
) -> _Ahead:
    """Starts the second thread on a window; places: bytes of the first stream, window's start."""
    stop = min(len(region), places[1] + _AHEAD_WINDOW)
    start = _guess_start(region, places, stop, opener)
    later = _inflate_streams(region, start, stop, opener, budget)
    return _Ahead(start, stop, pool.submit(list, later) if start < stop else None)


def _guess_start(region: AnyBytes, places: tuple[int, int], stop: int, opener: _Opener) -> int:
    """Where behind the first share of a window a stream seems to start; `stop` for nowhere.

    A guess from the two bytes that the region's own start has, too: right or wrong, only
    streams that the ones before lead to are used. `places`: bytes of the region's first stream,
    start of the window; where streams are short, two threads only wait for each other.
    """
    if places[0] < _AHEAD_STREAM:
        return stop
    found = places[1] + (stop - places[1]) * _OWN_SHARE // 100
    while found < stop:
        window = bytes(region[found : min(found + _LARGEST_PIECE, stop)])
        at = -1
        while (at := window.find(region[:2], at + 1)) >= 0:
            # Chance bytes are found out within a few hundred.
            with suppress(*_ERRORS):
                opener().decompress(region[found + at : found + at + _PROBE], _PROBE)
                return found + at
        found += len(window)
    return stop


def _inflate_streams(
    region: AnyBytes, position: int, stop: int, opener: _Opener, budget: Budget
) -> Iterator[Stream]:
    """The streams from a position on that start before `stop`, up to the first damage."""
    piece = _FIRST_PIECE
    while position < stop:
        stream = _inflate_stream(region, position, opener(), piece, budget)
        yield stream
        if stream.problem:
            return
        # The next stream is likely as long: one piece then holds it, and little is copied.
        piece = min(_LARGEST_PIECE, max(_FIRST_PIECE, (stream.end - position) * 9 // 8))
        position = stream.end


def _inflate_stream(
    region: AnyBytes, start: int, inflater: _Inflater, piece: int, budget: Budget
) -> Stream:
    """The stream that begins at `start`; `piece`: how much of the region to feed first."""
    text: bytes | bytearray = b""
    position = start
    while not inflater.eof:
        if position >= len(region):
            return Stream(memoryview(text).toreadonly(), position, _CUT)
        try:
            for part in _inflate_parts(inflater, region[position : position + piece], budget):
                text = _append_part(text, part)
                # Of damaged streams, too: it was work.
                if not budget.inflate(len(part)) or len(text) > budget.held_bytes:
                    return Stream(b"", position, _describe_excess(budget))
        except _ERRORS as error:
            return Stream(b"", position, f"damaged data after byte {start:,} of it ({error})")
        position += piece
        piece = min(2 * piece, _LARGEST_PIECE)
    end = min(position, len(region)) - len(inflater.unused_data)
    return Stream(memoryview(text).toreadonly(), end)


def _append_part(text: bytes | bytearray, part: bytes) -> bytes | bytearray:
    """A long text grows in its place; most streams are one part, which is not copied."""
    if not text:
        return part
    if isinstance(text, bytes):
        text = bytearray(text)
    text += part
    return text


def _inflate_parts(inflater: _Inflater, data: memoryview, budget: Budget) -> Iterator[bytes]:
    """What the bytes inflate to, in parts: the inflaters' own buffers take twice their length."""
    fed: memoryview | bytes = data
    while True:
        most = min(_MOST_PART, max(0, budget.text_bytes) + 1)
        part = inflater.decompress(fed, most)
        yield part
        if len(part) < most or inflater.eof:
            return
        fed = getattr(inflater, "unconsumed_tail", b"")  # bz2 keeps it itself
