"""What a job of any log can have lost to reading its dataset, by the counters of its files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vanidl.dataclass import dataclass
from vanidl.model.counter_totals import prefix_of
from vanidl.model.trace import STORAGE_LAYERS, Trace

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
