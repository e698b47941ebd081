"""Files of sampled states, written as vanidl/readers/states/log.py says that they are laid out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

START_NS = 1_700_000_000_000_000_000
MAGIC = b"vanidl-states 1\n"
RUNNING, READ, LOCK, SLEEP = 0, 1, 6, 8
GONE, TIME, THREAD, NAME, CPU, IO, LEFT_OUT, END = 0xEF, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xFF


def row(kind: int, first: int = 0, thread: int = 0, flags: int = 0, *rest: int) -> bytes:
    """Rows of one number behind the flags have it in 64 bits."""
    if len(rest) == 1:
        return struct.pack("<IHBBQ", first, thread, kind, flags, *rest)
    return struct.pack("<IHBBII", first, thread, kind, flags, *(rest or (0, 0)))


def text(number: int, words: bytes, flags: int = 0) -> bytes:
    padded = words.ljust(-(-len(words) // 16) * 16)
    return row(NAME, len(words), 0, flags, number, 0) + padded


@dataclass
class StatesFile:
    """What one recorder sampled; `samples`: (thread, ms, kind, file, delay in us)."""

    threads: Sequence[tuple[int, int, int]] = ((42, 42, 1), (42, 43, 1), (50, 50, 42))
    samples: Sequence[tuple[int, int, int, int, int]] = (
        (0, 1, RUNNING, 0, 0), (1, 1, LOCK, 0, 0), (0, 6, READ, 1, 3), (2, 7, SLEEP, 0, 0),
        (0, 12, RUNNING, 0, 2003), (2, 13, READ, 2, 5),
    )  # fmt: skip
    names: Sequence[bytes] = (b"/data/a.bin", b"/data/" + bytes([NAME]) * 40)
    more: bytes = b""
    late: frozenset[int] = field(default_factory=frozenset)
    host: bytes = b"node01"

    def content(self) -> bytes:
        parts = [MAGIC, text(5000, self.host, 1), row(TIME, 0, 0, 0, START_NS)]
        for number, (pid, tid, parent) in enumerate(self.threads):
            parts.append(row(THREAD, pid, number, int(pid == tid), tid, parent))
        parts += [text(k, name) for k, name in enumerate(self.names, 1)]
        for k, (thread, ms, kind, file, delay) in enumerate(self.samples):
            parts.append(row(kind, ms * 1000, thread, int(k in self.late), file, delay))
        parts.append(row(CPU, 12_000, 0, 0, 70, 30))
        parts.append(row(IO, 12_000, 0, 4, (1 << 40) + 5))
        return b"".join([*parts, self.more, row(END, 0, 0, 0, START_NS + 10**9)])
