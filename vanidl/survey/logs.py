"""Which logs are one job, by the rules of `vanidl.merge.jobs`, for hundreds of thousands of them.

What did not change since an earlier survey is not opened again, and jobs that no new log can
belong to are not put together again. Of what is known of a log, only few at a time are objects.

Logs that Darshan wrote are linked only where they are of one user, and of one job id (without an
id: of one folder) or of lifetimes that meet. What a log is linked to, directly or by others, can
change only with one of those, and logs that are not so related never meet in one job.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.files.arrow import release_memory
from vanidl.files.checked_json import checked_fields
from vanidl.merge.jobs import Links, group_runs, run_of
from vanidl.readers.records import TracerLog
from vanidl.schema.dataclass import dataclass
from vanidl.survey.rows import Job
from vanidl.survey.store import MOST_ROWS, read_table, write_table

FILE = "logs.known"
_VERSION = 3
"""Raised when `TracerLog` says more of who wrote a log, or the rules of which logs are one job."""
_HEAD = b"vanidl logs %d\n" % _VERSION
_UNREAD: dict[str, Any] = {
    "metadata": {}, "mounts": (), "names": {}, "modules": (), "operations": (),
    "partial_layers": (), "losses": (),
}  # fmt: skip
"""What an identity leaves out of a log (`read_identity`)."""
_LATEST_NS = 2**63 - 1
_LOGS_AT_ONCE = 256  # that are put together; each is compared with every other one


@dataclass(frozen=True)
class Listing:
    """Files as they are seen from outside, by path: size and time of change, -1 of one that went.

    Attributes:
        paths: sorted.
        nbytes: shape (paths,).
        changed_ns: shape (paths,).
    """

    paths: Sequence[str]
    nbytes: NDArray[np.int64]
    changed_ns: NDArray[np.int64]

    @classmethod
    def of(cls, paths: Iterable[str]) -> Listing:
        """Looks at each file."""
        names = sorted(paths)
        seen = np.full((2, len(names)), -1, np.int64)
        for i, path in enumerate(names):
            try:
                found = os.stat(path)  # noqa: PTH116 - a Path of each of many logs takes longer
            except OSError:  # gone since it was listed: reading will say so
                continue
            seen[:, i] = found.st_size, _clip_to_int64(found.st_mtime_ns)
        return cls(names, *seen)

    def state(self, path: str) -> bytes:
        """Name, size and time of change of a file that is listed."""
        return self._state(bisect_left(self.paths, path))

    def states(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """The same of all files: a pyarrow.Array."""
        import pyarrow

        return pyarrow.array(map(self._state, range(len(self.paths))), "binary")

    def key(self, paths: Iterable[str]) -> str:
        """What changes when one of the files does: what was done need not be done again."""
        return hashlib.sha256(b"\n".join(map(self.state, paths))).hexdigest()

    def _state(self, i: int) -> bytes:
        path = os.fsencode(self.paths[i])
        if self.nbytes[i] < 0:
            return path
        return b"%s\0%d\0%d" % (path, self.nbytes[i], self.changed_ns[i])


@dataclass(frozen=True, slots=True)
class Grouped:
    """Keys of the jobs among some logs: of those that are as they were, and of all others."""

    settled: list[str]
    new: list[str]


class KnownLogs:
    """The logs in the folder of what is done; `kept`: whether names may stay there.

    Of each log they hold its name, size and time of change, what tells with which logs it can be
    of one job, who wrote it, and the key of its job.

    Args:
        root: the folder that is surveyed.
        listing: its logs as they are now.
    """

    def __init__(self, folder: Path, root: str, listing: Listing, *, kept: bool) -> None:
        self._file, self._root, self._listing, self._kept = folder / FILE, root, listing, kept
        self._table = (
            read_table(self._file, _HEAD, _build_schema())
            if kept
            else _build_schema().empty_table()
        )

    def grouped(self, read: Callable[[Sequence[str]], Iterable[TracerLog]]) -> Grouped:
        """All jobs; `read` is asked for logs that are new or changed: of some nothing is known.

        Raises:
            VanidlError: they cannot be written.
        """
        import pyarrow
        from pyarrow import compute

        # What is known already, and what must be opened.
        states = self._listing.states()
        stored = self._table.column("state")
        is_there = compute.is_in(stored, states).to_numpy()
        is_new = ~compute.is_in(states, stored.combine_chunks()).to_numpy(zero_copy_only=False)
        del states
        release_memory()
        opened = iter(read([self._listing.paths[i] for i in np.flatnonzero(is_new).tolist()]))
        tables = [self._table]
        while some := list(islice(opened, MOST_ROWS)):
            tables.append(_build_log_table(some, self._listing))
        lines = pyarrow.concat_tables(tables).combine_chunks()

        # Which can belong together, and which of those met something new or lost something.
        run, user = (_encode_texts(lines.column(name)) for name in ("run", "user"))
        lifetimes_ns = np.stack([lines.column(name).to_numpy() for name in ("begin_ns", "end_ns")])
        related = link_logs(run, user, lifetimes_ns)
        many = len(lines) - len(is_there)
        is_changed = np.concatenate([~is_there, np.ones(many, bool)])
        is_touched = np.isin(related, related[is_changed])
        is_again = is_touched & np.concatenate([is_there, np.ones(many, bool)])
        again, related = lines.filter(is_again), related[is_again]
        kept = lines.filter(~is_touched)
        settled = kept.column("job").unique().to_pylist()

        # The jobs of what did, by path, so that folders are read in turn.
        paths = again.column("state")
        order = compute.sort_indices(paths).to_numpy().astype(np.int64)
        again, related = again.take(order), related[order]
        again = again.set_column(
            again.schema.get_field_index("job"),
            _build_schema().field("job"),
            self._jobs_of(again, related),
        )
        self._table = pyarrow.concat_tables([kept, again]).combine_chunks()
        if self._kept and is_touched.any():
            write_table(self._table, self._file, _HEAD, "what is known of the logs")
        return Grouped(settled, again.column("job").unique().to_pylist())

    def _jobs_of(self, lines: Any, related: NDArray[np.intp]) -> Any:  # noqa: ANN401
        """The key of the job of each log; `related` has one number for those that may be linked."""
        import pyarrow

        order = np.argsort(related, kind="stable")
        last = np.append(np.flatnonzero(np.diff(related[order])), len(order) - 1) + 1
        keys = np.empty(len(order), object)
        first = 0
        while first < len(order):
            # All that are related, and others as long as they are few.
            behind = int(last[max(np.searchsorted(last, first + _LOGS_AT_ONCE, "right") - 1,
                                  np.searchsorted(last, first, "right"))])  # fmt: skip
            logs = self._logs(lines.take(order[first:behind]))
            places = {log.path: place for log, place in zip(logs, order[first:behind], strict=True)}
            for found in group_runs(sorted(logs, key=lambda log: log.path), ()):
                keys[[places[log.path] for log in found.logs]] = self._job(found.logs).key
            first = behind
        return pyarrow.array(keys, "string")

    def jobs(self, keys: Collection[str]) -> Iterator[Job]:
        """Jobs by their keys, in the order of their first logs."""
        import pyarrow
        from pyarrow import compute

        wanted = pyarrow.array(keys, "string")
        lines = self._table.filter(compute.is_in(self._table.column("job"), wanted))
        # Lines of one job together, a batch of lines at a time: only few logs are objects at once.
        codes = _encode_texts(lines.column("job"))
        order = np.argsort(codes, kind="stable")
        held: list[TracerLog] = []
        code = -1
        for first in range(0, len(order), _LOGS_AT_ONCE):
            some = order[first : first + _LOGS_AT_ONCE]
            for log, own in zip(self._logs(lines.take(some)), codes[some].tolist(), strict=True):
                if held and own != code:
                    yield self._job(held)
                    held = []
                held.append(log)
                code = own
        if held:
            yield self._job(held)

    def _job(self, logs: Sequence[TracerLog]) -> Job:
        return build_job(logs, self._root, self._listing)

    def _logs(self, lines: Any) -> list[TracerLog]:  # noqa: ANN401 - pyarrow has no types
        """Raises InputError where a line says something else than who wrote a log."""
        found = []
        for state, fields in zip(
            *(lines.column(n).to_pylist() for n in ("state", "fields")), strict=True
        ):
            path = os.fsdecode(state.partition(b"\0")[0])
            try:
                plain = checked_fields(TracerLog, json.loads(fields) | {"path": path})
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(
                    f"{self._file}: expected what a survey left, found something else; remove it"
                ) from error
            found.append(TracerLog(**plain | _UNREAD))
        return found


def build_job(logs: Sequence[TracerLog], root: str, listing: Listing) -> Job:
    """The job of some logs."""
    ids = "+".join(sorted({log.job_id for log in logs}))
    paths = tuple(sorted(log.path for log in logs))
    return Job(ids, paths, root, listing.key(paths), logs[0].user_id)


def build_unread_job(path: str, root: str, listing: Listing) -> Job:
    """A log that says nothing, as a job."""
    return Job(None, (path,), root, listing.key([path]))


def _build_schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow

    kinds = {"state": "binary", "user": "binary", "run": "binary", "begin_ns": "int64",
             "end_ns": "int64", "fields": "string", "job": "string"}  # fmt: skip
    return pyarrow.schema(
        [
            pyarrow.field(name, getattr(pyarrow, kind)(), nullable=False)
            for name, kind in kinds.items()
        ]
    )


def _build_log_table(logs: Sequence[TracerLog], listing: Listing) -> Any:  # noqa: ANN401
    """What is kept of logs, a line each, of no job yet."""
    import pyarrow

    columns: dict[str, Iterable[object]] = {
        "state": (listing.state(log.path) for log in logs),
        "user": (b"%d" % log.user_id for log in logs),
        "run": (os.fsencode(f"{log.user_id}\0{run_of(log)}") for log in logs),
        "begin_ns": (clip_lifetime(log)[0] for log in logs),
        "end_ns": (clip_lifetime(log)[1] for log in logs),
        "fields": map(_serialize_fields, logs),
        "job": ("" for _ in logs),
    }
    schema = _build_schema()
    # One column after the other: lines as objects take more than the table itself.
    return pyarrow.table([pyarrow.array(columns[f.name], f.type) for f in schema], schema=schema)


def _serialize_fields(log: TracerLog) -> str:
    fields = checked_fields(TracerLog, {name: getattr(log, name) for name in log.__slots__})
    return json.dumps({name: value for name, value in fields.items() if name != "path"})


def clip_lifetime(log: TracerLog) -> tuple[int, int]:
    """When its process began and ended, as 64 bits hold it."""
    return (
        _clip_to_int64(min(log.start_ns, log.end_ns)),
        _clip_to_int64(max(log.start_ns, log.end_ns)),
    )


def _clip_to_int64(time_ns: int) -> int:
    """The time, or the nearest that 64 bits hold: logs may say anything."""
    return max(min(time_ns, _LATEST_NS), -_LATEST_NS)


def _encode_texts(texts: Any) -> NDArray[np.intp]:  # noqa: ANN401 - pyarrow has no types
    indices = texts.combine_chunks().dictionary_encode().indices
    return np.asarray(indices.to_numpy(), np.intp)


def link_logs(
    run: NDArray[np.intp], user: NDArray[np.intp], lifetimes_ns: NDArray[np.int64]
) -> NDArray[np.intp]:
    """The same number for logs that can be linked, directly or by others.

    Args:
        run: number of the user and job id of each log.
        user: number of its user.
        lifetimes_ns: shape (2, logs): begin and end.
    """
    if not len(run):
        return np.zeros(0, np.intp)
    # Lifetimes that meet: users one after the other, each log beside what reaches its begin.
    times, ranked = np.unique(lifetimes_ns, return_inverse=True)
    begin, end = ranked.reshape(2, -1) + user * len(times)
    order = np.argsort(begin, kind="stable")
    reach = np.maximum.accumulate(end[order])
    span = np.zeros(len(user), np.intp)
    span[order[1:]] = np.cumsum(begin[order[1:]] > reach[:-1])
    # A run is in as many spans as its logs: what shares one of either is one set.
    spans = int(span.max()) + 1
    links = Links(spans + int(run.max()) + 1)
    for one in np.unique(span * (int(run.max()) + 1) + run).tolist():
        links.join(one // (int(run.max()) + 1), spans + one % (int(run.max()) + 1))
    roots = np.array([links.root(i) for i in range(spans)], np.intp)
    return roots[span]


def gather_results(
    root: str, results: Iterable[str], logs: Sequence[str]
) -> tuple[list[Job], Sequence[str]]:
    """(a job for each folder with a result of a benchmark, the logs that lie in none of them)."""
    folders: dict[str, list[str]] = {}
    for path in results:
        folders.setdefault(_get_parent(path), []).append(path)
    if not folders:
        return [], logs
    # A log belongs to the nearest folder above it that has a result.
    holder = cache(partial(_find_holder, folders=folders.keys()))
    rest: list[str] = []
    for path in logs:
        above = holder(_get_parent(path))
        (rest if above is None else folders[above]).append(path)
    jobs = []
    for _, paths in sorted(folders.items()):
        listing = Listing.of(paths)
        jobs.append(Job(None, tuple(listing.paths), root, listing.key(listing.paths)))
    return jobs, rest


def _find_holder(folder: str, folders: Collection[str]) -> str | None:
    """The folder itself or the nearest one above it that is among the folders."""
    while folder not in folders:
        above = _get_parent(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _get_parent(path: str) -> str:
    return os.path.dirname(path)  # noqa: PTH120 - as in `Listing.of`


def split_into_batches(jobs: Iterable[Job], logs: int) -> Iterator[list[Job]]:
    """Jobs in turn, so many together that they have about that number of logs."""
    batch: list[Job] = []
    for job in jobs:
        batch.append(job)
        if sum(len(j.paths) for j in batch) >= logs:
            yield batch
            batch = []
    if batch:
        yield batch
