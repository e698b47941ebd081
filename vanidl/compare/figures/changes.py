"""What changed: each metric as a ratio with its interval, in numbers, and run by run."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from vanidl.compare import Change, Comparison, Pairing, Sample, Side
from vanidl.compare.comparison import (
    BETTER,
    NO_INTERVAL,
    NOT_COMPARABLE,
    NOT_RECORDED,
    TOO_FEW,
    WORSE,
)
from vanidl.compare.figures import colour, named
from vanidl.compare.metrics import steps_a_rank
from vanidl.compare.text import (
    CONFIDENCE,
    describe_from_nothing,
    format_interval,
    format_values,
    has_verdicts,
)
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Amount, Cell, plural, relative, shown
from vanidl.wording.results import explain_ceiling

# The runs that were compared, and those with batches from memory: what input costs each side.

LIMIT = 500  # runs in a table


def draw_runs(comparison: Comparison) -> Figure:
    """One row a run."""
    rows = [_list_run(side, sample) for side in comparison.sides for sample in side.samples]
    columns = (
        Column("side"),
        Column("pair", "count"),
        Column("run"),
        Column("started (UTC)"),
        Column("run time", "s"),
        Column("wall time", "s"),
        Column("ranks", "count"),
        Column("steps per rank", "count"),
        Column("traced with"),
    )
    table = Table(columns, tuple(rows[:LIMIT]), n_of_m(min(len(rows), LIMIT), len(rows), "runs"))
    caption = " ".join(
        f"{name[:1].upper()}{name[1:]}: {elided(v)}." for name, v in comparison.conditions
    )
    shown = table.without_empty_columns()  # pairs and wall times are known to vanidl ab alone
    return Figure("runs", "Runs", "What was compared", caption, None, shown)


def _list_run(side: Side, sample: Sample) -> tuple[Cell, ...]:
    job = sample.job
    start = None if job is None else datetime.fromtimestamp(job.start_ns / 1e9, tz=timezone.utc)
    return (
        side.letter,
        sample.pair,
        elided(sample.path, limit=120),
        None if start is None else f"{start:%Y-%m-%d %H:%M:%S}",
        None if job is None else job.run_time_s,
        sample.wall_time_s,
        len(sample.ranks) or None,
        steps_a_rank(sample),
        None if job is None else job.tracer or "none",
    )


_CEILING_COLUMNS = (
    Column("side"), Column("mean step", "s"), Column("with batches from memory", "s"),
    Column("input costs", "share"), Column("at least", "share"), Column("at most", "share"),
)  # fmt: skip
_CEILING_CAPTION = (
    "Beside each pair command A ran with batches from memory, so that input was free. What input "
    "costs of the wall time of steps is the most that any change of it can gain. The bounds are "
    "those of a 98 % interval"
)


def draw_ceiling(comparison: Comparison) -> Figure:
    """A row for each side that was measured."""
    title = "The ceiling: steps with batches from memory"
    ceilings = [(side, side.ceiling) for side in comparison.sides if side.ceiling is not None]
    if not ceilings:
        reason = "Not measured: vanidl ab --ceiling measures it."
        return Figure("ceiling", "What changed", title, "", empty_reason=reason, applies=False)
    rows = tuple((side.letter, c.step_s, c.free_s, c.cost, c.low, c.high) for side, c in ceilings)
    # Over how many pairs: said once where it is the same of all sides.
    most = max(c.pairs for _, c in ceilings)
    counted = [f"{plural(c.pairs, 'pair')} of {side.letter}" for side, c in ceilings]
    same = len({c.pairs for _, c in ceilings}) == 1
    over = (
        f" over {plural(most, 'pair') if same else ' and '.join(counted)}. " if most > 1 else ". "
    )
    said = " ".join(f"{side.letter}: {explain_ceiling(c)}" for side, c in ceilings)
    return Figure(
        "ceiling",
        "What changed",
        title,
        _CEILING_CAPTION + over + said,
        table=Table(_CEILING_COLUMNS, rows),
    )


_COLOURS = {BETTER: palette.BETTER, WORSE: palette.WORSE}
_SHAPES = {BETTER: "triangle-up", WORSE: "triangle-down"}
_SYMBOLS = ("circle", "square", "diamond", "hexagon", "cross")
_FARTHEST = 100.0  # times more or less: intervals are drawn as far as that
_CAPTION = (
    "Each point is a metric of the other side over that of A, on a scale of factors: left of the "
    "line at 1 it fell, right of it it rose."
)
_BARS = (
    f"Bars are {CONFIDENCE} intervals. A green triangle up is better, a red one down is worse; "
    "grey has no good direction, or no verdict."
)
_SINGLE = "One run each gives no interval and no measure of how far the next run would be off."
# 1, 2 and 5 of each power of ten.
_TICKS = tuple(float(f"{m}e{e}") for e in range(-6, 10) for m in (1, 2, 5))
_MOST_TICKS = 12  # whose labels stand level beside each other
_NARROW = 8.0  # from the lowest to the highest factor, below which ticks are evenly apart


def draw_changes(comparison: Comparison) -> Figure:
    """The ratio of every metric that both sides recorded above zero."""
    # On a logarithmic axis only ratios above zero have a place.
    drawn = [
        [change for change in pairing.changes if change.ratio is not None and change.ratio > 0]
        for pairing in comparison.pairings
    ]
    names = list(dict.fromkeys(change.metric.title for rows in drawn for change in rows))
    if not names:
        reason = "No metric was recorded on both sides, so there is nothing to compare."
        return _compose_changes("", empty_reason=reason)
    bars = any(change.low is not None for rows in drawn for change in rows)

    # Metrics without a ratio are named, not left out in silence.
    rest = dict.fromkeys(
        change.metric.title
        for pairing in comparison.pairings
        for change in pairing.changes
        if change.metric.title not in names
    )
    out = [f"Not drawn, for want of a ratio: {'; '.join(rest)}."] if rest else []
    words = [_CAPTION, _BARS if bars else _SINGLE, *out]
    data = [
        _plot_points(pairing, rows, names, (i, len(drawn)))
        for i, (pairing, rows) in enumerate(zip(comparison.pairings, drawn, strict=True))
    ]
    return _compose_changes(
        " ".join(words), spec={"data": data, "layout": _lay_out_changes(drawn, names)}
    )


def _compose_changes(caption: str, *, spec: Spec | None = None, empty_reason: str = "") -> Figure:
    title = "Change of each metric"
    return Figure("changes", "What changed", title, caption, spec, None, empty_reason)


def _plot_points(
    pairing: Pairing, rows: list[Change], names: list[str], place: tuple[int, int]
) -> Spec:
    """The points of one pairing, the place[0]-th of place[1] drawn side by side."""
    index, pairings = place
    # Points of several pairings lie side by side within half a row.
    step = 0.5 * ((index + 0.5) / pairings - 0.5)
    # Bars to the bounds of the interval, of no length where there is none.
    above = [
        0.0 if c.high is None or c.ratio is None else _limit_bound(c, c.high) - c.ratio
        for c in rows
    ]
    below = [
        0.0 if c.low is None or c.ratio is None else c.ratio - _limit_bound(c, c.low) for c in rows
    ]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": palette.SOFT,
        "thickness": 1.5,
        "width": 4,
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{pairing.b.letter} / {pairing.a.letter}",
        "x": [change.ratio for change in rows],
        "y": [names.index(change.metric.title) + step for change in rows],
        "error_x": bars,
        "customdata": [_write_hover(change) for change in rows],
        "marker": {
            "size": 10,
            "symbol": [_SHAPES.get(c.verdict, _SYMBOLS[index % len(_SYMBOLS)]) for c in rows],
            "color": [_COLOURS.get(change.verdict, palette.SOFT) for change in rows],
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _limit_bound(change: Change, bound: float) -> float:
    """The bound, or how far it is drawn."""
    value = change.ratio or 1.0
    return min(max(bound, value / _FARTHEST), value * _FARTHEST)


def _write_hover(change: Change) -> str:
    bounds = format_interval(change)
    sure = f" ({bounds})" if bounds else ""
    judged = "" if change.verdict in (NO_INTERVAL, TOO_FEW) else f", {change.verdict}"
    return f"{change.metric.title}: {format_values(change)}, {relative(change.ratio)}{sure}{judged}"


def _choose_ticks(low: float, high: float) -> list[float]:
    """Factors to mark: 1, 2, 5, 10 ... over a wide range, even steps around 1 in a narrow one."""
    if high > _NARROW * low:
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        return ticks if len(ticks) <= _MOST_TICKS else [t for t in ticks if f"{t:.0e}"[0] == "1"]
    step = next(s for s in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / s <= 8)
    below, above = math.floor((1 - low) / step), math.floor((high - 1) / step)
    return [1 + k * step for k in range(-below, above + 1)]


def _label_tick(tick: float) -> str:
    """A factor in digits, without exponent: 0.0005, 1.2, 20,000."""
    return f"{tick:,.6f}".rstrip("0").rstrip(".")


def _list_drawn_values(change: Change) -> list[float]:
    bounds = [_limit_bound(change, bound) for bound in (change.low, change.high) if bound]
    return [change.ratio, *bounds] if change.ratio else []


def _lay_out_changes(drawn: list[list[Change]], names: list[str]) -> Spec:
    # At least 0.8 to 1.25 times: a change of nothing shall not fill the axis.
    reach = [v for rows in drawn for c in rows for v in _list_drawn_values(c)]
    low, high = math.log10(min(*reach, 0.8)), math.log10(max(*reach, 1.25))
    margin = 0.04 * (high - low)
    ticks = _choose_ticks(10 ** (low - margin), 10 ** (high + margin))
    # The line at 1, where nothing changed.
    line = {"type": "line", "x0": 1, "x1": 1, "y0": -0.6, "y1": len(names) - 0.4,
            "line": {"color": palette.INK, "width": 1.5}, "layer": "below"}  # fmt: skip
    return palette.layout(
        100 + 26 * len(names),
        showlegend=len(drawn) > 1,
        shapes=[line],
        xaxis=palette.axis(
            "times the value of A",
            type="log",
            range=[low - margin, high + margin],
            tickvals=ticks,
            ticktext=[_label_tick(tick) for tick in ticks],
            fixedrange=True,
        ),
        yaxis=palette.axis(
            tickvals=list(range(len(names))),
            ticktext=names,
            range=[len(names) - 0.4, -0.6],
            fixedrange=True,
        ),
    )


_MEANS = "A value over several runs is their mean (geometric where all are above zero)."
_CORRECTED = "Verdicts other than that of the first metric are corrected for their number."


def draw_metrics(comparison: Comparison) -> Figure:
    """One row a metric, for each side its value, ratio, interval and verdict."""
    columns = [Column("metric"), Column("A", "own")]
    for pairing in comparison.pairings:
        b = pairing.b.letter
        columns += [
            Column(b, "own"),
            Column(f"{b} against {pairing.a.letter}", "relative"),
            Column(f"{CONFIDENCE} interval"),
            Column("verdict"),
        ]
    # A row for each metric that any pairing has, in their order.
    titles = dict.fromkeys(c.metric.title for p in comparison.pairings for c in p.changes)
    table = Table(tuple(columns), tuple(_list_metric(comparison, title) for title in titles))
    shown = table.without_empty_columns()
    several = any(len(side.samples) > 1 for side in comparison.sides)
    verdicts = any(has_verdicts(pairing) for pairing in comparison.pairings)
    said = ((_MEANS, several), (_CORRECTED, several and verdicts))
    metrics = " ".join(sentence for sentence, applies in said if applies)
    return Figure("metrics", "What changed", "In numbers", metrics, None, shown)


def _list_metric(comparison: Comparison, title: str) -> tuple[Cell, ...]:
    changes = [
        (next((c for c in p.changes if c.metric.title == title), None), has_verdicts(p))
        for p in comparison.pairings
    ]
    first = next(change for change, _ in changes if change is not None)
    cells: list[Cell] = [title, _make_amount(first.a, first)]
    for change, verdicts in changes:
        cells += _list_change(change, verdicts)
    return tuple(cells)


def _list_change(change: Change | None, verdicts: bool) -> tuple[Cell, ...]:
    if change is None:
        return (None, None, None, NOT_RECORDED)
    known = change.note if change.verdict in (NOT_RECORDED, NOT_COMPARABLE) else ""
    verdict = known if known.startswith(NOT_RECORDED) else change.verdict
    return (
        _make_amount(change.b, change),
        describe_from_nothing(change) or change.ratio,
        format_interval(change) or None,
        verdict if verdicts else None,
    )


def _make_amount(value: float | None, change: Change) -> Amount | None:
    return None if value is None else Amount(value, change.metric.unit)


_PAIRED = (
    "One point a run; runs above the same number are a pair, recorded one right after the other. "
    "Where one side lies apart from the other in nearly every pair, the change is real."
)
_UNPAIRED = (
    "One point a run, in the order of the runs of each side. Where the sides do not overlap, the "
    "change is real."
)


def draw_repeats(comparison: Comparison) -> Figure:
    """The primary metric of each run of each side."""
    primary = [pairing.change(comparison.primary) for pairing in comparison.pairings]
    changes = [change for change in primary if change is not None]
    most = max(len(side.samples) for side in comparison.sides)
    if most < 2:
        reason = (
            "Every side is one run, so nothing is known about how runs of the same thing differ. "
            'Run both several times, alternately: vanidl ab --a "..." --b "...".'
        )
        return _compose_repeats("", reason=reason)
    if not changes:
        return _compose_repeats("", reason="The metric of the question was not recorded.")
    paired = all(pairing.paired for pairing in comparison.pairings)
    sides = [(comparison.sides[0], changes[0].values_a)]
    others = zip(comparison.sides[1:], changes, strict=True)
    rows = sides + [(side, change.values_b) for side, change in others]
    # A line of points for each side, over the number of the pair or run.
    title, unit, what = changes[0].metric.title, changes[0].metric.unit, "pair" if paired else "run"
    layout = palette.layout(
        280,
        xaxis=palette.axis(what, dtick=max(1, most // 12), showgrid=False, fixedrange=True),
        yaxis=palette.axis(f"{title} in {unit}" if unit else title, fixedrange=True),
    )
    lines = [_plot_repeats(comparison, side, values, changes[0]) for side, values in rows]
    # A side with fewer runs has empty cells at the end.
    columns = (Column(what, "count"), *(Column(side.letter, "own") for side, _ in rows))
    cells = tuple(
        (i + 1, *(_make_amount(v[i] if i < len(v) else None, changes[0]) for _, v in rows))
        for i in range(max(len(values) for _, values in rows))
    )
    return _compose_repeats(
        _PAIRED if paired else _UNPAIRED,
        spec={"data": lines, "layout": layout},
        table=Table(columns, cells),
    )


def _compose_repeats(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("repeats", "What changed", "Run by run", caption, spec, table, reason)


def _plot_repeats(
    comparison: Comparison, side: Side, values: tuple[float | None, ...], change: Change
) -> Spec:
    unit = change.metric.unit
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": named(side),
        "x": list(range(1, len(values) + 1)),
        "y": list(values),
        "customdata": [shown(value, unit) for value in values],
        "line": {"color": colour(comparison, side), "width": 1, "dash": "dot"},
        "marker": {"color": colour(comparison, side), "size": 9},
        "hovertemplate": "%{customdata}<extra>" + side.letter + "</extra>",
    }
