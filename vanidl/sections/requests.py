"""Single operations: how large they are, in which order, and how long each takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vanidl.analyses.access import Access, AccessCounts
from vanidl.analyses.durations import DATA_READS, GROUPS, Durations, OfGroup
from vanidl.analyses.latencies import DurationBin, SlowOperation
from vanidl.analyses.sizes import CommonSize, SizeBin, Sizes
from vanidl.figures import palette
from vanidl.figures.bars import Stack, share_bars
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import aligned_table, named_values
from vanidl.formatting.units import (
    border,
    byte_scale,
    count,
    nbytes,
    percent,
    plural,
    seconds,
    times,
)
from vanidl.run import Run
from vanidl.schema.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import advise_tracing

MOST_LABELS = 9  # that have room in half the width of a page
_SIZES_CAPTION = (
    "Above: how many operations moved that many bytes. Below: how many bytes those operations "
    "moved in all. Tall bars on the left of the upper picture and on the right of the lower one "
    "mean that many small operations move little of the data."
)
_SIZES_BY_COUNTERS = (
    "Operations in Darshan's ten size classes, from its counters. Single operations were not "
    "traced, so the bytes in each class are not known."
)


def draw_sizes(run: Run) -> Figure:
    """Histogram over powers of two, or over Darshan's classes where only counters exist."""
    traced = run.sizes.histogram
    counted = run.sizes.darshan_histogram
    if traced:
        largest = max(max(b.bytes_read or 0, b.bytes_written or 0) for b in traced)
        divisor, unit = byte_scale(largest)
        counts = _plot_counts(traced)
        amounts = [
            _plot_bars(traced, [(b.bytes_read or 0) / divisor for b in traced], _READ, "y2"),
            _plot_bars(traced, [(b.bytes_written or 0) / divisor for b in traced], _WRITE, "y2"),
        ]
        # Operations in the upper half, bytes below, over one axis of sizes.
        layout = palette.layout(
            380,
            barmode="group",
            bargap=0.15,
            xaxis=_size_axis(traced, anchor="y2"),
            yaxis=palette.counts(
                "operations", _find_most(traced), domain=[0.55, 1], fixedrange=True
            ),
            yaxis2=palette.axis(unit, domain=[0, 0.45], fixedrange=True),
        )
        sizes = {"data": [*_drop_empty(counts), *_drop_empty(amounts)], "layout": layout}
        drawn = _compose_sizes(
            f"{_SIZES_CAPTION} {_name_frequent(run.sizes)}",
            sizes,
            _tabulate_sizes(traced),
        )
        return replace(drawn, alt_text=_describe_sizes(traced or counted))
    # Classes of counters hold operations, and not how many bytes each class moved.
    if any(b.reads or b.writes for b in counted):
        columns = (Column("size"), Column("reads", "count"), Column("writes", "count"))
        classes = Table(columns, tuple((label_bin(b), b.reads, b.writes) for b in counted))
        drawn = _compose_sizes(_SIZES_BY_COUNTERS, _plot_classes(counted), classes)
        return replace(drawn, alt_text=_describe_sizes(traced or counted))
    reason = "No read or write was recorded, so there are no sizes to show."
    if run.summary.ops:
        advice = advise_tracing(run.trace)
        reason = f"Reads and writes were counted, their sizes were not. {advice}."
    return _compose_sizes("", None, None, reason)


def _compose_sizes(
    caption: str, spec: Spec | None, table: Table | None, reason: str = ""
) -> Figure:
    title = "Transfer sizes"
    return Figure("sizes", "Operations", title, caption, spec, table, reason, half=True)


def _name_frequent(sizes: Sizes) -> str:
    """The most frequent exact size and how many there are."""
    if not sizes.common:
        return ""
    top = sizes.common[0]
    return (
        f"Most frequent of {plural(sizes.distinct, 'size')}: {count(top.nbytes)} bytes, "
        f"{plural(top.reads + top.writes, 'operation')}."
    )


