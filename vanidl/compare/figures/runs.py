"""The runs that were compared, and how they were made."""

from __future__ import annotations

from datetime import datetime, timezone

from vanidl.compare import Comparison, Sample, Side
from vanidl.compare.metrics import steps_a_rank
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell

LIMIT = 500


def figure(comparison: Comparison) -> Figure:
    """One row a run."""
    rows = [_row(side, sample) for side in comparison.sides for sample in side.samples]
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
    caption = " ".join(f"{_capital(name)}: {elided(v)}." for name, v in comparison.conditions)
    shown = table.without_empty_columns()  # pairs and wall times are known to vanidl ab alone
    return Figure("runs", "Runs", "What was compared", caption, None, shown)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _row(side: Side, sample: Sample) -> tuple[Cell, ...]:
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
