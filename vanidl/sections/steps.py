"""How long each training step took, and how much of it was waiting for input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vanidl.analyses.steps import (
    ClockEvidence,
    DeviceSteps,
    LoaderWaits,
    LogClock,
    Steps,
    StepTable,
)
from vanidl.breakdown.step_records import KindMeans, mean_by_kind
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m, round_values, spread_out
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.figures.step_spans import ShownSteps, shown_steps
from vanidl.formatting.names import plotted
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import plural, seconds
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.schema import Maybe
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.clock import clock_pairs

TABLE_LIMIT = 100
MAX_LANES = 8
GRID_RANKS = 64
GRID_STEPS = 256
_BARS = "One bar per step over seconds since the start of the job, as wide as it lasted and as high"
_WAITS = (
    ": orange is the input wait, grey the rest. Steps that start late in an epoch or after a "
    "checkpoint stand out; even orange from start to end means that the loader cannot keep up."
)
_UNKNOWN = "Input wait was not recorded: that is unknown, not zero."
_GRID = (
    "One line per rank, one column per profiled step, counted from 0. A stronger colour is a "
    "longer {}. Horizontal lines are slow ranks, vertical lines are steps that {} all ranks."
)
_UNDATED = (
    "One line per rank, one column per step in the order of the table, counted from 0. A stronger "
    "colour is a longer step. {}, so these steps are in no other picture and no overlap is claimed."
)


def figure(run: Run) -> Figure:
    """Duration and input wait of the profiled steps over time."""
    steps = run.steps
    if steps is None or len(steps.table.step) == 0:
        reason = (
            "No training step was recorded. Record the command with vanidl record, or profile "
            "with torch.profiler and a call of prof.step() after each batch."
        )
        return Figure("steps", "Input and compute", "Training steps", "", empty_reason=reason)
    table = steps.table
    shown, unknown = shown_steps(table), bool(np.isnan(table.input_wait_s).all())
    if table.undated_s is not None:
        (spec, cut), words = _grid(run.trace, table), [_UNDATED.format(_why(steps.clock))]
    elif len(np.unique(table.rank)) > MAX_LANES:
        what = ("step", "were long on") if unknown else ("wait for input", "held up")
        (spec, cut), words = _grid(run.trace, table), [_GRID.format(*what)]
    else:
        spec, cut = _lanes(run.trace, table, shown), shown.cut
        words = [_BARS + ("." if unknown else _WAITS)]
    if steps.steps_from:
        words.append(f"No step was marked: these are steps from {steps.steps_from}. ")
    words += [_UNKNOWN] * unknown + [f"Shown: {cut}."] * bool(cut)
    if len(steps.loaders) > 1:
        words.append(f"Training waited for {'; '.join(_by_loader(steps))}.")
    numbers = step_table(run.trace, table, shown)
    return Figure(
        "steps",
        "Input and compute",
        "Training steps",
        " ".join(words) + numbers.not_recorded(but=("input wait",)),
        spec,
        numbers.without_empty_columns(),
        alt_text=_alt_text(steps),
    )


def _why(clock: ClockEvidence) -> str:
    """Why steps have no place in time."""
    if clock.method == "none":
        return "The profile has durations without start times"
    return "The profile's clock could not be put on that of the logs"


def _lanes(trace: Trace, table: StepTable, shown: ShownSteps) -> Spec:
    """One lane of bars per rank, all with the same scale.

    The rest of a step lies on its wait by `base`: where bars are stacked, plotly puts few ticks
    at the middle of bars instead of at round times.
    """
    data: list[Spec] = []
    for lane, rank in enumerate(shown.ranks):
        data += _lane(table, shown.rows[table.rank[shown.rows] == rank], lane)
    lanes = len(shown.ranks)
    longest = float(table.duration_s[shown.rows].max())
    layout = _layout(130 + 84 * lanes if lanes > 1 else 300, barmode="overlay")
    if lanes > 1:
        layout["legend"] = {**layout["legend"], "y": 1 + 18 / (84 * lanes)}
    layout["annotations"] = []
    for lane, rank in enumerate(shown.ranks):
        layout[f"yaxis{lane + 1}" if lane else "yaxis"] = palette.axis(
            domain=[1 - (lane + 0.78) / lanes, 1 - lane / lanes] if lanes > 1 else [0, 1],
            range=[0, 1.05 * longest],
            nticks=3 if lanes > 1 else 6,
            ticksuffix=" s",
            fixedrange=True,
        )
        label = plotted(trace.processes[trace.ranks[int(rank)]].label)
        layout["annotations"] += [_lane_title(label, 1 - lane / lanes)] if lanes > 1 else []
    layout["xaxis"] |= {"anchor": "free", "position": 0}
    return {"data": data, "layout": layout}


def _lane_title(label: str, top: float) -> Spec:
    return {
        "text": label,
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": top,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 11},
    }


def _lane(table: StepTable, rows: np.ndarray, lane: int) -> list[Spec]:
    length = table.duration_s[rows]
    waits = table.input_wait_s[rows]
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
            "customdata": _hover(table, rows),
            "marker": palette.fill(colour),
            "hovertemplate": "%{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, base, values in series
    ]


def _grid(trace: Trace, table: StepTable) -> tuple[Spec, str]:
    """Rank x step, coloured by input wait (by duration where it was not recorded)."""
    present, counts = np.unique(table.rank, return_counts=True)
    ranks = present[spread_out(len(present), GRID_RANKS)]
    columns = spread_out(int(counts.max()), GRID_STEPS)
    length = _by_rank(table, ranks, table.duration_s)[:, columns]
    waits = _by_rank(table, ranks, table.input_wait_s)[:, columns]
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


def _by_rank(table: StepTable, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values by rank and number of the step within it, shape (ranks, most steps), else nan."""
    rows = [values[table.rank == rank] for rank in ranks]
    grid = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for line, row in zip(grid, rows, strict=True):
        line[: len(row)] = row
    return grid


