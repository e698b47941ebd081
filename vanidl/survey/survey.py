"""`survey`: every job below a folder -> rows in a Parquet file or CSV, and a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.results import analyse
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.anonymize.trace import anonymous
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError, UsageError, VanidlError
from vanidl.files.arrow import has_arrow, release_memory, require_arrow
from vanidl.formatting.names import printable
from vanidl.merge.pipeline import Inputs, build_trace
from vanidl.parallel.executors import ExecutorOptions, open_executor, run_batches
from vanidl.parallel.limits import Limits, TimeLimit, limited
from vanidl.readers import darshan, discover, dlio
from vanidl.readers.format import Progress
from vanidl.readers.records import TracerLog
from vanidl.report.html import render_html
from vanidl.report.page import write_page
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.survey import plain
from vanidl.survey.fleet import Fleet
from vanidl.survey.logs import (
    KnownLogs,
    Listing,
    build_unread_job,
    gather_results,
    split_into_batches,
)
from vanidl.survey.page import order_by_io, write_survey_page
from vanidl.survey.rows import (
    Job,
    Row,
    anonymize_rows,
    build_unread_row,
    gather_job_files,
    identify_logs,
    read_rows,
)
from vanidl.survey.store import (
    FOLDER,
    Ordered,
    RowCache,
    Rows,
    StoredTable,
    build_unread_schema,
    clean_value,
    make_folder,
    write_jobs,
)

LOGS_A_BATCH = 32  # for one call of a worker: calls cost little beside so many
MOST_LEVELS = 10
"""Repositories of results have them eight levels below."""
LIMITS = Limits()
"""What each job may take: a log of a hundred million operations takes half of it."""
REPORTS = "reports"

_KILLED = (
    "the process that read it ended twice before it was done, by a crash or in one call that took "
    "longer than its time; look at its logs with vanidl check"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9+-]+")
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Survey:
    """How many jobs there are, and where they are told; `kept` of them were done before.

    Of `unread` jobs there is no more than what they could not be read for. `file` is jobs.parquet,
    or jobs.csv where pyarrow is not installed.
    """

    jobs: int
    unread: int
    kept: int
    file: Path
    page: Path
    reports: tuple[Path, ...] = ()  # of the jobs with most time in I/O, that one first

    @property
    def table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """All jobs by start, those of an unknown one first: a pyarrow.Table, read again.

        Raises:
            UsageError: pyarrow is not installed, or the jobs are in a CSV file.
        """
        require_arrow("the table of a survey needs")
        from pyarrow import parquet

        if self.file.name == plain.FILE:
            raise UsageError(f"{self.file}: expected Parquet, found CSV; survey the folder again.")
        return parquet.read_table(self.file)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the table as plain values."""
        return tuple(self.table.to_pylist())


