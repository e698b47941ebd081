"""Which logs below a folder are one job: the rules of `vanidl.merge.jobs`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vanidl.merge.jobs import group
from vanidl.readers.file_names import darshan_name
from vanidl.readers.records import TracerLog


@dataclass(frozen=True, slots=True)
class Job:
    """The logs of one job; `key` changes when one of them does."""

    id: str | None
    paths: tuple[str, ...]
    first: str  # the first path, relative to the folder
    key: str
    user: str | None = None  # by the names of logs, or "uid 1000"; None: neither says


def jobs_of(
    root: Path, read: Sequence[tuple[str, TracerLog | None, str]]
) -> tuple[list[Job], list[tuple[Job, str]]]:
    """(jobs, earliest first; logs that say nothing, each as a job with the reason)."""
    logs = [log for _, log, _ in read if log is not None]
    jobs = [
        _job(
            root,
            "+".join(found.job_ids),
            sorted(log.path for log in found.logs),
            f"uid {found.logs[0].user_id}",
        )
        for found in (group(logs, ()) if logs else ())
    ]
    unread = [(_job(root, None, [path]), why) for path, log, why in read if log is None]
    return jobs, unread


def results_of(
    root: Path, results: Iterable[str], logs: Sequence[str]
) -> tuple[list[Job], list[str]]:
    """(a job for each folder with a result of a benchmark, the logs that lie in none of them)."""
    folders: dict[str, list[str]] = {}
    for path in results:
        folders.setdefault(str(Path(path).parent), []).append(path)
    rest: list[str] = []
    for path in logs:
        above = next((f for f in map(str, Path(path).parents) if f in folders), None)
        (rest if above is None else folders[above]).append(path)
    return [_job(root, None, sorted(paths)) for _, paths in sorted(folders.items())], rest


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


def _job(root: Path, job_id: str | None, paths: list[str], user: str | None = None) -> Job:
    first = os.path.relpath(paths[0], root)
    named = darshan_name(first)
    return Job(job_id, tuple(paths), first, _key(paths), named.user if named else user)


def _key(paths: Sequence[str]) -> str:
    """From names, sizes and times of change: what was done need not be done again."""
    text = "\n".join(state_of(path) for path in paths)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def state_of(path: str) -> str:
    """Name, size and time of change of a file."""
    try:
        found = Path(path).stat()
    except OSError:  # gone since it was listed: reading will say so
        return path
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}"
