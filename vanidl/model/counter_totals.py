"""Reads, writes and bytes as Darshan's counters hold them, whatever the layer calls them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.model.counter_tables import CounterTable
from vanidl.model.trace import DAOS, DAOS_OF_DFS, DFS, MPIIO, PNETCDF, PNETCDF_VAR

COUNTED = ("READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN")

_PREFIX = {MPIIO: "MPIIO", PNETCDF: "PNETCDF_FILE", DAOS_OF_DFS: "DAOS"}
_KINDS = {MPIIO: ("INDEP", "COLL", "SPLIT", "NB"), PNETCDF_VAR: ("INDEP", "COLL", "NB")}
"""Layers that count their operations by kind."""
_OF_OBJECTS = {
    "READS": ("OBJ_FETCHES", "ARRAY_READS", "KV_GETS"),
    "WRITES": ("OBJ_UPDATES", "ARRAY_WRITES", "KV_PUTS"),
}
_CALLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    DFS: {"READS": ("READS", "READXS"), "WRITES": ("WRITES", "WRITEXS")},
    DAOS: _OF_OBJECTS,
    DAOS_OF_DFS: _OF_OBJECTS,
}
"""Layers of which several calls read or write."""


def prefix_of(layer: str) -> str:
    """The prefix of a layer's counter names: "MPIIO" for "MPI-IO"."""
    return _PREFIX.get(layer, layer)


def count_total(table: CounterTable, what: str) -> int | None:
    """Total of one of COUNTED; None where nothing was monitored."""
    values = [table.total(name) for name in _find_names(table, what)]
    monitored = [v for v in values if v is not None]
    return sum(monitored) if monitored else None


def count_by_record(table: CounterTable, what: str) -> NDArray[np.int64]:
    """One of COUNTED for each record, 0 where not monitored; shape (records,)."""
    total = np.zeros(len(table.file), np.int64)
    for name in _find_names(table, what):
        if name in table.counters:
            total += np.maximum(table.counters[name], 0)
    return total


def _find_names(table: CounterTable, what: str) -> list[str]:
    prefix = prefix_of(table.layer)
    if table.layer in _KINDS and not what.startswith("BYTES"):
        return [f"{prefix}_{kind}_{what}" for kind in _KINDS[table.layer]]
    return [f"{prefix}_{call}" for call in _CALLS.get(table.layer, {}).get(what, (what,))]
