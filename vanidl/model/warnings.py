"""The warning record, and what each code means: the one place that says what is lost after which.

A code belongs to the sets below that hold it. One in none of them limits a single number, and
its message says which.
"""

from __future__ import annotations

from collections.abc import Iterable

from vanidl.formatting.from_logs import clean_text, set_clean
from vanidl.schema.dataclass import dataclass

WARNING = "warning"

DAMAGED = frozenset({"damaged", "unreadable"})
"""A file, or a part of it, could not be read."""

DROPPED = frozenset(
    {"truncated", "partial", "records_exhausted", "calls_summed", "recording_stopped"}
)
"""The tracer ran out of room, or summed up: operations, or whole files, were dropped."""

UNREAD = frozenset({"modules_not_read"})
"""The log holds I/O that vanidl does not read: no total and no share is of all I/O."""

INCOMPLETE = DAMAGED | DROPPED | UNREAD
"""What was recorded is not whole, or not read as a whole."""

UNSEEN = frozenset(
    {"reads_not_seen", "stdio_untraced", "descriptors_lost", "events_lost", "sizes_differ",
     "files_mapped", "layer_switched_off", "dataset_not_seen"}
)  # fmt: skip
"""Reads went past the tracer, or it lost them."""

LOST_PROCESSES = frozenset({"processes_missing", "processes_unfinished"})
"""What a process did, or the end of it, was not recorded."""

LOWER_BOUNDS = INCOMPLETE | UNSEEN | LOST_PROCESSES
"""Recorded I/O is a lower bound: what looks like something else may be I/O as well.

Not `mmap_not_monitored`, which every log of today has: nothing says that memory was mapped.
"""

NOT_COMPARABLE = LOWER_BOUNDS - {"stdio_untraced"} | {"unassigned"}
"""I/O was recorded, or given to ranks, in part: the totals of two runs must not be compared.

Bytes through STDIO are counted: their share is compared by itself.
"""

UNSURE_CLOCK = frozenset({"clock_unverified", "clock_coarse", "clock_contradiction"})
"""How profiles and I/O lie on one clock is not certain."""

UNUSABLE = frozenset({"unreadable", "processes_missing", "ceiling_run"})
"""A file, or a process, is in no number; nor is a run whose batches came from memory."""

NAMES_COMMANDS = LOST_PROCESSES | {
    "processes_brief", "copies", "versions_left_out", "two_tracers", "files_mapped", "files_loaded",
}  # fmt: skip
"""The message quotes, in brackets, commands or files of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that limits what the numbers mean; a warning of the report."""

    code: str
    message: str
    severity: str = WARNING  # "info": true of most runs, worth knowing, nothing went wrong

    def __post_init__(self) -> None:
        """The message as it may be shown: it may quote a file, or its name."""
        set_clean(self, message=clean_text(self.message))


def serious_codes(notices: Iterable[Notice]) -> frozenset[str]:
    """The codes of those that are more than worth knowing."""
    return frozenset(notice.code for notice in notices if notice.severity == WARNING)
