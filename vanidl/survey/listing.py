"""The table of a survey: one job per line, most time in I/O first, one unit per column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell, scaled
from vanidl.survey.fleet import Fleet, coded
from vanidl.survey.groups import job_cell
from vanidl.survey.rows import Row

MOST_ROWS = 1000
_NEARLY_ALL = 0.9  # of the jobs: what so many have is said once, above the table

_Value = Callable[[Row], float | None]


def io_of_all_ranks_s(row: Row) -> float | None:
    """Time in I/O, summed over the ranks; None where no operation was traced."""
    mean = row["io_per_rank_mean_s"]
    return None if mean is None else float(row["ranks"] * mean)


def worst_first(jobs: Fleet) -> NDArray[np.intp]:
    """Places of the jobs that were read: most time in I/O first, untraced ones by bytes moved."""
    import pyarrow
    from pyarrow import compute

    read = jobs.only(~jobs.known("problem"))
    time_s = read.numbers("ranks") * read.numbers("io_per_rank_mean_s")
    keys = pyarrow.table(
        {
            "untraced": np.isnan(time_s),
            "time_s": -np.where(np.isnan(time_s), 0.0, time_s),
            "moved": -(read.amounts("bytes_read") + read.amounts("bytes_written")),
            "first_log": read.column("first_log"),
        }
    )
    by = [(name, "ascending") for name in keys.column_names]
    places: NDArray[np.intp] = read.index[compute.sort_indices(keys, sort_keys=by).to_numpy()]
    return places


def shared_codes(read: Fleet) -> dict[str, int]:
    """Codes of the warnings that nearly all of several jobs have, and how many have each."""
    which, values = coded(read.column("warnings"))
    jobs: Counter[str] = Counter()
    for value, many in zip(values, np.bincount(which, minlength=len(values)).tolist(), strict=True):
        for code in set((value or "").split()):
            jobs[code] += many
    return {c: n for c, n in sorted(jobs.items()) if n >= _NEARLY_ALL * len(read) and n > 1}


def _of(name: str) -> _Value:
    return lambda row: row[name]


_NUMBERS: tuple[tuple[str, str, _Value], ...] = (
    ("I/O, all ranks", "s", io_of_all_ranks_s),
    ("I/O per rank", "s", _of("io_per_rank_mean_s")),
    ("I/O share", "share", _of("io_share")),
    ("run time", "s", _of("run_time_s")),
    ("ranks", "count", _of("ranks")),
    ("read", "bytes", _of("bytes_read")),
    ("written", "bytes", _of("bytes_written")),
    ("median size", "bytes", _of("size_median")),
    ("traced", "share", _of("traced_fraction")),
    ("findings", "count", _of("findings")),
)
"""Title, quantity and value of the columns of numbers, the one first by which rows are sorted."""


def jobs_figure(jobs: Fleet, reports: Mapping[int, str]) -> Figure:
    """The jobs that were read; `reports` are addresses by place of the job."""
    order = worst_first(jobs)
    if not len(order):
        reason = "No job could be read: see the column problem of jobs.parquet."
        return Figure("worst", "Jobs", "Jobs by time in I/O", "", empty_reason=reason)
    shown = order[:MOST_ROWS].tolist()
    rows = jobs.rows(shown)
    numbers = [_column([value(row) for row in rows], *named) for *named, value in _NUMBERS]
    read = jobs.only(~jobs.known("problem"))
    common = shared_codes(read)
    lines = tuple(
        (
            job_cell(row, reports.get(place)),
            *(cells[at] for _, cells in numbers),
            *_words(row, common),
        )
        for at, (place, row) in enumerate(zip(shown, rows, strict=True))
    )
    columns = (
        Column("job"),
        *(column for column, _ in numbers),
        *map(Column, ("start (UTC)", "warnings", "command", "first log")),
    )
    table = Table(columns, lines, n_of_m(len(shown), len(order), "jobs"), sorted_by=1)
    caption = _caption(read, reports)
    return Figure("worst", "Jobs", "Jobs by time in I/O", caption, None, table)


def _caption(read: Fleet, reports: Mapping[int, str]) -> str:
    said = ["Sorted by I/O, all ranks (I/O per rank x ranks)."]
    if not read.known("io_per_rank_mean_s").all():
        said.append("Jobs without a trace of their operations come last, by bytes moved.")
    if len(reports) < len(read):
        said.append("vanidl survey --reports N writes and links the reports of the first N.")
    return " ".join(said)


def _column(values: Sequence[float | None], title: str, unit: str) -> tuple[Column, list[Cell]]:
    """The column in one unit, which its title names."""
    if unit == "count":
        return Column(title, "count"), list(values)
    name, cells = scaled(values, unit)
    return Column(f"{title} ({name})", "number"), list(cells)


def _words(row: Row, common: Collection[str]) -> tuple[str | None, ...]:
    own = [code for code in (row["warnings"] or "").split() if code not in common]
    if row["exit_status"]:
        own.insert(0, f"failed, exit status {row['exit_status']}")
    more = f" +{len(own) - 1}" if len(own) > 1 else ""
    return (
        row["start"][:16].replace("T", " ") if row["start"] else None,
        f"{own[0]}{more}" if own else "none",
        elided(row["command"] or "", limit=40) or None,
        elided(row["first_log"], limit=40),
    )


def benchmarks_figure(read: Fleet) -> tuple[Figure, ...]:
    """A line for each result of a storage benchmark; nothing where there is none."""
    rows = sorted(
        read.only(read.known("utilization_percent")).rows(),
        key=lambda row: (row["workload"] or "", -row["utilization_percent"], row["first_log"]),
    )
    if not rows:
        return ()
    columns = (
        Column("result"), Column("workload"), Column("accelerators", "count"),
        Column("utilization, %"), Column("largest wait"), Column("its share, %"),
        Column("rules not kept"),
    )  # fmt: skip
    names = ("ranks", "utilization_percent", "largest_wait", "largest_wait_percent")
    lines = tuple(
        (
            elided(row["first_log"].rpartition("/")[0] or row["first_log"], limit=60),
            elided(row["workload"] or "", limit=40),
            *(row[name] for name in names),
            row["rules_not_kept"] or "",
        )
        for row in rows[:MOST_ROWS]
    )
    table = Table(columns, lines, n_of_m(len(lines), len(rows), "results"))
    caption = (
        "Accelerator utilization by the benchmark's own formula, and what most of the rest of the "
        "time was: vanidl report of a result has every rank and epoch."
    )
    return (Figure("benchmarks", "Jobs", "Storage benchmarks", caption, table=table),)