def label_bin(size: SizeBin) -> str:
    """`4 KiB to 8 KiB`, `0 B`, `from 1 GiB`."""
    if size.high is None:
        return f"from {nbytes(size.low)}"
    if size.high - size.low <= 1:
        return nbytes(size.low)
    return f"{nbytes(size.low)} to {nbytes(size.high)}"


_READ = ("reads", palette.READ, "")
_WRITE = ("writes", palette.WRITE, "/")


def _plot_counts(bins: tuple[SizeBin, ...]) -> list[Spec]:
    return [
        _plot_bars(bins, [b.reads for b in bins], _READ, "y"),
        _plot_bars(bins, [b.writes for b in bins], _WRITE, "y"),
    ]


def _find_most(bins: tuple[SizeBin, ...]) -> int:
    return max(max(b.reads, b.writes) for b in bins)


def _drop_empty(bars: list[Spec]) -> list[Spec]:
    """The series that hold anything, so that absent writes take no room beside reads."""
    return [series for series in bars if any(series["y"])] or bars[:1]


def _plot_bars(
    bins: tuple[SizeBin, ...], values: list[int] | list[float], kind: tuple[str, str, str], y: str
) -> Spec:
    name, colour, pattern = kind
    # Axis y has operations, y2 bytes; what is pointed at says exact amounts in both.
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
        "customdata": [[label_bin(b), h] for b, h in zip(bins, hover, strict=True)],
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


def _plot_classes(bins: tuple[SizeBin, ...]) -> Spec:
    layout = palette.layout(
        280,
        barmode="group",
        bargap=0.15,
        xaxis=_size_axis(bins),
        yaxis=palette.counts("operations", _find_most(bins), fixedrange=True),
    )
    return {"data": _drop_empty(_plot_counts(bins)), "layout": layout}


def _tabulate_sizes(bins: tuple[SizeBin, ...]) -> Table:
    columns = (
        Column("size"),
        Column("reads", "count"),
        Column("writes", "count"),
        Column("bytes read", "bytes"),
        Column("bytes written", "bytes"),
    )
    rows = tuple((label_bin(b), b.reads, b.writes, b.bytes_read, b.bytes_written) for b in bins)
    return Table(columns, rows)


def _describe_sizes(bins: tuple[SizeBin, ...]) -> str:
    top = max(bins, key=lambda b: b.reads + b.writes)
    total = sum(b.reads + b.writes for b in bins)
    upper = f" to {nbytes(top.high)}" if top.high is not None else " or more"
    share = (top.reads + top.writes) / total if total else None
    return f"Most operations move {nbytes(top.low)}{upper}: {percent(share)} of {count(total)}."


def _write_sizes(run: Run) -> str | None:
    sizes = run.sizes
    if sizes.min is None:
        # Darshan's classes with any operation in them; that is all that counters know.
        used = [b for b in sizes.darshan_histogram if b.reads or b.writes]
        rows = [
            (label_bin(b), f"{plural(b.reads, 'read')}, {plural(b.writes, 'write')}") for b in used
        ]
        return named_values("Transfer sizes", rows)
    common = ", ".join(
        f"{nbytes(c.nbytes)} x {count(c.reads + c.writes)}" for c in sizes.common[:4]
    )
    rows = [
        ("range", f"{nbytes(sizes.min)} to {nbytes(sizes.max)}, mean {nbytes(sizes.mean)}, "
                  f"median {nbytes(sizes.median)}"),
        ("most frequent", common),
    ]  # fmt: skip
    return named_values("Transfer sizes", rows)


def _collect_sizes(run: Run) -> Object:
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


_SIZES_KIND = {
    "min": int | None,
    "max": int | None,
    "mean": float | None,
    "median": float | None,
    "histogram": [SizeBin],
    "histogram_darshan": [SizeBin],
    "common": [CommonSize],
    "distinct": int | None,
}
SIZES = Section(
    "sizes", (draw_sizes,), _write_sizes, {"io.sizes": Json(_collect_sizes, _SIZES_KIND)}
)


# Access pattern: does each operation follow the one before it?

