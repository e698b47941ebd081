"""The operations of all sides: transfer sizes on one axis, and access patterns."""

from __future__ import annotations

from vanidl.analyses.sizes import SizeBin
from vanidl.compare import Comparison, Side
from vanidl.compare.figures import colour, first_read, named, shown_runs
from vanidl.figures import palette
from vanidl.figures.bars import Stack, share_bars
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import byte_scale, count, nbytes
from vanidl.sections.requests import ACCESS_PARTS, label_bin

_SIZES_CAPTION = (
    "Above: how many operations (reads and writes) moved that many bytes. Below: how many bytes "
    "those operations moved in all. Bars that move to the right are fewer, larger requests."
)


def draw_sizes(comparison: Comparison) -> Figure:
    """Operations and bytes by size for each side."""
    by_side = [(side, _list_bins(side)) for side in comparison.sides]
    known = [(side, bins) for side, bins in by_side if bins]
    if not known:
        return _compose_sizes(
            "", reason="No side recorded operations one by one, so sizes are unknown."
        )
    missing = [side.letter for side, bins in by_side if not bins]
    # All powers of two between the smallest and the largest: gaps show as gaps.
    lows = sorted({low for _, bins in known for low in bins})
    powers = (0, *(1 << i for i in range(lows[-1].bit_length())))
    axis = [low for low in powers if lows[0] <= low <= lows[-1]]
    # Three columns a side; a class without operations of a side has zeros there.
    columns = [Column("size")]
    for side, _ in known:
        columns += [
            Column(f"{side.letter}: reads", "count"),
            Column(f"{side.letter}: writes", "count"),
            Column(f"{side.letter}: bytes", "bytes"),
        ]
    rows = []
    for low in axis:
        cells: list[str | int] = [label_bin(SizeBin(low, max(2 * low, 1), 0, 0, 0, 0))]
        for _, bins in known:
            size = bins.get(low)
            cells += (size.reads, size.writes, size.nbytes) if size else (0, 0, 0)
        rows.append(tuple(cells))
    words = [_SIZES_CAPTION, shown_runs(comparison)]
    words.append(f"Not recorded: {', '.join(missing)}." if missing else "")
    return _compose_sizes(
        " ".join(word for word in words if word),
        spec=_draw_size_bars(comparison, known, axis),
        table=Table(tuple(columns), tuple(rows)),
    )


def _compose_sizes(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("sizes", "Operations", "Transfer sizes", caption, spec, table, reason)


Bins = dict[int, SizeBin]


def _list_bins(side: Side) -> Bins:
    """The used classes by their lowest size."""
    sample = first_read(side)
    if sample is None or sample.results is None:
        return {}
    return {b.low: b for b in sample.results.sizes.histogram}


def _draw_size_bars(
    comparison: Comparison, known: list[tuple[Side, Bins]], axis: list[int]
) -> Spec:
    # One unit for all sides.
    top = max(b.nbytes for _, bins in known for b in bins.values())
    divisor, unit = byte_scale(top)
    every = max(1, -(-len(axis) // 14))
    # Operations above, bytes below, over the same classes of sizes.
    data = [
        _draw_side(comparison, side, bins, (axis, divisor if lower else 0))
        for lower in (False, True)
        for side, bins in known
    ]
    layout = palette.layout(
        420,
        barmode="group",
        bargap=0.2,
        xaxis=palette.axis(
            "size of the operation, from",
            tickvals=list(range(0, len(axis), every)),
            ticktext=[nbytes(low) for low in axis[::every]],
            showgrid=False,
            fixedrange=True,
            anchor="y2",
        ),
        yaxis=palette.axis("operations", domain=[0.55, 1], fixedrange=True),
        yaxis2=palette.axis(unit, domain=[0, 0.45], fixedrange=True),
    )
    return {"data": data, "layout": layout}


def _draw_side(
    comparison: Comparison, side: Side, bins: Bins, drawn: tuple[list[int], int]
) -> Spec:
    """Operations (divisor 0) or bytes of a side over the classes of the axis."""
    axis, divisor = drawn
    # A side without operations of a size has an empty bar there.
    rows = [bins.get(low) for low in axis]
    ops = [0 if b is None else b.reads + b.writes for b in rows]
    moved = [0 if b is None else b.nbytes for b in rows]
    labels = [
        "" if b is None else f"{label_bin(b)}: {count(n)} operations, {nbytes(m)}"
        for b, n, m in zip(rows, ops, moved, strict=True)
    ]
    return {
        "type": "bar",
        "name": named(side),
        "legendgroup": side.letter,
        "showlegend": divisor == 0,
        "x": list(range(len(axis))),
        "y": [m / divisor for m in moved] if divisor else ops,
        "yaxis": "y2" if divisor else "y",
        "customdata": labels,
        "marker": palette.fill(colour(comparison, side)),
        "hovertemplate": "%{customdata}<extra>" + side.letter + "</extra>",
    }


_ACCESS_CAPTION = (
    "Per process and file in order of their start. Consecutive: begins where the one before "
    "ended. A loader that reads in order, or joins neighbouring samples, moves bars towards "
    "consecutive."
)


def draw_access(comparison: Comparison) -> Figure:
    """Share of first, consecutive, forward and backward operations for each side."""
    recorded, missing = [], []
    for side in comparison.sides:
        sample = first_read(side)
        access = None if sample is None or sample.results is None else sample.results.access
        if access is None or access.source == "counters":  # another rule: not side by side
            missing.append(side.letter)
        else:
            recorded.append((side.letter, access))
    # Reads of every side, then writes.
    reads = [(f"{letter}: reads", access.read) for letter, access in recorded]
    writes = [(f"{letter}: writes", access.write) for letter, access in recorded]
    rows = [row for row in (*reads, *writes) if row[1].ops]
    if not rows:
        reason = "No side recorded operations one by one, so their order is not known."
        return _compose_access("", reason=reason)
    # Sides that are missing are named: no bar would read as no operation.
    words = [_ACCESS_CAPTION, shown_runs(comparison)]
    words.append(f"Not recorded one by one: {', '.join(missing)}." if missing else "")
    table = Table(
        (Column("operations"), Column("all", "count"),
         *(Column(attribute, "count") for attribute, _, _, _ in ACCESS_PARTS)),
        tuple((name, c.ops, *(getattr(c, a) for a, _, _, _ in ACCESS_PARTS)) for name, c in rows),
    )  # fmt: skip
    stacks = [
        Stack(name, colour, pattern, [getattr(counts, attribute) for _, counts in rows])
        for attribute, name, colour, pattern in ACCESS_PARTS
    ]
    ops = [(label, counts.ops) for label, counts in rows]
    access_bars = share_bars(ops, stacks, height=110 + 36 * len(rows), hover="%{y}: %{customdata}")
    return _compose_access(" ".join(word for word in words if word), spec=access_bars, table=table)


def _compose_access(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("access", "Operations", "Access pattern", caption, spec, table, reason)
