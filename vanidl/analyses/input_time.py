"""Time in reads of the dataset, by counters: what a job of any log can have lost to input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.model.counter_totals import prefix_of
from vanidl.model.trace import STORAGE_LAYERS, Trace

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class InputTime:
    """Seconds that reads of the files took that are taken for the dataset.

    Summed over processes; Darshan leaves overlap on one file of one process out, overlap between
    files counts twice. Nothing in it says whether compute went on meanwhile: the job lost at most
    so much. `rank_hours` is no more than the ranks had; `node_hours` is None where not every rank
    has a host.
    """

    read_s: float
    by_file_system: Mapping[str, float]  # type as mounted, "" where unknown; most first
    rank_hours: float
    node_hours: float | None


def input_time(trace: Trace) -> InputTime | None:
    """None where no layer of storage counted the time of reads, or the run has no ranks."""
    tables = [trace.counters[layer] for layer in STORAGE_LAYERS if layer in trace.counters]
    by_file = np.zeros(len(trace.files))
    known = False
    for table in tables:
        seconds = table.seconds.get(f"{prefix_of(table.layer)}_F_READ_TIME")
        if seconds is not None:
            known = True
            by_file += np.bincount(table.file, np.maximum(seconds, 0.0), len(trace.files))
    ranks = len(trace.ranks)
    if not known or not ranks:
        return None
    by_file[~trace.files.is_data] = 0.0
    total_s = float(by_file.sum())
    hours = min(total_s, ranks * trace.job.run_time_s) / HOUR_S
    hosts = nodes(trace)
    return InputTime(
        total_s,
        _by_file_system(by_file, trace.files.file_system),
        hours,
        None if hosts is None else hours * hosts / ranks,
    )


def nodes(trace: Trace) -> int | None:
    """How many hosts the ranks ran on; None where that of any of them is not recorded."""
    hosts = {trace.processes[i].host for i in trace.ranks}
    return None if not hosts or "" in hosts else len(hosts)


def _by_file_system(by_file: NDArray[np.float64], kinds: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for code in np.flatnonzero(by_file).tolist():
        found[kinds[code]] = found.get(kinds[code], 0.0) + float(by_file[code])
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
