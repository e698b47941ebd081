"""Counters as they were read, by us or by PyDarshan, checked: one log's `CounterFile`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import (
    DAOS,
    DAOS_OF_DFS,
    DFS,
    H5D,
    H5F,
    MPIIO,
    PNETCDF,
    PNETCDF_VAR,
    POSIX,
    STDIO,
)
from vanidl.readers.records import Columns, CounterRecords, HeatmapRecord, StripeRecord

LAYERS = {
    "POSIX": POSIX,
    "MPI-IO": MPIIO,
    "STDIO": STDIO,
    "H5F": H5F,
    "H5D": H5D,
    "PNETCDF_FILE": PNETCDF,
    "PNETCDF_VAR": PNETCDF_VAR,
    "DFS": DFS,
    "DAOS": DAOS,
}
"""Darshan's module to layer. Any module whose records are id, rank, counters and time
counters can be added here."""

OTHERS = ("LUSTRE", "HEATMAP")
"""Modules whose records have a shape of their own."""

HEATMAP_LAYERS = {
    16592106915301738621: POSIX,
    3989511027826779520: STDIO,
    3668870418325792824: MPIIO,
}
"""Darshan's id of a heat map's record (the hash of its name) to the layer."""

Stripe = tuple[int, int, Sequence[int]]
"""Stripe size, stripe count and targets of one component of a file's layout."""

Bins = tuple[int, int, float, NDArray[np.int64], NDArray[np.int64]]
"""Heat map, rank, width of a bin in s, bytes written and read in each bin."""

Table = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Ids and ranks, shape (records,); counters and time counters, shape (counters, records)."""

_SUMMED = ("_OPENS", "_READS", "_WRITES", "_BYTES_READ", "_BYTES_WRITTEN")
_LARGEST = 1 << 56  # bytes or operations on one file: 64 PiB
_LONGEST_S = 2.0**32


def layer_records(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> tuple[CounterRecords, str]:
    """The records of one module without impossible ones, and a sentence about those ("")."""
    table, loss = possible(module, names, times, table)
    return records(module, names, times, table), loss


def possible(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> tuple[Table, str]:
    """A table without impossible records, and a sentence about those ("")."""
    wrong = _impossible(names, times, table)
    loss = ""
    if wrong.any():
        loss = (
            f"{module}: {int(wrong.sum()):,} of {len(wrong):,} records hold impossible numbers "
            "and are left out"
        )
        ids, ranks, counters, seconds = table
        table = ids[~wrong], ranks[~wrong], counters[:, ~wrong], seconds[:, ~wrong]
    for array in table:
        array.setflags(write=False)
    return table, loss


def records(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> CounterRecords:
    """A table of possible records of one module as a record."""
    ids, ranks, counters, seconds = table
    columns = Columns(names, counters), Columns(times, seconds)
    return CounterRecords(LAYERS[module], ids, ranks, *columns)


def disjoint(layers: Sequence[CounterRecords]) -> Iterator[CounterRecords]:
    """The layers of one log, where objects of DAOS that are files of DFS are a layer apart.

    Both modules count what goes through such a file, under one id.
    """
    files = next((records.file for records in layers if records.layer == DFS), None)
    for records in layers:
        if records.layer != DAOS or files is None:
            yield records
            continue
        of_files = np.isin(records.file, files)
        for layer, rows in ((DAOS, ~of_files), (DAOS_OF_DFS, of_files)):
            if rows.any():
                yield _picked(records, layer, rows)


def _picked(records: CounterRecords, layer: str, rows: NDArray[np.bool_]) -> CounterRecords:
    """Some of the records, as of another layer."""
    file, rank = records.file[rows], records.rank[rows]
    for array in (file, rank):
        array.setflags(write=False)
    columns = _columns(records.counters, rows), _columns(records.seconds, rows)
    return CounterRecords(layer, file, rank, *columns)


def _columns(values: Mapping[str, NDArray[Any]], rows: NDArray[np.bool_]) -> Columns:
    picked = np.array([column[rows] for column in values.values()])
    picked.setflags(write=False)
    return Columns(tuple(values), picked)


def _impossible(names: tuple[str, ...], times: tuple[str, ...], table: Table) -> NDArray[np.bool_]:
    """Records that damage made: sums over them would mean nothing, or leave the integers."""
    summed, timed = _checked(names, times)
    _, _, counters, seconds = table
    with np.errstate(invalid="ignore"):
        in_range = np.abs(seconds[timed]) <= _LONGEST_S  # false for NaN
    some = counters[summed]
    possible = (some >= -1) & (some <= _LARGEST)
    return np.asarray(~(in_range.all(axis=0) & possible.all(axis=0)), np.bool_)


@lru_cache(64)
def _checked(
    names: tuple[str, ...], times: tuple[str, ...]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of the counters that are summed, and of the times that have a bound."""
    summed = [i for i, name in enumerate(names) if name.endswith(_SUMMED)]
    timed = [i for i, name in enumerate(times) if "VARIANCE" not in name]
    return np.array(summed, np.intp), np.array(timed, np.intp)


def stripe_records(records: Iterable[tuple[int, Sequence[Stripe]]]) -> Iterator[StripeRecord]:
    """Every file once: ranks that record it say the same."""
    for file, parts in dict(records).items():
        for nbytes, count, osts in parts:
            yield StripeRecord(file, nbytes, count, tuple(osts))


def heatmap_records(records: Iterable[Bins]) -> Iterator[HeatmapRecord]:
    """The heat maps of known layers that have bins of a possible width."""
    for key, rank, width_s, written, read in records:
        layer = HEATMAP_LAYERS.get(key)
        bin_ns = round(width_s * 1e9) if math.isfinite(width_s * 1e9) else 0
        if layer is not None and bin_ns > 0 and len(written):
            yield HeatmapRecord(layer, rank, bin_ns, read, written)
