"""How evenly ranks share the I/O."""

from __future__ import annotations

from dataclasses import replace

from vanidl.analyses.balance import Balance, RankLoad
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m, pick_spread, round_values
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.units import byte_scale, factor, nbytes, plural, seconds
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import advise_tracing, name_tracer

TABLE_LIMIT = 256
MOST_BARS = 2048
_FEW, _LABEL = 8, 14  # bars below which a label has room for more letters
"""More than a screen has columns; of neighbours that share a bar the busiest is shown."""

_WORST = "A rank far above the others may be the one that the rest wait for."
_RANKS_CAPTION = (
    "Above: time each rank's processes spent in I/O. Below: bytes they read and wrote. " + _WORST
)
_RANKS_BY_COUNTERS = (
    "From {}'s counters, as no single operation was traced. Above: seconds of reading and "
    "writing that its files add up to, which is not the time the rank was in I/O: files at the "
    "same time count twice. Below: bytes read and written. " + _WORST
)
_SHARED_BARS = (
    " Of {} each bar shows the busiest of a few neighbours; summary --json lists every one."
)
_ONE_RANK = "The run has one rank, so there is nothing to compare."
_NO_RANK = (
    "No rank's operations were traced one by one, and no rank has counters of its own: {} adds "
    "up the files that all ranks opened. {}."
)


