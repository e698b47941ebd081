"""What the tracer counted of each layer: its totals, its cost, and how it was used."""

from __future__ import annotations

from collections.abc import Iterator

from vanidl.analyses.layers import LayerUse
from vanidl.analyses.summary import LayerTotals
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.terminal import aligned_table, named_values
from vanidl.formatting.units import bandwidth, count, nbytes, plural, seconds
from vanidl.model.trace import OBJECT, STORAGE_LAYERS
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.requests import label_bin
from vanidl.sections.section import Json, Object, Section, values_of

_SECTION = "Totals"
_NO_COUNTERS = "The run holds no counters: record it with Darshan or DFTracer."
_LAYERS_CAPTION = (
    "POSIX and STDIO are disjoint and together are storage. Every other layer lies above POSIX: "
    "its bytes are counted there again, so rows must not be added. Times are sums over processes."
)
_WITH_OBJECTS = (
    "POSIX and STDIO are disjoint and together are storage. OBJECT, requests to object storage, is "
    "a total of its own; metadata there is HEAD, listings and the like. Every other layer lies "
    "above POSIX, so rows must not be added. Times are sums over processes."
)
_LAYERS_COLUMNS = (
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


_COSTS = (
    ("reading", palette.READ, ""),
    ("writing", palette.WRITE, "/"),
    ("metadata", palette.FORWARD, "x"),
    ("waiting", palette.OTHER, "."),
)


def draw_layers(run: Run) -> Figure:
    """Counters of every layer in the log, one row a layer, and the time of each in a bar."""
    # A column only where some layer took time for it.
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
    reason = "" if rows else _NO_COUNTERS
    columns = (*_LAYERS_COLUMNS, Column("removing files", "s")) if removes else _LAYERS_COLUMNS
    table = Table(columns, rows) if rows else None
    objects = any(layer.layer == OBJECT for layer in run.summary.layers)
    caption = (_WITH_OBJECTS if objects else _LAYERS_CAPTION) if rows else ""
    # Bars where the time of any layer is known.
    # (layer, seconds of each of _COSTS per rank) of the layers that take any time.
    found = (
        (use.layer, [s or 0.0 for s in (use.read_s, use.write_s, use.meta_s, use.wait_s)])
        for use in run.results.layers
    )
    costs = [(layer, parts) for layer, parts in found if any(parts)]
    if not costs:
        return Figure("layers", _SECTION, "Layers by counters", caption, None, table, reason)
    caption += " Bars: means over ranks."
    alt_text = "; ".join(
        f"{layer}: {seconds(sum(parts))} per rank on average" for layer, parts in costs
    )
    return Figure(
        "layers", _SECTION, "Layers by counters", caption, _plot_costs(costs), table, "", alt_text
    )


def _plot_costs(costs: list[tuple[str, list[float]]]) -> Spec:
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [parts[k] for _, parts in costs],
            "y": [layer for layer, _ in costs],
            "customdata": [seconds(parts[k]) for _, parts in costs],
            "marker": palette.fill(colour, pattern),
            "hovertemplate": "%{y}: %{customdata} " + name + "<extra></extra>",
        }
        for k, (name, colour, pattern) in enumerate(_COSTS)
        if any(parts[k] for _, parts in costs)
    ]
    layout = palette.layout(
        110 + 28 * len(costs),
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis("seconds per rank", rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(autorange="reversed", showgrid=False, fixedrange=True),
    )
    return {"data": bars, "layout": layout}


_USE_CAPTION = (
    "Sizes are those of the last byte that was read or written. The rate is bytes by the time of "
    "the slowest rank, as Darshan's utilities estimate it. "
)
_USE_COLUMNS = (
    Column("layer"),
    Column("use"),
    Column("files", "count"),
    Column("mean size", "bytes"),
    Column("largest", "bytes"),
    Column("estimated rate", "bytes/s"),
)


def draw_layer_files(run: Run) -> Figure:
    """Files of each layer by how they were used, and the layer's estimated rate."""
    rows = tuple(
        (use.layer, by.use, by.files, by.mean_nbytes, by.max_nbytes, use.bytes_per_s)
        for use in run.results.layers
        for by in use.files
        if by.files
    )
    return _tabulate("layer-files", "Files of each layer by use", _USE_CAPTION, _USE_COLUMNS, rows)


_SIZES_COLUMNS = (
    Column("layer"),
    Column("size"),
    Column("reads", "count"),
    Column("writes", "count"),
)


def draw_layer_sizes(run: Run) -> Figure:
    """Darshan's size classes of each layer that counts them; those without operations left out."""
    rows = tuple(
        (use.layer, label_bin(size), size.reads, size.writes)
        for use in run.results.layers
        for size in use.sizes
        if size.reads or size.writes
    )
    caption = "Sizes of MPI-IO, HDF5 and PnetCDF are those that the program asked for."
    return _tabulate("layer-sizes", "Sizes by layer", caption, _SIZES_COLUMNS, rows)


_COMMON_COLUMNS = (Column("layer"), Column("size", "bytes"), Column("operations", "count"))
_COMMON_CAPTION = (
    "Darshan keeps the four most frequent sizes of each file and rank, which are added up: where "
    "these have more than four, counts are at least so."
)


def draw_common_sizes(run: Run) -> Figure:
    """The most frequent sizes of each layer."""
    rows = tuple(
        (use.layer, size.nbytes, size.ops) for use in run.results.layers for size in use.common
    )
    title = "Most frequent sizes by layer"
    return _tabulate("layer-common", title, _COMMON_CAPTION, _COMMON_COLUMNS, rows)


_CALLS_COLUMNS = (Column("layer"), Column("calls"), Column("number", "count"))
_CALLS_CAPTION = (
    "Hints of MPI-IO: calls that gave any. Which ones a program gave is in no log of Darshan: "
    "those in its job record are of writing the log."
)


def draw_calls(run: Run) -> Figure:
    """Calls of each kind by layer, kinds without calls left out."""
    rows = tuple(
        (use.layer, name, calls)
        for use in run.results.layers
        for name, calls in use.calls.items()
        if calls
    )
    return _tabulate("layer-calls", "Calls by layer", _CALLS_CAPTION, _CALLS_COLUMNS, rows)


def _tabulate(
    name: str,
    title: str,
    caption: str,
    columns: tuple[Column, ...],
    rows: tuple[tuple[str | int | float | None, ...], ...],
) -> Figure:
    if not rows:
        return Figure(name, _SECTION, title, "", empty_reason=_NO_COUNTERS, applies=False)
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    table = Table(
        tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)
    )
    return Figure(name, _SECTION, title, caption, None, table)


