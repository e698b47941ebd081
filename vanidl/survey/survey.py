"""`survey`: every job below a folder -> rows in a Parquet file, and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.errors import InputError, UsageError
from vanidl.files.arrow import require_arrow
from vanidl.formatting.names import printable
from vanidl.parallel.executors import ExecutorOptions, open_executor, run_batches
from vanidl.parallel.limits import Limits
from vanidl.readers import darshan, discover, dlio
from vanidl.readers.format import Progress
from vanidl.survey import table
from vanidl.survey.anonymous import anonymous_rows
from vanidl.survey.cache import FOLDER, RowCache
from vanidl.survey.jobs import Job, batches, jobs_of, results_of, states_of
from vanidl.survey.known_logs import Identity, KnownLogs
from vanidl.survey.listing import worst_first
from vanidl.survey.page import write_survey_page
from vanidl.survey.reports import place_of, report_texts, write_report
from vanidl.survey.rows import Row, identities, missing, rows

LOGS_A_BATCH = 32
MOST_LEVELS = 10
"""Repositories of results have them eight levels below."""
LIMITS = Limits(seconds=600, nbytes=8 << 30)
"""What each job may take: a log of a hundred million operations takes half of it."""

_KILLED = (
    "the process that read it ended twice before it was done, by a crash or in one call that took "
    "longer than its time; look at its logs with vanidl check"
)


@dataclass(frozen=True, slots=True)
class Survey:
    """Rows by start; `kept` of them were done before."""

    rows: tuple[Row, ...]
    kept: int
    parquet: Path
    page: Path
    reports: tuple[Path, ...] = ()  # of the jobs with most time in I/O, that one first


def survey(  # noqa: PLR0913 - all but two by keyword
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
    as `reports`, get a report of their own, to which the page leads.

    Raises:
        InputError: there is neither.
        UsageError: pyarrow or, where it is asked for, Dask is not installed; `output` has names.
        VanidlError: the output cannot be written.
    """
    require_arrow("a survey needs")
    tell = progress or _silent
    root, target = Path(folder), Path(output)
    results, paths = _found_below(root)
    if names is not None:
        _refuse_names(target)
    with open_executor(executor_options or ExecutorOptions()) as executor:
        work = _Work(limits, names, executor, tell)
        pairs, before = _pairs(root, target, results, paths, work)
        done, place = [row for row, _ in pairs], str(root)
        if names is not None:
            done, place = anonymous_rows(done, root, names), names.folder(place)
        worst = [(i, pairs[i][1]) for i in worst_first(done)[:reports]]
        links = _write_reports(worst, done, target, work)
    files = _written(done, place, target, links)
    return Survey(tuple(done), before, *files, tuple(target / link for link in links.values()))


@dataclass(frozen=True, slots=True)
class _Work:
    """How jobs are read: within which limits, under which names, where, and who is told."""

    limits: Limits
    names: Pseudonyms | None
    executor: Executor
    tell: Progress


def _pairs(
    root: Path, target: Path, results: Sequence[Job], paths: Sequence[str], work: _Work
) -> tuple[list[tuple[Row, Job]], int]:
    """Every job with its row, by start, and how many of them were done before."""
    cache = RowCache(target, kept=work.names is None)
    known = KnownLogs(target / FOLDER, kept=work.names is None)
    read = partial(_identities, executor=work.executor, tell=work.tell)
    states = states_of(paths)
    jobs, unread = jobs_of(str(root), known.identities(states, read), states)
    jobs += results
    before = sum(job.key in cache.rows for job in jobs)
    _read_jobs([job for job in jobs if job.key not in cache.rows], cache, work)
    pairs = [(cache.rows[job.key], job) for job in jobs]
    pairs += [(missing(job, why), job) for job, why in unread]
    pairs.sort(key=lambda pair: (pair[0]["start"] or "", pair[0]["first_log"]))
    return pairs, before


_Indexed = tuple[int, Job]  # index of its row, and the job


def _write_reports(
    worst: Sequence[_Indexed], rows: Sequence[Row], target: Path, work: _Work
) -> dict[int, str]:
    """Where the reports went that could be made, relative to the page, by the index of the row."""
    places = {i: place_of(rank, rows[i]) for rank, (i, _) in enumerate(worst, 1)}
    made = set()
    texts_of = partial(report_texts, limits=work.limits, names=work.names)
    one_each = [[one] for one in worst]
    for some, texts in run_batches(texts_of, one_each, work.executor, lambda _: ""):
        for (i, _), text in zip(some, texts, strict=True):
            if text:
                write_report(text, target / places[i])
                made.add(i)
    work.tell("reports", len(made), len(worst))
    return {i: place for i, place in places.items() if i in made}


def _written(
    rows: Sequence[Row], place: str, target: Path, links: Mapping[int, str]
) -> tuple[Path, Path]:
    """The table and the page of the rows."""
    parquet, page = target / "jobs.parquet", target / "fleet.html"
    table.write(rows, parquet)
    write_survey_page(rows, place, page, links)
    return parquet, page


def _found_below(root: Path) -> tuple[list[Job], list[str]]:
    """Results of benchmarks, each a job, and the logs that lie beside none."""
    found = discover.find(root, max_depth=MOST_LEVELS)
    logs, results = (
        [str(path) for files in found.of(known).values() for path in files]
        for known in (darshan.FORMAT, dlio.FORMAT)
    )
    if not logs and not results:
        raise InputError(
            f"{root}: expected Darshan logs of jobs or results of DLIO, found none; name their "
            "folder."
        )
    return results_of(str(root), results, logs)


def _refuse_names(target: Path) -> None:
    if (target / FOLDER).exists():
        raise UsageError(
            f"-o {printable(str(target))}: expected a folder for a survey with --anonymize, found "
            "one with rows that hold names; choose another."
        )


def _identities(paths: Sequence[str], executor: Executor, tell: Progress) -> list[Identity]:
    found: list[Identity] = []
    size = 4 * LOGS_A_BATCH
    groups = [list(paths[i : i + size]) for i in range(0, len(paths), size)]
    for _, results in run_batches(identities, groups, executor, lambda path: (path, None, _KILLED)):
        found += results
        tell("Darshan logs", len(found), len(paths))
    return found


def _read_jobs(jobs: Sequence[Job], cache: RowCache, work: _Work) -> None:
    done = 0
    within = partial(rows, limits=work.limits)
    parts = list(batches(jobs, LOGS_A_BATCH))
    lost = partial(missing, problem=_KILLED)
    for some, results in run_batches(within, parts, work.executor, lost):
        cache.add({job.key: row for job, row in zip(some, results, strict=True)})
        done += len(some)
        work.tell("jobs", done, len(jobs))


def _silent(what: str, done: int, total: int) -> None:
    """The library is silent unless asked."""
