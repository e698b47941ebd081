"""One file of vanidl's own tracer: `PID-START.calls`, plain or as one gzip member."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.text_stream import GZIP_MAGIC, TextStream
from vanidl.formatting.units import plural
from vanidl.readers.tracer.slots import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    COUNTER,
    COUNTER_BYTES,
    PAGE_BYTES,
    Anchors,
    Decoded,
    Header,
    decode_chunks,
    read_header,
)
from vanidl.schema.dataclass import dataclass

_NAME = re.compile(r"(\d+)-(\d+)\.calls(\.gz)?")
_FREE_BYTES = 256 << 20  # of a small file: a thread that made one call has 64 KiB, nearly all 0


@dataclass(frozen=True, slots=True)
class Clock:
    """What the monotonic clock was on the system's clock during one recording."""

    start_ns: int  # of the recording, since the epoch
    error_ns: int
    since_ns: NDArray[np.int64]  # from these instants of the recording on...
    shift_ns: NDArray[np.int64]  # ...the system's clock said so much more than before; often none

    @property
    def was_set(self) -> bool:
        """Whether the system's clock jumped meanwhile."""
        return bool(len(self.since_ns))

    def placed(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Instants since the start of the recording, as the system's clock said them."""
        if not len(self.since_ns):
            return times_ns
        at = np.searchsorted(self.since_ns, times_ns, "right") - 1
        return times_ns + np.where(at >= 0, self.shift_ns[at], 0)


@dataclass(frozen=True, slots=True)
class CallsFile:
    """What one process did, as its file says."""

    path: str
    header: Header
    found: Decoded
    counters: NDArray[np.void]  # records of `layout.COUNTER` that are in use
    clock: Clock
    losses: tuple[str, ...]


def read_calls(path: Path) -> CallsFile:
    """The calls of one process; of a damaged file everything whose check is right.

    Raises:
        InputError: it is something else.
        OSError: it cannot be read.
    """
    stream = TextStream(path)
    stream.budget.text_bytes += _FREE_BYTES
    blocks = _split_blocks(stream) if _is_packed(path) else _read_blocks(path)

    # The header and counters before the first chunk, then all chunks.
    first = bytes(next(blocks, b""))
    header = read_header(first, path)
    decoded, chunks = decode_chunks(blocks, header, stream.budget)
    if stream.packed:
        for _ in blocks:  # its checksum stands at its end
            pass
    losses = [stream.damage] if stream.damage else []
    if header.chunks > chunks:
        losses.append(
            f"it is cut: {plural(header.chunks, 'piece')} of {CHUNK_BYTES:,} bytes were written, "
            f"{chunks:,} are there"
        )

    # Counters lie behind the header and, where there are many, in chunks of their own.
    records = np.frombuffer(first[PAGE_BYTES:], np.uint8)
    records = records[: len(records) // COUNTER_BYTES * COUNTER_BYTES].view(COUNTER)
    counters = np.concatenate([records, decoded.counters])
    counters = counters[np.isin(counters["layer"], (1, 2))]
    clock = _find_clock(header, decoded.anchors)
    losses += _find_header_losses(path, header, decoded, counters, more=chunks - header.chunks)
    return CallsFile(str(path), header, decoded, counters, clock, (*losses, *decoded.losses))


def _is_packed(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _read_blocks(path: Path) -> Iterator[bytes | memoryview]:
    """As `_split_blocks`, of a file that is not packed.

    They lie in the same memory, one after the other: each is to be done with before the next.
    """
    block, size = memoryview(bytearray(BLOCK_BYTES)), CHUNK_BYTES
    with path.open("rb", buffering=0) as file:
        while filled := _fill_block(block[:size], file):
            yield block[:filled]
            size = BLOCK_BYTES


def _fill_block(block: memoryview, file: FileIO) -> int:
    """Reads as much as a block takes; less only at the end of the file."""
    filled = 0
    while filled < len(block) and (count := file.readinto(block[filled:])):
        filled += count
    return filled


def _split_blocks(stream: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """What comes before the first chunk, then so many chunks at once as fit a processor's cache."""
    held: list[bytes | memoryview] = []
    wanted = CHUNK_BYTES
    for piece in stream:
        rest = memoryview(piece)
        while len(rest) >= wanted:
            yield b"".join([*held, rest[:wanted]])
            rest, held, wanted = rest[wanted:], [], BLOCK_BYTES
        held.append(rest)
        wanted -= len(rest)
    yield b"".join(held)


def _find_header_losses(
    path: Path, header: Header, found: Decoded, counters: NDArray[np.void], *, more: int
) -> list[str]:
    """What header and counters, which have no check, say otherwise than the rest of the file."""
    wrong = []
    named = _NAME.fullmatch(path.name)
    if named and (int(named[1]), int(named[2])) != (header.pid, header.start_monotonic_ns):
        wrong.append("process or start are not those of the file's name")
    # A file that is written and not mapped gets its header last: of one killed it is of before.
    if more > 0 and (header.end_monotonic_ns or not header.written_every_ms):
        wrong.append(f"{plural(more, 'more piece')} of it was written than the header says")
    ahead = header.start_realtime_ns - header.start_monotonic_ns
    if len(found.anchors.ahead_ns):
        first = int(np.argmin(found.anchors.monotonic_ns))
        slack = int(found.anchors.error_ns[first]) + header.anchor_error_ns + _SAME_NS
        if abs(int(found.anchors.ahead_ns[first]) - ahead) > slack:
            wrong.append("its start is not on the clock of the calls")
    calls = sum(int(counters[name].sum()) for name in _CALLS)
    if header.end_monotonic_ns and calls != header.missing_calls:
        wrong.append(f"{header.missing_calls:,} calls are in counters, {calls:,} of them are there")
    sized = all(
        np.array_equal(counters[calls], counters[sizes].sum(axis=1))
        for calls, sizes in (("reads", "read_sizes"), ("writes", "write_sizes"))
    )
    if header.end_monotonic_ns and not sized:
        wrong.append("counters of reads and writes are not those of their sizes")
    return [f"its header or its counters are damaged: {'; '.join(wrong)}"] if wrong else []


_CALLS = ("reads", "writes", "opens", "closes", "seeks", "stats", "others", "syncs", "maps")


def _find_clock(header: Header, anchors: Anchors) -> Clock:
    """The clock by the anchor that is known best; where others disagree it was set meanwhile."""
    since, ahead, error = anchors.monotonic_ns, anchors.ahead_ns, anchors.error_ns
    if not len(since):  # the header's own has no check: others come first
        since = np.array([header.start_monotonic_ns])
        ahead = np.array([header.start_realtime_ns - header.start_monotonic_ns])
        error = np.array([header.anchor_error_ns])
    best = int(np.argmin(error))
    start_ns = header.start_monotonic_ns + int(ahead[best])
    apart = np.abs(ahead - ahead[best]) > error + error[best] + _SAME_NS
    none = np.empty(0, np.int64)
    if not apart.any():
        return Clock(start_ns, int(error[best]), none, none)
    order = np.argsort(since, kind="stable")
    shift = np.where(apart, ahead - ahead[best], 0)[order]
    return Clock(start_ns, int(error[best]), since[order] - header.start_monotonic_ns, shift)


_SAME_NS = 1_000  # both clocks go at one speed: what is further apart was set
