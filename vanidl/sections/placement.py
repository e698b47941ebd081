"""How much I/O steps without times may have hidden, over all the places they may have had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vanidl.analyses.placement import Placement, RankPlacement
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import aligned_table, paragraph
from vanidl.formatting.units import count, number, plural, seconds
from vanidl.run import Run
from vanidl.schema.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.results import describe_placement

MOST_PLACEMENT = 40
_PLACEMENT_CAPTION = (
    "One bar per rank: the time in reads between the first and the last placed step. Blue: hidden "
    "wherever the steps lay. Striped: hidden or exposed, depending on where they lay. "
)
_EMPTY = (
    "Only for steps whose durations are known and whose times are not, in a run that reads its "
    "data in one burst an iteration: there is no such step here, or no such bursts."
)
_NOTHING_S = 1e-9  # of a part that no bar has: it needs no entry in the legend
_PARTS = (
    ("hidden for sure", palette.HIDDEN, ""),
    ("not determined", palette.UNOBSERVED, "/"),
    ("exposed for sure", palette.OTHER, "x"),
)


def draw_placement(run: Run) -> Figure:
    """Least and most hidden I/O of each rank."""
    title = "How much I/O the steps may have hidden"
    placement = run.placement
    # Only steps without times have to be placed; others lie on the clock.
    if placement is None:
        drawn = Figure("placement", "Input and compute", title, "", empty_reason=_EMPTY)
        return replace(drawn, applies=bool(run.trace.step_durations))
    rows = placement.per_rank[:MOST_PLACEMENT]
    words = " ".join(sentence for sentence in list_placement_sentences(placement) if sentence)
    cells = tuple(
        (
            elided(r.label, limit=80),
            r.bursts,
            r.steps,
            float(np.median(r.slack_s)),
            float(r.slack_s.max()),
            r.io_s,
            r.hidden_low_s,
            r.hidden_high_s,
            r.before_s,
            r.after_s,
            _format_slope(r),
            r.why,
        )
        for r in rows
    )
    return Figure(
        "placement",
        "Input and compute",
        title,
        _PLACEMENT_CAPTION + words,
        _plot_placement(rows),
        Table(_PLACEMENT_COLUMNS, cells, n_of_m(len(rows), len(placement.per_rank), "ranks")),
        alt_text=describe_placement(placement),
    )


def _plot_placement(rows: tuple[RankPlacement, ...]) -> Spec:
    labels = [plotted(row.label) for row in rows]
    # What is hidden for sure, what may be, and what is not: stacked, they are the rank's I/O.
    amounts = [
        [r.hidden_low_s for r in rows],
        [r.hidden_high_s - r.hidden_low_s for r in rows],
        [r.io_s - r.hidden_high_s for r in rows],
    ]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [max(v, 0.0) for v in values],
            "y": list(range(len(rows))),
            "customdata": [[a, seconds(v)] for a, v in zip(labels, values, strict=True)],
            "marker": palette.fill(colour, pattern),
            "hovertemplate": "%{customdata[0]}: %{customdata[1]} " + name + "<extra></extra>",
        }
        for (name, colour, pattern), values in zip(_PARTS, amounts, strict=True)
        if max(values) > _NOTHING_S
    ]
    # The first rank on top.
    axis = palette.axis(
        tickvals=list(range(len(rows))),
        ticktext=labels,
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        fixedrange=True,
    )
    seconds_axis = palette.axis("seconds", rangemode="tozero", fixedrange=True)
    layout = palette.layout(
        130 + max(20 if len(rows) > 8 else 34, 16) * len(rows),
        barmode="stack",
        bargap=0.3,
        xaxis=seconds_axis,
        yaxis=axis,
    )
    return {"data": bars, "layout": layout}


_PLACEMENT_COLUMNS = (
    Column("rank"),
    Column("bursts", "count"),
    Column("placed steps", "count"),
    Column("slack, median", "s"),
    Column("slack, most", "s"),
    Column("I/O", "s"),
    Column("hidden, least", "s"),
    Column("hidden, most", "s"),
    Column("I/O before", "s"),
    Column("I/O after", "s"),
    Column("slope of slack on burst"),
    Column("why there"),
)


_MOST_RANKS = 16


def _write_placement(run: Run) -> str | None:
    placement = run.placement
    if placement is None:
        return None
    header = ("rank", "bursts", "steps", "slack, median", "I/O", "hidden", "slope")
    rows = [
        (
            row.label,
            count(row.bursts),
            count(row.steps),
            seconds(float(np.median(row.slack_s))),
            seconds(row.io_s),
            f"{seconds(row.hidden_low_s)} to {seconds(row.hidden_high_s)}",
            _format_slope(row),
        )
        for row in placement.per_rank[:_MOST_RANKS]
    ]
    table = aligned_table("Steps without times between bursts of reads", [header, *rows])
    return "\n".join([*map(paragraph, list_placement_sentences(placement)), table or ""])


def _format_slope(row: RankPlacement) -> str:
    """The slope with its standard error, a dash where it is not known."""
    if row.slope is None or row.slope_error is None:
        return "-"
    return f"{number(row.slope)} ± {number(row.slope_error)}"


def _collect_placement(run: Run) -> Object | None:
    """Sums, verdict and one entry per rank, single steps left out."""
    placement = run.placement
    if placement is None:
        return None
    return {
        "verdict": placement.verdict,
        "io_s": placement.io_s,
        "hidden_s": [placement.hidden_low_s, placement.hidden_high_s],
        "per_rank": [_collect_rank(row) for row in placement.per_rank],
    }


_ARRAYS = ("earliest_s", "latest_s", "step_s")


def _collect_rank(row: RankPlacement) -> Object:
    plain = values_of(row, without=_ARRAYS)
    hidden = [plain.pop("hidden_low_s"), plain.pop("hidden_high_s")]
    slack = {"median": float(np.median(row.slack_s)), "max": float(row.slack_s.max())}
    return plain | {"steps": row.steps, "hidden_s": hidden, "slack_s": slack}


_RANK = fields_of(RankPlacement, without=(*_ARRAYS, "hidden_low_s", "hidden_high_s"))
_RANGE = tuple[float, float]
_PLACEMENT_KIND = Maybe({
    "verdict": str,
    "io_s": float,
    "hidden_s": _RANGE,
    "per_rank": [
        _RANK | {"steps": int, "hidden_s": _RANGE, "slack_s": {"median": float, "max": float}}
    ],
})  # fmt: skip
PLACEMENT = Section(
    "placement",
    (draw_placement,),
    _write_placement,
    {"placement": Json(_collect_placement, _PLACEMENT_KIND)},
)


_BLOCKING = 2.0  # standard errors at which a slope counts as different from 0 or 1


def list_placement_sentences(placement: Placement | None) -> list[str]:
    """What was placed, by which evidence, and what speaks for reading ahead."""
    if placement is None:
        return []
    first = placement.per_rank[0]
    shortest = seconds(min(row.shortest_step_s for row in placement.per_rank))
    # Between which two bursts: one lag for all ranks, or one each.
    lags = sorted({row.lag for row in placement.per_rank})
    if len(lags) > 1:
        which = f"which two differs by rank (bursts {', '.join(map(str, lags))} after its number)."
    else:
        which = f"step k between bursts k + {lags[0]} and k + {lags[0] + 1}, both counted from 0."
    return [
        f"Each of the long steps (from {shortest} on) lies between the starts of two "
        f"bursts of reads of {elided(first.path.rsplit('/', 1)[-1], limit=60)}; "
        f"{which}",
        _describe_slope(placement),
        "",
    ]


def _describe_slope(placement: Placement) -> str:
    """What longer bursts do to the time that an iteration has beside its step."""
    known = [r for r in placement.per_rank if r.slope is not None and r.slope_error is not None]
    if not known:
        return "Whether longer bursts made iterations longer is not known."
    blocks = sum(_differs(r, 0.0) and not _differs(r, 1.0) for r in known)
    ahead = sum(_differs(r, 1.0) and not _differs(r, 0.0) for r in known)
    # `3 of 8 ranks read ahead and 4 waited; of 1 it cannot be told`
    of_ranks = f"of {plural(len(known), 'rank')}"
    unknown = len(known) - ahead - blocks
    told = [(n, what) for n, what in ((ahead, "read ahead"), (blocks, "waited")) if n]
    verdict = f"nothing can be told {of_ranks}"
    if told:
        (n, what), *others = told
        words = [f"{count(n)} {of_ranks} {what}", *(f"{count(n)} {what}" for n, what in others)]
        verdict = " and ".join(words)
        verdict += f"; of {count(unknown)} it cannot be told" if unknown else ""
    return (
        "Where training waits for reads, a burst that is 1 s longer makes its iteration 1 s longer "
        f"beside the step. By that slope, {verdict}. It is evidence, no proof: it does not say "
        "under what the reads ran."
    )


def _differs(row: RankPlacement, slope: float) -> bool:
    """Whether the slope differs from that value by more than its error."""
    if row.slope is None or row.slope_error is None:
        return False
    return abs(row.slope - slope) > _BLOCKING * row.slope_error
