"""What vanidl itself leaves in a RUN beside the logs, and what these cannot say.

`run.json`: ranks of processes, the host, mount points, and which processes are missing or did not
end. `ceiling.json`: what the steps take without input. `memory/*.memory`: what processes took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose, isfinite
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson

from vanidl.encoding.budget import read_whole
from vanidl.encoding.file_bytes import read_one
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
from vanidl.model.run_facts import Ceiling, Ending, HostMemory, Int64Array, ProcessMemory
from vanidl.model.warnings import Notice
from vanidl.readers.records import ProfileTrace, TracerLog, same_host
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import means

# `ceiling.json`, which `vanidl ceiling` leaves in a RUN: what its steps take without input.

CEILING_SCHEMA = "vanidl-ceiling/1"
CEILING_JSON = "ceiling.json"
_MOST_REMARKS = 20
_LONGEST_REMARK = 400


def read_ceiling(path: Path) -> Ceiling:
    """The ceiling in a file.

    Raises:
        InputError: the file cannot be read, or no `vanidl ceiling` can have written it.
    """
    try:
        values = orjson.loads(read_whole(path))
        if values["schema"] != CEILING_SCHEMA:
            raise InputError(_refuse_ceiling(path, f"schema {values['schema']!r}"))
        remarks = tuple(str(text)[:_LONGEST_REMARK] for text in values["remarks"][:_MOST_REMARKS])
        ceiling = Ceiling(**checked_fields(Ceiling, values), remarks=remarks)
        # Numbers that no measurement can have given are refused.
        times = (ceiling.step_s, ceiling.free_s, ceiling.median_step_s, ceiling.median_free_s)
        shares = (ceiling.low, ceiling.cost, ceiling.high)
        counts = (ceiling.ranks, ceiling.steps, ceiling.replayed, ceiling.kept, ceiling.pairs)
        sound = (
            all(isfinite(value) for value in (*times, *shares, ceiling.copying_s))
            and min(times) > 0
            and ceiling.copying_s >= 0
            and ceiling.low <= ceiling.cost <= ceiling.high < 1
            and isclose(ceiling.cost, 1 - ceiling.free_s / ceiling.step_s, abs_tol=1e-6)
            and min(counts) >= 1
            and ceiling.kept_nbytes >= 0
        )
        if not sound:
            raise ValueError("numbers that contradict each other")
        return ceiling
    except OSError as error:
        raise InputError(_refuse_ceiling(path, f"no readable file ({error.strerror})")) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(_refuse_ceiling(path, f"something else ({error})")) from error


def _refuse_ceiling(path: Path, found: str) -> str:
    return (
        f"{path}: expected what vanidl ceiling measured (schema {CEILING_SCHEMA}), found {found}; "
        "remove it, or measure again with vanidl ceiling --against."
    )


def write_ceiling(folder: Path, ceiling: Ceiling) -> None:
    """Writes it into a RUN, for its owner only; the file appears whole or not at all.

    Raises:
        VanidlError: it cannot be written.
    """
    values = {"schema": CEILING_SCHEMA, **{key: getattr(ceiling, key) for key in Ceiling.__slots__}}
    text = orjson.dumps(values, option=orjson.OPT_INDENT_2)
    write_whole(folder / CEILING_JSON, text, "the ceiling of the run")


def gather_ceiling(run_records: Iterable[Path]) -> tuple[Ceiling | None, list[Notice]]:
    """What lies beside the only record of a run; of several runs none speaks for all."""
    paths = [path for record in run_records if (path := record.with_name(CEILING_JSON)).is_file()]
    if len(paths) != 1:
        return None, []
    try:
        return read_one(read_ceiling, paths[0]), []
    except InputError as error:
        return None, [Notice("ceiling_unreadable", f"{error}.", "info")]


# `memory/*.memory`, which `vanidl record` leaves in a RUN: what its processes took over time.

MEMORY_FOLDER = "memory"
MEMORY_SCHEMA = "vanidl-memory/1"
_LARGEST = 1 << 62
_MOST_PIDS = 10_000
_RESIDENT, _WALKED = 2, 4  # numbers of a process in a line


def read_memory(path: Path) -> HostMemory:
    """What one recorder saw; lines that are cut or make no sense are left out.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        lines = read_whole(path).splitlines()
    except OSError as error:
        raise InputError(f"{path}: permission denied or missing ({error.strerror})") from error
    return parse_memory(lines, str(path))


