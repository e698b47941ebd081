"""How long each training step took, and how much of it was waiting for input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.profiled_steps import (
    ClockEvidence,
    DeviceSteps,
    LoaderWaits,
    LogClock,
    Steps,
    StepTable,
)
from vanidl.breakdown.step_records import (
    CHECKPOINT,
    FIRST,
    ORDINARY,
    KindMeans,
    StepRecords,
    mean_by_kind,
)
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m, pick_spread, round_values
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import aligned_table, named_values
from vanidl.formatting.units import Cell, count, nbytes, plural, seconds
from vanidl.model.trace import SpanKind, Trace
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.schema.schema import Maybe
from vanidl.sections.coverage import list_clocks
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.account import describe_idle

# Which steps and input waits of a run fit into a picture.

MOST_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class ShownSteps:
    """Rows of a step table to draw, and in words what was left out."""

    rows: NDArray[np.intp]
    ranks: NDArray[np.int32]  # positions in Trace.ranks, ascending
    cut: str


def choose_steps(table: StepTable, *, max_ranks: int = 64) -> ShownSteps:
    """At most `MOST_SHOWN` steps x ranks: whole ranks, spread over the job, before single steps."""
    ranks, counts = np.unique(table.rank, return_counts=True)
    longest = int(counts.max()) if len(counts) else 1
    # So many whole ranks as fit; of a single one that is too long, single steps.
    fitting = min(max(MOST_SHOWN // longest, 1), max_ranks)
    picked = ranks[pick_spread(len(ranks), fitting)]
    rows = np.flatnonzero(np.isin(table.rank, picked))
    kept = rows[pick_spread(len(rows), MOST_SHOWN)]
    words = [n_of_m(len(picked), len(ranks), "ranks"), n_of_m(len(kept), len(rows), "steps")]
    return ShownSteps(kept, picked, " and ".join(word for word in words if word))


@dataclass(frozen=True, slots=True)
class ShownWaits:
    """Input waits of the shown ranks, in seconds since the start of the job."""

    rank: NDArray[np.int32]  # position in Trace.ranks
    start_s: NDArray[np.float64]
    length_s: NDArray[np.float64]
    cut: str


def choose_waits(trace: Trace, ranks: NDArray[np.int32]) -> ShownWaits:
    """At most `MOST_SHOWN` input waits of these ranks, the longest ones first."""
    spans = trace.spans
    waits = spans.pick(spans.kind == SpanKind.INPUT_WAIT)
    family = trace.family
    rank = family[waits.process] if len(family) else np.full(len(waits), -1, np.int32)
    rows = np.flatnonzero(np.isin(rank, ranks))
    length = waits.end[rows] - waits.start[rows]
    # The longest ones, in the order of the trace.
    kept = np.sort(np.argsort(-length, kind="stable")[:MOST_SHOWN])
    rows, length = rows[kept], length[kept]
    return ShownWaits(
        rank[rows],
        (waits.start[rows] - trace.job.start_ns) / 1e9,
        length / 1e9,
        n_of_m(len(kept), int(np.isin(rank, ranks).sum()), "input waits (the longest)"),
    )


TABLE_LIMIT = 100
MAX_LANES = 8
GRID_RANKS = 64  # rows and columns of the grid that takes the place of lanes of many ranks
GRID_STEPS = 256
_BARS = "One bar per step over seconds since the start of the job, as wide as it lasted and as high"
_WAITS = (
    ": orange is the input wait, grey the rest. Steps that start late in an epoch or after a "
    "checkpoint stand out; even orange from start to end means that the loader cannot keep up."
)
_UNKNOWN = "Input wait was not recorded: that is unknown, not zero."
_NOT_ON_CLOCK = "The profile's clock could not be put on that of the logs"
_GRID = (
    "One line per rank, one column per profiled step, counted from 0. A stronger colour is a "
    "longer {}. Horizontal lines are slow ranks, vertical lines are steps that {} all ranks."
)
_UNDATED = (
    "One line per rank, one column per step in the order of the table, counted from 0. A stronger "
    "colour is a longer step. {}, so these steps are in no other picture and no overlap is claimed."
)


def draw_steps(run: Run) -> Figure:
    """Duration and input wait of the profiled steps over time."""
    steps = run.steps
    if steps is None or len(steps.table.step) == 0:
        reason = (
            "No training step was recorded. Record the command with vanidl record, or profile "
            "with torch.profiler and a call of prof.step() after each batch."
        )
        return Figure("steps", "Input and compute", "Training steps", "", empty_reason=reason)
    table = steps.table
    shown, unknown = choose_steps(table), bool(np.isnan(table.input_wait_s).all())
    # Lanes over time for few ranks; a grid of ranks and steps for many, and where no step has a
    # date.
    if table.undated_s is not None:
        (spec, cut), why = _plot_grid(run.trace, table), _NOT_ON_CLOCK
        if steps.clock.method == "none":
            why = "The profile has durations without start times"
        words = [_UNDATED.format(why)]
    elif len(np.unique(table.rank)) > MAX_LANES:
        what = ("step", "were long on") if unknown else ("wait for input", "held up")
        (spec, cut), words = _plot_grid(run.trace, table), [_GRID.format(*what)]
    else:
        spec, cut = _plot_lanes(run.trace, table, shown), shown.cut
        words = [_BARS + ("." if unknown else _WAITS)]
    # What steps and waits are of, as far as that is not plain.
    if steps.steps_from:
        words.append(f"No step was marked: these are steps from {steps.steps_from}. ")
    words += [_UNKNOWN] * unknown + [f"Shown: {cut}."] * bool(cut)
    if len(steps.loaders) > 1:
        words.append(f"Training waited for {'; '.join(_describe_loaders(steps))}.")
    numbers = tabulate_steps(run.trace, table, shown)
    # In words how many steps, how long, and the longest wait.
    wait_s = table.input_wait_s[~np.isnan(table.input_wait_s)]
    waited = "input waits were not recorded"
    if len(wait_s):
        waited = f"the longest input wait is {seconds(float(wait_s.max()))}"
    alt_text = (
        f"{plural(len(table.step), 'step')} of {plural(steps.ranks, 'rank')}, "
        f"{seconds(steps.median_s)} in the median and {seconds(steps.p99_s)} at the 99th "
        f"percentile; {waited}."
    )
    return Figure(
        "steps",
        "Input and compute",
        "Training steps",
        " ".join(words) + numbers.not_recorded(but=("input wait",)),
        spec,
        numbers.without_empty_columns(),
        alt_text=alt_text,
    )


def _plot_lanes(trace: Trace, table: StepTable, shown: ShownSteps) -> Spec:
    """One lane of bars per rank, all with the same scale.

    The rest of a step lies on its wait by `base`: where bars are stacked, plotly puts few ticks
    at the middle of bars instead of at round times.
    """
    data: list[Spec] = []
    for lane, rank in enumerate(shown.ranks):
        data += _plot_lane(table, shown.rows[table.rank[shown.rows] == rank], lane)
    lanes = len(shown.ranks)
    longest = float(table.duration_s[shown.rows].max())
    # A lane takes 84 px of several; one alone may be higher.
    height = 130 + 84 * lanes if lanes > 1 else 300
    axis = palette.time_axis(showgrid=False)
    layout = palette.time_layout(height, xaxis=axis, barmode="overlay")
    if lanes > 1:
        layout["legend"] = {**layout["legend"], "y": 1 + 18 / (84 * lanes)}
    # Each lane has an axis of its own, all of one range so that they compare.
    layout["annotations"] = []
    for lane, rank in enumerate(shown.ranks):
        layout[f"yaxis{lane + 1}" if lane else "yaxis"] = palette.axis(
            domain=[1 - (lane + 0.78) / lanes, 1 - lane / lanes] if lanes > 1 else [0, 1],
            range=[0, 1.05 * longest],
            nticks=3 if lanes > 1 else 6,
            ticksuffix=" s",
            fixedrange=True,
        )
        # The name of the rank, right above its lane.
        if lanes > 1:
            title = {
                "text": plotted(trace.processes[trace.ranks[int(rank)]].label),
                "x": 1,
                "xref": "paper",
                "xanchor": "right",
                "y": 1 - lane / lanes,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 11},
            }
            layout["annotations"].append(title)
    layout["xaxis"] |= {"anchor": "free", "position": 0}
    return {"data": data, "layout": layout}


def _plot_lane(table: StepTable, rows: np.ndarray, lane: int) -> list[Spec]:
    length = table.duration_s[rows]
    waits = table.input_wait_s[rows]
    hover = [
        f"step {int(k)}: {seconds(float(s))}, waited {seconds(float(w))}"
        for k, s, w in zip(table.step[rows], length, waits, strict=True)
    ]
    # Without waits a step is one box; with them its wait lies below the rest.
    if np.isnan(table.input_wait_s).all():
        series = [("step", palette.STEP, np.zeros_like(length), length)]
    else:
        below = np.nan_to_num(waits)
        series = [
            ("input wait", palette.IN_WAIT, np.zeros_like(below), waits),
            ("rest of the step", palette.STEP, below, length - below),
        ]
    return [
        {
            "type": "bar",
            "name": name,
            "legendgroup": name,
            "showlegend": lane == 0,
            "x": np.round(table.start_s[rows] + length / 2, 6).tolist(),
            "base": round_values(base),
            "y": round_values(values),
            "yaxis": f"y{lane + 1}" if lane else "y",
            "width": round_values(length * 0.94),
            "customdata": hover,
            "marker": palette.fill(colour),
            "hovertemplate": "%{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, base, values in series
    ]


def _plot_grid(trace: Trace, table: StepTable) -> tuple[Spec, str]:
    """Rank x step, coloured by input wait (by duration where it was not recorded)."""
    present, counts = np.unique(table.rank, return_counts=True)
    # As many ranks and steps as there are cells to see, evenly spread.
    ranks = present[pick_spread(len(present), GRID_RANKS)]
    columns = pick_spread(int(counts.max()), GRID_STEPS)
    length = _arrange_by_rank(table, ranks, table.duration_s)[:, columns]
    waits = _arrange_by_rank(table, ranks, table.input_wait_s)[:, columns]
    known = not np.isnan(waits).all()
    heat = {
        "type": "heatmap",
        "x": columns.tolist(),
        "y": list(range(len(ranks))),
        "z": [round_values(row) for row in (waits if known else length)],
        "customdata": [round_values(row) for row in length],
        "zmin": 0,
        "colorscale": palette.scale(palette.WAIT_RAMP),
        "colorbar": palette.colorbar(" s waited" if known else " s a step"),
        "hoverongaps": False,
        "hovertemplate": "profiled step %{x}: %{z:.3g} s of %{customdata:.3g} s<extra></extra>",
    }
    labels = [plotted(trace.processes[trace.ranks[int(r)]].label) for r in ranks]
    cuts = (
        n_of_m(len(ranks), len(present), "ranks"),
        n_of_m(len(columns), int(counts.max()), "steps"),
    )
    layout = palette.layout(
        140 + min(16 * len(labels), 400),
        margin={"l": 56, "r": 16, "t": 50, "b": 32},
        xaxis=palette.axis(showgrid=False),
        yaxis=palette.rank_axis(labels),
    )
    return {"data": [heat], "layout": layout}, " and ".join(cut for cut in cuts if cut)


def _arrange_by_rank(table: StepTable, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values by rank and number of the step within it, shape (ranks, most steps), else nan."""
    rows = [values[table.rank == rank] for rank in ranks]
    # A rank with fewer steps has nan at the end of its row.
    grid = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for line, row in zip(grid, rows, strict=True):
        line[: len(row)] = row
    return grid