ACCESS_PARTS = (
    ("first", "first in the file", palette.FIRST, ""),
    ("consecutive", "consecutive", palette.CONSECUTIVE, ""),
    ("forward", "jump forward", palette.FORWARD, "/"),
    ("backward", "jump backward", palette.BACKWARD, "\\"),
)
COUNTED_ACCESS_PARTS = (
    ("consecutive", "consecutive", palette.CONSECUTIVE, ""),
    ("forward", "jump forward", palette.FORWARD, "/"),
    ("backward", "jump backward, or first at the start", palette.BACKWARD, "\\"),
)
_ACCESS_BY_COUNTERS = (
    "From Darshan's counters, as no single operation was traced: reads and writes apart. "
    "Consecutive: begins right behind the last byte touched. Jump forward: further behind it. "
    "The rest begins before it, or is the first at the start of a file."
)
_ACCESS_CAPTION = (
    "Reads and writes apart, per process and file in order of their start. Consecutive: begins "
    "where the one before ended. Shuffled samples show as jumps in both directions; that is "
    "expected of training, and costs most where the storage is far away."
)


def draw_access(run: Run) -> Figure:
    """Share of first, consecutive, forward and backward operations."""
    title, access = "Access pattern", run.access
    if access is not None and access.read.ops + access.write.ops == 0:
        reason = "No read or write was recorded, so there is no order to show."
        return Figure("access", "Operations", title, "", empty_reason=reason)
    if access is None:
        reason = (
            "No single operation was traced and no counter tells their order. "
            f"{advise_tracing(run.trace)}."
        )
        return Figure("access", "Operations", title, "", empty_reason=reason)
    # A row for each order, reads beside writes: half a page has room for no more columns.
    reads, writes = _count_orders(access, 0), _count_orders(access, 1)
    rows = tuple((name, reads[name], writes[name]) for name in reads)
    known = tuple(row for row in rows if row[1:] != (None, None))
    columns = (Column("operations"), Column("reads", "count"), Column("writes", "count"))
    sides = (("read", access.read), ("write", access.write))
    alt_text = " ".join(_describe_pattern(name, counts) for name, counts in sides if counts.ops)
    # Counters know fewer kinds of order.
    by_counters = access.source == "counters"
    return Figure(
        "access",
        "Operations",
        title,
        _ACCESS_BY_COUNTERS if by_counters else _ACCESS_CAPTION,
        _plot_access(access, COUNTED_ACCESS_PARTS if by_counters else ACCESS_PARTS),
        Table(columns, known),
        alt_text=alt_text,
        half=True,
    )


AccessPart = tuple[str, str, str, str]


def _plot_access(access: Access, parts: tuple[AccessPart, ...]) -> Spec:
    sides = [(n, c) for n, c in (("reads", access.read), ("writes", access.write)) if c.ops]
    stacks = [
        Stack(name, colour, pattern, [count_operations(counts, attribute) for _, counts in sides])
        for attribute, name, colour, pattern in parts
    ]
    rows = [(label, counts.ops) for label, counts in sides]
    height = 120 + 44 * len(sides)
    return share_bars(rows, stacks, height=height, hover="%{customdata} %{y}")


def count_operations(counts: AccessCounts, attribute: str) -> int:
    """Operations of one class, by Darshan's rule where only its counters are known."""
    own: int | None = getattr(counts, attribute)
    if own is not None:
        return own
    # By Darshan's rule every consecutive operation is sequential, too.
    sequential, consecutive = counts.sequential_darshan or 0, counts.consecutive_darshan or 0
    by_rule = {
        "consecutive": consecutive,
        "forward": sequential - consecutive,
        "backward": counts.ops - sequential,
    }
    return max(by_rule[attribute], 0)


