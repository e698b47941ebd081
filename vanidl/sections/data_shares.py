"""How much of the dataset each rank read."""

from __future__ import annotations

from vanidl.analyses.datafiles import RankShare
from vanidl.analyses.dataset import Dataset
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m, round_values, spread_out
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.units import percent, plural
from vanidl.run import Run
from vanidl.sections.dataset import NO_DATASET
from vanidl.sections.section import Section

BARS = 64
LIMIT = 256
_TITLE = "Share of the data that each rank read"
_COLUMNS = (
    Column("rank"),
    Column("share", "share"),
    Column("unique bytes", "bytes"),
    Column("bytes read", "bytes"),
    Column("files", "count"),
)


def figure(run: Run) -> Figure:
    """One bar per rank: its unique bytes over those of the dataset."""
    data = run.dataset
    if data is None or not data.ranks:
        reason = NO_DATASET if data is None else "It needs single operations with offsets."
        return Figure("data-shares", "Dataset", _TITLE, "", empty_reason=reason)
    table = Table(
        _COLUMNS,
        tuple(_row(r) for r in data.ranks[:LIMIT]),
        n_of_m(min(len(data.ranks), LIMIT), len(data.ranks), "ranks"),
    )
    caption = (
        f"Unique bytes of each rank / {data.share_of}. Where every rank shows 100 %, each reads "
        "all of the data; shares that add up to 100 % split it."
    )
    if len(data.ranks) == 1:
        reason = f"The only rank read {percent(data.ranks[0].share)} of the {data.share_of}."
        known = data.size is not None  # else it is a share of what this very rank read
        return Figure("data-shares", "Dataset", _TITLE, "", None, table, reason, applies=known)
    picked = [data.ranks[i] for i in spread_out(len(data.ranks), BARS).tolist()]
    cut = n_of_m(len(picked), len(data.ranks), "ranks")
    caption += f" Shown: {cut}." if cut else ""
    return Figure(
        "data-shares",
        "Dataset",
        _TITLE,
        caption,
        _spec(picked),
        table,
        alt_text=_alt_text(data),
        half=True,
    )


def _spec(ranks: list[RankShare]) -> Spec:
    shares = [100 * (r.share or 0) for r in ranks]
    bars = {
        "type": "bar",
        "x": list(range(len(ranks))),
        "y": round_values(shares),
        "customdata": [f"{plotted(r.label)}: {percent(r.share)}" for r in ranks],
        "marker": palette.fill(palette.READ),
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    every = max(1, -(-len(ranks) // 16))
    layout = palette.layout(
        260,
        showlegend=False,
        xaxis=palette.axis(
            tickvals=list(range(0, len(ranks), every)),
            ticktext=[plotted(r.label, limit=16) for r in ranks[::every]],
            showgrid=False,
            fixedrange=True,
        ),
        yaxis=palette.axis("% of the data", rangemode="tozero", fixedrange=True),
    )
    return {"data": [bars], "layout": layout}


def _row(rank: RankShare) -> tuple[str | int | float | None, ...]:
    return (
        elided(rank.label, limit=80),
        rank.share,
        rank.unique_bytes,
        rank.bytes_read,
        rank.files,
    )


def _alt_text(data: Dataset) -> str:
    shares = [r.share for r in data.ranks if r.share is not None]
    if not shares:
        return ""
    return (
        f"Each of {plural(len(data.ranks), 'rank')} read {percent(min(shares))} to "
        f"{percent(max(shares))} of the {data.share_of}."
    )


SECTION = Section("data shares", (figure,))
