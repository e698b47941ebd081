"""The runs that were compared, and those with batches from memory: what input costs each side."""

from __future__ import annotations

from datetime import datetime, timezone

from vanidl.compare import Comparison, Sample, Side
from vanidl.compare.metrics import steps_a_rank
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell, plural
from vanidl.wording.results import explain_ceiling

LIMIT = 500


def draw_runs(comparison: Comparison) -> Figure:
    """One row a run."""
    rows = [_run_row(side, sample) for side in comparison.sides for sample in side.samples]
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
    caption = " ".join(f"{_capitalize(name)}: {elided(v)}." for name, v in comparison.conditions)
    shown = table.without_empty_columns()  # pairs and wall times are known to vanidl ab alone
    return Figure("runs", "Runs", "What was compared", caption, None, shown)


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _run_row(side: Side, sample: Sample) -> tuple[Cell, ...]:
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
    found = [(side, side.ceiling) for side in comparison.sides if side.ceiling is not None]
    if not found:
        reason = "Not measured: vanidl ab --ceiling measures it."
        return Figure("ceiling", "What changed", title, "", empty_reason=reason, applies=False)
    rows = tuple((side.letter, c.step_s, c.free_s, c.cost, c.low, c.high) for side, c in found)
    over = f" over {plural(found[0][1].pairs, 'pair')}. " if found[0][1].pairs > 1 else ". "
    said = " ".join(f"{side.letter}: {explain_ceiling(c)}" for side, c in found)
    return Figure(
        "ceiling",
        "What changed",
        title,
        _CEILING_CAPTION + over + said,
        table=Table(_CEILING_COLUMNS, rows),
    )
