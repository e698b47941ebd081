"""How long single operations take: histogram, medians, the slowest, and where a file was read."""

from __future__ import annotations

import numpy as np

from vanidl.analyses.durations import DATA_READS, GROUPS, Durations, OfGroup
from vanidl.analyses.latencies import DurationBin, OffsetSample, SlowOperation
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import border, byte_scale, count, nbytes, plural, seconds, times
from vanidl.run import Run
from vanidl.schema import Maybe
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import record_operations

TABLE_READS = 200
_SECTION = "Operations"
_CAPTION = (
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


def _untraced(run: Run) -> str:
    return _UNTRACED.format(record_operations(run.trace))


def figure(run: Run) -> Figure:
    """Histogram of durations, reads and writes apart."""
    title, found = "Durations", run.results.latencies
    if found is None:
        return Figure("durations", _SECTION, title, "", empty_reason=_untraced(run), applies=False)
    words = _statistics(run.results.durations) + _without_bytes(run, found.histogram)
    return Figure(
        "durations", _SECTION, title, _CAPTION + words, _spec(found.histogram),
        _table(found.histogram), alt_text=words or _alt_text(found.histogram), half=True,
    )  # fmt: skip


def slowest(run: Run) -> Figure:
    """The slowest operations, each with the median of its kind beside it."""
    title, found = "Slowest operations", run.results.latencies
    if found is None:
        return Figure("slowest", _SECTION, title, "", empty_reason=_untraced(run), applies=False)
    columns = (
        Column("file"), Column("operation"), Column("duration", "s"), Column("start", "instant"),
        Column("size", "bytes"), Column("offset", "count"), Column("rank"),
    )  # fmt: skip
    rows = tuple(
        (elided(s.path, limit=120), s.op, s.duration_s, s.start_s, s.nbytes, s.offset,
         elided(s.label, limit=60))
        for s in found.slowest
    )  # fmt: skip
    return Figure("slowest", _SECTION, title, _SLOWEST_CAPTION, table=Table(columns, rows))


def offsets(run: Run) -> Figure:
    """Offset of each read of one data file over time."""
    title, found = "Offset over time", run.results.latencies
    sample = found.sample if found is not None else None
    if sample is None or (sample.offset < 0).all():
        reason = "No read of a data file was traced with its offset."
        return Figure("offsets", _SECTION, title, "", empty_reason=reason, applies=False)
    name, shown = elided(sample.path, limit=120), len(sample.offset)
    cut = n_of_m(shown, sample.reads, "reads")
    words = f"The file is {name}" + (f"; shown are {cut}, drawn at random." if cut else ".")
    return Figure(
        "offsets", _SECTION, title, _OFFSET_CAPTION + words, _offset_spec(sample),
        _offset_table(run, sample), alt_text=_offset_alt_text(sample), half=True,
    )  # fmt: skip


def _statistics(found: Durations | None) -> str:
    """Median, p99 and longest of each group in a sentence each."""
    words = []
    groups = found.groups if found is not None else {}
    for name in GROUPS:
        if (group := groups.get(name)) is None:
            continue
        noun = name if DATA_READS in groups else name.removeprefix("other ")
        words.append(
            f"{plural(group.count, noun[:-1], noun)}: median {seconds(group.median_s)}, "
            f"99 % within {seconds(group.p99_s)}, longest {seconds(group.longest_s)}."
        )
    return " ".join(words)


def _without_bytes(run: Run, bins: tuple[DurationBin, ...]) -> str:
    """How many operations the picture has that the numbers leave out."""
    durations = run.results.durations
    counted = sum(group.count for group in durations.groups.values()) if durations else 0
    others = sum(b.reads + b.writes for b in bins) - counted
    if not counted or others <= 0:
        return ""
    moved = plural(others, "operation that moved", "operations that moved")
    return f" {moved} no bytes: in the picture alone."


def _label(found: DurationBin) -> str:
    """`1 ms to 2 ms`, `from 50 s`."""
    if found.high_s is None:
        return f"from {border(found.low_s)}"
    return f"{border(found.low_s)} to {border(found.high_s)}"


def _spec(bins: tuple[DurationBin, ...]) -> Spec:
    data = [
        {
            "type": "bar",
            "name": name,
            "x": list(range(len(bins))),
            "y": [getattr(b, name) for b in bins],
            "customdata": [
                [_label(b), count(getattr(b, name)), seconds(getattr(b, spent))] for b in bins
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
    return {"data": data, "layout": layout}


def _table(bins: tuple[DurationBin, ...]) -> Table:
    columns = (
        Column("from", "border"), Column("up to", "border"), Column("reads", "count"),
        Column("writes", "count"), Column("time in reads", "s"), Column("time in writes", "s"),
    )  # fmt: skip
    rows = tuple((b.low_s, b.high_s, b.reads, b.writes, b.read_s, b.write_s) for b in bins)
    return Table(columns, rows)


def _alt_text(bins: tuple[DurationBin, ...]) -> str:
    most = max(bins, key=lambda b: b.reads + b.writes)
    total = sum(b.reads + b.writes for b in bins)
    return f"{plural(total, 'operation')}; most take {_label(most)}."


def _offset_spec(sample: OffsetSample) -> Spec:
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
    return {"data": [points], "layout": layout}


def _offset_table(run: Run, sample: OffsetSample) -> Table:
    trace = run.trace
    labels = [elided(trace.processes[i].label, limit=60) for i in trace.ranks]
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
    return Table(columns, rows, n_of_m(len(rows), sample.reads, "reads"))


def _offset_alt_text(sample: OffsetSample) -> str:
    """How many reads begin beyond the one before, in words."""
    rising = int((np.diff(sample.offset) > 0).sum())
    return (
        f"{plural(len(sample.offset), 'read')} at offsets up to "
        f"{nbytes(float(sample.offset.max(initial=0)))}; {rising:,} begin beyond the one before."
    )


def _text(run: Run) -> str | None:
    """Statistics of each group; None where no operation was traced."""
    found = run.results.durations
    if found is None:
        return None
    header = ("operations", "count", "median", "99 % within", "longest", "of the median")
    rows = [
        (
            name, count(g.count), seconds(g.median_s), seconds(g.p99_s), seconds(g.longest_s),
            times(g.longest_s / g.median_s) if g.median_s > 0 else "",
        )
        for name, g in found.groups.items()
    ]  # fmt: skip
    return aligned_table("Durations", [header, *rows]) if rows else None


def _json(run: Run) -> Object | None:
    found, details = run.results.durations, run.results.latencies
    if found is None or details is None:
        return None
    return {
        "groups": {name: values_of(group) for name, group in found.groups.items()},
        "empty_reads": found.empty,
        "empty_reads_s": found.empty_s,
        "histogram": [values_of(each) for each in details.histogram],
        "slowest": [values_of(each) for each in details.slowest],
    }


_KIND = Maybe({
    "groups": {str: OfGroup},
    "empty_reads": int,
    "empty_reads_s": float,
    "histogram": [DurationBin],
    "slowest": [SlowOperation],
})  # fmt: skip
SECTION = Section(
    "durations", (figure, offsets, slowest), _text, {"io.durations": Json(_json, _KIND)}
)
