"""How much of each layer was traced: what the numbers rest on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from vanidl.analyses.coverage import LayerCoverage
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.terminal import WIDTH
from vanidl.formatting.units import count
from vanidl.model.warnings import Notice
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of

_COUNTED = "Counted: operations by Darshan's counters."
_TRACED = "Traced: operations recorded one by one, which is what times, sizes and overlap rest on."
_NONE_TRACED = "No operation was traced one by one, which is what times and overlap rest on."
_BELOW = "A traced share below 100 % means that the other operations are missing from them."


def figure(run: Run) -> Figure:
    """Counted and traced operations of each layer."""
    layers = run.coverage.layers
    reason = (
        "" if layers else ("No log with I/O records was found. Record the run with vanidl record.")
    )
    return Figure(
        "coverage",
        "Coverage",
        "Operations counted and traced",
        " ".join(_caption(layers)),
        None,
        _table(layers).without_empty_columns() if layers else None,
        reason,
    )


def _caption(layers: tuple[LayerCoverage, ...]) -> Iterator[str]:
    """What the columns that are there mean."""
    if any(layer.counted_ops is not None for layer in layers):
        yield _COUNTED
    if layers:
        yield _TRACED if any(layer.traced_ops is not None for layer in layers) else _NONE_TRACED
    if any(layer.traced_fraction is not None and layer.traced_fraction < 1 for layer in layers):
        yield _BELOW


def _table(layers: tuple[LayerCoverage, ...]) -> Table:
    columns = (
        Column("layer"),
        Column("counted", "count"),
        Column("traced", "count"),
        Column("traced share", "share"),
        Column("flagged partial"),
        Column("last traced at", "instant"),
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
        for layer in layers
    )
    return Table(columns, rows)


_MARK = {"warning": "!", "info": "-"}


def _text(run: Run) -> str | None:
    """Every warning, what went wrong before what is worth knowing."""
    warnings = sorted(run.coverage.warnings, key=lambda w: w.severity == "info")
    texts = [
        textwrap.fill(f"{_MARK[w.severity]} {w.code}: {w.message}", WIDTH, subsequent_indent="  ")
        for w in warnings
    ]
    return "\n".join(f"{text}\n" for text in texts) if texts else None


def text_rows(run: Run) -> list[tuple[str, str]]:
    """How much of each layer was traced, for the block about I/O."""
    return [
        (f"{c.layer} trace", f"{_traced(c)} operations traced")
        for c in run.coverage.layers
        if c.traced_ops is not None
    ]


def _traced(cover: LayerCoverage) -> str:
    """Traced operations, of how many where the tracer counted them apart."""
    if cover.counted_ops is None:
        return count(cover.traced_ops)
    return f"{count(cover.traced_ops)} of {count(cover.counted_ops)}"


def _json(run: Run) -> Object:
    return {
        "complete": run.coverage.complete,
        "warnings": [values_of(w) for w in run.coverage.warnings],
        "layers": {c.layer: values_of(c, without=("layer",)) for c in run.coverage.layers},
    }


_KIND = {
    "complete": bool,
    "warnings": [Notice],
    "layers": {str: fields_of(LayerCoverage, without=("layer",))},
}
SECTION = Section("coverage", (figure,), _text, {"coverage": Json(_json, _KIND)}, traced=False)