def tabulate_steps(trace: Trace, table: StepTable, shown: ShownSteps) -> Table:
    """The shown steps in numbers, at most TABLE_LIMIT of them."""
    columns = (
        Column("rank"),
        Column("step", "count"),
        Column("start", "instant"),
        Column("duration", "s"),
        Column("input wait", "s"),
        Column("time in I/O", "s"),
    )
    labels = [trace.processes[process].label for process in trace.ranks]
    # Of the steps that are drawn some, evenly spread.
    picked = shown.rows[pick_spread(len(shown.rows), TABLE_LIMIT)]
    rows = tuple(
        (
            labels[int(table.rank[i])],
            int(table.step[i]),
            _none_if_nan(table.start_s[i]),
            float(table.duration_s[i]),
            _none_if_nan(table.input_wait_s[i]),
            _none_if_nan(table.busy_s[i]),
        )
        for i in picked
    )
    return Table(columns, rows, n_of_m(len(picked), len(table.step), "steps of all ranks"))


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _write_steps(run: Run) -> str | None:
    steps = run.steps
    if steps is None:
        return None
    many = f"{steps.per_rank_min}" if steps.per_rank_min == steps.per_rank_max else (
        f"{steps.per_rank_min} to {steps.per_rank_max}")  # fmt: skip
    rows = [
        ("profiled", f"{many} per rank on {plural(steps.ranks, 'rank')} ({steps.source})"),
        ("duration", f"mean {seconds(steps.mean_s)}, median {seconds(steps.median_s)}, "
                     f"99 % under {seconds(steps.p99_s)}"),
        *(("waited for", words) for words in _describe_loaders(steps)),
    ]  # fmt: skip
    # How long the device was at the steps, beside the process that gave it work.
    if (device := steps.device) is not None:
        busy = (
            f"busy for {seconds(device.device_s)} at most in {plural(device.steps, 'step')}; the "
            f"process took {seconds(device.host_s)} for the same, from the first batch on"
        )
        rows.append(("device", busy))
    if idle := describe_idle(run.breakdown):
        rows.append(("device idle", idle))
    return named_values("Steps", [*rows, *list_clocks(steps)])


