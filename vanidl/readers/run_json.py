"""`run.json`, which `vanidl record` leaves beside its logs: what the logs cannot say.

Ranks of processes, the host, mount points, and which processes are missing or did not end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import orjson

from vanidl.encoding.budget import read_whole
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.files.atomic import write_whole
from vanidl.files.checked_json import checked_fields
from vanidl.formatting.from_logs import (
    clean_command,
    clean_path,
    clean_settings,
    clean_text,
    clean_texts,
    clean_words,
    set_clean,
)
from vanidl.model.run_facts import Ending
from vanidl.model.warnings import Notice
from vanidl.readers.records import ProfileTrace, TracerLog
from vanidl.schema import means

SCHEMA = "vanidl-run/1"
NAME = "run.json"

NO_TRACER = "none"
RECORDED = "recorded"
UNFINISHED = "unfinished"
MISSING = "missing"
STATES = (RECORDED, UNFINISHED, MISSING)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process that the recorder saw; times are when it first and last saw it."""

    pid: int
    parent_pid: int
    command: Annotated[str, means("Its command line")]
    rank: int | None
    first_seen_ns: Annotated[int, means("When it was first seen, since 1970 in UTC", "ns")]
    last_seen_ns: Annotated[int, means("When it was last seen, since 1970 in UTC", "ns")]
    state: Annotated[str, means("recorded, unfinished, missing")] = RECORDED
    running: Annotated[bool, means("Whether it ran on when the command had ended")] = False

    def __post_init__(self) -> None:
        """The command as it may be shown."""
        set_clean(self, command=clean_command(self.command))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What was run, with which tracer, where, and what is missing."""

    id: Annotated[str, means("Identifier of the run")]
    command: Annotated[tuple[str, ...], means("The command and its arguments")]
    folder: Annotated[str, means("Folder in which it ran")]
    host: str
    tracer: str
    tracer_version: Annotated[str, means("Version of the tracer")]
    settings: Annotated[Mapping[str, str], means("Environment variables that the tracer was given")]
    start_ns: Annotated[int, means("Start, since 1970 in UTC", "ns")]
    end_ns: Annotated[int, means("End, since 1970 in UTC", "ns")]
    exit_status: int  # 128 + N where signal N ended the command
    ranks: Annotated[int | None, means("Ranks; null: not known", "count")]
    mounts: Annotated[
        tuple[tuple[str, str], ...], means("Mount points and their types, the longest first")
    ]
    processes: Annotated[tuple[ProcessRecord, ...], means("Processes that the recorder saw")]
    losses: Annotated[tuple[str, ...], means("What was not recorded, in sentences")]
    ceiling: Annotated[
        bool, means("Whether batches came from memory (vanidl ceiling): no training")
    ] = False
    memory_kills: int | None = None  # processes killed as memory had run out; None: not known
    last_error: str = ""  # of a Python process that failed, without secrets
    stopped: Annotated[
        str, means("Since when nothing was recorded for want of space, and why; empty: never")
    ] = ""

    def __post_init__(self) -> None:
        """Texts as they may be shown, mount points too: the record is handed on."""
        for name in ("id", "host", "tracer", "tracer_version", "last_error"):
            set_clean(self, **{name: clean_text(getattr(self, name))})
        set_clean(
            self,
            command=clean_words(self.command),
            folder=clean_path(self.folder),
            settings=clean_settings(self.settings),
            mounts=tuple((clean_path(point), clean_text(kind)) for point, kind in self.mounts),
            losses=clean_texts(self.losses),
        )

    @property
    def ending(self) -> Ending:
        """How the command ended."""
        return Ending(self.exit_status, self.memory_kills, self.last_error)


def read_record(path: str | Path) -> RunRecord:
    """The record in a `run.json`.

    Raises:
        InputError: the file cannot be read, or is no record of `vanidl record`.
    """
    try:
        values = orjson.loads(read_whole(path))
        if values["schema"] != SCHEMA:
            raise InputError(_unusable(path, f"schema {values['schema']!r}"))
        return _record(values)
    except OSError as error:
        raise InputError(_unusable(path, f"no readable file ({error.strerror})")) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(_unusable(path, f"something else ({error})")) from error


def _unusable(path: str | Path, found: str) -> str:
    return (
        f"{path}: expected a record of vanidl record (schema {SCHEMA}), found {found}; remove "
        "it, the logs can be used without."
    )


_LATER = {"ceiling": False, "memory_kills": None, "last_error": "", "stopped": ""}
"""Fields that records of before lack, as they are then."""


def _record(values: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        **checked_fields(RunRecord, {**_LATER, **values}),
        settings={str(name): str(value) for name, value in values["settings"].items()},
        command=tuple(map(str, values["command"])),
        mounts=tuple((str(point), str(kind)) for point, kind in values["mounts"]),
        processes=tuple(map(_process, values["processes"])),
        losses=tuple(map(str, values["losses"])),
    )


def _process(values: object) -> ProcessRecord:
    found = ProcessRecord(**checked_fields(ProcessRecord, values))
    if found.state not in STATES or (found.rank is not None and found.rank < 0):
        raise ValueError("a process of an impossible state or rank")
    return found


def write_record(path: str | Path, record: RunRecord) -> None:
    """Writes `run.json`, which holds no secret; the file appears whole or not at all.

    Raises:
        VanidlError: it cannot be written.
    """
    values = {"schema": SCHEMA, **{key: getattr(record, key) for key in RunRecord.__slots__}}
    text = orjson.dumps(values, option=orjson.OPT_INDENT_2)
    write_whole(Path(path), text, "the record of the run")


def command_of(record: RunRecord) -> str:
    """Its command in one line."""
    return " ".join(record.command)


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a path, each with the folder that it speaks for."""

    of_folder: tuple[tuple[str, RunRecord], ...]  # deepest folders first

    @property
    def ceilings(self) -> tuple[str, ...]:
        """The folders of runs whose batches came from memory."""
        return tuple(folder for folder, record in self.of_folder if record.ceiling)

    def above(self, path: str) -> RunRecord | None:
        """The record of the run that a log belongs to."""
        if not self.of_folder:
            return None
        absolute = str(Path(path).absolute())
        return next((r for folder, r in self.of_folder if absolute.startswith(folder)), None)

    def of_all(self, paths: Iterable[str]) -> RunRecord | None:
        """The record of the one run that all of these files belong to; None where there is none."""
        found = {id(record): record for path in paths for record in [self.above(path)]}
        (only,) = found.values() if len(found) == 1 else (None,)
        return only