def draw_ranks(run: Run) -> Figure:
    """Busy time and bytes of each rank."""
    balance = run.balance
    if balance is None or not balance.rows:
        return _compose_ranks("", reason=_explain_none(run))
    table = _tabulate_ranks(balance)
    # One rank has nothing to be compared with: the table alone.
    if len(balance.rows) == 1:
        return _compose_ranks("", table=table, reason=_ONE_RANK)
    caption = (
        _RANKS_CAPTION
        if balance.source == "trace"
        else _RANKS_BY_COUNTERS.format(name_tracer(run.trace))
    )
    words, bars = f"{caption} {_describe_spread(balance)}", _choose_busiest(balance.rows)
    if len(bars) < len(balance.rows):
        words += _SHARED_BARS.format(plural(len(balance.rows), "rank"))
    divisor, unit = byte_scale(max(max(r.bytes_read, r.bytes_written) for r in bars))
    counted = all(r.busy_s is None for r in bars)
    data = [
        _plot_bars(
            bars,
            "time by counters" if counted else "time in I/O",
            palette.BUSY,
            [_get_time_s(r) for r in bars],
        ),
        _plot_bars(bars, "bytes read", palette.READ, [r.bytes_read / divisor for r in bars]),
        _plot_bars(bars, "bytes written", palette.WRITE, [r.bytes_written / divisor for r in bars]),
    ]
    # Time above, bytes below, over the same ranks.
    for trace in data[1:]:
        trace["yaxis"] = "y2"
    # Names of some ranks only, where there are many.
    every = max(1, -(-len(bars) // 16))
    ranks = {
        "data": data,
        "layout": palette.layout(
            380,
            barmode="stack",
            bargap=0.25 if len(bars) <= 64 else 0,
            xaxis=palette.axis(
                tickvals=list(range(0, len(bars), every)),
                ticktext=[
                    plotted(r.label, limit=_LABEL if len(bars) > _FEW else 3 * _LABEL)
                    for r in bars[::every]
                ],
                showgrid=False,
                anchor="y2",
            ),
            yaxis=palette.axis("seconds", domain=[0.56, 1], fixedrange=True),
            yaxis2=palette.axis(unit, domain=[0, 0.46], fixedrange=True),
        ),
    }
    drawn = _compose_ranks(words, spec=ranks, table=table)
    return replace(drawn, alt_text=_describe_ranks(balance))


def _explain_none(run: Run) -> str:
    """Why no rank's share is known."""
    if len(run.trace.ranks) == 1:
        return _ONE_RANK
    if not run.summary.ops:
        return f"No {run.summary.layer} operation was recorded, so there is nothing to compare."
    return _NO_RANK.format(name_tracer(run.trace), advise_tracing(run.trace))


def _compose_ranks(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("balance", "Ranks", "Balance over ranks", caption, spec, table, reason)


def _describe_spread(balance: Balance) -> str:
    words = []
    time_spread = balance.busy_spread or balance.counter_spread
    if time_spread is not None:
        words.append(f"time {factor(time_spread)}")
    if balance.bytes_spread is not None:
        words.append(f"bytes {factor(balance.bytes_spread)}")
    # Bytes of files that all ranks opened are in no row, so the spread leaves them out.
    own = ", of what is in the bars" if balance.shared_bytes else ""
    sentence = f"Largest over mean{own}: {', '.join(words)}." if words else ""
    if balance.shared_bytes:
        sentence += (
            f" {nbytes(balance.shared_bytes)} more are in no bar: Darshan adds up files that all "
            "ranks opened, and some processes may belong to no known rank."
        )
    if balance.silent_ranks:
        ranks = plural(balance.silent_ranks, "rank")
        own = "itself" if balance.silent_ranks == 1 else "themselves"
        did = f"had no file to {own}" if balance.shared_bytes else "did no I/O on this layer"
        sentence += f" {ranks} {did}."
    return sentence.strip()


def _choose_busiest(rows: tuple[RankLoad, ...]) -> tuple[RankLoad, ...]:
    """All ranks; of more than there are bars the busiest of each few neighbours."""
    each = -(-len(rows) // MOST_BARS)
    groups = (rows[i : i + each] for i in range(0, len(rows), each))
    return tuple(max(group, key=lambda r: (_get_time_s(r), r.bytes_read)) for group in groups)


def _get_time_s(row: RankLoad) -> float:
    return (row.counter_s if row.busy_s is None else row.busy_s) or 0.0


def _plot_bars(rows: tuple[RankLoad, ...], name: str, colour: str, values: list[float]) -> Spec:
    hover = [
        f"{plotted(r.label)}: {seconds(_get_time_s(r))}, read {nbytes(r.bytes_read)}, "
        f"wrote {nbytes(r.bytes_written)}"
        for r in rows
    ]
    return {
        "type": "bar",
        "name": name,
        "x": list(range(len(rows))),
        "y": round_values(values),
        "customdata": hover,
        "marker": palette.fill(colour, "/" if colour == palette.WRITE else ""),
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _tabulate_ranks(balance: Balance) -> Table:
    columns = (
        Column("rank"),
        Column("host"),
        Column("processes", "count"),
        Column("operations", "count"),
        Column("bytes read", "bytes"),
        Column("bytes written", "bytes"),
        Column("time in I/O", "s"),
        Column("time by counters", "s"),
    )
    # Of many ranks some, evenly spread.
    picked = [balance.rows[i] for i in pick_spread(len(balance.rows), TABLE_LIMIT)]
    rows = tuple(
        (
            elided(r.label, limit=80),
            elided(r.host, limit=80) or None,
            r.processes,
            r.ops,
            r.bytes_read,
            r.bytes_written,
            r.busy_s,
            r.counter_s,
        )
        for r in picked
    )
    cut = n_of_m(len(picked), len(balance.rows), "ranks")
    return Table(columns, rows, cut).without_empty_columns()


def _describe_ranks(balance: Balance) -> str:
    moved = sorted(balance.rows, key=lambda row: row.bytes_read + row.bytes_written)
    least, most = moved[0], moved[-1]
    return (
        f"Of {plural(len(moved), 'rank')}, {least.label} moved least, "
        f"{nbytes(least.bytes_read + least.bytes_written)}, and {most.label} most, "
        f"{nbytes(most.bytes_read + most.bytes_written)}."
    )


def _collect_ranks(run: Run) -> Object | None:
    return None if run.balance is None else values_of(run.balance)


RANKS = Section("balance", (draw_ranks,), json={"io.balance": Json(_collect_ranks, Balance | None)})
