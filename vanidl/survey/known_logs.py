"""Who wrote each log and which logs are one job, as an earlier survey found it.

What did not change is not opened again, and jobs that no new log can belong to are not put
together again: `spans` says which those are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.files.checked_json import checked_fields
from vanidl.merge.jobs import run_of
from vanidl.readers.records import TracerLog
from vanidl.survey.jobs import Job, job_of, jobs_of, unread_job
from vanidl.survey.spans import touched
from vanidl.survey.stored import read_table, write_table

Identity = tuple[str, TracerLog | None, str]
"""(path, who wrote the log, why that cannot be said); exactly one of the last two is set."""

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


@dataclass(frozen=True, slots=True)
class Grouped:
    """The jobs among some logs.

    `settled` are the keys of those that are as they were; `unread` are logs that nobody can say
    anything of, each as a job with the reason.
    """

    settled: list[str]
    jobs: list[Job]
    unread: list[tuple[Job, str]]


class KnownLogs:
    """The logs in the folder of what is done; `kept`: whether names may stay there.

    Of each log they hold its name, size and time of change, what tells with which logs it can be
    of one job, who wrote it, and the key of its job.

    Args:
        root: the folder that is surveyed.
        states: what is seen of its logs from outside, by path (`jobs.states_of`).
    """

    def __init__(self, folder: Path, root: str, states: Mapping[str, str], *, kept: bool) -> None:
        self._file, self._root, self._states, self._kept = folder / FILE, root, states, kept
        self._table = read_table(self._file, _HEAD, _schema()) if kept else _schema().empty_table()

    def grouped(self, read: Callable[[Sequence[str]], Sequence[Identity]]) -> Grouped:
        """All jobs; `read` is asked for logs that are new or changed.

        Raises:
            VanidlError: they cannot be written.
        """
        there, paths = self._compared()
        found = read(paths)
        new = [log for _, log, _ in found if log is not None]
        again = self._touched(there, new)
        logs = [*self._logs(self._table.filter(again & there)), *new]
        jobs = jobs_of(self._root, sorted(logs, key=lambda log: log.path), self._states)
        keys = {path: job.key for job in jobs for path in job.paths}
        self._table = self._table.filter(~again)
        settled = self._table.column("job").unique().to_pylist()
        self._table = _joined(self._table, _lines(logs, self._states, keys))
        if self._kept and (new or again.any()):
            write_table(self._table, self._file, _HEAD, "what is known of the logs")
        unread = [(path, why) for path, log, why in found if log is None]
        return Grouped(
            settled,
            jobs,
            [(unread_job(self._root, path, self._states), why) for path, why in unread],
        )

    def jobs(self, keys: Sequence[str]) -> list[Job]:
        """Jobs by their keys, in turn."""
        if not keys:
            return []
        import pyarrow
        from pyarrow import compute

        wanted = pyarrow.array(keys, "string")
        lines = self._table.filter(compute.is_in(self._table.column("job"), wanted))
        logs: dict[str, list[TracerLog]] = {}
        for key, log in zip(lines.column("job").to_pylist(), self._logs(lines), strict=True):
            logs.setdefault(key, []).append(log)
        return [job_of(self._root, logs[key], self._states) for key in keys]

    def _compared(self) -> tuple[NDArray[np.bool_], list[str]]:
        """(which logs are as they were, the paths of all others that are there)."""
        by_state = {os.fsencode(state): path for path, state in self._states.items()}
        stored = self._table.column("state").to_pylist()
        there = np.fromiter((state in by_state for state in stored), bool, len(stored))
        known = set(stored)
        return there, [path for state, path in by_state.items() if state not in known]

    def _touched(self, there: NDArray[np.bool_], new: Sequence[TracerLog]) -> NDArray[np.bool_]:
        """The known logs that are gone, or can be of one job with one that is gone or new."""
        lines = _joined(self._table, _lines(new, self._states, {}))
        run, user = (_codes(lines.column(name)) for name in ("run", "user"))
        lifetimes_ns = np.stack([lines.column(name).to_numpy() for name in ("begin_ns", "end_ns")])
        changed = np.concatenate([~there, np.ones(len(new), bool)])
        return touched(run, user, lifetimes_ns, changed)[: len(there)]

    def _logs(self, lines: Any) -> list[TracerLog]:  # noqa: ANN401 - pyarrow has no types
        """Raises InputError where a line says something else than who wrote a log."""
        found = []
        for state, fields in zip(
            *(lines.column(n).to_pylist() for n in ("state", "fields")), strict=True
        ):
            path = os.fsdecode(state).partition("\0")[0]
            try:
                plain = checked_fields(TracerLog, json.loads(fields) | {"path": path})
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(
                    f"{self._file}: expected what a survey left, found something else; remove it"
                ) from error
            found.append(TracerLog(**plain | _UNREAD))
        return found


def _schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow

    kinds = {"state": "binary", "user": "binary", "run": "binary", "begin_ns": "int64",
             "end_ns": "int64", "fields": "string", "job": "string"}  # fmt: skip
    return pyarrow.schema(
        [
            pyarrow.field(name, getattr(pyarrow, kind)(), nullable=False)
            for name, kind in kinds.items()
        ]
    )


def _lines(logs: Sequence[TracerLog], states: Mapping[str, str], keys: Mapping[str, str]) -> Any:  # noqa: ANN401
    """What is kept of logs, a line each; `keys` are those of their jobs, by path."""
    import pyarrow

    columns = {
        "state": (os.fsencode(states[log.path]) for log in logs),
        "user": (b"%d" % log.user_id for log in logs),
        "run": (os.fsencode(f"{log.user_id}\0{run_of(log)}") for log in logs),
        "begin_ns": (_within(min(log.start_ns, log.end_ns)) for log in logs),
        "end_ns": (_within(max(log.start_ns, log.end_ns)) for log in logs),
        "fields": map(_fields, logs),
        "job": (keys.get(log.path, "") for log in logs),
    }
    schema = _schema()
    # One column after the other: lines as objects take more than the table itself.
    return pyarrow.table([pyarrow.array(columns[f.name], f.type) for f in schema], schema=schema)


def _fields(log: TracerLog) -> str:
    fields = checked_fields(TracerLog, {name: getattr(log, name) for name in log.__slots__})
    return json.dumps({name: value for name, value in fields.items() if name != "path"})


def _within(time_ns: int) -> int:
    """The time, or the nearest that 64 bits hold: logs may say anything."""
    return max(min(time_ns, _LATEST_NS), -_LATEST_NS)


def _codes(texts: Any) -> NDArray[np.intp]:  # noqa: ANN401 - pyarrow has no types
    indices = texts.combine_chunks().dictionary_encode().indices
    return np.asarray(indices.to_numpy(), np.intp)


def _joined(table: Any, more: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow

    return pyarrow.concat_tables([table, more]).combine_chunks()