def gather(paths: Sequence[Path]) -> tuple[Records, list[Notice]]:
    """All usable records, and a notice for each that is not."""
    notices: list[Notice] = []
    found = [(path, _read_or_say(path, notices)) for path in paths]
    usable = [(f"{path.absolute().parent}/", record) for path, record in found if record]
    return Records(tuple(sorted(usable, key=lambda pair: -len(pair[0])))), notices


def _read_or_say(path: Path, notices: list[Notice]) -> RunRecord | None:
    try:
        return read_one(read_record, path)
    except InputError as error:
        notices.append(Notice("run_record_unreadable", str(error), "info"))
        return None


def complete(log: TracerLog, records: Records) -> TracerLog:
    """The log with what the recorder knows of its process: job, host, rank, mounts.

    All logs below one record are one run, so they share its id.
    """
    record = records.above(log.path)
    if record is None:
        return log
    ranks = {p.pid: p.rank for p in record.processes if p.rank is not None}
    here = not log.host or log.host.split(".")[0] == record.host.split(".")[0]
    rank = ranks.get(log.pid) if here and log.pid is not None else None
    commands = {p.pid: p.command for p in record.processes if p.command and here}
    # Of a process that lived too briefly to be seen, and was forked, the command is its parent's.
    pids = (log.pid, log.parent_pid) if log.names_program else ()
    recorded = next((commands[pid] for pid in pids if pid in commands), None)
    return replace(
        log,
        job_id=record.id,
        host=log.host or record.host,
        command=recorded or log.command,
        rank=rank if rank is not None else log.rank,
        mounts=log.mounts or record.mounts,
    )


def complete_profile(profile: ProfileTrace, logs: Sequence[TracerLog]) -> ProfileTrace:
    """A tracer's own profile with the rank of its process."""
    ranks = {log.pid: log.rank for log in logs if log.rank is not None}
    return replace(profile, rank=ranks.get(profile.pid, profile.rank))


def losses(records: Records) -> Iterator[Notice]:
    """What the recorder saw and the logs do not hold, as warnings."""
    told: list[RunRecord] = []
    for folder, record in sorted(records.of_folder, key=lambda pair: (len(pair[0]), pair[0])):
        if record in told:  # a copy
            continue
        told.append(record)
        brief = _brief(record)
        harmless = frozenset(brief)
        if brief:
            text = f"{folder}{NAME}: {_lost(brief, MISSING, len(record.processes))}"
            yield Notice("processes_brief", f"{text} {_HARMLESS}", "info")
        for state in _WORDS:
            lost = [p for p in record.processes if p.state == state and p not in harmless]
            text = f"{folder}{NAME}: {_lost(lost, state, len(record.processes))}"
            if lost and state == MISSING:
                yield Notice("processes_missing", text)
            elif lost:
                yield Notice("processes_unfinished", text)
        if record.stopped:
            yield Notice("recording_stopped", record.stopped)
        for loss in record.losses:
            yield Notice("recording", loss, "info")


def _brief(record: RunRecord) -> list[ProcessRecord]:
    """Processes without a log that were other programs and lived a moment: uname, ldconfig.

    Not the command itself, a rank, or a copy of the process that started it, as workers are.
    """
    commands = {p.pid: p.command for p in record.processes}
    return [
        p
        for p in record.processes[1:]
        if p.state == MISSING
        and p.rank is None
        and not p.running
        and p.last_seen_ns - p.first_seen_ns < _MOMENT_NS
        and p.command != commands.get(p.parent_pid)
    ]


def _lost(lost: Sequence[ProcessRecord], state: str, total: int) -> str:
    names = "; ".join(f"{p.pid} {p.command[:60]}" for p in lost[:3])
    more = ", ..." if len(lost) > 3 else ""
    return f"{len(lost)} of at least {total} processes {_WORDS[state]} ({names}{more})."


_MOMENT_NS = 250_000_000
_HARMLESS = (
    "Each lived less than 0.25 s and is another program than the one that started it: a tool "
    "(uname, ldconfig), not a part of training."
)
_WORDS = {
    MISSING: "left no log: what they read and wrote is not recorded",
    UNFINISHED: "did not end under the tracer: the end of what they did is not recorded",
}
