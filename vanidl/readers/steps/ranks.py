"""Ranks of which nothing is there: how many there were, the launcher had told the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice

from vanidl.formatting.units import count as counted
from vanidl.model.warnings import Notice
from vanidl.readers.records import ProfileTrace

_MOST_NAMED = 4


def silent_ranks(profiles: Sequence[ProfileTrace]) -> Iterator[Notice]:
    """A notice for each launch of which some ranks recorded steps and others did not.

    A rank writes what it gathered every second: one that was killed before leaves no event.
    Of ranks that do not know their number nothing is said.
    """
    launches: dict[int, set[int | None]] = defaultdict(set)
    for each in profiles:
        launches[each.world_size or 1].add(each.rank)
    for size, found in sorted(launches.items()):
        ranks = {rank for rank in found if rank is not None and rank < size}
        if len(ranks) == len(found) < size:
            yield _notice(size, ranks)


def _notice(size: int, ranks: set[int]) -> Notice:
    # Not by making the set of all: the size is what a file says.
    missing = size - len(ranks)
    named = [*islice((rank for rank in count() if rank not in ranks), min(missing, _MOST_NAMED))]
    words = ", ".join(map(counted, named))
    more = f" and {counted(missing - len(named))} more" if missing > len(named) else ""
    return Notice(
        "ranks_silent",
        f"Expected recorded steps of {counted(size)} ranks, found those of {counted(len(ranks))}: "
        f"rank{'s' if missing > 1 else ''} {words}{more} of {counted(size)} left none, and "
        "every number is of the others. Such a rank was killed within a second of its first step, "
        "runs without the recorder, has no loop, or wrote into another RUN.",
    )
