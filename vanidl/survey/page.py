"""The page of a survey: which jobs lost most to I/O, how jobs are spread, how that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Cell, count, nbytes, percent, plural, scaled, seconds
from vanidl.report.page import Page, Tile, render_page, write_page
from vanidl.schema.dataclass import dataclass
from vanidl.survey.fleet import Fleet, encode_texts
from vanidl.survey.groups import group_figures, make_job_cell
from vanidl.survey.plain import PlainColumn
from vanidl.survey.rows import Row
from vanidl.survey.trend import draw_changes, draw_input_by_day, draw_share_by_day
from vanidl.wording.headline import Headline

_MOST_PROBLEMS = 20
TERMS = (
    ("I/O, all ranks", "I/O per rank x ranks: the time of processors that the I/O of a job took."),
    ("I/O per rank", "Time a rank was in at least one operation, mean over the job's ranks."),
    ("I/O share", "I/O per rank / run time. Whether that time was hidden, logs alone do not say."),
    (
        "input",
        "Reads of the files that a job only read, or read most of: counters of Darshan, summed "
        "over processes, at most the run time of all ranks.",
    ),
    ("node h, rank h", "Hours x nodes, hours x ranks: node h = rank h x nodes / ranks."),
    ("traced", "Operations with a record of their own / operations that were counted."),
)


def write_survey_page(
    jobs: Fleet, folder: str, path: Path, reports: Mapping[int, str] | None = None
) -> None:
    """Writes the page of the jobs: whole or not at all.

    `reports` are the places of reports, relative to the page, by the place of their job.

    Raises:
        VanidlError: it cannot be written there.
    """
    write_page(render_page(page(jobs, folder, reports)), path)


def page(jobs: Fleet, folder: str, reports: Mapping[int, str] | None = None) -> Page:
    """The page of all jobs."""
    # What could not be read is counted in tables and warnings, and in no figure.
    read = jobs.only(~jobs.known("problem"))
    # Warnings that nearly all jobs have, said once: the table leaves them out.
    common_warnings = [
        (code, f"{count(jobs)} of {plural(len(read), 'job')} have this warning: it is left out "
         "of the table, and their reports say what it means.", "info")
        for code, jobs in count_shared_codes(read).items()
    ]  # fmt: skip
    warnings = tuple(_list_problems(jobs) + common_warnings)
    shares = read.values("io_share")
    heavy = sum(share >= 0.1 for share in shares)
    title = (
        f"{count(heavy)} of {plural(len(shares), 'job')} spent 10 % of "
        f"{'its' if heavy == 1 else 'their'} time or more in I/O."
        if shares
        else "No job has a trace of its operations, so how long its I/O took is not known."
    )
    # Of which jobs less is known.
    untraced = read.only(~read.known("io_share"))
    counted = int(untraced.known("source").sum())
    said = (
        (len(jobs) - len(read), "{} could not be read."),
        (counted, "Of {} only counters are known."),
        (len(untraced) - counted, "Of {} not even counters are known."),
    )
    support = tuple(text.format(plural(n, "job")) for n, text in said if n)
    # How the programs of jobs ended, where that was recorded.
    recorded = read.values("exit_status")
    failed = sum(status != 0 for status in recorded)
    ending = f"{count(failed)} of {plural(len(recorded), 'recorded program')} failed."
    headline = Headline(title, support, ending if failed else "")
    caption = "How many jobs read and wrote how much together, through POSIX and STDIO."
    values = _get_moved_bytes(read, "read") + _get_moved_bytes(read, "written")
    moved_bytes = _draw_powers(("moved", "Bytes of a job", caption), values)
    return Page(
        title=f"I/O of {plural(len(jobs), 'job')}",
        kind="I/O survey",
        headline=headline,
        facts=_list_facts(jobs, folder),
        tiles=_build_tiles(read),
        warnings=warnings,
        warned_section="Jobs" if warnings else "",
        figures=(
            draw_jobs(jobs, reports or {}),
            *draw_benchmarks(read),
            *group_figures(jobs, reports or {}),
            _draw_io_share(read),
            moved_bytes,
            _draw_sizes(read),
            draw_changes(jobs),
            draw_input_by_day(read),
            draw_share_by_day(read),
        ),
        terms=TERMS,
        commands=(),
    )


def _list_facts(jobs: Fleet, folder: str) -> tuple[tuple[str, str], ...]:
    starts = [start for start in jobs.values("start") if start]
    span = f"{min(starts)[:10]} to {max(starts)[:10]}" if starts else "not recorded"
    return (
        ("folder", elided(folder, limit=80)),
        ("jobs", count(len(jobs))),
        ("logs", count(sum(jobs.values("logs")))),
        ("started", span),
    )


def _build_tiles(read: Fleet) -> tuple[Tile, ...]:
    # A job without times of its operations would count as one without I/O.
    timed = read.only(read.known("io_share"))
    ranks = timed.numbers("ranks")
    cost_s = sum((ranks * timed.numbers("run_time_s")).tolist())
    lost_s = sum((ranks * timed.numbers("io_per_rank_mean_s")).tolist())
    median = float(np.median(timed.numbers("io_share"))) if len(timed) else None
    return (
        Tile("I/O of all", percent(lost_s / cost_s) if cost_s else "not recorded",
             "time in I/O / run time, summed over the ranks of jobs with a trace"),
        Tile("Median job", percent(median), "its share of I/O"),
        Tile("I/O, all ranks", seconds(lost_s) if len(timed) else "not recorded",
             "hidden or not, summed over the jobs with a trace"),
        Tile("Read", nbytes(sum(_get_moved_bytes(read, "read").tolist())),
             "POSIX and STDIO, all jobs"),
        Tile("Written", nbytes(sum(_get_moved_bytes(read, "written").tolist())),
             "POSIX and STDIO, all jobs"),
    )  # fmt: skip


def _get_moved_bytes(read: Fleet, what: str) -> NDArray[np.float64]:
    stored = read.numbers(f"storage_bytes_{what}")
    return np.where(np.isnan(stored), read.amounts(f"bytes_{what}"), stored)


def _list_problems(jobs: Fleet) -> list[tuple[str, str, str]]:
    unread = jobs.only(jobs.known("problem"))
    rows = jobs.rows(unread.index[:_MOST_PROBLEMS].tolist())
    shown = []
    for row in rows:
        # What is wrong, with the log that it is wrong with.
        problem = str(row["problem"])
        words = problem if row["first_log"] in problem else f"{row['first_log']}: {problem}"
        shown.append(("unreadable", elided(words, limit=400), "warning"))
    if len(unread) > len(shown):
        more = f"{plural(len(unread) - len(shown), 'more job')} with a problem: see the table."
        shown.append(("unreadable", more, "warning"))
    return shown


def _draw_io_share(read: Fleet) -> Figure:
    bins = [_Bin(f"{low} to {low + 5} %", low / 100, f"{low} %") for low in range(0, 100, 5)]
    caption = "How many jobs spent which share of their run time in I/O, mean over ranks."
    names = ("share", "Share of time in I/O", caption)
    return _draw_histogram(names, _select_known(read, "io_share"), bins, 4)


def _draw_sizes(read: Fleet) -> Figure:
    caption = (
        "The median size of a job's operations: in small ones, latency counts more than bandwidth."
    )
    names = ("sizes", "Median size of an operation", caption)
    return _draw_powers(names, _select_known(read, "size_median"))


def _select_known(read: Fleet, name: str) -> NDArray[np.float64]:
    return read.only(read.known(name)).numbers(name)


_Names = tuple[str, str, str]  # id, title, caption


@dataclass(frozen=True, slots=True)
class _Bin:
    """Values from `low` up to the next bin's; `border` is `low` in words."""

    label: str
    low: float
    border: str


