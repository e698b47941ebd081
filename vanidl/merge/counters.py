"""What logs hold beside operations (counters, heat maps, stripes, calls) -> the whole run's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.merge.files import FileCodes, path_of
from vanidl.merge.processes import ProcessTable
from vanidl.model import intervals
from vanidl.model.counter_tables import CounterTable, Heatmap, MpiTime, Stripes
from vanidl.model.intervals import Intervals
from vanidl.readers.records import Columns, CounterFile, TracerLog

Counters = Mapping[str, CounterFile]
"""Path of a log -> what Darshan summed up in it."""

NO_COUNTERS = CounterFile(())


def stack_counters(
    logs: Sequence[TracerLog], counters: Counters, processes: ProcessTable, code: FileCodes
) -> dict[str, CounterTable]:
    """Layer -> one table over all logs; `code` gives each path its file code."""
    by_layer: dict[str, list[CounterTable]] = {}
    for i, log in enumerate(logs):
        for records in counters.get(log.path, NO_COUNTERS).layers:
            # The process of each record: that of the log, or by its rank.
            if log.nprocs <= 1:
                process = np.full(len(records.rank), processes.of_record(i, log, 0), np.int32)
            else:
                ranks = records.rank.tolist()
                of_rank = {rank: processes.of_record(i, log, rank) for rank in set(ranks)}
                process = np.array([of_rank[rank] for rank in ranks], np.int32)
            file = code.of_ids(log, records.file)
            table = CounterTable(records.layer, process, file, records.counters, records.seconds)
            by_layer.setdefault(table.layer, []).append(table)
    # One table; a counter that some logs lack is -1 there, as Darshan writes "not monitored".
    stacked = {}
    for layer, tables in sorted(by_layer.items()):
        lengths = [len(table.file) for table in tables]
        stacked[layer] = CounterTable(
            layer,
            np.concatenate([table.process for table in tables]),
            np.concatenate([table.file for table in tables]),
            _Stacked(_join_slices([each.counters for each in tables], lengths), np.dtype(np.int64)),
            _Stacked(
                _join_slices([each.seconds for each in tables], lengths), np.dtype(np.float64)
            ),
        )
    return stacked


_Table = Mapping[str, NDArray[Any]]
_Piece = tuple[_Table, int]  # a table and its number of rows


class _Stacked(_Table):
    """The columns of tables behind one another, each put together when it is first asked for.

    A report looks at a fifth of Darshan's counters.
    """

    def __init__(self, pieces: Iterable[_Piece], dtype: np.dtype[Any]) -> None:
        self._pieces = list(pieces)
        self._names = dict.fromkeys(name for table, _ in self._pieces for name in table)
        self._dtype = dtype
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = np.concatenate([self._of(*piece, name) for piece in self._pieces])
        return self._made[name]

    def _of(self, table: _Table, rows: int, name: str) -> NDArray[Any]:
        found = table.get(name)
        return np.full(rows, -1, self._dtype) if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _join_slices(tables: Sequence[_Table], lengths: Sequence[int]) -> Iterator[_Piece]:
    """The tables, of those that follow each other in the same rows one of all."""

    def is_continued(before: _Table, table: _Table) -> bool:
        if not (isinstance(before, Columns) and isinstance(table, Columns)):
            return False
        return before.rows is table.rows and before.behind == table.first

    edges = [i for i in range(1, len(tables)) if not is_continued(tables[i - 1], tables[i])]
    for low, high in pairwise([0, *edges, len(tables)]):
        first, last = tables[low], tables[high - 1]
        if isinstance(first, Columns) and isinstance(last, Columns):
            first = replace(first, behind=last.behind)
        yield first, sum(lengths[low:high])


def collect_stripes(
    logs: Sequence[TracerLog], counters: Counters, code: Mapping[str, int]
) -> tuple[Stripes, ...]:
    """The layout of every file on Lustre that a layer recorded, each once, sorted by file."""
    found: dict[int, list[Stripes]] = {}
    for log in logs:
        of_log: dict[int, list[Stripes]] = {}
        for record in counters.get(log.path, NO_COUNTERS).stripes:
            file = code.get(path_of(log, record.file))
            if file is not None:
                layout = (record.stripe_nbytes, record.stripe_count, record.osts)
                extent = record.extent_start, record.extent_end
                of_log.setdefault(file, []).append(Stripes(file, *layout, *extent))
        # Of several logs of a file the first one has the layout of all its parts.
        found = of_log | found
    return tuple(part for file in sorted(found) for part in found[file])


def collect_heatmaps(
    logs: Sequence[TracerLog], counters: Counters, processes: ProcessTable
) -> tuple[Heatmap, ...]:
    """Every heat map, in the order of layer and process."""
    found = [
        Heatmap(
            processes.of_record(i, log, record.rank),
            record.layer,
            log.start_ns + record.since_start_ns,
            record.bin_ns,
            record.bytes_read,
            record.bytes_written,
        )
        for i, log in enumerate(logs)
        for record in counters.get(log.path, NO_COUNTERS).heatmaps
    ]
    return tuple(sorted(found, key=lambda h: (h.layer, h.process, h.start_ns)))


def collect_mpi_times(logs: Sequence[TracerLog], processes: ProcessTable) -> tuple[MpiTime, ...]:
    """MPI time of every process that recorded it, in the order of processes."""
    found = [
        MpiTime(processes.of_record(i, log, record.rank), record.total_s, record.sync_s)
        for i, log in enumerate(logs)
        for record in log.mpi
    ]
    return tuple(sorted(found, key=lambda m: m.process))


def collect_metadata_calls(
    logs: Sequence[TracerLog], processes: ProcessTable, *, beside: bool
) -> dict[int, Intervals]:
    """Process -> when it was in metadata calls, for logs of one process that time each of them.

    Args:
        logs: what was read.
        processes: which process each log is.
        beside: of which logs: those of object storage, or all others.
    """
    found: dict[int, Intervals] = {}
    for i, log in enumerate(logs):
        process = processes.of_log.get((i, 0))
        if log.metadata_calls is not None and process is not None and log.beside == beside:
            calls, since = log.metadata_calls, log.start_ns
            own = Intervals(calls.start + since, calls.end + since)
            found[process] = intervals.merge(found.get(process, intervals.EMPTY), own)
    return found


def collect_calls_by_kind(
    logs: Sequence[TracerLog], processes: ProcessTable
) -> dict[int, dict[str, Intervals]]:
    """Process -> kind -> when it was in calls that move no data, for logs that tell kinds apart."""
    found: dict[int, dict[str, Intervals]] = {}
    for i, log in enumerate(logs):
        process = processes.of_log.get((i, 0))
        if log.calls and process is not None:
            since = log.start_ns
            own = {k: Intervals(c.start + since, c.end + since) for k, c in log.calls.items()}
            found[process] = intervals.merge_by_key(found.get(process, {}), own)
    return found
