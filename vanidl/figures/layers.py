"""Darshan's own totals of each layer."""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.figures.figure import Column, Figure, Table
from vanidl.model.trace import Trace

_CAPTION = (
    "POSIX and STDIO are disjoint and together are storage. Every other layer lies above POSIX: "
    "its bytes are counted there again, so rows must not be added. Times are sums over processes."
)
_COLUMNS = (
    Column("layer"),
    Column("files", "count"),
    Column("reads", "count"),
    Column("writes", "count"),
    Column("bytes read", "bytes"),
    Column("bytes written", "bytes"),
    Column("reading", "s"),
    Column("writing", "s"),
    Column("metadata", "s"),
)


def figure(trace: Trace, results: Results) -> Figure:
    """Counters of every layer in the log, one row a layer."""
    del trace
    rows = tuple(
        (
            layer.layer,
            layer.files,
            layer.reads,
            layer.writes,
            layer.bytes_read,
            layer.bytes_written,
            layer.read_s,
            layer.write_s,
            layer.meta_s,
        )
        for layer in results.summary.layers
    )
    reason = "" if rows else "The run holds no Darshan counters: record it with Darshan."
    table = Table(_COLUMNS, rows) if rows else None
    caption = _CAPTION if rows else ""
    return Figure("layers", "Totals", "Layers by counters", caption, None, table, reason)
