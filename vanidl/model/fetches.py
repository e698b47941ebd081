"""Fetches of loaders: who made each batch, when, and which input wait took it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fetches:
    """Recorded fetches by start; one entry a fetch in every array, -1 where not known.

    A fetch is [begin, collate), in which the samples were got (`__getitem__`), and
    [collate, end). The wait [wait_begin, wait_end) of the training process took its batch; -1:
    none did. Times are ns since the epoch. `ahead` is how many batches its loader asks for before
    it takes the first (workers x prefetch_factor): a batch is asked of its worker when the one
    that lies so far before it is taken. `in_order`: 1 where batches are handed over in the order
    in which they were asked for, 0 where as they come.
    """

    trainer: Int64Array  # index into Trace.processes: who trains on it
    process: Int64Array  # index into Trace.processes: who fetched; -1 where nothing else is known
    worker: Int64Array  # its number in the loader; -1: the training process itself
    pid: Int64Array  # the process id of who fetched, on the trainer's host
    name: Int64Array  # index into names: of the loader
    epoch: Int64Array
    batch: Int64Array  # its place in the epoch
    samples: Int64Array
    begin: Int64Array
    collate: Int64Array
    end: Int64Array
    wait_begin: Int64Array
    wait_end: Int64Array
    ahead: Int64Array
    in_order: Int64Array
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.begin)

    def pick(self, rows: NDArray[np.bool_] | Int64Array) -> Fetches:
        """Those that a mask or an index array picks."""
        return Fetches(**{name: getattr(self, name)[rows] for name in COLUMNS}, names=self.names)


_PERHAPS = ("ahead", "in_order", "pid")
COLUMNS = tuple(field.name for field in fields(Fetches) if field.name != "names")


def make_fetches(columns: dict[str, NDArray[Any]], names: tuple[str, ...]) -> Fetches:
    """Fetches of these columns, sorted by start; not known are those of _PERHAPS left out."""
    unknown = np.full(len(columns["begin"]), -1, np.int64)
    columns = dict.fromkeys(_PERHAPS, unknown) | columns
    order = np.lexsort((columns["end"], columns["process"], columns["begin"]))
    picked = {name: columns[name][order] for name in COLUMNS}
    for column in picked.values():
        column.flags.writeable = False
    return Fetches(**picked, names=names)


NO_FETCHES = make_fetches({name: np.empty(0, np.int64) for name in COLUMNS}, ())