def survey(
    folder: str | PathLike[str],
    output: str | PathLike[str],
    *,
    executor_options: ExecutorOptions | None = None,
    progress: Progress | None = None,
    limits: Limits = LIMITS,
    names: Pseudonyms | None = None,
    reports: int = 0,
) -> Survey:
    """Reads Darshan logs and results of DLIO below a folder; one row per job, and a page.

    What is done stays in `output`: another call with the same one does only what is new. A job
    that takes more than its limits has a row that says so. With `names` users, commands and paths
    are replaced, and nothing that has names stays there. The jobs with most time in I/O, as many
    as `reports`, get a report of their own, to which the page leads. Where pyarrow is not installed
    the table is CSV, and nothing stays but table and page: every call reads all.

    Raises:
        InputError: there is neither.
        UsageError: Dask is asked for and not installed; `output` has names.
        VanidlError: the output cannot be written.
    """
    arrow = has_arrow("a survey needs")
    root, target = Path(folder), Path(output)
    base = root if root.is_dir() else root.parent
    results, listing = _list_below(root, base)
    if names is not None and (target / FOLDER).exists():
        raise UsageError(
            f"-o {printable(str(target))}: expected a folder for a survey with --anonymize, found "
            "one with rows that hold names; choose another."
        )
    with open_executor(executor_options or ExecutorOptions()) as executor:
        work = _Work(limits, names, executor, progress or _ignore_progress)
        shown = None if names is None else partial(anonymize_rows, root=base, names=names)
        jobs_at: Callable[[Sequence[int]], list[Job]] | None
        if arrow:
            ordered, read = _read(base, target, results, listing, work)
            kept, jobs_at = read.kept, read.jobs if reports > 0 else None
            del listing, read  # the names of a million logs, which only reports need again
            # The table first: the page is made of its columns, one at a time.
            file = target / "jobs.parquet"
            write_jobs(ordered.tables(), file, shown)
            del ordered
            release_memory()
            fleet = Fleet(StoredTable(file))
        else:
            jobs, rows = _read_plainly(base, results, listing, work)
            rows = rows if shown is None else list(shown(rows))
            kept, jobs_at = 0, lambda places: [jobs[place] for place in places]
            file = target / plain.FILE
            make_folder(target, target)
            plain.write_csv(rows, file)
            fleet = Fleet(plain.PlainTable(rows))
        links, page = {}, target / "fleet.html"
        if jobs_at is not None and reports > 0:
            worst = order_by_io(fleet)[:reports].tolist()
            links = _write_reports(worst, jobs_at(worst), fleet, target, work)
    place = str(root) if names is None else names.folder(str(root))
    write_survey_page(fleet, place, page, links)
    unread = int(fleet.known("problem").sum())
    written = tuple(target / link for link in links.values())
    return Survey(len(fleet), unread, kept, file, page, written)


@dataclass(frozen=True, slots=True)
class _Work:
    """How jobs are read: within which limits, under which names, where, and who is told."""

    limits: Limits
    names: Pseudonyms | None
    executor: Executor
    tell: Progress


@dataclass(frozen=True, slots=True)
class _Read:
    """Keys of the jobs that were read, and all in their order; `kept` were done before."""

    order: NDArray[np.int64]
    keys: Sequence[str]
    kept: int
    known: KnownLogs
    results: dict[str, Job]

    def jobs(self, places: Sequence[int]) -> list[Job]:
        """Jobs that were read, by their places in the table."""
        keys = [self.keys[place] for place in self.order[places].tolist()]
        others = {key for key in keys if key not in self.results}
        found = self.results | {job.key: job for job in self.known.jobs(others)}
        return [found[key] for key in keys]


def _list_below(root: Path, base: Path) -> tuple[list[Job], Listing]:
    """Results of benchmarks, each a job, and the logs that lie beside none; names begin at base."""
    found = discover.find_paths(root, max_depth=MOST_LEVELS)
    logs, results = (
        [path for kind in known.kinds for path in found.get(kind.name, ())]
        for known in (darshan.FORMAT, dlio.FORMAT)
    )
    if not logs and not results:
        raise InputError(
            f"{root}: expected Darshan logs of jobs or results of DLIO, found none; name their "
            "folder."
        )
    jobs, rest = gather_results(str(base), results, logs)
    return jobs, Listing.of(rest)


def _read(
    root: Path, target: Path, results: Sequence[Job], listing: Listing, work: _Work
) -> tuple[Ordered, _Read]:
    cache = RowCache(target, kept=work.names is None)
    known = KnownLogs(target / FOLDER, str(root), listing, kept=work.names is None)

    # Which logs are one job; of what cannot be opened there is no more than why.
    unread = Rows(build_unread_schema())

    def add_unread(path: str, why: str) -> None:
        unread.add(build_unread_row(build_unread_job(path, str(root), listing), why))

    found = known.grouped(partial(_identify, work=work, add_unread=add_unread))

    # What of them is not done yet.
    keys = [*found.settled, *found.new, *(job.key for job in results)]
    new = {key for key in keys if key not in cache}
    jobs = (*known.jobs(new), *(job for job in results if job.key in new))
    for some, read in _iterate_rows(jobs, len(new), work):
        cache.add({job.key: row for job, row in zip(some, read, strict=True)})
    cache.settle()
    ordered = cache.by_start(keys, unread)
    by_key = {job.key: job for job in results}
    return ordered, _Read(ordered.order, keys, len(keys) - len(new), known, by_key)


