"""Every metric as a ratio with its interval: what changed, and how sure that is."""

from __future__ import annotations

import math

from vanidl.compare import Change, Comparison, Pairing
from vanidl.compare.comparison import BETTER, NO_INTERVAL, TOO_FEW, WORSE
from vanidl.compare.wording import CONFIDENCE, interval, values
from vanidl.figures import palette
from vanidl.figures.figure import Figure, Spec
from vanidl.formatting.units import relative

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
_TICKS = tuple(float(f"{m}e{e}") for e in range(-6, 10) for m in (1, 2, 5))
_MOST_TICKS = 12  # whose labels stand level beside each other
_NARROW = 8.0  # from the lowest to the highest factor, below which ticks are evenly apart


def figure(comparison: Comparison) -> Figure:
    """The ratio of every metric that both sides recorded above zero."""
    drawn = [_drawn(pairing) for pairing in comparison.pairings]
    names = list(dict.fromkeys(change.metric.title for rows in drawn for change in rows))
    if not names:
        reason = "No metric was recorded on both sides, so there is nothing to compare."
        return _record("", empty_reason=reason)
    bars = any(change.low is not None for rows in drawn for change in rows)
    words = [_CAPTION, _BARS if bars else _SINGLE, *_left_out(comparison, names)]
    data = [
        _points(pairing, rows, names, (i, len(drawn)))
        for i, (pairing, rows) in enumerate(zip(comparison.pairings, drawn, strict=True))
    ]
    return _record(" ".join(words), spec={"data": data, "layout": _layout(drawn, names)})


def _record(caption: str, *, spec: Spec | None = None, empty_reason: str = "") -> Figure:
    title = "Change of each metric"
    return Figure("changes", "What changed", title, caption, spec, None, empty_reason)


def _drawn(pairing: Pairing) -> list[Change]:
    return [change for change in pairing.changes if change.ratio is not None and change.ratio > 0]


def _left_out(comparison: Comparison, names: list[str]) -> list[str]:
    rest = dict.fromkeys(
        change.metric.title
        for pairing in comparison.pairings
        for change in pairing.changes
        if change.metric.title not in names
    )
    return [f"Not drawn, for want of a ratio: {'; '.join(rest)}."] if rest else []


def _points(pairing: Pairing, rows: list[Change], names: list[str], place: tuple[int, int]) -> Spec:
    """The points of one pairing, the place[0]-th of place[1] drawn side by side."""
    index, pairings = place
    step = 0.5 * ((index + 0.5) / pairings - 0.5)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{pairing.b.letter} / {pairing.a.letter}",
        "x": [change.ratio for change in rows],
        "y": [names.index(change.metric.title) + step for change in rows],
        "error_x": _bars(rows),
        "customdata": [_hover(change) for change in rows],
        "marker": {
            "size": 10,
            "symbol": [_SHAPES.get(c.verdict, _SYMBOLS[index % len(_SYMBOLS)]) for c in rows],
            "color": [_COLOURS.get(change.verdict, palette.SOFT) for change in rows],
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _bars(rows: list[Change]) -> Spec:
    """Error bars to the bounds of the interval, of no length where there is none."""
    above = [0.0 if c.high is None or c.ratio is None else _near(c, c.high) - c.ratio for c in rows]
    below = [0.0 if c.low is None or c.ratio is None else c.ratio - _near(c, c.low) for c in rows]
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": palette.SOFT,
        "thickness": 1.5,
        "width": 4,
    }


def _near(change: Change, bound: float) -> float:
    """The bound, or how far it is drawn."""
    value = change.ratio or 1.0
    return min(max(bound, value / _FARTHEST), value * _FARTHEST)


def _hover(change: Change) -> str:
    bounds = interval(change)
    sure = f" ({bounds})" if bounds else ""
    judged = "" if change.verdict in (NO_INTERVAL, TOO_FEW) else f", {change.verdict}"
    return f"{change.metric.title}: {values(change)}, {relative(change.ratio)}{sure}{judged}"


def _ticks(low: float, high: float) -> list[float]:
    """Factors to mark: 1, 2, 5, 10 ... over a wide range, even steps around 1 in a narrow one."""
    if high > _NARROW * low:
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        return ticks if len(ticks) <= _MOST_TICKS else [t for t in ticks if _mantissa(t) == "1"]
    step = next(s for s in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / s <= 8)
    below, above = math.floor((1 - low) / step), math.floor((high - 1) / step)
    return [1 + k * step for k in range(-below, above + 1)]


def _mantissa(tick: float) -> str:
    return f"{tick:.0e}"[0]


def _label(tick: float) -> str:
    """A factor in digits, without exponent: 0.0005, 1.2, 20,000."""
    return f"{tick:,.6f}".rstrip("0").rstrip(".")


def _drawn_values(change: Change) -> list[float]:
    bounds = [_near(change, bound) for bound in (change.low, change.high) if bound]
    return [change.ratio, *bounds] if change.ratio else []


def _layout(drawn: list[list[Change]], names: list[str]) -> Spec:
    reach = [v for rows in drawn for c in rows for v in _drawn_values(c)]
    low, high = math.log10(min(*reach, 0.8)), math.log10(max(*reach, 1.25))
    margin = 0.04 * (high - low)
    ticks = _ticks(10 ** (low - margin), 10 ** (high + margin))
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
            ticktext=[_label(tick) for tick in ticks],
            fixedrange=True,
        ),
        yaxis=palette.axis(
            tickvals=list(range(len(names))),
            ticktext=names,
            range=[len(names) - 0.4, -0.6],
            fixedrange=True,
        ),
    )
