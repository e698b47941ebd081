"""Calls of MPI, MPI-IO and HDF5: layers above POSIX, which move the bytes that POSIX counts.

DFTracer records of them when, how long and how often; neither the file nor the bytes. They are
counted as Darshan counts them, and what it counts beyond that is left out, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.trace import H5D, H5F, MPIIO
from vanidl.readers.dftracer.layers import HDF5, MPI, MPI_IO
from vanidl.readers.dftracer.paths import ALL_FILES
from vanidl.readers.dftracer.trace_file import Events
from vanidl.readers.records import CounterRecords, MpiRecord

Mask = NDArray[np.bool_]

_MPI_IO_MOVES = re.compile(
    r"MPI_File_(?P<nb>i?)(?P<what>read|write)(_at|_shared|(?P<ordered>_ordered))?"
    r"(?P<all>_all)?(?P<part>_begin|_end)?(_c)?$"
)
_HDF5_CALL = re.compile(r"(?P<layer>H5[DF])(?P<what>open|create|read|write)(?![a-z])")
_MPI_IO_COUNTERS = tuple(
    f"{kind}_{what}S" for kind in ("INDEP", "COLL", "SPLIT", "NB") for what in ("READ", "WRITE")
)
_COUNTERS = {
    MPIIO: ("COLL_OPENS", *_MPI_IO_COUNTERS),
    H5F: ("OPENS",),
    H5D: ("OPENS", "READS", "WRITES"),
}
_TIMES = {MPIIO: ("READ", "WRITE", "META"), H5F: ("META",), H5D: ("READ", "WRITE", "META")}


def counters(events: Events) -> Iterator[CounterRecords]:
    """One entry a layer that the process called, of one record: no call names its file."""
    for layer, of in ((MPIIO, MPI_IO), (H5F, HDF5), (H5D, HDF5)):
        start = layer if of == HDF5 else ""
        used = _where(events, lambda c, name: c == of and name.startswith(start))  # noqa: B023
        if used.any():
            yield _records(events, used, layer, "MPIIO" if layer == MPIIO else layer)


def mpi_time(events: Events, host: str) -> tuple[MpiRecord, ...]:
    """How long the process was inside MPI calls, MPI-IO apart; none where it called none."""
    calls = _where(events, lambda category, _: category == MPI)
    if not calls.any():
        return ()
    start = events.columns["ts"][calls]
    inside = intervals.union(start, start + events.columns["dur"][calls])
    return (MpiRecord(0, host, inside.length / 1e9, None),)


def _records(events: Events, used: Mask, layer: str, prefix: str) -> CounterRecords:
    spent = events.columns["dur"]
    counts = {name: used & _where(events, partial(_adds_to, name)) for name in _COUNTERS[layer]}
    times = {name: used & _where(events, partial(_takes, name)) for name in _TIMES[layer]}
    return CounterRecords(
        layer,
        np.array([ALL_FILES], np.uint64),
        np.zeros(1, np.int64),
        {f"{prefix}_{name}": np.array([rows.sum()], np.int64) for name, rows in counts.items()},
        {
            f"{prefix}_F_{name}_TIME": np.array([spent[rows].sum(dtype=np.float64) / 1e9])
            for name, rows in times.items()
        },
    )


def _adds_to(counter: str, category: str, name: str) -> bool:
    return counter == (_mpi_io_counter(name) if category == MPI_IO else _hdf5_counter(name))


def _mpi_io_counter(name: str) -> str:
    """The counter of Darshan's that a call adds one to. Opening is collective."""
    if name == "MPI_File_open":
        return "COLL_OPENS"
    found = _MPI_IO_MOVES.match(name)
    if found is None or found["part"] == "_end":
        return ""
    kinds = (
        ("SPLIT", found["part"]), ("NB", found["nb"]), ("COLL", found["all"] or found["ordered"]),
    )  # fmt: skip
    kind = next((kind for kind, holds in kinds if holds), "INDEP")
    return f"{kind}_{found['what'].upper()}S"


def _hdf5_counter(name: str) -> str:
    found = _HDF5_CALL.match(name)
    if found is None:
        return ""
    return f"{found['what'].upper()}S" if found["what"] in ("read", "write") else "OPENS"


def _takes(time: str, category: str, name: str) -> bool:
    """Whether a call takes of this time: reading, writing or the rest."""
    found = (_MPI_IO_MOVES if category == MPI_IO else _HDF5_CALL).match(name)
    what = found["what"].upper() if found else ""
    return time == (what if what in ("READ", "WRITE") else "META")


def _where(events: Events, holds: Callable[[str, str], bool]) -> Mask:
    of_name = [holds(category, name) for category, name in events.names]
    return np.array(of_name or [False], bool)[events.columns["name"]]