def _draw_powers(names: _Names, values: NDArray[np.float64]) -> Figure:
    """A histogram over powers of four from the least value on, nothing moved apart."""
    moved = values[values >= 1]
    edges = (moved.min(), moved.max()) if len(moved) else (1, 1)
    first, last = ((int(edge).bit_length() - 1) // 2 for edge in edges)  # 4**n <= edge
    bins = [
        _Bin(f"{nbytes(4**n)} to {nbytes(4 ** (n + 1))}", float(4**n), nbytes(4**n))
        for n in range(first, last + 1)
    ]
    if len(moved) < len(values):
        bins.insert(0, _Bin("nothing", 0.0, "0 B"))
    return _draw_histogram(names, values, bins, -(-len(bins) // 6))


def _draw_histogram(
    names: _Names, values: NDArray[np.float64], bins: Sequence[_Bin], every: int
) -> Figure:
    """Jobs by bin; the axis names the border of every so many bins."""
    key, title, caption = names
    if not len(values):
        return Figure(key, "Distributions", title, "", empty_reason="No job has recorded it.")
    # What lies outside of all bins counts in the first or last.
    lows = np.array([b.low for b in bins])
    place = np.clip(np.searchsorted(lows, values, "right") - 1, 0, len(bins) - 1)
    numbers = np.bincount(place, minlength=len(bins)).tolist()
    rows = tuple(zip([b.label for b in bins], numbers, strict=True))
    table = Table((Column(title[0].lower() + title[1:]), Column("jobs", "count")), rows)
    most = bins[int(np.argmax(numbers))].label
    found = f"{count(max(numbers))} of {plural(len(values), 'job')}"
    alt_text = f"Most often {most}: {found}."
    # Borders stand between bars, half a bar to the left of the bin that they begin.
    borders = range(0, len(bins), every)
    spec = {
        "data": [
            {
                "type": "bar",
                "x": list(range(len(bins))),
                "y": numbers,
                "customdata": [
                    f"{each.label}: {plural(jobs, 'job')}"
                    for each, jobs in zip(bins, numbers, strict=True)
                ],
                "marker": palette.fill(palette.READ),
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        ],
        "layout": palette.layout(
            260,
            bargap=0.1,
            xaxis=palette.axis(
                tickvals=[i - 0.5 for i in borders],
                ticktext=[bins[i].border for i in borders],
                tickangle=0,
                range=[-0.6, len(bins) - 0.4],
                showgrid=False,
            ),
            yaxis=palette.counts("jobs", max(numbers)),
        ),
    }
    return Figure(key, "Distributions", title, caption, spec, table, alt_text=alt_text)


_MOST_SHOWN = 1000
_NEARLY_ALL = 0.9  # of the jobs: what so many have is said once, above the table

_Value = Callable[[Row], float | None]


def sum_io_over_ranks_s(row: Row) -> float | None:
    """Time in I/O, summed over the ranks; None where no operation was traced."""
    mean = row["io_per_rank_mean_s"]
    return None if mean is None else float(row["ranks"] * mean)


def order_by_io(jobs: Fleet) -> NDArray[np.intp]:
    """Places of the jobs that were read: most time in I/O first, untraced ones by bytes moved."""
    read = jobs.only(~jobs.known("problem"))
    time_s = read.numbers("ranks") * read.numbers("io_per_rank_mean_s")
    keys = {
        "untraced": np.isnan(time_s),
        "time_s": -np.where(np.isnan(time_s), 0.0, time_s),
        "moved": -(read.amounts("bytes_read") + read.amounts("bytes_written")),
        "first_log": read.column("first_log"),
    }
    places: NDArray[np.intp] = read.index[_sort_by(keys)]
    return places


def _sort_by(keys: Mapping[str, Any]) -> NDArray[np.intp]:
    """Places in ascending order of the first key, then of the next, as Arrow sorts texts."""
    if isinstance(keys["first_log"], PlainColumn):
        lines = list(zip(*(key.tolist() if isinstance(key, np.ndarray) else key.values
                           for key in keys.values()), strict=True))  # fmt: skip
        return np.array(sorted(range(len(lines)), key=lines.__getitem__), np.intp)
    import pyarrow
    from pyarrow import compute

    by = [(name, "ascending") for name in keys]
    order: NDArray[np.intp] = compute.sort_indices(pyarrow.table(keys), sort_keys=by).to_numpy()
    return order


def count_shared_codes(read: Fleet) -> dict[str, int]:
    """Codes of the warnings that nearly all of several jobs have, and how many have each."""
    which, values = encode_texts(read.column("warnings"))
    jobs: Counter[str] = Counter()
    for value, many in zip(values, np.bincount(which, minlength=len(values)).tolist(), strict=True):
        for code in set((value or "").split()):
            jobs[code] += many
    return {c: n for c, n in sorted(jobs.items()) if n >= _NEARLY_ALL * len(read) and n > 1}


def _make_getter(name: str) -> _Value:
    return lambda row: row[name]


_NUMBERS: tuple[tuple[str, str, _Value], ...] = (
    ("I/O, all ranks", "s", sum_io_over_ranks_s),
    ("I/O per rank", "s", _make_getter("io_per_rank_mean_s")),
    ("I/O share", "share", _make_getter("io_share")),
    ("run time", "s", _make_getter("run_time_s")),
    ("ranks", "count", _make_getter("ranks")),
    ("read", "bytes", _make_getter("bytes_read")),
    ("written", "bytes", _make_getter("bytes_written")),
    ("median size", "bytes", _make_getter("size_median")),
    ("traced", "share", _make_getter("traced_fraction")),
    ("findings", "count", _make_getter("findings")),
)
"""Title, quantity and value of the columns of numbers, the one first by which rows are sorted."""


def draw_jobs(jobs: Fleet, reports: Mapping[int, str]) -> Figure:
    """The jobs that were read; `reports` are addresses by place of the job."""
    order = order_by_io(jobs)
    if not len(order):
        reason = "No job could be read: see the column problem of the table."
        return Figure("worst", "Jobs", "Jobs by time in I/O", "", empty_reason=reason)
    shown = order[:_MOST_SHOWN].tolist()
    # A column of numbers in one unit each; warnings of nearly all jobs are left out.
    rows = jobs.rows(shown)
    numbers = [_build_column([value(row) for row in rows], *named) for *named, value in _NUMBERS]
    read = jobs.only(~jobs.known("problem"))
    common = count_shared_codes(read)
    lines = tuple(
        (
            make_job_cell(row, reports.get(place)),
            *(cells[at] for _, cells in numbers),
            *_describe_job(row, common),
        )
        for at, (place, row) in enumerate(zip(shown, rows, strict=True))
    )
    columns = (
        Column("job"),
        *(column for column, _ in numbers),
        *map(Column, ("start (UTC)", "warnings", "command", "first log")),
    )
    table = Table(columns, lines, n_of_m(len(shown), len(order), "jobs"), sorted_by=1)
    said = ["Sorted by I/O, all ranks (I/O per rank x ranks)."]
    if not read.known("io_per_rank_mean_s").all():
        said.append("Jobs without a trace of their operations come last, by bytes moved.")
    if len(reports) < len(read):
        said.append("vanidl survey --reports N writes and links the reports of the first N.")
    caption = " ".join(said)
    return Figure("worst", "Jobs", "Jobs by time in I/O", caption, None, table)


def _build_column(
    values: Sequence[float | None], title: str, unit: str
) -> tuple[Column, list[Cell]]:
    """The column in one unit, which its title names."""
    if unit == "count":
        return Column(title, "count"), list(values)
    name, cells = scaled(values, unit)
    return Column(f"{title} ({name})", "number"), list(cells)


def _describe_job(row: Row, common: Collection[str]) -> tuple[str | None, ...]:
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


def draw_benchmarks(read: Fleet) -> tuple[Figure, ...]:
    """A line for each result of a storage benchmark; nothing where there is none."""
    # By workload, the best first.
    rows = sorted(
        read.only(read.known("utilization_percent")).rows(),
        key=lambda row: (row["workload"] or "", -row["utilization_percent"], row["first_log"]),
    )
    if not rows:
        return ()
    columns = (
        Column("result"), Column("workload"), Column("accelerators", "count"),
        Column("utilization, %"), Column("samples/s", "number"), Column("read, MiB/s", "number"),
        Column("largest wait"), Column("its share, %"), Column("rules not kept"),
    )  # fmt: skip
    lines = tuple(
        (
            elided(row["first_log"].rpartition("/")[0] or row["first_log"], limit=60),
            elided(row["workload"] or "", limit=40),
            row["ranks"] if row["accelerators"] is None else row["accelerators"],
            row["utilization_percent"],
            row["samples_per_s"],
            None if row["io_bytes_per_s"] is None else row["io_bytes_per_s"] / (1 << 20),
            row["largest_wait"],
            row["largest_wait_percent"],
            row["rules_not_kept"] or "",
        )
        for row in rows[:_MOST_SHOWN]
    )
    table = Table(columns, lines, n_of_m(len(lines), len(rows), "results"))
    caption = (
        "Accelerator utilization by the benchmark's own formula, and what most of the rest of the "
        "time was: vanidl report of a result has every rank and epoch."
    )
    return (Figure("benchmarks", "Jobs", "Storage benchmarks", caption, table=table),)