def parse_memory(lines: Iterable[bytes], name: str) -> HostMemory:
    """The same of lines that are read already.

    Raises:
        InputError: they do not begin as the recorder begins.
    """
    rows = [row for row in map(_parse_row, lines) if row is not None]
    if not rows or rows[0].get("schema") != MEMORY_SCHEMA:
        raise InputError(
            f"{name}: expected memory as vanidl record writes it (schema {MEMORY_SCHEMA}), found "
            "something else; remove it."
        )
    # Sizes of processes, each look a row; some looks walk their pages as well.
    looks = [row for row in rows[1:] if _to_number(row.get("t")) > 0]
    parents: dict[int, int] = {}
    sizes: dict[int, list[list[int]]] = {}
    walked: dict[int, list[list[int]]] = {}
    for row in looks:
        for pid, parent in _list_pids(row.get("new")):
            parents.setdefault(pid, _to_number(parent))
        for found, key, width in ((sizes, "p", _RESIDENT), (walked, "s", _WALKED)):
            for pid, values in _list_pids(row.get(key)):
                if _are_numbers(values, width) and (pid in found or len(found) < _MOST_PIDS):
                    found.setdefault(pid, []).append([row["t"], *values])
    # Of the machine and the control group at each look.
    around = [[row["t"], *_get_two(row.get("m")), *_get_two(row.get("c"), (0, 2))] for row in looks]
    at_ns, dev_shm, available, group, group_files = _to_columns(around, 5)
    return HostMemory(
        clean_text(str(rows[0].get("host", ""))),
        _to_number(rows[0].get("limit")),
        clean_text(str(rows[0].get("limit_of", ""))),
        tuple(
            ProcessMemory(
                pid,
                parents.get(pid, -1),
                *_to_columns(sizes[pid], 1 + _RESIDENT),
                *_to_columns(walked.get(pid, []), 1 + _WALKED),
            )
            for pid in sorted(sizes)
        ),
        at_ns,
        dev_shm,
        available,
        group,
        group_files,
    )


def gather_memory(records: Iterable[Path]) -> tuple[tuple[HostMemory, ...], list[Notice]]:
    """The memory of the RUNs of these records, and what of it could not be read."""
    paths = [path for r in records for path in sorted((r.parent / MEMORY_FOLDER).glob("*.memory"))]
    found = [_read_memory_or_note(path) for path in paths]
    return (
        tuple(each for each in found if isinstance(each, HostMemory)),
        [each for each in found if isinstance(each, Notice)],
    )


def _read_memory_or_note(path: Path) -> HostMemory | Notice:
    try:
        return read_one(read_memory, path)
    except InputError as error:
        return Notice("unreadable", str(error), "info")


def _parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def _list_pids(found: object) -> list[tuple[int, Any]]:
    if not isinstance(found, dict):
        return []
    return [(int(pid), value) for pid, value in found.items() if pid.isdecimal() and len(pid) < 12]


def _are_numbers(values: object, width: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == width
        and all(_to_number(v) >= 0 for v in values)
    )


def _get_two(values: object, places: tuple[int, int] = (0, 1)) -> tuple[int, int]:
    numbers = values if isinstance(values, list) else []
    first, second = (_to_number(numbers[k]) if k < len(numbers) else -1 for k in places)
    return first, second


def _to_number(value: object) -> int:
    return value if type(value) is int and 0 <= value < _LARGEST else -1


def _to_columns(rows: list[list[int]], width: int) -> tuple[Int64Array, ...]:
    """Columns of rows by their time."""
    table = np.array(rows, np.int64).reshape(-1, width)
    table = table[np.argsort(table[:, 0], kind="stable")]
    columns = tuple(np.ascontiguousarray(column) for column in table.T)
    for column in columns:
        column.flags.writeable = False
    return columns


RUN_SCHEMA = "vanidl-run/1"
RECORD_NAME = "run.json"
AB_FILE = "ab.json"
"""The runs of `vanidl ab`, in the folder that holds them."""

NO_TRACER = "none"
RECORDED = "recorded"
UNFINISHED = "unfinished"
MISSING = "missing"
STATES = (RECORDED, UNFINISHED, MISSING)


