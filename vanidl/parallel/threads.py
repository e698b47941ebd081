"""Work on arrays, divided over a few threads in batches: numpy lets go of the interpreter."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 8


def core_count() -> int:
    """The cores that this process may use: of a shared machine a batch job has only some."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """How many threads work at a time."""
    return min(core_count(), _MOST_THREADS)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of the items in turn; only few are under way, and in memory, at a time."""
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:  # nothing to divide
        yield from map(work, first)
        return
    with ThreadPoolExecutor(thread_count()) as pool:
        ahead: deque[Future[Result]] = deque()
        for item in chain(first, items):
            ahead.append(pool.submit(work, item))
            if len(ahead) > thread_count():
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def batches(
    items: Iterable[Item], weight: Callable[[Item], int], most: int
) -> Iterator[list[Item]]:
    """The items in turn, in lists that weigh `most` at most, but for one that does so alone."""
    batch: list[Item] = []
    held = 0
    for item in items:
        own = weight(item)
        if batch and held + own > most:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += own
    if batch:
        yield batch
