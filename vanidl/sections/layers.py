"""The tracer's own totals of each layer."""

from __future__ import annotations

from vanidl.analyses.summary import LayerTotals
from vanidl.figures.figure import Column, Figure, Table
from vanidl.model.trace import OBJECT, STORAGE_LAYERS
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of

_CAPTION = (
    "POSIX and STDIO are disjoint and together are storage. Every other layer lies above POSIX: "
    "its bytes are counted there again, so rows must not be added. Times are sums over processes."
)
_WITH_OBJECTS = (
    "POSIX and STDIO are disjoint and together are storage. OBJECT, requests to object storage, is "
    "a total of its own; metadata there is HEAD, listings and the like. Every other layer lies "
    "above POSIX, so rows must not be added. Times are sums over processes."
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


def figure(run: Run) -> Figure:
    """Counters of every layer in the log, one row a layer."""
    removes = any(layer.remove_s for layer in run.summary.layers)
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
            *([layer.remove_s] if removes else []),
        )
        for layer in run.summary.layers
    )
    reason = "" if rows else "The run holds no counters: record it with Darshan or DFTracer."
    columns = (*_COLUMNS, Column("removing files", "s")) if removes else _COLUMNS
    table = Table(columns, rows) if rows else None
    objects = any(layer.layer == OBJECT for layer in run.summary.layers)
    caption = (_WITH_OBJECTS if objects else _CAPTION) if rows else ""
    return Figure("layers", "Totals", "Layers by counters", caption, None, table, reason)


def _storage(run: Run) -> Object:
    summary = run.summary
    totals = [t for t in summary.layers if t.layer in STORAGE_LAYERS]
    return {
        "bytes_read": summary.storage_bytes_read,
        "bytes_written": summary.storage_bytes_written,
        "by_layer": {t.layer: _totals(t) for t in totals},
    }


def _layers(run: Run) -> Object:
    return {t.layer: _totals(t) for t in run.summary.layers}


def _totals(totals: LayerTotals) -> Object:
    return values_of(totals, without=("layer",))


_BY_LAYER = {str: fields_of(LayerTotals, without=("layer",))}
_STORAGE = {"bytes_read": int | None, "bytes_written": int | None, "by_layer": _BY_LAYER}
SECTION = Section(
    "layers",
    (figure,),
    json={
        "storage": Json(_storage, _STORAGE),
        "layers": Json(_layers, _BY_LAYER),
    },
    traced=False,
)
