"""A training whose lines time themselves, for what is recorded of lines to be held against.

usage: timed_lines.py TRUTH PROGRAM [SAMPLES]: one of the programs below, whose times by line go to
TRUTH as JSON. It runs with PyTorch, or with the small stand-in for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SPENT: dict[str, list[float]] = {}
SAMPLES = int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdecimal() else 160
POOL = ThreadPoolExecutor(2)
CONTENT = os.urandom(60_000)


def now() -> tuple[float, float]:
    """Wall and processor time."""
    return time.perf_counter(), time.thread_time()


def spend(name: str, begin: tuple[float, float]) -> None:
    """Adds wall and processor time since then."""
    end = now()
    SPENT[name] = [x + b - a for x, a, b in zip(SPENT.get(name, (0, 0)), begin, end, strict=True)]


class Samples:
    """A dataset; subclasses say what a sample takes."""

    def __len__(self) -> int:
        return SAMPLES


class Released(Samples):
    """Two lines that let other threads run, one of them on the processor, and one that does not."""

    def __getitem__(self, i: int) -> int:
        begin = now()
        time.sleep(0.002)  # line: wait
        spend("wait", begin)
        begin = now()
        zlib.compress(CONTENT, 6)  # line: squeeze
        spend("squeeze", begin)
        begin = now()
        sorted(CONTENT[:9000])  # line: sort
        spend("sort", begin)
        return i


class Called(Samples):
    """The cost lies in a function that a method calls that the dataset calls."""

    def __getitem__(self, i: int) -> int:
        return self.load(i)

    def load(self, i: int) -> int:
        """A sample."""
        return decode(i)


def decode(i: int) -> int:
    """What a sample costs."""
    begin = now()
    hashlib.sha512(CONTENT * 40).digest()  # line: hash
    spend("hash", begin)
    begin = now()
    time.sleep(0.001)  # line: wait
    spend("wait", begin)
    return i


class Batched(Samples):
    """Samples are got together."""

    def __getitems__(self, places: Sequence[int]) -> list[int]:
        begin = now()
        for _ in places:
            zlib.crc32(CONTENT * 100)  # line: sum
        spend("sum", begin)
        begin = now()
        time.sleep(0.004)  # line: wait
        spend("wait", begin)
        return list(places)


class Pooled(Samples):
    """What costs most is done by other threads, without the interpreter's lock."""

    def __getitem__(self, i: int) -> int:
        begin = now()
        list(POOL.map(hash_of, [CONTENT * 10] * 4))  # line: pool
        spend("pool", begin)
        begin = now()
        zlib.compress(CONTENT, 3)  # line: squeeze
        spend("squeeze", begin)
        return i


def hash_of(content: bytes) -> bytes:
    """Without the interpreter's lock."""
    return hashlib.sha512(content).digest()


class Stream:
    """A dataset that is iterated over."""

    def __iter__(self) -> Iterator[int]:
        for i in range(SAMPLES):
            begin = now()
            zlib.compress(CONTENT, 3)  # line: squeeze
            spend("squeeze", begin)
            begin = now()
            time.sleep(0.001)  # line: wait
            spend("wait", begin)
            yield i


def collate(samples: list[int]) -> list[int]:
    """A batch."""
    begin = now()
    sorted(CONTENT[:30000])  # line: collate
    spend("collate", begin)
    return samples


def train(loader: Iterable[list[int]]) -> None:
    """The loop over batches."""
    for _batch in loader:
        begin = now()
        time.sleep(0.003)  # line: step
        spend("step", begin)
        begin = now()
        hashlib.sha512(CONTENT * 40).digest()  # line: log
        spend("log", begin)


PROGRAMS = {
    "released": Released,
    "called": Called,
    "batched": Batched,
    "stream": Stream,
    "pooled": Pooled,
}

if __name__ == "__main__":
    from torch.utils.data import DataLoader

    dataset = PROGRAMS.get(sys.argv[2], Released)()
    how = {"collate_fn": collate} if sys.argv[2] == "released" else {"collate_fn": list}
    train(DataLoader(dataset, batch_size=8, **how))
    Path(sys.argv[1]).write_text(json.dumps(SPENT))
