"""How large single transfers are: operations and bytes by size."""

from __future__ import annotations

from dataclasses import replace

from vanidl.analyses.sizes import CommonSize, SizeBin, Sizes
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import byte_scale, count, nbytes, percent, plural
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import record_operations

MOST_LABELS = 9  # that have room in half the width of a page
_CAPTION = (
    "Above: how many operations moved that many bytes. Below: how many bytes those operations "
    "moved in all. Tall bars on the left of the upper picture and on the right of the lower one "
    "mean that many small operations move little of the data."
)
_COUNTERS_CAPTION = (
    "Operations in Darshan's ten size classes, from its counters. Single operations were not "
    "traced, so the bytes in each class are not known."
)


def figure(run: Run) -> Figure:
    """Histogram over powers of two, or over Darshan's classes where only counters exist."""
    traced = run.sizes.histogram
    counted = run.sizes.darshan_histogram
    if traced:
        figure = _record(f"{_CAPTION} {_frequent(run.sizes)}", _spec(traced), _table(traced))
        return replace(figure, alt_text=_alt_text(traced or counted))
    if any(b.reads or b.writes for b in counted):
        figure = _record(_COUNTERS_CAPTION, _counts_only(counted), _counts_table(counted))
        return replace(figure, alt_text=_alt_text(traced or counted))
    return _record("", None, None, _nothing(run))


def _nothing(run: Run) -> str:
    if run.summary.ops:
        return (
            f"Reads and writes were counted, their sizes were not. {record_operations(run.trace)}."
        )
    return "No read or write was recorded, so there are no sizes to show."


def _record(caption: str, spec: Spec | None, table: Table | None, reason: str = "") -> Figure:
    title = "Transfer sizes"
    return Figure("sizes", "Operations", title, caption, spec, table, reason, half=True)


def _frequent(sizes: Sizes) -> str:
    """The most frequent exact size and how many there are."""
    if not sizes.common:
        return ""
    top = sizes.common[0]
    return (
        f"Most frequent of {plural(sizes.distinct, 'size')}: {count(top.nbytes)} bytes, "
        f"{plural(top.reads + top.writes, 'operation')}."
    )


def bin_label(size: SizeBin) -> str:
    """`4 KiB to 8 KiB`, `0 B`, `from 1 GiB`."""
    if size.high is None:
        return f"from {nbytes(size.low)}"
    if size.high - size.low <= 1:
        return nbytes(size.low)
    return f"{nbytes(size.low)} to {nbytes(size.high)}"


def _spec(bins: tuple[SizeBin, ...]) -> Spec:
    largest = max(max(b.bytes_read or 0, b.bytes_written or 0) for b in bins)
    divisor, unit = byte_scale(largest)
    counts = _counts(bins)
    amounts = [
        _bars(bins, [(b.bytes_read or 0) / divisor for b in bins], _READ, "y2"),
        _bars(bins, [(b.bytes_written or 0) / divisor for b in bins], _WRITE, "y2"),
    ]
    layout = palette.layout(
        380,
        barmode="group",
        bargap=0.15,
        xaxis=_size_axis(bins, anchor="y2"),
        yaxis=palette.counts("operations", _most(bins), domain=[0.55, 1], fixedrange=True),
        yaxis2=palette.axis(unit, domain=[0, 0.45], fixedrange=True),
    )
    return {"data": [*_used(counts), *_used(amounts)], "layout": layout}


_READ = ("reads", palette.READ, "")
_WRITE = ("writes", palette.WRITE, "/")


def _counts(bins: tuple[SizeBin, ...]) -> list[Spec]:
    return [
        _bars(bins, [b.reads for b in bins], _READ, "y"),
        _bars(bins, [b.writes for b in bins], _WRITE, "y"),
    ]


def _most(bins: tuple[SizeBin, ...]) -> int:
    return max(max(b.reads, b.writes) for b in bins)


def _used(bars: list[Spec]) -> list[Spec]:
    """The series that hold anything, so that absent writes take no room beside reads."""
    return [series for series in bars if any(series["y"])] or bars[:1]