def _describe_loaders(steps: Steps) -> Iterator[str]:
    """What was waited for each loader: `DataLoader 0 (Images, training): 120 times, 3.2 s`."""
    for loader in steps.loaders:
        yield f"{loader.name}: {plural(loader.waits, 'time')}, {seconds(loader.wait_s)}"


def _collect_steps(run: Run) -> Object | None:
    steps, each = run.steps, run.perstep
    if steps is None:
        return None
    kinds = () if each is None else mean_by_kind(steps.table, each)
    return {
        "source": steps.source,
        "steps_from": steps.steps_from or None,
        "per_rank": {"min": steps.per_rank_min, "max": steps.per_rank_max},
        "counted": steps.counted,
        "ranks": steps.ranks,
        "mean_s": steps.mean_s,
        "median_s": steps.median_s,
        "p99_s": steps.p99_s,
        "loaders": [values_of(loader) for loader in steps.loaders],
        "device": None if steps.device is None else values_of(steps.device),
        "clock": values_of(steps.clock),
        "clocks": [values_of(clock) for clock in steps.clocks],
        "log_clocks": [values_of(clock) for clock in steps.log_clocks],
        "by_kind": [values_of(kind) for kind in kinds],
    }


_STEPS_KIND = Maybe({
    "source": str,
    "steps_from": str | None,
    "per_rank": {"min": int, "max": int},
    "counted": int | None,
    "ranks": int,
    "mean_s": float | None,
    "median_s": float | None,
    "p99_s": float | None,
    "loaders": [LoaderWaits],
    "device": DeviceSteps | None,
    "clock": ClockEvidence,
    "clocks": [ClockEvidence],
    "log_clocks": [LogClock],
    "by_kind": [KindMeans],
})  # fmt: skip
STEPS = Section("steps", (draw_steps,), _write_steps, {"steps": Json(_collect_steps, _STEPS_KIND)})


