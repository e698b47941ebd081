"""Distributes work over the processor's cores, and compiles what runs there.

Compiled functions let go of the interpreter lock: plain threads run them side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")


def compiled(function: F) -> F:
    """The function, compiled on its first call and kept on disk, free of the interpreter lock."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int, int], T], count: int, threads: int | None = None) -> list[T]:
    """What `work(begin, end)` gave for half-open parts of range(count), in order.

    Args:
        work: Called once a thread.
        count: Items in all.
        threads: At most; None: one per core. One runs in the calling thread.
    """
    parts = max(1, min(threads or cores(), count))
    edges = [count * part // parts for part in range(parts + 1)]
    if parts == 1:
        return [work(0, count)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, edges[:-1], edges[1:]))