def _count_orders(access: Access, side: int) -> dict[str, int | None]:
    """Operations of each order: what the picture shows, then what its counters are checked by."""
    counts = (access.read, access.write)[side]
    if access.source == "counters":
        shown = {name: count_operations(counts, part) for part, name, _, _ in COUNTED_ACCESS_PARTS}
        return {"all": counts.ops, **shown}
    # Darshan's own count stands beside its rule on traced operations, as a check.
    shown = {name: getattr(counts, part) for part, name, _, _ in ACCESS_PARTS}
    return {
        "all": counts.ops,
        **shown,
        "sequential, by Darshan's rule": counts.sequential_darshan,
        "sequential, by its counter": access.counted_sequential[side],
        "consecutive, by Darshan's rule": counts.consecutive_darshan,
        "consecutive, by its counter": access.counted_consecutive[side],
    }


def _describe_pattern(name: str, counts: AccessCounts) -> str:
    parts = ("first", "consecutive", "forward", "backward", "sequential_darshan")
    known = [(part, getattr(counts, part)) for part in parts]
    shares = [f"{percent(n / counts.ops)} {part}" for part, n in known if n is not None][:4]
    words = ", ".join(shares).replace("sequential_darshan", "sequential by Darshan's rule")
    return f"Of {plural(counts.ops, name)}: {words}."


def list_access(run: Run) -> list[tuple[str, str]]:
    """The order of reads, for the block about I/O; nothing without reads."""
    if run.access is None or not run.access.read.ops:
        return []
    read = run.access.read
    if run.access.source != "counters":
        parts = [
            f"{percent(getattr(read, name) / read.ops)} {name}"
            for name in ("consecutive", "forward", "backward", "first")
        ]
        return [("reads are", ", ".join(parts))]
    # Darshan's counters know two orders, of which one includes the other.
    sequential, consecutive = read.sequential_darshan, read.consecutive_darshan
    if sequential is None or consecutive is None:
        return [("reads are", "in an order that was not recorded")]
    words = (
        f"{percent(consecutive / read.ops)} consecutive, {percent(sequential / read.ops)} "
        "sequential (those included), by Darshan's counters"
    )
    return [("reads are", words)]


def _collect_access(run: Run) -> Object | None:
    access = run.access
    if access is None:
        return None
    return {
        "read": _collect_counts(access.read, access, 0),
        "write": _collect_counts(access.write, access, 1),
    }


def _collect_counts(counts: AccessCounts, access: Access, op: int) -> Object:
    return values_of(counts) | {
        "sequential_counted": access.counted_sequential[op],
        "consecutive_counted": access.counted_consecutive[op],
    }


_COUNTS = fields_of(AccessCounts) | {
    "sequential_counted": int | None,
    "consecutive_counted": int | None,
}
_ACCESS_KIND = Maybe({"read": _COUNTS, "write": _COUNTS})
ACCESS = Section("access", (draw_access,), json={"io.access": Json(_collect_access, _ACCESS_KIND)})


# How long single operations take: histogram, medians, the slowest, and where a file was read.

TABLE_READS = 200
_SECTION = "Operations"
_DURATIONS_CAPTION = (
    "How many operations took how long; the bins grow by 1, 2, 5. A second hill far to the right "
    "is a storage that stalls now and then. "
)
_SLOWEST_CAPTION = "The operations that took longest, with the time at which they are found above."
_OFFSET_CAPTION = (
    "Where in the file each read began, over time. A rising line is reading in order; a cloud is "
    "reading at random, as shuffled samples do; parallel lines are ranks or workers with parts of "
    "their own. "
)
_UNTRACED = "No single operation was traced, so it is not known how long each took. {}."


def _explain_untraced(run: Run) -> str:
    return _UNTRACED.format(advise_tracing(run.trace))


