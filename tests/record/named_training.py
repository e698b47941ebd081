"""A loop of a program that computes with no library that is known."""

from __future__ import annotations

import time
from collections.abc import Iterator


class Batches:
    """Made anew for each pass."""

    def __iter__(self) -> Iterator[int]:
        yield from served(6)


def served(batches: int) -> Iterator[int]:
    """A generator function of the main file."""
    for i in range(batches):
        time.sleep(0.001)
        yield i


def train(_: int) -> None:
    """A step."""
    time.sleep(0.002)


if __name__ == "__main__":
    for _ in range(2):
        for batch in Batches():
            train(batch)
        for _batch in Batches():
            pass
