"""Results and the account of time as pandas frames, which is imported when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses import frames as of_analyses
from vanidl.analyses.frames import AMOUNTS, row_of, storable
from vanidl.breakdown.account import Breakdown, divide_rank
from vanidl.errors import UsageError
from vanidl.model.selection import Selection, select
from vanidl.model.trace import Trace

if TYPE_CHECKING:
    import pandas


def frame(
    name: str, trace: Trace, results: Results, selection: Selection, account: Breakdown
) -> pandas.DataFrame:
    """The frame of that name; times in seconds since the start of the job.

    FRAMES names them; beside these "breakdown" has a row for every window of every rank with
    steps: its phase, part, epoch and step, and both ends of every cell in seconds.

    Raises:
        UsageError: there is no frame of that name.
    """
    if name not in FRAMES and name != EACH_WINDOW:
        raise UsageError(f"no frame {name!r}: expected one of {', '.join((*FRAMES, EACH_WINDOW))}.")
    import pandas  # half a second that the command line does not need

    if name == EACH_WINDOW:
        tables = [pandas.DataFrame(c) for c in _each_window(select(trace, selection), results)]
        return pandas.concat(tables, ignore_index=True) if tables else pandas.DataFrame()
    if name in _OF_TIME:
        return pandas.DataFrame(_OF_TIME[name](trace, results, account))
    return pandas.DataFrame(of_analyses.FRAMES[name](trace, results, selection))


def _each_window(trace: Trace, results: Results) -> Iterator[dict[str, Any]]:
    """The columns of all windows of one rank after the other, those without steps left out."""
    for position, process in enumerate(trace.ranks):
        windows = divide_rank(trace, results, position)
        if windows is not None:
            labels = np.full(len(windows), storable(trace.processes[process].label), object)
            yield {"rank": labels} | windows.columns(trace.job.start_ns)


def _steps(trace: Trace, results: Results, account: Breakdown) -> dict[str, Any]:
    if results.steps is None:
        return {}
    table = results.steps.table
    columns = asdict(table) | {"duration_s": table.duration_s} | _each_step(account)
    del columns["undated_s"]
    labels = np.array([storable(trace.processes[i].label) for i in trace.ranks], object)
    return columns | {"rank": labels[columns["rank"]]}


_STEP_TIMES = ("in_wait_s", "hidden_s", "behind_communication_s", "other_s", "input_wait_io_s")


def _each_step(account: Breakdown) -> dict[str, Any]:
    """What is known of each step beside its table; without a place in time, nothing is."""
    each = account.step_records
    if each is None:
        return {}
    amounts = {name: getattr(each, name) for name in AMOUNTS}
    known = {name: values for name, values in amounts.items() if values is not None}
    paths, spent = np.empty(len(each.kind), object), np.empty(len(each.kind), object)
    for i, files in enumerate(each.slowest):
        paths[i] = [storable(path) for path, _ in files]
        spent[i] = [seconds for _, seconds in files]
    times = {name: getattr(each, name) for name in _STEP_TIMES}
    words = {"kind": each.kind, "slowest_files": paths, "slowest_files_s": spent}
    return known | times | words


def _overlap(trace: Trace, results: Results, account: Breakdown) -> list[dict[str, Any]]:  # noqa: ARG001
    return [row_of(row) for row in account.overlap.per_rank] if account.overlap else []


def _phases(trace: Trace, results: Results, account: Breakdown) -> list[dict[str, Any]]:  # noqa: ARG001
    found = account.phases
    rows = (*found.stages, *found.epochs, *found.checkpoints) if found else ()
    return [row_of(row) for row in rows]


_OF_TIME: dict[str, Callable[[Trace, Results, Breakdown], Any]] = {
    "steps": _steps,
    "overlap": _overlap,
    "phases": _phases,
}
FRAMES = (*of_analyses.FRAMES, *_OF_TIME)
"""The name of every frame that is exported."""

EACH_WINDOW = "breakdown"
