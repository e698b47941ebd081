"""What Darshan summed up, log by log -> tables over the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vanidl.processes import Cast
from vanidl.sources.pieces import CounterFile, CounterRecords, TracerLog
from vanidl.trace import CounterTable, Heatmap, MpiTime, Stripes

Counters = Mapping[str, CounterFile]
"""Path of a log -> what Darshan summed up in it."""

NO_COUNTERS = CounterFile(())


def path_of(log: TracerLog, file_id: int) -> str:
    """The path that a log gives a file id, or a stand-in where it has no name for it."""
    return log.names.get(file_id) or f"<unnamed {file_id:#018x}>"


def tables(
    logs: Sequence[TracerLog], counters: Counters, people: Cast, code: Mapping[str, int]
) -> dict[str, CounterTable]:
    """Layer -> one table over all logs; `code` gives each path its file code."""
    by_layer: dict[str, list[CounterTable]] = {}
    for i, log in enumerate(logs):
        for records in counters.get(log.path, NO_COUNTERS).layers:
            table = _table(i, log, records, people, code)
            by_layer.setdefault(table.layer, []).append(table)
    return {layer: _stack(layer, by_layer[layer]) for layer in sorted(by_layer)}


def _table(
    i: int, log: TracerLog, records: CounterRecords, people: Cast, code: Mapping[str, int]
) -> CounterTable:
    files = [code[path_of(log, f)] for f in records.file.tolist()]
    shared = log.nprocs > 1
    ranks = records.rank.tolist() if shared else [0] * len(files)
    process = [people.of_log.get((i, r), -1) for r in ranks]
    return CounterTable(
        records.layer,
        np.array(process, np.int32),
        np.array(files, np.int32),
        records.counters,
        records.seconds,
    )


def _stack(layer: str, tables: Sequence[CounterTable]) -> CounterTable:
    """One table; a counter that some logs lack is -1 there, as Darshan writes "not monitored"."""
    names = list(dict.fromkeys(n for t in tables for n in t.counters))
    times = list(dict.fromkeys(n for t in tables for n in t.seconds))
    missing = [np.full(len(t.file), -1, np.int64) for t in tables]
    pairs = list(zip(tables, missing, strict=True))
    return CounterTable(
        layer,
        np.concatenate([t.process for t in tables]),
        np.concatenate([t.file for t in tables]),
        {n: np.concatenate([t.counters.get(n, m) for t, m in pairs]) for n in names},
        {n: np.concatenate([t.seconds.get(n, m.astype(float)) for t, m in pairs]) for n in times},
    )


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


def heatmaps(logs: Sequence[TracerLog], counters: Counters, people: Cast) -> tuple[Heatmap, ...]:
    """Every heat map, in the order of layer and process."""
    found = [
        Heatmap(
            _process(i, log, record.rank, people),
            record.layer,
            log.start_ns,
            record.bin_ns,
            record.bytes_read,
            record.bytes_written,
        )
        for i, log in enumerate(logs)
        for record in counters.get(log.path, NO_COUNTERS).heatmaps
    ]
    return tuple(sorted(found, key=lambda h: (h.layer, h.process, h.start_ns)))


def mpi_times(logs: Sequence[TracerLog], people: Cast) -> tuple[MpiTime, ...]:
    """MPI time of every process that recorded it, in the order of processes."""
    found = [
        MpiTime(_process(i, log, record.rank, people), record.total_s, record.sync_s)
        for i, log in enumerate(logs)
        for record in log.mpi
    ]
    return tuple(sorted(found, key=lambda m: m.process))


def _process(i: int, log: TracerLog, rank: int, people: Cast) -> int:
    return people.of_log.get((i, rank if log.nprocs > 1 else 0), -1)
