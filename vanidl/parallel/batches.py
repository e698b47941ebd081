"""Items in batches: small ones together, a large one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


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