def _hover(table: StepTable, rows: np.ndarray) -> list[str]:
    length = table.duration_s[rows]
    return [
        f"step {int(k)}: {seconds(float(s))}, waited {seconds(float(w))}"
        for k, s, w in zip(table.step[rows], length, table.input_wait_s[rows], strict=True)
    ]


def _layout(height: int, **more: object) -> Spec:
    return palette.time_layout(height, xaxis=palette.time_axis(showgrid=False), **more)


def step_table(trace: Trace, table: StepTable, shown: ShownSteps) -> Table:
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
    picked = shown.rows[spread_out(len(shown.rows), TABLE_LIMIT)]
    rows = tuple(
        (
            labels[int(table.rank[i])],
            int(table.step[i]),
            _known(table.start_s[i]),
            float(table.duration_s[i]),
            _known(table.input_wait_s[i]),
            _known(table.busy_s[i]),
        )
        for i in picked
    )
    return Table(columns, rows, n_of_m(len(picked), len(table.step), "steps of all ranks"))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _alt_text(steps: Steps) -> str:
    wait = steps.table.input_wait_s
    known = wait[~np.isnan(wait)]
    waited = (
        f"the longest input wait is {seconds(float(known.max()))}"
        if len(known)
        else "input waits were not recorded"
    )
    return (
        f"{plural(len(steps.table.step), 'step')} of {plural(steps.ranks, 'rank')}, "
        f"{seconds(steps.median_s)} in the median and {seconds(steps.p99_s)} at the 99th "
        f"percentile; {waited}."
    )


def _text(run: Run) -> str | None:
    steps = run.steps
    if steps is None:
        return None
    many = f"{steps.per_rank_min}" if steps.per_rank_min == steps.per_rank_max else (
        f"{steps.per_rank_min} to {steps.per_rank_max}")  # fmt: skip
    rows = [
        ("profiled", f"{many} per rank on {plural(steps.ranks, 'rank')} ({steps.source})"),
        ("duration", f"mean {seconds(steps.mean_s)}, median {seconds(steps.median_s)}, "
                     f"99 % under {seconds(steps.p99_s)}"),
        *(("waited for", words) for words in _by_loader(steps)),
        *(("device", words) for words in _of_device(steps)),
        *clock_pairs(steps),
    ]  # fmt: skip
    return named_values("Steps", rows)


def _of_device(steps: Steps) -> Iterator[str]:
    """How long the device was at the steps, beside the process that gave it work."""
    device = steps.device
    if device is not None:
        yield (
            f"busy for {seconds(device.device_s)} at most in {plural(device.steps, 'step')}; the "
            f"process took {seconds(device.host_s)} for the same, from the first batch on"
        )


def _by_loader(steps: Steps) -> Iterator[str]:
    """What was waited for each loader: `DataLoader 0 (Images, training): 120 times, 3.2 s`."""
    for loader in steps.loaders:
        yield f"{loader.name}: {plural(loader.waits, 'time')}, {seconds(loader.wait_s)}"


def _json(run: Run) -> Object | None:
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


_KIND = Maybe({
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
SECTION = Section("steps", (figure,), _text, {"steps": Json(_json, _KIND)})
