"""Counters of many logs that were decoded at once, and the records of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.records import Columns, CounterRecords

Rows = NDArray[Any] | tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Together:
    """The records of one module in many logs, one log behind the other.

    On their way to another process most counters are one number: what a program does not use
    is 0 or -1 in all of its records.
    """

    layer: str
    names: tuple[str, ...]
    times: tuple[str, ...]
    file: NDArray[np.uint64]  # (records,)
    rank: NDArray[np.int64]
    counters: Rows  # of each name (records,)
    seconds: Rows

    def records(self, first: int, behind: int) -> CounterRecords:
        """Those of one log, which refer to these."""
        return _records(self, first, behind)

    def __reduce__(self) -> tuple[Any, ...]:
        sent = _sent(self.counters), _sent(self.seconds)
        return _received, (self.layer, self.names, self.times, self.file, self.rank, *sent)


@dataclass(frozen=True, slots=True)
class _Slice(CounterRecords):
    """The records of one log, sent as places among those of all."""

    together: Together
    first: int
    behind: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _records, (self.together, self.first, self.behind)


def _records(whole: Together, first: int, behind: int) -> CounterRecords:
    return _Slice(
        whole.layer,
        whole.file[first:behind],
        whole.rank[first:behind],
        Columns(whole.names, whole.counters, first, behind),
        Columns(whole.times, whole.seconds, first, behind),
        whole,
        first,
        behind,
    )


_Sent = tuple[int, NDArray[Any], NDArray[np.intp], NDArray[Any]]
"""The number of records, the first value of each row, which rows vary, and these."""


def _sent(rows: Rows) -> _Sent:
    table = np.asarray(rows)
    bits = table.view(np.int64)
    varied = np.flatnonzero((bits != bits[:, :1]).any(axis=1))
    return table.shape[1], table[:, 0], varied, table[varied]


def _received(
    layer: str,
    names: tuple[str, ...],
    times: tuple[str, ...],
    file: NDArray[np.uint64],
    rank: NDArray[np.int64],
    *sent: _Sent,
) -> Together:
    return Together(layer, names, times, file, rank, *[_rows(*each) for each in sent])


def _rows(
    records: int, first: NDArray[Any], varied: NDArray[np.intp], table: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    rows = [np.broadcast_to(value, records) for value in first]
    for i, row in zip(varied.tolist(), table, strict=True):
        rows[i] = row
    return tuple(rows)
