"""What Darshan summed up, log by log -> tables over the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.merge.files import FileCodes, path_of
from vanidl.merge.process_table import ProcessTable
from vanidl.model.counter_tables import CounterTable, Heatmap, MpiTime, Stripes
from vanidl.readers.records import Columns, CounterFile, CounterRecords, TracerLog

Counters = Mapping[str, CounterFile]
"""Path of a log -> what Darshan summed up in it."""

NO_COUNTERS = CounterFile(())


def tables(
    logs: Sequence[TracerLog], counters: Counters, processes: ProcessTable, code: FileCodes
) -> dict[str, CounterTable]:
    """Layer -> one table over all logs; `code` gives each path its file code."""
    by_layer: dict[str, list[CounterTable]] = {}
    for i, log in enumerate(logs):
        for records in counters.get(log.path, NO_COUNTERS).layers:
            table = _table(i, log, records, processes, code)
            by_layer.setdefault(table.layer, []).append(table)
    return {layer: _stack(layer, by_layer[layer]) for layer in sorted(by_layer)}


def _table(
    i: int,
    log: TracerLog,
    records: CounterRecords,
    processes: ProcessTable,
    code: FileCodes,
) -> CounterTable:
    return CounterTable(
        records.layer,
        _processes(i, log, records.rank, processes),
        code.of_ids(log, records.file),
        records.counters,
        records.seconds,
    )


def _processes(
    i: int, log: TracerLog, ranks: NDArray[np.int64], processes: ProcessTable
) -> NDArray[np.int32]:
    """The process of each record of a log."""
    if log.nprocs <= 1:
        return np.full(len(ranks), processes.of_record(i, log, 0), np.int32)
    each = ranks.tolist()
    of_rank = {rank: processes.of_record(i, log, rank) for rank in set(each)}
    return np.array([of_rank[rank] for rank in each], np.int32)


def _stack(layer: str, tables: Sequence[CounterTable]) -> CounterTable:
    """One table; a counter that some logs lack is -1 there, as Darshan writes "not monitored"."""
    lengths = [len(t.file) for t in tables]
    return CounterTable(
        layer,
        np.concatenate([t.process for t in tables]),
        np.concatenate([t.file for t in tables]),
        _stacked([t.counters for t in tables], lengths, np.dtype(np.int64)),
        _stacked([t.seconds for t in tables], lengths, np.dtype(np.float64)),
    )


def _stacked(
    tables: Sequence[Mapping[str, NDArray[Any]]], lengths: Sequence[int], dtype: np.dtype[Any]
) -> dict[str, NDArray[Any]]:
    """The columns of all tables behind one another, each table with its number of rows."""
    first = tables[0]
    if isinstance(first, Columns):
        blocks = [t.rows for t in tables if isinstance(t, Columns) and t.names == first.names]
        if len(blocks) == len(tables):  # as in nearly every run: one copy does for all columns
            return dict(zip(first.names, np.concatenate(blocks, axis=1), strict=True))
    names = list(dict.fromkeys(name for t in tables for name in t))
    missing = [np.full(length, -1, dtype) for length in lengths]
    pairs = list(zip(tables, missing, strict=True))
    return {name: np.concatenate([t.get(name, m) for t, m in pairs]) for name in names}


def stripes(
    logs: Sequence[TracerLog], counters: Counters, code: Mapping[str, int]
) -> tuple[Stripes, ...]:
    """The layout of every file on Lustre that a layer recorded, each once, sorted by file."""
    found: dict[int, list[Stripes]] = {}
    for log in logs:
        of_log: dict[int, list[Stripes]] = {}
        for record in counters.get(log.path, NO_COUNTERS).stripes:
            file = code.get(path_of(log, record.file))
            if file is not None:
                parts = (record.stripe_nbytes, record.stripe_count, record.osts)
                of_log.setdefault(file, []).append(Stripes(file, *parts))
        found = of_log | found
    return tuple(part for file in sorted(found) for part in found[file])


def heatmaps(
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


def mpi_times(logs: Sequence[TracerLog], processes: ProcessTable) -> tuple[MpiTime, ...]:
    """MPI time of every process that recorded it, in the order of processes."""
    found = [
        MpiTime(processes.of_record(i, log, record.rank), record.total_s, record.sync_s)
        for i, log in enumerate(logs)
        for record in log.mpi
    ]
    return tuple(sorted(found, key=lambda m: m.process))