def _read_plainly(
    root: Path, results: Sequence[Job], listing: Listing, work: _Work
) -> tuple[list[Job], list[Row]]:
    """All jobs by start with their rows, nothing of which is kept."""
    unread: list[tuple[Job, Row]] = []

    def add_unread(path: str, why: str) -> None:
        job = build_unread_job(path, str(root), listing)
        unread.append((job, build_unread_row(job, why)))

    # Heads of all logs first: which logs are one job is known before any is read whole.
    logs = list(_identify(listing.paths, work, add_unread))
    jobs = [*plain.group_logs(logs, str(root), listing), *results]
    read = [
        (job, row)
        for some, rows in _iterate_rows(jobs, len(jobs), work)
        for job, row in zip(some, rows, strict=True)
    ]
    both = plain.order_by_start([*read, *unread])
    return [job for job, _ in both], [clean_value(row) for _, row in both]


def _identify(
    paths: Sequence[str], work: _Work, add_unread: Callable[[str, str], None]
) -> Iterator[TracerLog]:
    """Who wrote the logs; one that does not say goes to `add_unread`, with the reason."""
    size, done = 4 * LOGS_A_BATCH, 0
    groups = (list(paths[i : i + size]) for i in range(0, len(paths), size))
    for _, found in run_batches(identify_logs, groups, work.executor, _report_killed):
        for path, log, why in found:
            if log is None:
                add_unread(path, why)
            else:
                yield log
        done += len(found)
        work.tell("Darshan logs", done, len(paths))


def _iterate_rows(
    jobs: Iterable[Job], many: int, work: _Work
) -> Iterator[tuple[list[Job], list[Row]]]:
    """Jobs with their rows, some at a time and in any order."""
    done = 0
    within = partial(read_rows, limits=work.limits)
    lost_row = partial(build_unread_row, problem=_KILLED)
    parts = split_into_batches(jobs, LOGS_A_BATCH)
    for some, read in run_batches(within, parts, work.executor, lost_row):
        yield some, read
        done += len(some)
        work.tell("jobs", done, many)


def _report_killed(path: str) -> tuple[str, None, str]:
    return path, None, _KILLED


def _write_reports(
    places: Sequence[int], jobs: Sequence[Job], fleet: Fleet, target: Path, work: _Work
) -> dict[int, str]:
    """Where the reports of jobs went that could be made, relative to the page, by their places."""
    links = {
        place: place_of(rank, row)
        for rank, (place, row) in enumerate(zip(places, fleet.rows(places), strict=True), 1)
    }
    made = set()
    texts_of = partial(report_texts, limits=work.limits, names=work.names)
    one_each = [[one] for one in zip(places, jobs, strict=True)]
    for some, texts in run_batches(texts_of, one_each, work.executor, lambda _: ""):
        for (place, _), text in zip(some, texts, strict=True):
            if text:
                path = target / links[place]
                with suppress(OSError):  # writing says why it is not possible
                    path.parent.mkdir(exist_ok=True)
                write_page(text, path)
                made.add(place)
    work.tell("reports", len(made), len(places))
    return {place: link for place, link in links.items() if place in made}


def place_of(rank: int, row: Row) -> str:
    """Where the report of a job goes, relative to the page: `reports/001-446325.html`."""
    name = _UNSAFE.sub("-", row["job"] or "job")[:_LONGEST_NAME].strip("-")
    return f"{REPORTS}/{rank:03}-{name or 'job'}.html"


def report_texts(
    jobs: Sequence[tuple[int, Job]], limits: Limits, names: Pseudonyms | None
) -> list[str]:
    """The pages of jobs, "" of one that cannot be read within its limits."""
    return [_render_report(job, limits, names) for _, job in jobs]


def _render_report(job: Job, limits: Limits, names: Pseudonyms | None) -> str:
    def rendered(_: str) -> str:
        trace = build_trace(gather_job_files(job), Inputs())
        trace = trace if names is None else anonymous(trace, names)
        name = "" if names is not None else Path(job.paths[0]).name
        return render_html(Run(trace, analyse(trace), name=name))

    try:
        with limited(limits):
            return read_one(rendered, job.first)
    except (TimeLimit, VanidlError):
        return ""


def _ignore_progress(what: str, done: int, total: int) -> None:
    """The library is silent unless asked."""
