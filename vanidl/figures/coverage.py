"""How much of each layer was traced: what the numbers rest on."""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.figures.figure import Column, Figure, Table
from vanidl.model.trace import Trace

_CAPTION = (
    "Counted: operations by Darshan's counters. Traced: operations recorded one by one, which "
    "is what times, sizes and overlap rest on. A traced share below 100 % means that the "
    "other operations are missing from them."
)


def figure(trace: Trace, results: Results) -> Figure:
    """Counted and traced operations of each layer."""
    del trace
    layers = results.coverage.layers
    reason = (
        ""
        if layers
        else ("No log with I/O records was found. Record the run with `vanidl record`.")
    )
    return Figure(
        "coverage",
        "Coverage",
        "Operations counted and traced",
        _CAPTION if layers else "",
        None,
        _table(results) if layers else None,
        reason,
    )


def _table(results: Results) -> Table:
    columns = (
        Column("layer"),
        Column("counted", "count"),
        Column("traced", "count"),
        Column("traced share", "share"),
        Column("flagged partial"),
        Column("last traced at", "s"),
    )
    rows = tuple(
        (
            layer.layer,
            layer.counted_ops,
            layer.traced_ops,
            layer.traced_fraction,
            "yes" if layer.partial else "no",
            layer.last_traced_s,
        )
        for layer in results.coverage.layers
    )
    return Table(columns, rows)
