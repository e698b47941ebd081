"""Which logs below a folder are one job: the rules of `vanidl.merge.jobs`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from vanidl.merge.jobs import group
from vanidl.readers.file_names import darshan_name
from vanidl.readers.records import TracerLog


@dataclass(frozen=True, slots=True)
class Job:
    """The logs of one job; `key` changes when one of them does."""

    id: str | None
    paths: tuple[str, ...]
    root: str  # the folder that is surveyed
    key: str
    user_id: int | None = None  # of a log; None: nothing says

    @property
    def first(self) -> str:
        """The first path, relative to the folder."""
        return os.path.relpath(self.paths[0], self.root)

    @property
    def user(self) -> str | None:
        """Whose job it is, by the names of logs, or "uid 1000"; None: neither says."""
        named = darshan_name(self.paths[0])
        if named:
            return named.user
        return None if self.user_id is None else f"uid {self.user_id}"


def states_of(paths: Iterable[str]) -> dict[str, str]:
    """Name, size and time of change of each file, by its path."""
    return {path: _state(path) for path in paths}


def _state(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - a path of each of many logs takes longer
    except OSError:  # gone since it was listed: reading will say so
        return path
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}"


def jobs_of(root: str, logs: Sequence[TracerLog], states: Mapping[str, str]) -> list[Job]:
    """The jobs of logs, earliest first."""
    return [job_of(root, found.logs, states) for found in (group(logs, ()) if logs else ())]


def job_of(root: str, logs: Sequence[TracerLog], states: Mapping[str, str]) -> Job:
    """The job that some logs are."""
    ids = "+".join(sorted({log.job_id for log in logs}))
    paths = tuple(sorted(log.path for log in logs))
    return Job(ids, paths, root, _key(paths, states), logs[0].user_id)


def unread_job(root: str, path: str, states: Mapping[str, str]) -> Job:
    """A log that says nothing, as a job."""
    return Job(None, (path,), root, _key([path], states))


def results_of(
    root: str, results: Iterable[str], logs: Sequence[str]
) -> tuple[list[Job], list[str]]:
    """(a job for each folder with a result of a benchmark, the logs that lie in none of them)."""
    folders: dict[str, list[str]] = {}
    for path in results:
        folders.setdefault(_parent(path), []).append(path)
    holder = cache(partial(_holder, folders=folders.keys()))
    rest: list[str] = []
    for path in logs:
        above = holder(_parent(path))
        (rest if above is None else folders[above]).append(path)
    return [_result(root, sorted(paths)) for _, paths in sorted(folders.items())], rest


def _holder(folder: str, folders: Collection[str]) -> str | None:
    """The folder itself or the nearest one above it that is among the folders."""
    while folder not in folders:
        above = _parent(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _parent(path: str) -> str:
    return os.path.dirname(path)  # noqa: PTH120 - as `_state`


def _result(root: str, paths: Sequence[str]) -> Job:
    return Job(None, tuple(paths), root, _key(paths, states_of(paths)))


def batches(jobs: Iterable[Job], logs: int) -> Iterator[list[Job]]:
    """Jobs in turn, so many together that they have about that number of logs."""
    batch: list[Job] = []
    for job in jobs:
        batch.append(job)
        if sum(len(j.paths) for j in batch) >= logs:
            yield batch
            batch = []
    if batch:
        yield batch


def _key(paths: Iterable[str], states: Mapping[str, str]) -> str:
    """From names, sizes and times of change: what was done need not be done again."""
    text = "\n".join(states[path] for path in paths)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