# Every profiled step in numbers: ordinary ones, and those that are not, apart.

LIMIT, LIMIT_OF_MANY = 400, 50  # steps; of more than MANY_RANKS the page has enough to hold
MANY_RANKS = 16
_SECTION = "Input and compute"
_EACH_STEP_TITLE = "Each step"
_APART = "First steps of epochs and steps with a checkpoint"
_EACH_STEP_CAPTION = "What happened during each step, whichever step the data is for."
_PARTS = {"in wait": "in wait", "hidden": "hidden", "behind comm.": "behind communication",
          "other": "other"}  # fmt: skip
_OF_WAIT = (
    "Of it I/O: the part of the input wait in which the rank was in I/O; the rest is decoding and "
    "other work of the loader."
)
_APART_CAPTION = (
    "They may take longer for reasons of their own: the loader starts again, or the model is "
    "saved. "
    "A step counts where it has the largest part of a checkpoint, or is mostly filled by one; and "
    "where it has most of the time that a usual step takes from the start of an epoch. Same "
    "columns as above. "
)
_NOWHERE = (
    "No profiled step has a place in time, so nothing that happened during one is known. Profile "
    "with torch.profiler and call prof.step() after each batch."
)

_NO_IO = "Of the I/O during the steps nothing was recorded; the training steps hold all that was."


