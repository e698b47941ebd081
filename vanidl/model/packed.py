"""Parts in as few bytes as their numbers need: about half of the memory, the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import COLUMNS, Part

_TYPES: dict[str, type[np.integer]] = dict.fromkeys(COLUMNS, np.int64)
_TYPES |= {"thread": np.int32, "file": np.int32, "op": np.uint8}
_NARROW = ("offset", "nbytes")
_RUNS = ("thread", "file", "op")
_SHORT_RUNS = 16  # rows: shorter ones are no gain
_SMALL = 4096  # rows: of thousands of such parts the calls take longer than the memory is worth


@dataclass(frozen=True, slots=True)
class _Runs:
    """A column of which neighbours are mostly equal."""

    values: NDArray[Any]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedPart:
    """The columns of a `Part`: offsets and sizes in 32 bits where they fit, codes by runs.

    Times stay as they are: what is derived of them, as busy time, shares their memory.
    """

    process: int
    layer: str
    columns: Mapping[str, NDArray[Any] | _Runs]

    @classmethod
    def of(cls, process: int, layer: str, columns: Mapping[str, NDArray[Any]]) -> PackedPart:
        """Packs columns by name, as in `Part`; those that need no packing are kept, not copied."""
        packed: dict[str, NDArray[Any] | _Runs] = dict(columns)
        packed |= {name: _narrow(columns[name]) for name in _NARROW}
        packed |= {name: _in_runs(columns[name]) for name in _RUNS}
        return cls(process, layer, packed)

    @property
    def start(self) -> NDArray[np.int64]:
        """As in `Part`."""
        return self._column("start")

    def __len__(self) -> int:
        return len(self.start)

    def unpacked(self) -> Part:
        """The part, its columns read-only."""
        return Part(self.process, self.layer, **{name: self._column(name) for name in COLUMNS})

    def _column(self, name: str) -> NDArray[Any]:
        packed = self.columns[name]
        if isinstance(packed, _Runs):
            packed = np.repeat(packed.values, packed.counts)
        column: NDArray[Any] = packed.astype(_TYPES[name], copy=False)
        column.flags.writeable = False
        return column


def packed(process: int, layer: str, columns: Mapping[str, NDArray[Any]]) -> PackedPart | Part:
    """What keeps columns by name, as in `Part`: a small part as it is."""
    if len(columns["start"]) >= _SMALL:
        return PackedPart.of(process, layer, columns)
    wide = {name: columns[name].astype(_TYPES[name], copy=False) for name in COLUMNS}
    for column in wide.values():
        column.flags.writeable = False
    return Part(process, layer, **wide)


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """In 32 bits, without a copy where it is already."""
    if column.dtype != np.int64 or not len(column):
        return column
    # A negative number is a very large one where it is taken without its sign.
    fits = int(column.view(np.uint64).max()) <= np.iinfo(np.uint32).max
    return column.astype(np.uint32) if fits else column


def _in_runs(column: NDArray[Any]) -> NDArray[Any] | _Runs:
    first = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    if len(first) * _SHORT_RUNS > len(column):
        return column
    return _Runs(column[first], np.diff(first, append=len(column)))
