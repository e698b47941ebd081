"""`survey`: every job below a folder -> rows in a Parquet file, and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from vanidl.survey.fleet import Fleet
from vanidl.survey.jobs import Job, batches, results_of, states_of
from vanidl.survey.known_logs import Identity, KnownLogs
from vanidl.survey.listing import worst_first
from vanidl.survey.page import write_survey_page
from vanidl.survey.reports import place_of, report_texts, write_report
from vanidl.survey.rows import Row, identities, missing, rows

LOGS_A_BATCH = 32
MOST_LEVELS = 10
"""Repositories of results have them eight levels below."""
LIMITS = Limits()
"""What each job may take: a log of a hundred million operations takes half of it."""

_KILLED = (
    "the process that read it ended twice before it was done, by a crash or in one call that took "
    "longer than its time; look at its logs with vanidl check"
)


@dataclass(frozen=True, slots=True)
class Survey:
    """All jobs by start, a pyarrow.Table with a row for each; `kept` of them were done before."""

    table: Any
    kept: int
    parquet: Path
    page: Path
    reports: tuple[Path, ...] = ()  # of the jobs with most time in I/O, that one first

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the table as plain values."""
        return tuple(self.table.to_pylist())

    @property
    def unread(self) -> int:
        """How many jobs could not be read."""
        return len(self.table) - int(self.table.column("problem").null_count)


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
    as `reports`, get a report of their own, to which the page leads.

    Raises:
        InputError: there is neither.
        UsageError: pyarrow or, where it is asked for, Dask is not installed; `output` has names.
        VanidlError: the output cannot be written.
    """
    require_arrow("a survey needs")
    tell = progress or _silent
    root, target = Path(folder), Path(output)
    base = root if root.is_dir() else root.parent
    results, paths = _found_below(root, base)
    if names is not None:
        _refuse_names(target)
    with open_executor(executor_options or ExecutorOptions()) as executor:
        work = _Work(limits, names, executor, tell)
        read = _read(base, target, results, paths, work)
        done, place = _shown(read.table, root, base, names)
        fleet = Fleet(done)
        first = worst_first(fleet)[:reports].tolist()
        worst = list(zip(first, read.jobs(first), strict=True))
        links = _write_reports(worst, fleet, target, work)
    files = _written(done, place, target, links)
    return Survey(done, read.kept, *files, tuple(target / link for link in links.values()))


@dataclass(frozen=True, slots=True)
class _Work:
    """How jobs are read: within which limits, under which names, where, and who is told."""

    limits: Limits
    names: Pseudonyms | None
    executor: Executor
    tell: Progress


@dataclass(frozen=True, slots=True)
class _Read:
    """The table of all jobs by start, and the key of each; `kept` of them were done before.

    `others` are the jobs by key that `known` has not.
    """

    table: Any
    keys: Sequence[str]
    kept: int
    known: KnownLogs
    others: dict[str, Job]

    def jobs(self, places: Sequence[int]) -> list[Job]:
        """Jobs by their places in the table."""
        keys = [self.keys[place] for place in places]
        known = [key for key in keys if key not in self.others]
        found = self.others | dict(zip(known, self.known.jobs(known), strict=True))
        return [found[key] for key in keys]


def _read(
    root: Path, target: Path, results: Sequence[Job], paths: Sequence[str], work: _Work
) -> _Read:
    cache = RowCache(target, kept=work.names is None)
    known = KnownLogs(target / FOLDER, str(root), states_of(paths), kept=work.names is None)
    found = known.grouped(partial(_identities, executor=work.executor, tell=work.tell))
    settled = [key for key in found.settled if key in cache]
    lost = [key for key in found.settled if key not in cache]
    jobs = [*known.jobs(lost), *found.jobs, *results]
    new = [job for job in jobs if job.key not in cache]
    _read_jobs(new, cache, work)
    cache.settle()
    others = {job.key: job for job in (*jobs, *(job for job, _ in found.unread))}
    done = cache.table(
        [*settled, *(job.key for job in jobs)], (missing(job, why) for job, why in found.unread)
    )
    order = _by_start(done)
    keys = [*settled, *others]
    kept = len(settled) + len(jobs) - len(new)
    return _Read(done.take(order), [keys[i] for i in order.tolist()], kept, known, others)


def _by_start(done: Any) -> NDArray[np.int64]:  # noqa: ANN401 - pyarrow has no types
    """Places of the jobs in their order, those of an unknown start first."""
    import pyarrow
    from pyarrow import compute

    start = compute.fill_null(done.column("start"), "")
    keys = pyarrow.table({"start": start, "first_log": done.column("first_log")})
    by = [(name, "ascending") for name in keys.column_names]
    order: NDArray[np.int64] = compute.sort_indices(keys, sort_keys=by).to_numpy().astype(np.int64)
    return order


_Indexed = tuple[int, Job]  # index of its row, and the job


def _write_reports(
    worst: Sequence[_Indexed], fleet: Fleet, target: Path, work: _Work
) -> dict[int, str]:
    """Where the reports went that could be made, relative to the page, by the index of the row."""
    rows = fleet.rows([i for i, _ in worst])
    places = {
        i: place_of(rank, row)
        for rank, ((i, _), row) in enumerate(zip(worst, rows, strict=True), 1)
    }
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


def _shown(done: Any, root: Path, base: Path, names: Pseudonyms | None) -> tuple[Any, str]:  # noqa: ANN401
    """The table and the folder as the outputs have them: with names under pseudonyms."""
    if names is None:
        return done, str(root)
    public = table.table_of(anonymous_rows(done.to_pylist(), base, names))
    return public, names.folder(str(root))


def _written(done: Any, place: str, target: Path, links: Mapping[int, str]) -> tuple[Path, Path]:  # noqa: ANN401
    """The table and the page of the jobs."""
    parquet, page = target / "jobs.parquet", target / "fleet.html"
    table.write(done, parquet)
    write_survey_page(Fleet(done), place, page, links)
    return parquet, page


def _found_below(root: Path, base: Path) -> tuple[list[Job], list[str]]:
    """Results of benchmarks, each a job, and the logs that lie beside none; names begin at base."""
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
    return results_of(str(base), results, logs)


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
