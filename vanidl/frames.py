"""Results as pandas frames: the only place where pandas is used, imported when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.phases import Phase
from vanidl.errors import UsageError
from vanidl.selection import Selection, select
from vanidl.trace import COLUMNS, Trace

if TYPE_CHECKING:
    import pandas

Rows = Sequence[dict[str, Any]]


def frame(name: str, trace: Trace, results: Results, selection: Selection) -> pandas.DataFrame:
    """The frame of that name, one of FRAMES; times in seconds since the start of the job.

    Raises:
        UsageError: there is no frame of that name.
    """
    if name not in FRAMES:
        raise UsageError(f"no frame {name!r}: expected one of {', '.join(FRAMES)}.")
    import pandas  # half a second that the command line does not need

    return pandas.DataFrame(FRAMES[name](trace, results, selection))


def _operations(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    chosen = select(trace, selection)
    parts = list(chosen.io)
    if not parts:
        return {"process": [], **{c: [] for c in COLUMNS}}
    columns = {c: np.concatenate([getattr(p, c) for p in parts]) for c in COLUMNS}
    since = trace.job.start_ns
    label = [p.label for p in trace.processes]
    return {
        "process": np.concatenate([np.full(len(p), label[p.process], object) for p in parts]),
        "file": np.array(trace.files.path, object)[columns["file"]],
        "op": np.array(["read", "write"], object)[columns["op"]],
        "offset": columns["offset"],
        "nbytes": columns["nbytes"],
        "start_s": (columns["start"] - since) / 1e9,
        "end_s": (columns["end"] - since) / 1e9,
        "thread": columns["thread"],
    }


def _timeline(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    line = results.timeline
    if line is None:
        return {}
    rows, bins = line.bytes_read.shape
    names = [
        "bytes_read",
        "bytes_written",
        *(["reads", "writes"] if line.reads is not None else []),
    ]
    return {
        "row": np.repeat(np.array(line.row_labels, object), bins),
        "start_s": np.tile(line.edges_s[:-1], rows),
        "end_s": np.tile(line.edges_s[1:], rows),
        **{n: getattr(line, n).ravel() for n in names},
    }


def _steps(trace: Trace, results: Results, selection: Selection) -> dict[str, Any]:  # noqa: ARG001
    if results.steps is None:
        return {}
    table = results.steps.table
    columns = asdict(table) | {"duration_s": table.duration_s}
    del columns["undated_s"]
    labels = np.array([trace.processes[i].label for i in trace.ranks], object)
    return columns | {"rank": labels[columns["rank"]]}


def _rows(pick: Callable[[Results], Iterable[Any]]) -> Callable[..., Rows]:
    return lambda trace, results, selection: [asdict(row) for row in pick(results)]  # noqa: ARG005


def _phases(results: Results) -> tuple[Phase, ...]:
    found = results.phases
    return (*found.stages, *found.epochs, *found.checkpoints) if found else ()


FRAMES: dict[str, Callable[[Trace, Results, Selection], Any]] = {
    "operations": _operations,
    "timeline": _timeline,
    "steps": _steps,
    "files": _rows(lambda r: r.files.rows),
    "kinds": _rows(lambda r: r.files.by_kind),
    "mounts": _rows(lambda r: r.files.by_mount),
    "dataset": _rows(lambda r: r.dataset.files if r.dataset else ()),
    "phases": _rows(_phases),
    "sizes": _rows(lambda r: r.sizes.histogram),
    "ranks": _rows(lambda r: r.balance.rows if r.balance else ()),
    "overlap": _rows(lambda r: r.overlap.per_rank if r.overlap else ()),
    "layers": _rows(lambda r: r.summary.layers),
    "warnings": _rows(lambda r: r.coverage.warnings),
}