def _write_layers(run: Run) -> str | None:
    """Cost and rate of each layer, its files by use, its most frequent sizes and its calls."""
    head = ("layer", "reading", "writing", "metadata", "waiting", "rate")
    costs = [
        (
            use.layer,
            *(
                "-" if spent is None else seconds(spent)
                for spent in (use.read_s, use.write_s, use.meta_s, use.wait_s)
            ),
            "-" if use.bytes_per_s is None else bandwidth(use.bytes_per_s),
        )
        for use in run.results.layers
    ]
    table = aligned_table("Layers by counters, mean over ranks", [head, *costs])
    if table is None:
        return None
    # The name of a layer stands on its first line only.
    rows = [(use.layer, line) for use in run.results.layers for line in _describe_use(use)]
    first = [
        ("" if i and rows[i - 1][0] == layer else layer, line)
        for i, (layer, line) in enumerate(rows)
    ]
    return "\n".join(filter(None, (table, named_values("Use of layers", first))))


def _describe_use(use: LayerUse) -> Iterator[str]:
    # The first row is of all files: its parts say more.
    files = [
        f"{by.files:,} {by.use}"
        + ("" if by.max_nbytes is None else f" (up to {nbytes(by.max_nbytes)})")
        for by in use.files[1:]
        if by.files
    ]
    if files:
        yield "files: " + ", ".join(files)
    if use.common:
        yield "sizes: " + ", ".join(
            f"{nbytes(size.nbytes)} ({plural(size.ops, 'operation')})" for size in use.common
        )
    calls = [f"{name} {count(calls)}" for name, calls in use.calls.items() if calls]
    if calls:
        yield "calls: " + ", ".join(calls)


def _collect_storage(run: Run) -> Object:
    summary = run.summary
    totals = [t for t in summary.layers if t.layer in STORAGE_LAYERS]
    return {
        "bytes_read": summary.storage_bytes_read,
        "bytes_written": summary.storage_bytes_written,
        "by_layer": {t.layer: _collect_layer(t) for t in totals},
    }


def _collect_layers(run: Run) -> Object:
    return {t.layer: _collect_layer(t) for t in run.summary.layers}


def _collect_layer(totals: LayerTotals) -> Object:
    return values_of(totals, without=("layer",))


_BY_LAYER = {str: fields_of(LayerTotals, without=("layer",))}
_STORAGE = {"bytes_read": int | None, "bytes_written": int | None, "by_layer": _BY_LAYER}


def _collect_use(run: Run) -> Object:
    return {use.layer: values_of(use, without=("layer",)) for use in run.results.layers}


LAYERS = Section(
    "layers",
    (
        draw_layers,
        draw_layer_files,
        draw_layer_sizes,
        draw_common_sizes,
        draw_calls,
    ),
    _write_layers,
    {
        "storage": Json(_collect_storage, _STORAGE),
        "layers": Json(_collect_layers, _BY_LAYER),
        "layer_use": Json(_collect_use, {str: fields_of(LayerUse, without=("layer",))}),
    },
    traced=False,
)
