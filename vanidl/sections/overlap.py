"""Where each rank's I/O went: waited for, hidden, behind communication, other, unobserved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from vanidl.breakdown.overlap import Overlap, RankOverlap
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import Row, aligned_table, paragraph
from vanidl.formatting.units import change, seconds
from vanidl.model.run_facts import Ceiling
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.schema.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.account import name_compute
from vanidl.wording.results import describe_ceiling, describe_slower, explain_ceiling
from vanidl.wording.tracing import advise_tracing

MOST_BARS = 40
_SEEN = 1e-3  # of the longest bar: about a pixel
_FARTHEST = 10  # times the longest bar that the mark of a wait may lie: else no bar can be seen
OverlapPart = tuple[str, str, str, str]
"""Attribute of `RankOverlap`, name, colour, pattern."""
OVERLAP_PARTS: tuple[OverlapPart, ...] = (
    ("in_wait_s", "in input wait", palette.IN_WAIT, ""),
    ("behind_communication_s", "behind communication", palette.COMMUNICATION, "/"),
    ("other_s", "other exposed", palette.OTHER, "x"),
    ("hidden_s", "hidden", palette.HIDDEN, ""),
    ("unknown_s", "in steps, not known", palette.BUSY, "-"),
    ("unobserved_s", "unobserved", palette.UNOBSERVED, "."),
)
_OVERLAP_CAPTION = "One bar per rank: the time its processes spent in I/O. "
_MEANINGS = {
    "in_wait_s": "Orange: the training process waited for input meanwhile.",
    "hidden_s": "Blue: hidden, compute went on meanwhile.",
    "behind_communication_s": "Yellow: under collectives that compute does not cover.",
    "other_s": "Brown: other exposed I/O, in profiled steps but neither in a wait nor under "
    "compute or a collective.",
    "unknown_s": "Grey, dashed: I/O in profiled steps of which it was not recorded whether "
    "training waited for it or computed.",
    "unobserved_s": "Grey, dotted: unobserved, outside the profiled steps.",
}
_DIAMOND = "The diamond marks the whole input wait"
_BEYOND = (
    ": where it lies beyond the orange bar, training waited for something else than recorded I/O."
)
_NO_BAR = ", of which less than can be seen, or none, was recorded I/O."
_TOO_LONG = (
    "Training waited up to {} for input, too long to be drawn beside bars of so little I/O: it "
    "waited for something else than recorded I/O."
)
_OF_UNKNOWN = "; how much of it was I/O is not known."
_TABLE_CAPTION = "Times of each rank in its profiled window."
_DASH = " A dash means not recorded."


def draw_overlap(run: Run) -> Figure:
    """I/O time of each rank split by what training did meanwhile, the mean first."""
    overlap = run.overlap
    if overlap is None:
        return _leave_empty(_explain_missing(run.trace), None)
    rows = pick_ranks(overlap, MOST_BARS)
    traced = any(row.io_s is not None for row in rows)
    # Without traced operations empty columns are left out; with them a gap is worth showing.
    known = [
        c for c in _OVERLAP_COLUMNS if traced or any(getattr(row, c[0]) is not None for row in rows)
    ]
    columns = (Column("rank"), *(Column(title, "s") for _, title in known))
    cells = tuple(
        (elided(row.label, limit=80), *(getattr(row, name) for name, _ in known)) for row in rows
    )
    # The mean is no rank.
    shown = len(rows) - 1 if len(rows) > 1 else len(rows)
    table = Table(columns, cells, n_of_m(shown, len(overlap.per_rank), "ranks"))
    # Waits without operations: the table holds, the split by I/O does not.
    if all(row.io_s is None for row in rows):
        return _leave_empty(
            "The profiler saw the steps, but no single operation was traced. "
            f"{advise_tracing(run.trace)} to see which part of the wait is I/O.",
            table,
        )
    cut = n_of_m(len(rows) - 1, len(overlap.per_rank), "ranks")
    note = f" Shown: {cut}, those with the longest input wait." if table.cut else ""
    # Bars of the mean and of the ranks that waited longest.
    values, labels = read_values(rows), [plotted(row.label) for row in rows]
    parts = choose_parts(values)
    words = _OVERLAP_CAPTION + explain_parts(parts) + explain_waits(parts, values)
    words += note + table.not_recorded(but=("of it I/O",))
    table = table.without_empty_columns()
    height = 130 + (20 if len(rows) > 8 else 34) * len(rows)
    spec = draw_bars(values, labels, labels, height)
    drawn = _compose_overlap(words, spec=spec, table=table, empty_reason="")
    return replace(drawn, alt_text=_describe_overlap(overlap.mean))


def _compose_overlap(
    caption: str, *, spec: Spec | None, table: Table | None, empty_reason: str
) -> Figure:
    title = "Is the I/O hidden or exposed?"
    return Figure("overlap", "Input and compute", title, caption, spec, table, empty_reason)


def _leave_empty(reason: str, table: Table | None) -> Figure:
    dash = _DASH if table and any(None in row for row in table.rows) else ""
    words = _TABLE_CAPTION + dash if table else ""
    return _compose_overlap(words, spec=None, table=table, empty_reason=reason)


def _explain_missing(trace: Trace) -> str:
    if trace.step_durations and not trace.profiles:
        return (
            "The step table that was found holds durations without start times. It cannot be laid "
            "over the I/O, so no overlap is claimed. Record steps with a profiler trace."
        )
    if not trace.profiles:
        return (
            "No steps were recorded, so it is not known whether the I/O was hidden. Record the "
            "command with vanidl record, which records steps and input waits of PyTorch, or put "
            "a profiler trace beside the logs."
        )
    # On one clock, and without steps: the profile lacks marks.
    if any(profile.aligned for profile in trace.profiles):
        return (
            "The profile holds neither marked steps nor two input waits, so it does not show when "
            "training waited. Call prof.step() after each batch, and profile the CPU too."
        )
    return (
        "The profile could not be laid over the I/O, as its clock and that of the logs could not "
        "be aligned: the warnings above say why."
    )


def pick_ranks(overlap: Overlap, most: int) -> tuple[RankOverlap, ...]:
    """The mean, then the `most` ranks with the longest input wait, in order of rank."""
    ranks = overlap.per_rank
    if len(ranks) <= 1:
        return ranks
    order = sorted(range(len(ranks)), key=lambda i: -(ranks[i].input_wait_s or 0.0))
    return (overlap.mean, *(ranks[i] for i in sorted(order[:most])))


def choose_parts(values: Callable[[str], Iterable[float | None]]) -> list[OverlapPart]:
    """The parts that are in a picture: a part that no bar has needs no entry in the legend.

    Args:
        values: The seconds of all bars, by the name of an attribute of `RankOverlap`.
    """
    ends = (*values("io_s"), *(values("input_wait_s") if shows_waits(values) else ()))
    seen = _SEEN * _find_longest(ends)
    return [
        part for part in OVERLAP_PARTS if any((value or 0.0) > seen for value in values(part[0]))
    ]


def explain_parts(parts: Iterable[OverlapPart]) -> str:
    """What the colours of these parts say."""
    return " ".join(_MEANINGS[part[0]] for part in parts)


def shows_waits(values: Callable[[str], Iterable[float | None]]) -> bool:
    """Whether marks of the whole waits stand beside the bars, and leave these to be seen."""
    return 0 < _find_longest(values("input_wait_s")) <= _FARTHEST * _find_longest(values("io_s"))


def explain_waits(
    drawn: Iterable[OverlapPart], values: Callable[[str], Iterable[float | None]]
) -> str:
    """What the mark of the whole wait says beside the bars that are drawn; "" without waits."""
    wait_s = _find_longest(values("input_wait_s"))
    if not wait_s:
        return ""
    if not shows_waits(values):
        return f" {_TOO_LONG.format(seconds(wait_s))}"
    if any(part[0] == "in_wait_s" for part in drawn):
        return f" {_DIAMOND}{_BEYOND}"
    return f" {_DIAMOND}{_OF_UNKNOWN if None in values('in_wait_s') else _NO_BAR}"


def _find_longest(values: Iterable[float | None]) -> float:
    return max((value or 0.0 for value in values), default=0.0)


def read_values(rows: Sequence[RankOverlap]) -> Callable[[str], list[float | None]]:
    """The seconds of all rows by the name of an attribute."""
    return lambda name: [getattr(row, name) for row in rows]


def draw_bars(
    values: Callable[[str], Sequence[float | None]],
    labels: Sequence[str],
    names: Sequence[str],
    height: int,
) -> Spec:
    """A stacked bar for each label, and marks of the whole waits beside them.

    Args:
        values: The seconds of all bars, by the name of an attribute of `RankOverlap`.
        labels: Beside the bars, safe as plotly text.
        names: What each bar is called where it is pointed at.
        height: Of the figure in pixels.
    """
    places = list(range(len(labels)))

    def hover(seconds_of: Sequence[float | None]) -> list[list[str]]:
        return [[name, seconds(value)] for name, value in zip(names, seconds_of, strict=True)]

    # A stack of parts for each rank, and where its whole wait ends.
    data: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": list(values(attribute)),
            "y": places,
            "customdata": hover(values(attribute)),
            "marker": palette.fill(colour, pattern),
            "hovertemplate": "%{customdata[0]}: %{customdata[1]} " + name + "<extra></extra>",
        }
        for attribute, name, colour, pattern in choose_parts(values)
    ]
    if shows_waits(values):
        waits = values("input_wait_s")
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "whole input wait",
                "x": list(waits),
                "y": places,
                "customdata": hover(waits),
                "marker": {"symbol": "diamond-open", "size": 9, "color": palette.INK},
                "hovertemplate": "%{customdata[0]}: waited %{customdata[1]} in all<extra></extra>",
            }
        )
    # Ranks from top to bottom, in the order of the labels.
    layout = palette.layout(
        height,
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis("seconds", rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=places,
            ticktext=list(labels),
            range=[len(labels) - 0.5, -0.5],
            showgrid=False,
            fixedrange=True,
        ),
    )
    return {"data": data, "layout": layout}


_OVERLAP_COLUMNS = (
    ("window_s", "window"),
    ("io_s", "I/O"),
    ("in_wait_s", "in wait"),
    ("hidden_s", "hidden"),
    ("behind_communication_s", "behind comm."),
    ("other_s", "other"),
    ("unobserved_s", "unobserved"),
    ("exposed_s", "exposed"),
    ("compute_s", "compute"),
    ("communication_s", "communication"),
    ("input_wait_s", "input wait"),
    ("input_wait_io_s", "of it I/O"),
)


def _describe_overlap(mean: RankOverlap) -> str:
    """What was recorded of the split, in a sentence."""
    parts = (
        (mean.in_wait_s, "in input waits"),
        (mean.hidden_s, "hidden"),
        (mean.behind_communication_s, "behind communication"),
        (mean.other_s, "otherwise exposed"),
        (mean.unknown_s or None, "in profiled steps, hidden or not"),
        (mean.unobserved_s, "outside the profiled steps"),
    )
    said = [f"{seconds(value)} {where}" for value, where in parts if value is not None]
    if mean.io_s is None:
        return "Single operations were not traced."
    return f"On average a rank spent {seconds(mean.io_s)} in I/O: {', '.join(said)}."


_SPLIT = (
    ("window", "window_s"), ("I/O", "io_s"), ("unobserved", "unobserved_s"),
    ("in wait", "in_wait_s"), ("hidden", "hidden_s"), ("behind comm.", "behind_communication_s"),
    ("other", "other_s"), ("wait", "input_wait_s"),
)  # fmt: skip
_MOST_RANKS = 16


_CLEAR = 0.1  # of the I/O in waits: what clocks leave open beyond it is said


def describe_open(mean: RankOverlap) -> str:
    """`6.88 to 68.7 ms` of I/O in waits; nothing where the clocks settle it to a tenth."""
    low, high = mean.in_wait_at_least_s, mean.in_wait_at_most_s
    if low is None or high is None or not mean.in_wait_s or high - low <= _CLEAR * mean.in_wait_s:
        return ""
    return change(low, high)


def describe_hidden(mean: RankOverlap) -> str:
    """`0 s to 1.30 s` of I/O that may have been hidden; nothing where a tenth settles it."""
    low, high = mean.hidden_at_least_s, mean.hidden_at_most_s
    if low is None or high is None or high - low <= _CLEAR * high:
        return ""
    return change(low, high)


def _write_overlap(run: Run) -> str | None:
    overlap = run.overlap
    if overlap is None:
        return None
    rows: list[Row] = [("", *(name for name, _ in _SPLIT))]
    shown = overlap.per_rank[:_MOST_RANKS]
    rows += [_list_split(row) for row in shown]
    # Of one rank the mean is the row above.
    if len(overlap.per_rank) > 1:
        rows.append(_list_split(overlap.mean))
    cut = len(overlap.per_rank) - len(shown)
    more = f" ({len(shown)} of {len(overlap.per_rank)} ranks shown)" if cut else ""
    basis = name_compute(overlap.basis)
    table = aligned_table(f"Where the I/O falls; compute: {basis}{more}", rows)
    # Below the table, how far its parts may be off.
    open_ends = {
        "in waits by what the clocks leave open": describe_open(overlap.mean),
        "hidden by what was recorded": describe_hidden(overlap.mean),
    }
    lines = [f"  {what}: {words} per rank\n" for what, words in open_ends.items() if words]
    return table if table is None or not lines else f"{table.rstrip()}\n{''.join(lines)}"


def _list_split(row: RankOverlap) -> Row:
    values = [getattr(row, name) for _, name in _SPLIT]
    return (row.label, *map(seconds, values))


_OF_ALL_RANKS = (
    "basis", "ranks_observed", "hidden_fraction", "lost_to_input_s", "input_wait_share",
    "accelerator_utilization", "pipeline_share",
)  # fmt: skip


def _collect_overlap(run: Run) -> Object | None:
    overlap = run.overlap
    if overlap is None:
        return None
    return {name: getattr(overlap, name) for name in _OF_ALL_RANKS} | {
        "cells": dict(CELLS),
        "mean": _add_ranges(values_of(overlap.mean, without=("rank", "label")), overlap.mean),
        "per_rank": [_add_ranges(values_of(row), row) for row in overlap.per_rank],
    }


_RANGES = {
    "in_wait_range_s": ("in_wait_at_least_s", "in_wait_at_most_s"),
    "hidden_range_s": ("hidden_at_least_s", "hidden_at_most_s"),
    "input_wait_io_range_s": ("input_wait_io_s", "input_wait_io_at_most_s"),
    "input_wait_metadata_range_s": ("input_wait_metadata_s", "input_wait_metadata_at_most_s"),
    "input_wait_rest_range_s": ("input_wait_rest_s", "input_wait_rest_at_most_s"),
}
"""Name in JSON -> both ends of what is known as an interval."""


CELLS = {
    "input_wait_s": "input_wait/",
    "input_wait_io_range_s": "input_wait/storage",
    "input_wait_metadata_range_s": "input_wait/storage.metadata",
}
"""Name in JSON -> the cell of the account that it is, of each rank and of the mean."""


def _add_ranges(values: Object, row: RankOverlap) -> Object:
    """The values of a row with the intervals that hold them; null where not recorded."""
    for name, ends in _RANGES.items():
        low, high = (getattr(row, end) for end in ends)
        values[name] = None if low is None else [low, high]
    return values


_RANGE_KINDS = dict.fromkeys(_RANGES, tuple[float, float] | None)
_OVERLAP_KIND = Maybe(
    {name: kind for name, kind in fields_of(Overlap).items() if name in _OF_ALL_RANKS}
    | {
        "cells": Mapping[str, str],
        "mean": fields_of(RankOverlap, without=("rank", "label")) | _RANGE_KINDS,
        "per_rank": [fields_of(RankOverlap) | _RANGE_KINDS],
    }
)
OVERLAP = Section(
    "overlap", (draw_overlap,), _write_overlap, {"overlap": Json(_collect_overlap, _OVERLAP_KIND)}
)


# The measured ceiling: what the steps take with batches from memory.

_CEILING_COLUMNS = (
    Column("steps after the warm-up"), Column("mean", "s"), Column("median", "s"),
)  # fmt: skip
_MEANING = (
    "This is the most that faster input can gain, measured. The interval is of this pair of runs; "
    "vanidl ab --ceiling repeats them."
)


def draw_ceiling(run: Run) -> Figure:
    """Steps as they were, and with batches from memory."""
    title = "The ceiling: steps with batches from memory"
    ceiling = run.ceiling
    if ceiling is None:
        reason = "Not measured: vanidl ceiling --against RUN -- COMMAND measures it."
        return Figure("ceiling", "Input and compute", title, "", empty_reason=reason, applies=False)
    rows = (
        ("as it trained", ceiling.step_s, ceiling.median_step_s),
        ("with batches from memory", ceiling.free_s, ceiling.median_free_s),
        ("of that, copying the batch", ceiling.copying_s, None),
    )
    said = " ".join((*_explain_ceiling(run, ceiling), _MEANING))
    return Figure("ceiling", "Input and compute", title, said, table=Table(_CEILING_COLUMNS, rows))


def _explain_ceiling(run: Run, ceiling: Ceiling) -> tuple[str, ...]:
    """Sentences of what was measured, what of it is no wait, and what it rests on."""
    slower = describe_slower(ceiling, run.breakdown.waited_share)
    said = (describe_ceiling(ceiling), slower, explain_ceiling(ceiling), *ceiling.remarks)
    return tuple(filter(None, said))


def _write_ceiling(run: Run) -> str | None:
    ceiling = run.ceiling
    if ceiling is None:
        return None
    said = _explain_ceiling(run, ceiling)
    return "\n".join(["Ceiling, measured", *map(paragraph, said)]) + "\n"


def _collect_ceiling(run: Run) -> Object | None:
    ceiling = run.ceiling
    if ceiling is None:
        return None
    return values_of(ceiling) | {"remarks": list(ceiling.remarks)}


CEILING = Section(
    "ceiling", (draw_ceiling,), _write_ceiling, {"ceiling": Json(_collect_ceiling, Ceiling | None)}
)
