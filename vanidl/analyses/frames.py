"""Results of the analyses as the columns of tables; `vanidl.breakdown.frames` has those of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from vanidl.analyses import Results
from vanidl.model.selection import Selection, select
from vanidl.model.trace import Part, Trace

Rows = Sequence[dict[str, Any]]


def _operations(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    parts = [operation_columns(part, trace) for part in select(trace, selection).io]
    if not parts:
        return {name: [] for name in OPERATION_COLUMNS}
    names = {name: np.array(words, object) for name, words in operation_words(trace).items()}
    joined = {name: np.concatenate([part[name] for part in parts]) for name in OPERATION_COLUMNS}
    return {name: names[name][v] if name in names else v for name, v in joined.items()}


OPERATION_COLUMNS = ("process", "file", "op", "offset", "nbytes", "start_s", "end_s", "thread")


def operation_columns(part: Part, trace: Trace) -> dict[str, np.ndarray[Any, Any]]:
    """OPERATION_COLUMNS of one part; process, file and op as codes into `operation_words`."""
    since = trace.job.start_ns
    return {
        "process": np.full(len(part), part.process, np.int32),
        "file": part.file,
        "op": part.op.astype(np.int32),
        "offset": part.offset,
        "nbytes": part.nbytes,
        "start_s": (part.start - since) / 1e9,
        "end_s": (part.end - since) / 1e9,
        "thread": part.thread,
    }


def operation_words(trace: Trace) -> dict[str, list[str]]:
    """What the codes of `operation_columns` stand for."""
    labels = [storable(process.label) for process in trace.processes]
    paths = [storable(path) for path in trace.files.path]
    return {"process": labels, "file": paths, "op": ["read", "write"]}


def storable(text: str) -> str:
    """Text as UTF-8 can hold it: bytes of a file name that are no text become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def row_of(record: Any) -> dict[str, Any]:  # noqa: ANN401  (any record of the results)
    """The fields of a record as one row."""
    return {k: storable(v) if isinstance(v, str) else v for k, v in asdict(record).items()}


def _timeline(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    line = results.timeline
    if line is None:
        return {}
    rows, bins = line.bytes_read.shape
    names = [name for name in AMOUNTS if getattr(line, name) is not None]
    return {
        "row": np.repeat(np.array([storable(n) for n in line.row_labels], object), bins),
        "start_s": np.tile(line.edges_s[:-1], rows),
        "end_s": np.tile(line.edges_s[1:], rows),
        **{name: getattr(line, name).ravel() for name in names},
    }


AMOUNTS = ("bytes_read", "bytes_written", "reads", "writes")


def _job_timeline(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    if results.timeline is None:
        return {}
    job = results.timeline.job
    bounds = {"start_s": job.edges_s[:-1], "end_s": job.edges_s[1:]}
    known = [name for name in AMOUNTS if getattr(job, name) is not None]
    return bounds | {name: getattr(job, name) for name in known}


def _file_timeline(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    line = results.filetimeline
    if line is None:
        return {}
    files, bins = line.bytes_read.shape
    return {
        "path": np.repeat(np.array([storable(path) for path in line.paths], object), bins),
        "start_s": np.tile(line.edges_s[:-1], files),
        "end_s": np.tile(line.edges_s[1:], files),
        "bytes_read": line.bytes_read.ravel(),
        "bytes_written": line.bytes_written.ravel(),
    }


def _placement(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    """One row a placed step: which, and the bounds of its start."""
    if results.placement is None:
        return {}
    rows = results.placement.per_rank
    labels = [np.full(row.steps, storable(row.label), object) for row in rows]
    columns = {"rank": labels, "step": [np.arange(row.steps) for row in rows]}
    for name in ("earliest_s", "latest_s", "step_s"):
        columns[name] = [getattr(row, name) for row in rows]
    return {name: np.concatenate(values) for name, values in columns.items()}


def _rows(pick: Callable[[Results], Iterable[Any]]) -> Callable[..., Rows]:
    return lambda trace, results, selection: [row_of(row) for row in pick(results)]  # noqa: ARG005


def _fetches(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    """One row a fetch; what was not recorded is nan, None or -1."""
    found = results.fetching
    if found is None:
        return {}
    batches = found.batches
    labels = [trace.processes[i].label for i in trace.ranks]
    names, paths = (*found.names, None), (*trace.files.path, None)
    columns = {f.name: getattr(batches, f.name) for f in fields(batches)}
    columns["rank"] = np.array([labels[k] for k in batches.rank.tolist()], object)
    columns["name"] = np.array([names[k] for k in batches.name.tolist()], object)
    files = batches.longest_read_file.tolist()
    columns["longest_read_file"] = np.array([paths[k] for k in files], object)
    return columns


FRAMES: dict[str, Callable[[Trace, Results, Selection], Any]] = {
    "operations": _operations,
    "timeline": _timeline,
    "job_timeline": _job_timeline,
    "file_timeline": _file_timeline,
    "placement": _placement,
    "files": _rows(lambda r: r.files.rows),
    "kinds": _rows(lambda r: r.files.by_kind),
    "mounts": _rows(lambda r: r.files.by_mount),
    "dataset": _rows(lambda r: r.dataset.files if r.dataset else ()),
    "sizes": _rows(lambda r: r.sizes.histogram),
    "durations": _rows(lambda r: r.latencies.histogram if r.latencies else ()),
    "slowest": _rows(lambda r: r.latencies.slowest if r.latencies else ()),
    "ranks": _rows(lambda r: r.balance.rows if r.balance else ()),
    "fetches": _fetches,
    "layers": _rows(lambda r: r.summary.layers),
    "warnings": _rows(lambda r: r.coverage.warnings),
}
