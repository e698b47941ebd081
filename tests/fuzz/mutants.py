"""One way of damaging a log a function: (content, random numbers) -> damaged content."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from vanidl.encoding.inflate import streams
from vanidl.readers.darshan.header import JOB, Header, name_slots, read_header

Rng = np.random.Generator
Mutate = Callable[[bytes, Rng], bytes]


def truncated(content: bytes, rng: Rng) -> bytes:
    """Cut anywhere."""
    return content[: int(rng.integers(0, len(content)))]


def cut_at_a_border(content: bytes, rng: Rng) -> bytes:
    """Cut where a region or a compressed stream ends, or one byte beside it."""
    ends = borders(content)[:-1]
    return content[: max(0, ends[int(rng.integers(0, len(ends)))] + int(rng.integers(-1, 2)))]


def one_bit(content: bytes, rng: Rng) -> bytes:
    """One bit flipped anywhere."""
    return _flipped(content, int(rng.integers(0, 8 * len(content))))


def header_bit(content: bytes, rng: Rng) -> bytes:
    """One bit of the header flipped."""
    return _flipped(content, int(rng.integers(0, 8 * header_of(content).length)))


def header_word(content: bytes, rng: Rng) -> bytes:
    """Eight bytes of the header replaced by chance."""
    at = 8 * int(rng.integers(0, header_of(content).length // 8))
    return content[:at] + rng.bytes(8) + content[at + 8 :]


def table_of_contents(content: bytes, rng: Rng) -> bytes:
    """A region moved, shortened, lengthened, emptied or laid over another."""
    header = header_of(content)
    order = "<" if header.byte_order == "<" else ">"
    regions = [r for r in header.regions.values() if r.name != JOB]
    one, other = (regions[int(i)] for i in rng.integers(0, len(regions), 2))
    at = content.find(struct.pack(f"{order}QQ", one.start, one.length), 0, header.length)
    near = int(rng.integers(-9, 10))
    places = (
        (one.start + near, one.length),
        (one.start, max(0, one.length + near)),
        (one.start, 0),
        (0, 0),
        (other.start, other.length),
        (one.start, int(rng.integers(0, 2**63))),
        (int(rng.integers(0, 2**63)), one.length),
    )
    new = struct.pack(f"{order}QQ", *places[int(rng.integers(0, len(places)))])
    return content[:at] + new + content[at + 16 :]


def unprotected_bit(content: bytes, rng: Rng) -> bytes:
    """One bit flipped in a word that no checksum covers, of a module that the log holds."""
    header = header_of(content)
    words = unprotected(content)
    names = name_slots(header.layout)
    first = header.length - 4 * header.layout.slots
    used = {first + 4 * i + b for i, n in enumerate(names) if n in header.regions for b in range(4)}
    flags = {at for at in words["partial flags"] if (at % 4 < 2) or header.layout.slots > 16}
    places = sorted(words["version of the format"] | used | flags)
    at = places[int(rng.integers(0, len(places)))]
    return _flipped(content, 8 * at + int(rng.integers(0, 8)))


def block_of_64(content: bytes, rng: Rng) -> bytes:
    """64 bytes replaced by chance."""
    at = int(rng.integers(0, max(1, len(content) - 64)))
    return content[:at] + rng.bytes(64) + content[at + 64 :]


def zeroed_4_kib(content: bytes, rng: Rng) -> bytes:
    """A page of zeros, as a file system leaves where it lost one."""
    at = 4096 * int(rng.integers(0, -(-len(content) // 4096)))
    return content[:at] + bytes(len(content[at : at + 4096])) + content[at + 4096 :]


KINDS: dict[str, Mutate] = {
    "truncate": truncated,
    "cut at a border": cut_at_a_border,
    "1 bit flip": one_bit,
    "header bit": header_bit,
    "header 8 bytes": header_word,
    "table of contents": table_of_contents,
    "flag or version bit": unprotected_bit,
    "64-byte block": block_of_64,
    "zero 4 KiB": zeroed_4_kib,
}


def header_of(content: bytes) -> Header:
    """The header of a whole log."""
    return read_header(memoryview(content), "")


def borders(content: bytes) -> list[int]:
    """Where header, regions and compressed streams of a whole log end, in order."""
    header = header_of(content)
    ends = {header.length}
    for region in header.regions.values():
        held = region.cut_from(memoryview(content))
        ends.add(region.end)
        ends.update(region.start + s.end for s in streams(held, header.compression, cut=False))
    return sorted(ends)


def unprotected(content: bytes) -> dict[str, set[int]]:
    """Bytes of the header that no checksum and no law covers, by what they hold."""
    header = header_of(content)
    flags = header.layout.slots // 8
    last = header.length - 4 * header.layout.slots
    return {
        "version of the format": set(range(8)),
        "partial flags": set(range(24, 24 + flags) if flags == 8 else range(20, 24)),
        "versions of the records": set(range(last, header.length)),
    }


def changed(a: bytes, b: bytes) -> set[int]:
    """Places at which the contents differ; the end of the shorter one counts as one."""
    same = min(len(a), len(b))
    left, right = (np.frombuffer(x, np.uint8, same) for x in (a, b))
    return set(np.flatnonzero(left != right).tolist()) | ({same} if len(a) != len(b) else set())


def _flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def seeds(content: bytes, kind: str, numbers: Sequence[int]) -> list[bytes]:
    """The mutants of one kind, one a number."""
    return [KINDS[kind](content, np.random.default_rng(number)) for number in numbers]
