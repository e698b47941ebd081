"""Totals of each file, from operations: a tracer that records all of them needs no counters.

The names are Darshan's, so that everything that reads counters reads these. What Darshan
counts and these operations do not tell is left out, never 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.dftracer import above, sums
from vanidl.readers.dftracer.calls import (
    LAYERS,
    OPENS,
    READS,
    REMOVES,
    WRITES,
    is_call,
    is_layer,
    nbytes,
)
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import Events
from vanidl.readers.records import CounterRecords

Int64Array = NDArray[np.int64]


def counters(process: TracedProcess) -> tuple[CounterRecords, ...]:
    """Counters of one process: of each layer that it used, and of calls that were summed up.

    `file` is a path code.
    """
    traced = (_records(process.events, layer) for layer in LAYERS)
    found = (*traced, *sums.counters(process.summed), *above.counters(process.events))
    return tuple(records for records in found if len(records.file))


def _records(events: Events, layer: str) -> CounterRecords:
    used = is_layer(events, layer) & (events.columns["file"] >= 0)
    files = np.unique(events.columns["file"][used])
    moved = nbytes(events)
    read = used & is_call(events, layer, READS[layer])
    write = used & is_call(events, layer, WRITES[layer])
    opened = used & is_call(events, layer, OPENS[layer])
    masks = {"READ": read & (moved >= 0), "WRITE": write & (moved >= 0)}
    counts = {f"{layer}_{what}S": _count(events, files, rows) for what, rows in masks.items()}
    counts[f"{layer}_OPENS"] = _count(events, files, opened)
    for name, rows in (("READ", masks["READ"]), ("WRITTEN", masks["WRITE"])):
        counts[f"{layer}_BYTES_{name}"] = _sum(events, files, rows, moved)
    removed = used & is_call(events, layer, REMOVES)
    times = {**masks, "META": used & ~read & ~write & ~removed, "REMOVE": removed}
    seconds = {
        f"{layer}_F_{what}_TIME": _sum(events, files, rows, events.columns["dur"]) / 1e9
        for what, rows in times.items()
    }
    return CounterRecords(layer, files.astype(np.uint64), np.zeros(len(files), np.int64),
                          counts, seconds)  # fmt: skip


def _count(events: Events, files: Int64Array, rows: NDArray[np.bool_]) -> Int64Array:
    place = np.searchsorted(files, events.columns["file"][rows])
    return np.bincount(place, minlength=len(files)).astype(np.int64)


def _sum(
    events: Events, files: Int64Array, rows: NDArray[np.bool_], values: Int64Array
) -> Int64Array:
    total = np.zeros(len(files), np.int64)
    np.add.at(total, np.searchsorted(files, events.columns["file"][rows]), values[rows])
    return total