def draw_each_step(run: Run) -> Figure:
    """The ordinary steps, the slowest where there are too many."""
    each, steps = run.perstep, run.steps
    if each is None or steps is None:
        return Figure(
            "each-step", _SECTION, _EACH_STEP_TITLE, "", empty_reason=_NOWHERE, applies=False
        )
    rows = np.flatnonzero(each.kind == ORDINARY)
    if not len(rows):
        reason = "Every step is the first of an epoch or has a checkpoint; they are shown below."
        return Figure("each-step", _SECTION, _EACH_STEP_TITLE, "", empty_reason=reason)
    # Without I/O in steps the table would repeat the figure of steps.
    if each.reads is None and np.isnan(each.busy_s).all():
        return Figure("each-step", _SECTION, _EACH_STEP_TITLE, "", empty_reason=_NO_IO)
    table = _tabulate_each_step(run.trace, steps.table, each, rows)
    words = " ".join(_explain_columns(table))
    # Where the steps are that this table leaves to the second.
    if special_count := int((each.kind != ORDINARY).sum()):
        are = "is" if special_count == 1 else "are"
        words += (
            f" {plural(special_count, 'step')} of {count(len(each.kind))}, first in an epoch or "
            f"with a checkpoint, {are} in the table below."
        )
    words += _note_cut(table)
    return Figure("each-step", _SECTION, _EACH_STEP_TITLE, words, table=table)


def draw_special_steps(run: Run) -> Figure:
    """First steps of epochs, and steps during which a checkpoint was written."""
    each, steps = run.perstep, run.steps
    rows = np.empty(0, np.intp) if each is None else np.flatnonzero(each.kind != ORDINARY)
    if each is None or steps is None or not len(rows):
        reason = "Nothing marks the start of an epoch or a checkpoint within the profiled steps."
        known = each is not None
        return Figure("steps-apart", _SECTION, _APART, "", empty_reason=reason, applies=known)
    table = _tabulate_each_step(run.trace, steps.table, each, rows)
    # Mean durations of each kind in a sentence.
    means = []
    for kind, noun in ((FIRST, "first step"), (CHECKPOINT, "checkpoint step"), (ORDINARY, "other")):
        of_kind = each.kind == kind
        if of_kind.any():
            mean = seconds(float(steps.table.duration_s[of_kind].mean()))
            several = " on average" if of_kind.sum() > 1 else ""
            means.append(f"{plural(int(of_kind.sum()), noun)} took {mean}{several}")
    caption = f"{_APART_CAPTION}{'; '.join(means)}.{_note_cut(table)}"
    return Figure("steps-apart", _SECTION, _APART, caption, table=table)


def _explain_columns(table: Table) -> Iterator[str]:
    """What the columns that the table has mean."""
    titles = {column.title for column in table.columns}
    yield _EACH_STEP_CAPTION
    if parts := [name for title, name in _PARTS.items() if title in titles]:
        yield f"Time in I/O = {' + '.join(parts)}."
    if "of it I/O" in titles:
        yield _OF_WAIT
    if any(None in row for row in table.rows):
        yield "A dash: not recorded."
    if _FILES[0] in titles:
        yield "Beside a file: the time in it."


def _note_cut(table: Table) -> str:
    return " Shown are the longest." if table.cut else ""


_NAME = 11  # letters of a file's name that leave the row in one line
_FILES = ("slowest file", "second slowest")


Rows = NDArray[np.intp]