def _bars(
    bins: tuple[SizeBin, ...], values: list[int] | list[float], kind: tuple[str, str, str], y: str
) -> Spec:
    name, colour, pattern = kind
    what = "operations" if y == "y" else "bytes"
    amounts = [b.bytes_read if name == "reads" else b.bytes_written for b in bins]
    hover = [f"{v:,} {name}" for v in values] if y == "y" else [nbytes(v) for v in amounts]
    return {
        "type": "bar",
        "name": name,
        "legendgroup": name,
        "showlegend": y == "y",
        "x": list(range(len(bins))),
        "y": values,
        "yaxis": y,
        "customdata": [[bin_label(b), h] for b, h in zip(bins, hover, strict=True)],
        "marker": palette.fill(colour, pattern),
        "hovertemplate": "%{customdata[0]}: %{customdata[1]}<extra>" + what + "</extra>",
    }


def _size_axis(bins: tuple[SizeBin, ...], **more: object) -> Spec:
    every = max(1, -(-len(bins) // MOST_LABELS))
    return palette.axis(
        "size of the operation, from",
        tickvals=list(range(0, len(bins), every)),
        ticktext=[nbytes(b.low) for b in bins[::every]],
        showgrid=False,
        fixedrange=True,
        **more,
    )


def _counts_only(bins: tuple[SizeBin, ...]) -> Spec:
    layout = palette.layout(
        280,
        barmode="group",
        bargap=0.15,
        xaxis=_size_axis(bins),
        yaxis=palette.counts("operations", _most(bins), fixedrange=True),
    )
    return {"data": _used(_counts(bins)), "layout": layout}


def _table(bins: tuple[SizeBin, ...]) -> Table:
    columns = (
        Column("size"),
        Column("reads", "count"),
        Column("writes", "count"),
        Column("bytes read", "bytes"),
        Column("bytes written", "bytes"),
    )
    rows = tuple((bin_label(b), b.reads, b.writes, b.bytes_read, b.bytes_written) for b in bins)
    return Table(columns, rows)


def _counts_table(bins: tuple[SizeBin, ...]) -> Table:
    columns = (Column("size"), Column("reads", "count"), Column("writes", "count"))
    return Table(columns, tuple((bin_label(b), b.reads, b.writes) for b in bins))


def _alt_text(bins: tuple[SizeBin, ...]) -> str:
    top = max(bins, key=lambda b: b.reads + b.writes)
    total = sum(b.reads + b.writes for b in bins)
    upper = f" to {nbytes(top.high)}" if top.high is not None else " or more"
    share = (top.reads + top.writes) / total if total else None
    return f"Most operations move {nbytes(top.low)}{upper}: {percent(share)} of {count(total)}."


def _text(run: Run) -> str | None:
    return named_values("Transfer sizes", _text_rows(run.sizes))


def _text_rows(sizes: Sizes) -> list[tuple[str, str]]:
    if sizes.min is None:
        return _size_classes(sizes)
    common = ", ".join(
        f"{nbytes(c.nbytes)} x {count(c.reads + c.writes)}" for c in sizes.common[:4]
    )
    return [
        ("range", f"{nbytes(sizes.min)} to {nbytes(sizes.max)}, mean {nbytes(sizes.mean)}, "
                  f"median {nbytes(sizes.median)}"),
        ("most frequent", common),
    ]  # fmt: skip


def _size_classes(sizes: Sizes) -> list[tuple[str, str]]:
    """Darshan's classes with any operation in them; that is all that counters know."""
    used = [b for b in sizes.darshan_histogram if b.reads or b.writes]
    return [(bin_label(b), f"{plural(b.reads, 'read')}, {plural(b.writes, 'write')}") for b in used]


def _json(run: Run) -> Object:
    sizes = run.sizes
    return {
        "min": sizes.min,
        "max": sizes.max,
        "mean": sizes.mean,
        "median": sizes.median,
        "histogram": [values_of(b) for b in sizes.histogram],
        "histogram_darshan": [values_of(b) for b in sizes.darshan_histogram],
        "common": [values_of(c) for c in sizes.common],
        "distinct": sizes.distinct,
    }


_KIND = {
    "min": int | None,
    "max": int | None,
    "mean": float | None,
    "median": float | None,
    "histogram": [SizeBin],
    "histogram_darshan": [SizeBin],
    "common": [CommonSize],
    "distinct": int | None,
}
SECTION = Section("sizes", (figure,), _text, {"io.sizes": Json(_json, _KIND)})