def draw_durations(run: Run) -> Figure:
    """Histogram of durations, reads and writes apart."""
    title, latencies = "Durations", run.results.latencies
    if latencies is None:
        return Figure(
            "durations", _SECTION, title, "", empty_reason=_explain_untraced(run), applies=False
        )
    words = _describe_statistics(run.results.durations) + _count_without_bytes(
        run, latencies.histogram
    )
    bins = latencies.histogram
    data = [
        {
            "type": "bar",
            "name": name,
            "x": list(range(len(bins))),
            "y": [getattr(b, name) for b in bins],
            "customdata": [
                [_label_duration(b), count(getattr(b, name)), seconds(getattr(b, spent))]
                for b in bins
            ],
            "marker": palette.fill(colour, pattern),
            "hovertemplate": "%{customdata[0]}: %{customdata[1]} " + name
            + ", %{customdata[2]} in sum<extra></extra>",
        }
        for name, spent, colour, pattern in (
            ("reads", "read_s", palette.READ, ""),
            ("writes", "write_s", palette.WRITE, "/"),
        )
        if any(getattr(b, name) for b in bins)
    ]  # fmt: skip
    # At most twelve ticks, at the borders of classes: half a bar to the left.
    every = max(1, -(-len(bins) // 12))
    places = list(range(0, len(bins), every))
    ticks = palette.axis(
        tickvals=[i - 0.5 for i in places],
        ticktext=[border(bins[i].low_s) for i in places],
        showgrid=False,
        fixedrange=True,
    )
    most = max(b.reads + b.writes for b in bins)
    counts = palette.counts("operations", most, rangemode="tozero", fixedrange=True)
    layout = palette.layout(280, barmode="stack", bargap=0.1, xaxis=ticks, yaxis=counts)
    # The same in numbers, and in a sentence where no statistics are known.
    columns = (
        Column("from", "border"), Column("up to", "border"), Column("reads", "count"),
        Column("writes", "count"), Column("time in reads", "s"), Column("time in writes", "s"),
    )  # fmt: skip
    rows = tuple((b.low_s, b.high_s, b.reads, b.writes, b.read_s, b.write_s) for b in bins)
    fullest = max(bins, key=lambda b: b.reads + b.writes)
    total = sum(b.reads + b.writes for b in bins)
    plain = f"{plural(total, 'operation')}; most take {_label_duration(fullest)}."
    return Figure(
        "durations", _SECTION, title, _DURATIONS_CAPTION + words,
        {"data": data, "layout": layout}, Table(columns, rows), alt_text=words or plain, half=True,
    )  # fmt: skip


def draw_slowest(run: Run) -> Figure:
    """The slowest operations, each with the median of its kind beside it."""
    title, latencies = "Slowest operations", run.results.latencies
    if latencies is None:
        return Figure(
            "slowest", _SECTION, title, "", empty_reason=_explain_untraced(run), applies=False
        )
    columns = (
        Column("file"), Column("operation"), Column("duration", "s"), Column("start", "instant"),
        Column("size", "bytes"), Column("offset", "count"), Column("rank"),
    )  # fmt: skip
    rows = tuple(
        (elided(s.path, limit=120), s.op, s.duration_s, s.start_s, s.nbytes, s.offset,
         elided(s.label, limit=60))
        for s in latencies.slowest
    )  # fmt: skip
    return Figure("slowest", _SECTION, title, _SLOWEST_CAPTION, table=Table(columns, rows))


def draw_offsets(run: Run) -> Figure:
    """Offset of each read of one data file over time."""
    title, latencies = "Offset over time", run.results.latencies
    sample = latencies.sample if latencies is not None else None
    if sample is None or (sample.offset < 0).all():
        reason = "No read of a data file was traced with its offset."
        return Figure("offsets", _SECTION, title, "", empty_reason=reason, applies=False)
    name, shown = elided(sample.path, limit=120), len(sample.offset)
    cut = n_of_m(shown, sample.reads, "reads")
    words = f"The file is {name}" + (f"; shown are {cut}, drawn at random." if cut else ".")

    # Offsets in one unit, over the time axis of all pictures.
    divisor, unit = byte_scale(float(sample.offset.max(initial=0)))
    at = np.round(sample.offset / divisor, 4)
    layout = palette.time_layout(300, showlegend=False)
    layout["xaxis"] = palette.time_axis()
    layout["yaxis"] = palette.axis(f"offset, {unit}", rangemode="tozero", fixedrange=True)
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "reads",
        "x": np.round(sample.start_s, 5).tolist(),
        "y": at.tolist(),
        "marker": {"size": 3, "color": palette.READ},
        "hovertemplate": "at %{x:.4g} s: offset %{y:.3g} " + unit + "<extra></extra>",
    }
    # The first reads in numbers, and in words how many begin beyond the one before.
    labels = [elided(run.trace.processes[i].label, limit=60) for i in run.trace.ranks]
    rows = tuple(
        (start, offset if offset >= 0 else None, size, labels[rank] if rank >= 0 else "no rank")
        for start, offset, size, rank in zip(
            *(column[:TABLE_READS].tolist() for column in
              (sample.start_s, sample.offset, sample.nbytes, sample.position)),
            strict=True,
        )
    )  # fmt: skip
    columns = (Column("start", "instant"), Column("offset", "count"), Column("size", "bytes"),
               Column("rank"))  # fmt: skip
    rising = int((np.diff(sample.offset) > 0).sum())
    alt_text = (
        f"{plural(shown, 'read')} at offsets up to "
        f"{nbytes(float(sample.offset.max(initial=0)))}; {rising:,} begin beyond the one before."
    )
    return Figure(
        "offsets", _SECTION, title, _OFFSET_CAPTION + words, {"data": [points], "layout": layout},
        Table(columns, rows, n_of_m(len(rows), sample.reads, "reads")), alt_text=alt_text,
        half=True,
    )  # fmt: skip


def _describe_statistics(durations: Durations | None) -> str:
    """Median, p99 and longest of each group in a sentence each."""
    words = []
    groups = durations.groups if durations is not None else {}
    for name in GROUPS:
        if (group := groups.get(name)) is None:
            continue
        # Without reads of the dataset the groups need no "other" before their names.
        noun = name if DATA_READS in groups else name.removeprefix("other ")
        words.append(
            f"{plural(group.count, noun[:-1], noun)}: median {seconds(group.median_s)}, "
            f"99 % within {seconds(group.p99_s)}, longest {seconds(group.longest_s)}."
        )
    return " ".join(words)


def _count_without_bytes(run: Run, bins: tuple[DurationBin, ...]) -> str:
    """How many operations the picture has that the numbers leave out."""
    durations = run.results.durations
    counted = sum(group.count for group in durations.groups.values()) if durations else 0
    others = sum(b.reads + b.writes for b in bins) - counted
    if not counted or others <= 0:
        return ""
    moved = plural(others, "operation that moved", "operations that moved")
    return f" {moved} no bytes: in the picture alone."


def _label_duration(duration_bin: DurationBin) -> str:
    """`1 ms to 2 ms`, `from 50 s`."""
    if duration_bin.high_s is None:
        return f"from {border(duration_bin.low_s)}"
    return f"{border(duration_bin.low_s)} to {border(duration_bin.high_s)}"


def _write_durations(run: Run) -> str | None:
    """Statistics of each group; None where no operation was traced."""
    durations = run.results.durations
    if durations is None:
        return None
    header = ("operations", "count", "median", "99 % within", "longest", "of the median")
    rows = [
        (
            name, count(g.count), seconds(g.median_s), seconds(g.p99_s), seconds(g.longest_s),
            times(g.longest_s / g.median_s) if g.median_s > 0 else "",
        )
        for name, g in durations.groups.items()
    ]  # fmt: skip
    return aligned_table("Durations", [header, *rows]) if rows else None


def _collect_durations(run: Run) -> Object | None:
    durations, details = run.results.durations, run.results.latencies
    if durations is None or details is None:
        return None
    return {
        "groups": {name: values_of(group) for name, group in durations.groups.items()},
        "empty_reads": durations.empty,
        "empty_reads_s": durations.empty_s,
        "histogram": [values_of(each) for each in details.histogram],
        "slowest": [values_of(each) for each in details.slowest],
    }


_DURATIONS_KIND = Maybe({
    "groups": {str: OfGroup},
    "empty_reads": int,
    "empty_reads_s": float,
    "histogram": [DurationBin],
    "slowest": [SlowOperation],
})  # fmt: skip
DURATIONS = Section(
    "durations",
    (draw_durations, draw_offsets, draw_slowest),
    _write_durations,
    {"io.durations": Json(_collect_durations, _DURATIONS_KIND)},
)
