"""The warning record, and what each code means: the one place that says what is lost after which.

A code belongs to the sets below that hold it. One in none of them limits a single number, and
its message says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WARNING = "warning"

DAMAGED = frozenset({"damaged", "unreadable"})
"""A file, or a part of it, could not be read."""

DROPPED = frozenset({"truncated", "partial", "records_exhausted"})
"""The tracer ran out of room: operations, or whole files, were dropped."""

INCOMPLETE = DAMAGED | DROPPED
"""What was recorded is not whole."""

UNSEEN = frozenset({"reads_not_seen", "stdio_untraced"})
"""Reads went past the tracer."""

LOWER_BOUNDS = INCOMPLETE | UNSEEN
"""Recorded I/O is a lower bound."""

UNRECORDED_IO = DROPPED | UNSEEN | {"mmap_not_monitored"}
"""What looks like something else than I/O may be I/O that was not recorded."""

NOT_COMPARABLE = INCOMPLETE | {"reads_not_seen", "unassigned"}
"""I/O was recorded, or given to ranks, in part: the totals of two runs must not be compared."""

UNSURE_CLOCK = frozenset({"clock_unverified", "clock_coarse", "clock_contradiction"})
"""How profiles and I/O lie on one clock is not certain."""

UNUSABLE = frozenset({"unreadable", "processes_missing"})
"""A file, or a process, is in no number."""

NAMES_COMMANDS = frozenset(
    {"processes_missing", "processes_unfinished", "copies", "versions_left_out"}
)
"""The message quotes, in brackets, commands or files of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that limits what the numbers mean; a warning of the report."""

    code: str
    message: str
    severity: str = WARNING  # "info": true of most runs, worth knowing, nothing went wrong


def codes(notices: Iterable[Notice]) -> frozenset[str]:
    """The codes of all notices."""
    return frozenset(notice.code for notice in notices)


def serious_codes(notices: Iterable[Notice]) -> frozenset[str]:
    """The codes of those that are more than worth knowing."""
    return frozenset(notice.code for notice in notices if notice.severity == WARNING)
