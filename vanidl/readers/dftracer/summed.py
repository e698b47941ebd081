"""Lines that stand for many calls: DFTracer sums up where it is told to aggregate.

One line holds all calls of one name by one thread in one interval, one second unless set: how
many, and the sum, least and largest of each number that they have. Newer versions do not keep
the file. A copy of what was not yet written goes into each forked process, under its number.
"""

from __future__ import annotations

from vanidl.readers.dftracer.lines import ABSENT, Event, arguments, integer

SUMMED_COLUMNS = (
    "pid", "tid", "ts", "name", "file", "calls", "dur", "ret", "least", "size", "largest",
)  # fmt: skip
"""`dur` and `ret` are sums, `least` the least `ret`, `size` and `largest` bounds of an item."""

_COUNT = "dft_cnt"


def is_summed(event: Event) -> bool:
    """Whether a line stands for calls that were summed up, and not for a sample of a counter."""
    return _COUNT in arguments(event)


def summed_row(event: Event) -> list[int]:
    """The numbers of one line: all of SUMMED_COLUMNS but name and file."""
    found = arguments(event)
    calls = integer(found.get(_COUNT))
    return [
        *(integer(event.get(key)) for key in ("pid", "tid", "ts")),
        calls,
        _sum(found, "dur", calls),
        _sum(found, "ret", calls),
        _end(found, "ret", "min"),
        _end(found, "size", "min"),
        _end(found, "size", "max"),
    ]


def _sum(found: Event, name: str, calls: int) -> int:
    """The sum over all calls; a number that was the same in all may be given once."""
    if (total := integer(found.get(f"{name}_sum"))) != ABSENT:
        return total
    each = integer(found.get(name))
    return ABSENT if each == ABSENT else integer(each * calls)


def _end(found: Event, name: str, end: str) -> int:
    return integer(found.get(f"{name}_{end}", found.get(name)))
