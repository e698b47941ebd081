"""What limits the numbers about object storage: requests that failed, bytes that nobody stated."""

from __future__ import annotations

from collections.abc import Iterator

from vanidl.formatting.units import count, plural
from vanidl.model.counter_tables import CounterTable
from vanidl.model.trace import OBJECT, Trace
from vanidl.model.warnings import Notice

_REQUESTS = ("READS", "WRITES", "STATS", "LISTS", "OTHERS")


def find(trace: Trace) -> Iterator[Notice]:
    """Every warning that the counters of object storage give reason for."""
    table = trace.counters.get(OBJECT)
    if table is None:
        return
    asked = sum(_total(table, what) for what in _REQUESTS)
    if failed := _total(table, "FAILED"):
        yield Notice(
            "object_requests_failed",
            f"{plural(failed, 'request')} of {count(asked)} to object storage failed: no answer, "
            "an error as the status, or a body that broke off. Each counts as an operation of 0 "
            "bytes, its time included; a retry is an operation of its own.",
            "info",
        )
    if unsized := _total(table, "UNSIZED"):
        yield Notice(
            "object_bytes_unknown",
            f"{plural(unsized, 'request')} of {count(asked)} to object storage did not say how "
            "many bytes it carried: bytes of OBJECT are lower bounds.",
        )


def _total(table: CounterTable, what: str) -> int:
    values = table.counters.get(f"{OBJECT}_{what}")
    return 0 if values is None else int(values.sum())
