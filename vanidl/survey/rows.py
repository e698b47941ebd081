"""One job -> one row. Numbers of `COLUMNS` are those of the JSON contract, under their names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.analyses.results import analyse
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.breakdown.account import MEAN, RUN
from vanidl.breakdown.causes import STORAGE
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import VanidlError
from vanidl.formatting.from_logs import clean_path, clean_text
from vanidl.formatting.units import nbytes
from vanidl.merge import copies
from vanidl.merge.pipeline import Inputs, build_trace
from vanidl.model.counter_totals import prefix_of
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.parallel.limits import Limits, TimeLimit, limited
from vanidl.readers import run_folder
from vanidl.readers.darshan.log import read_identity
from vanidl.readers.darshan.reading import LOG
from vanidl.readers.discover import Found, guess_kind_by_name
from vanidl.readers.names import parse_darshan_name
from vanidl.readers.records import TracerLog
from vanidl.report.summary import summary_object
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.schema.schema import Kind

# What a job of any log can have lost to reading its dataset, by the counters of its files.

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class DataReads:
    """Seconds that reads of the files took that are taken for the dataset.

    Summed over processes; Darshan leaves overlap on one file of one process out, overlap between
    files counts twice. Nothing in it says whether compute went on meanwhile: the job lost at most
    so much. `rank_hours` is no more than the ranks were in storage; `node_hours` is None where not
    every rank has a host.
    """

    read_s: float
    by_file_system: Mapping[str, float]  # type as mounted, "" where unknown; most first
    rank_hours: float
    node_hours: float | None


def sum_data_reads(trace: Trace, storage_s: float) -> DataReads | None:
    """What ranks read of the dataset; None where no layer of storage counted it, or without ranks.

    Args:
        trace: the run.
        storage_s: what a rank was in storage at most, mean over ranks, as the account has it.
    """
    by_file = np.zeros(len(trace.files))
    known = False
    for layer in STORAGE_LAYERS:
        table = trace.counters.get(layer)
        seconds = None if table is None else table.seconds.get(f"{prefix_of(layer)}_F_READ_TIME")
        if table is not None and seconds is not None:
            known = True
            by_file += np.bincount(table.file, np.maximum(seconds, 0.0), len(trace.files))
    ranks = len(trace.ranks)
    if not known or not ranks:
        return None

    # By the type of the file system, most time first.
    by_file[~trace.files.is_data] = 0.0
    systems: dict[str, float] = {}
    for code in np.flatnonzero(by_file).tolist():
        name = trace.files.file_system[code]
        systems[name] = systems.get(name, 0.0) + float(by_file[code])
    ordered = dict(sorted(systems.items(), key=lambda item: (-item[1], item[0])))

    total_s = float(by_file.sum())
    hours = min(total_s, ranks * storage_s) / HOUR_S
    hosts = count_hosts(trace)
    return DataReads(total_s, ordered, hours, None if hosts is None else hours * hosts / ranks)


def count_hosts(trace: Trace) -> int | None:
    """How many hosts the ranks ran on; None where that of any of them is not recorded."""
    hosts = {trace.processes[i].host for i in trace.ranks}
    return None if not hosts or "" in hosts else len(hosts)


Row = dict[str, Any]


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
        named = parse_darshan_name(self.paths[0])
        if named:
            return named.user
        return None if self.user_id is None else f"uid {self.user_id}"


COLUMNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("job", "string", ("job", "id")),
    ("command", "string", ("job", "command")),
    ("start", "string", ("job", "start")),  # ISO 8601 UTC
    ("run_time_s", "double", ("job", "run_time_s")),
    ("ranks", "int64", ("job", "ranks")),
    ("processes", "int64", ("job", "processes")),
    ("layer", "string", ("io", "layer")),
    ("source", "string", ("io", "source")),  # trace, counters
    ("ops", "int64", ("io", "ops")),
    ("reads", "int64", ("io", "reads")),
    ("writes", "int64", ("io", "writes")),
    ("bytes_read", "int64", ("io", "bytes_read")),
    ("bytes_written", "int64", ("io", "bytes_written")),
    ("storage_bytes_read", "int64", ("storage", "bytes_read")),
    ("storage_bytes_written", "int64", ("storage", "bytes_written")),
    ("io_share", "double", ("io", "time", "share")),
    ("io_per_rank_mean_s", "double", ("io", "time", "per_rank_mean_s")),
    ("io_any_rank_s", "double", ("io", "time", "any_rank_s")),
    ("bandwidth_bytes_per_s", "double", ("io", "bandwidth", "aggregate_bytes_per_s")),
    ("size_median", "double", ("io", "sizes", "median")),
    ("size_max", "int64", ("io", "sizes", "max")),
    ("read_ops", "int64", ("io", "access", "read", "ops")),
    ("read_consecutive", "int64", ("io", "access", "read", "consecutive")),
    ("read_forward", "int64", ("io", "access", "read", "forward")),
    ("read_backward", "int64", ("io", "access", "read", "backward")),
    ("files", "int64", ("io", "files", "count")),
    ("reread_factor", "double", ("io", "dataset", "reread_factor")),
    ("complete", "bool", ("coverage", "complete")),
    ("exit_status", "int64", ("job", "ending", "exit_status")),  # of jobs recorded by vanidl record
    ("last_error", "string", ("job", "ending", "last_error")),
)
"""Name and type of a column, and where its value lies in `vanidl summary --json`."""

MORE: tuple[tuple[str, str], ...] = (
    ("traced_fraction", "double"),  # of the layer's operations
    ("warnings", "string"),  # codes, separated by spaces
    ("findings", "int64"),
    ("finding_codes", "strings"),  # most severe first
    ("finding_gains_s", "doubles"),  # of each: gain_at_most_s
    ("user", "string"),
    ("nodes", "int64"),
    ("input_s", "double"),  # this and the next four: `DataReads`
    ("input_rank_hours", "double"),
    ("input_node_hours", "double"),
    ("input_file_systems", "strings"),  # most time first
    ("input_file_system_s", "doubles"),
    ("workload", "string"),  # of a storage benchmark, of which the next seven are, too
    ("utilization_percent", "double"),
    ("accelerators", "int64"),
    ("samples_per_s", "double"),  # mean over epochs, as the benchmark summed it up
    ("io_bytes_per_s", "double"),  # the same
    ("largest_wait", "string"),
    ("largest_wait_percent", "double"),  # of the time that utilization divides by
    ("rules_not_kept", "string"),
    ("logs", "int64"),
    ("first_log", "string"),  # relative to the folder that was surveyed
    ("problem", "string"),  # why there is no more than this; null where the job was read
)


_PYTHON: dict[str, Kind] = {
    "string": str, "int64": int, "double": float, "bool": bool,
    "strings": list[str], "doubles": list[float | None],
}  # fmt: skip


def row_kind() -> dict[str, Kind]:
    """What a row is: any of it may be null where the job could not be read."""
    columns = [(name, kind) for name, kind, _ in COLUMNS] + list(MORE)
    return {
        name: _PYTHON[kind] if name in ALWAYS else _PYTHON[kind] | None for name, kind in columns
    }


def identify_logs(paths: Sequence[str]) -> list[tuple[str, TracerLog | None, str]]:
    """(path, who wrote the log, why that cannot be said); exactly one of the last two is set."""
    return [_identify_log(path) for path in paths]


def _identify_log(path: str) -> tuple[str, TracerLog | None, str]:
    try:
        return path, read_one(read_identity, path), ""
    except VanidlError as error:
        return path, None, str(error)


LIMITED = "Survey again with more for each job: --job-seconds, --job-memory."
"""How the problem of a job ends that was given up because of its limits."""

_LARGEST = 2**63  # behind what a column of int64 holds


def read_rows(jobs: Sequence[Job], limits: Limits) -> list[Row]:
    """A row for each job, in turn."""
    return [read_row(job, limits) for job in jobs]


def read_row(job: Job, limits: Limits) -> Row:
    """What one job did; one that cannot be read has only its logs and the problem."""
    try:
        with limited(limits):
            return read_one(lambda _: check_row(_read(job)), job.first)
    except TimeLimit:
        return build_unread_row(
            job, f"its {limits.seconds:,.0f} s were over before it was read. {LIMITED}"
        )
    except VanidlError as error:
        out_of_memory = isinstance(error.__cause__, MemoryError)
        more = f" within {nbytes(limits.nbytes)}. {LIMITED}" if out_of_memory else ""
        return build_unread_row(job, f"{error}{more}")


def check_row(row: object) -> Row:
    """The row, where every value is of its column's type.

    Raises:
        TypeError, ValueError: it is not.
    """
    kinds = {name: kind for name, kind, _ in COLUMNS} | dict(MORE)
    if not isinstance(row, dict) or row.keys() != kinds.keys():
        raise TypeError("a row with other columns")
    for name, value in row.items():
        if value is None and name not in ALWAYS:
            continue
        if kinds[name] in _ITEMS and type(value) is list:
            for item in value:
                _check(name, item, _ITEMS[kinds[name]])
        else:
            _check(name, value, _TYPES.get(kinds[name], ()))
    return row


def _check(name: str, value: object, types: tuple[type, ...]) -> None:
    if type(value) not in types:
        raise TypeError(f"{name} is of type {type(value).__name__}")
    if isinstance(value, int | float) and not abs(value) < _LARGEST:
        raise ValueError(f"{name} is {value}")


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "double": (float, int), "int64": (int,), "bool": (bool,),
}  # fmt: skip
_ITEMS: dict[str, tuple[type, ...]] = {"strings": (str,), "doubles": (float, int, type(None))}
ALWAYS = ("logs", "first_log")
PLACE = ("job", "user", *ALWAYS, "problem")
"""What is known of a job that could not be read."""


def build_unread_row(job: Job, problem: str) -> Row:
    """The row of a job that could not be read."""
    empty = dict.fromkeys([name for name, _, _ in COLUMNS] + [name for name, _ in MORE])
    return empty | _place(job) | {"job": job.id, "problem": " ".join(problem.split())}


def gather_job_files(job: Job) -> Found:
    """The job's logs, as if they had been looked for, with the recorder's record above them."""
    files: dict[str, list[Path]] = {}
    for path in map(Path, job.paths):
        files.setdefault(guess_kind_by_name(path.name) or LOG, []).append(path)
    folder = Path(job.paths[0]).parent
    records = tuple(
        path
        for path in (folder / run_folder.RECORD_NAME, folder.parent / run_folder.RECORD_NAME)
        if path.is_file()
    )
    kinds = {kind: tuple(some) for kind, some in files.items()}
    return Found(folder, kinds, run_records=records[:1])


def _read(job: Job) -> Row:
    found = gather_job_files(job)
    trace = build_trace(found, Inputs())
    once, _ = copies.drop_copies(found)
    read = build_row(Run(trace, analyse(trace)))
    return read | _place(job) | {"logs": sum(map(len, once.files.values()))}


def build_row(run: Run) -> Row:
    """The row of a run in hand; its name stands for the first log, and no user is named."""
    content = summary_object(run)
    values = {name: _look_up(content, place) for name, _, place in COLUMNS}
    covered = content["coverage"]["layers"].get(values["layer"], {})
    # What reads of the data took; null where no counters say.
    most = run.breakdown.cell(f"{MEAN}/{RUN}/{STORAGE}")
    reads = sum_data_reads(run.trace, most.high_ns / 1e9)
    systems = None if reads is None else reads.by_file_system
    return values | _describe_benchmark(content["benchmarks"]) | {
        "nodes": count_hosts(run.trace),
        "input_s": reads and reads.read_s,
        "input_rank_hours": reads and reads.rank_hours,
        "input_node_hours": reads and reads.node_hours,
        "input_file_systems": None if systems is None else list(systems),
        "input_file_system_s": None if systems is None else list(systems.values()),
        "logs": len(run.trace.logs),
        "first_log": run.name,
        "user": None,
        "traced_fraction": covered.get("traced_fraction"),
        "warnings": " ".join(sorted({w["code"] for w in content["coverage"]["warnings"]})),
        "findings": len(content["findings"]),
        "finding_codes": [found["code"] for found in content["findings"]],
        "finding_gains_s": [found["gain_at_most_s"] for found in content["findings"]],
        "problem": None,
    }  # fmt: skip


def _describe_benchmark(results: Sequence[Mapping[str, Any]]) -> Row:
    """What a result of a storage benchmark says; all null for other jobs."""
    names = (
        "workload", "utilization_percent", "accelerators", "samples_per_s", "io_bytes_per_s",
        "largest_wait",
    )  # fmt: skip
    if not results:
        more = ("largest_wait_percent", "rules_not_kept")
        return dict.fromkeys((*names, *more))
    first = results[0]
    wait_s, total_s = first["waits_s"].get(first["largest_wait"]), first["total_s"]
    return {name: first[name] for name in names} | {
        "largest_wait_percent": 100 * wait_s / total_s if wait_s and total_s else None,
        "rules_not_kept": ", ".join(r["name"] for r in first["rules"] if r["holds"] is False),
    }


def _place(job: Job) -> Row:
    return {
        "logs": len(job.paths),
        "first_log": clean_path(job.first),
        "user": job.user and clean_text(job.user),
    }


def _look_up(content: Mapping[str, Any], place: Sequence[str]) -> Any:  # noqa: ANN401
    value: Any = content
    for name in place:
        if value is None:
            return None
        value = value[name]
    return value


def anonymize_rows(rows: Sequence[Row], root: Path, names: Pseudonyms) -> list[Row]:
    """The rows, in the same order and with the same numbers, with pseudonyms for names."""
    return [_anonymize_row(row, root, names) for row in rows]


def _anonymize_row(row: Row, root: Path, names: Pseudonyms) -> Row:
    names.path(str(root / row["first_log"]), "log")  # which the problem names
    problem, command, workload = row["problem"], row["command"], row["workload"]
    kinds = row["input_file_systems"]
    file_systems = None if kinds is None else [names.file_system(kind) for kind in kinds]
    return row | {
        "job": names.job(row["job"]),
        "command": command and names.command(command),
        "user": row["user"] and names.user(row["user"]),
        "input_file_systems": file_systems,
        "first_log": names.path(row["first_log"], "log"),
        "workload": workload and names.text(workload),
        "problem": problem and names.text(problem),
        "last_error": None,
    }