# run.json, as the recorder writes it.


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
    cores: Annotated[
        float | None, means("What the command could use on its host; null: not known", "cores")
    ] = None
    tracer_call_ns: Annotated[
        float | None,
        means("What the tracer adds to a call, timed beforehand; null: not known", "ns"),
    ] = None

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
        if values["schema"] != RUN_SCHEMA:
            raise InputError(_refuse_record(path, f"schema {values['schema']!r}"))
        return RunRecord(
            # Records of earlier releases lack some fields.
            **checked_fields(RunRecord, {**_LATER, **values}),
            settings={str(name): str(value) for name, value in values["settings"].items()},
            command=tuple(map(str, values["command"])),
            mounts=tuple((str(point), str(kind)) for point, kind in values["mounts"]),
            processes=tuple(map(_build_process, values["processes"])),
            losses=tuple(map(str, values["losses"])),
        )
    except OSError as error:
        raise InputError(_refuse_record(path, f"no readable file ({error.strerror})")) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(_refuse_record(path, f"something else ({error})")) from error


def _refuse_record(path: str | Path, found: str) -> str:
    return (
        f"{path}: expected a record of vanidl record (schema {RUN_SCHEMA}), found {found}; remove "
        "it, the logs can be used without."
    )


_LATER = {"ceiling": False, "memory_kills": None, "last_error": "", "stopped": "",
          "cores": None, "tracer_call_ns": None}  # fmt: skip
"""Fields that records of before lack, as they are then."""


def _build_process(values: object) -> ProcessRecord:
    process = ProcessRecord(**checked_fields(ProcessRecord, values))
    if process.state not in STATES or (process.rank is not None and process.rank < 0):
        raise ValueError("a process of an impossible state or rank")
    return process


def write_record(path: str | Path, record: RunRecord) -> None:
    """Writes `run.json`, which holds no secret; the file appears whole or not at all.

    Raises:
        VanidlError: it cannot be written.
    """
    values = {"schema": RUN_SCHEMA, **{key: getattr(record, key) for key in RunRecord.__slots__}}
    text = orjson.dumps(values, option=orjson.OPT_INDENT_2)
    write_whole(Path(path), text, "the record of the run")


def get_command(record: RunRecord) -> str:
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
        records = {id(record): record for path in paths for record in [self.above(path)]}
        (only,) = records.values() if len(records) == 1 else (None,)
        return only


def gather_records(paths: Sequence[Path]) -> tuple[Records, list[Notice]]:
    """All usable records, and a notice for each that is not."""
    notices: list[Notice] = []
    found = [(path, _read_or_note(path, notices)) for path in paths]
    usable = [(f"{path.absolute().parent}/", record) for path, record in found if record]
    return Records(tuple(sorted(usable, key=lambda pair: -len(pair[0])))), notices


def _read_or_note(path: Path, notices: list[Notice]) -> RunRecord | None:
    try:
        return read_one(read_record, path)
    except InputError as error:
        notices.append(Notice("run_record_unreadable", str(error), "info"))
        return None


def complete_log(log: TracerLog, records: Records) -> TracerLog:
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


def warn_of_losses(records: Records, logs: Sequence[TracerLog]) -> Iterator[Notice]:
    """What the recorder saw and the logs do not hold, as warnings.

    Logs that hold all that a killed process did until then say so themselves.
    """
    kept = [log for log in logs if log.whole and not (log.ended or log.end_lost)]
    described: list[RunRecord] = []
    for folder, record in sorted(records.of_folder, key=lambda pair: (len(pair[0]), pair[0])):
        if record in described:  # a copy
            continue
        described.append(record)
        brief = _find_brief(record)
        harmless = frozenset(brief)
        if brief:
            text = f"{folder}{RECORD_NAME}: {_describe_lost(brief, MISSING, len(record.processes))}"
            yield Notice("processes_brief", f"{text} {_HARMLESS}", "info")
        for state in _WORDS:
            lost = [p for p in record.processes if p.state == state and p not in harmless]
            # What a log holds until its process was killed is not lost.
            if state == UNFINISHED:
                here = {log.pid for log in kept if same_host(log.host, record.host)}
                lost = [p for p in lost if p.pid not in here]
            text = f"{folder}{RECORD_NAME}: {_describe_lost(lost, state, len(record.processes))}"
            if lost and state == MISSING:
                yield Notice("processes_missing", text)
            elif lost:
                yield Notice("processes_unfinished", text)
        if record.stopped:
            yield Notice("recording_stopped", record.stopped)
        for loss in record.losses:
            yield Notice("recording", loss, "info")


def _find_brief(record: RunRecord) -> list[ProcessRecord]:
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


def _describe_lost(lost: Sequence[ProcessRecord], state: str, total: int) -> str:
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