def _list_columns(
    table: StepTable, each: StepRecords, rows: Rows
) -> list[tuple[Column, list[Cell]]]:
    """Every column with its cells of these steps; those that would say nothing are left out."""
    times = {
        "duration": table.duration_s,
        "input wait": table.input_wait_s,
        "of it I/O": each.input_wait_io_s,
        "time in I/O": each.busy_s,
        "in wait": each.in_wait_s,
        "hidden": each.hidden_s,
        "behind comm.": each.behind_communication_s,
        "other": each.other_s,
    }
    # Where nothing lay behind communication, the parts add up without it.
    if not np.nan_to_num(each.behind_communication_s).any():
        del times["behind comm."]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("step", "count"), [int(k) for k in table.step[rows]]),
        (Column("kind"), [str(kind) or "ordinary" for kind in each.kind[rows]]),
        (Column("start", "instant"), _list_seconds(table.start_s[rows])),
        *((Column(title, "s"), _list_seconds(values[rows])) for title, values in times.items()),
        (Column("operations", "count"), _sum_amounts(rows, each.reads, each.writes)),
        (Column("read", "bytes"), _sum_amounts(rows, each.bytes_read)),
        (Column("written", "bytes"), _sum_amounts(rows, each.bytes_written)),
    ]
    if each.reads is not None:
        files = [each.slowest[i] for i in rows.tolist()]
        columns += [
            (Column(title), [_name_file(f, i) for f in files]) for i, title in enumerate(_FILES)
        ]
    # A column in which every cell is empty says nothing.
    return [(column, cells) for column, cells in columns if set(cells) != {None}]


def _tabulate_each_step(trace: Trace, table: StepTable, each: StepRecords, rows: Rows) -> Table:
    """The longest of the rows, in order of rank and start."""
    limit = LIMIT if len(trace.ranks) <= MANY_RANKS else LIMIT_OF_MANY
    kept = np.sort(rows[np.argsort(-table.duration_s[rows], kind="stable")[:limit]])
    columns = _list_columns(table, each, kept)
    if len(set(each.kind[rows])) == 1:
        columns = [c for c in columns if c[0].title != "kind"]
    if len(trace.ranks) > 1:
        names = [elided(trace.processes[i].label, limit=80) for i in trace.ranks]
        columns.insert(0, (Column("rank"), [names[position] for position in table.rank[kept]]))
    cells = tuple(zip(*(values for _, values in columns), strict=True))
    return Table(tuple(c for c, _ in columns), cells, n_of_m(len(kept), len(rows), "steps"))


def _list_seconds(values: NDArray[np.float64]) -> list[Cell]:
    """To the nanosecond: what is rounded twice would differ from the same in another table."""
    return [None if np.isnan(value) else round(float(value), 9) for value in values]


def _sum_amounts(rows: Rows, *amounts: NDArray[np.int64] | None) -> list[Cell]:
    """Sums of the amounts in each row; None where they were not recorded."""
    known = [values[rows] for values in amounts if values is not None]
    sums: list[Cell] = np.sum(known, axis=0).tolist() if known else [None] * len(rows)
    return sums


def _name_file(files: tuple[tuple[str, float], ...], place: int) -> str:
    """Name of a file and the time in it."""
    if place >= len(files):
        return ""
    path, spent = files[place]
    # A file's name, or the end of it before the suffix: there are the numbers of files.
    name = path.rsplit("/", 1)[-1]
    stem = name if len(name) <= _NAME else name.rsplit(".", 1)[0] or name
    short = elided(stem if len(stem) <= _NAME else f"…{stem[1 - _NAME :]}", limit=_NAME)
    return f"{short} {seconds(spent)}"


def _write_each_step(run: Run) -> str | None:
    """First steps of epochs and checkpoint steps beside the others; None without such."""
    steps, each = run.steps, run.perstep
    kinds = () if steps is None or each is None else mean_by_kind(steps.table, each)
    # One kind of steps has nothing to be compared with.
    if len(kinds) < 2:
        return None
    header = ("kind", "steps", "duration", "input wait", "of it I/O", "in I/O", "read", "written")
    rows = [
        (
            k.kind, count(k.steps), seconds(k.duration_s), seconds(k.input_wait_s),
            seconds(k.input_wait_io_s), seconds(k.busy_s), nbytes(k.bytes_read),
            nbytes(k.bytes_written),
        )
        for k in kinds
    ]  # fmt: skip
    return aligned_table("Steps by kind, means", [header, *rows])


EACH_STEP = Section("each step", (draw_each_step, draw_special_steps), _write_each_step)
