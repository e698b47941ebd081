"""Columns of slices and of busy time in files that are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError

Int64Array = NDArray[np.int64]
Columns = Mapping[str, NDArray[Any]]

TYPES: dict[str, str] = {
    "start": "<i8", "end": "<i8", "offset": "<i8", "nbytes": "<i8", "name": "<i4",
    "thread": "<i4", "process": "<i4", "row": "<u1", "write": "<u1",
    "reach": "<i8", "busy_start": "<i8", "busy_end": "<i8", "busy_before": "<i8",
    "fate_start": "<i8", "fate": "<u1",
}  # fmt: skip
"""Columns of a store: of slices, the latest end up to each block of them (`reach`), busy time
with how much of it came before, and the fates of each rank."""


class Writer:
    """Appends to columns; knows how long each is."""

    def __init__(self, files: Mapping[str, IO[bytes]]) -> None:
        self._files = files
        self.lengths = dict.fromkeys(files, 0)

    def add(self, name: str, values: NDArray[Any]) -> tuple[int, int]:
        """Appends values; the range that they have in the column."""
        first = self.lengths[name]
        np.ascontiguousarray(values, TYPES[name]).tofile(self._files[name])
        self.lengths[name] = first + len(values)
        return first, self.lengths[name]


@contextmanager
def writing(folder: Path) -> Iterator[Writer]:
    """New, empty columns in a folder."""
    with ExitStack() as stack:
        yield Writer({n: stack.enter_context(_path(folder, n).open("wb")) for n in TYPES})


def mapped(folder: Path, lengths: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """The columns of a folder, read-only.

    Raises:
        InputError: a file is missing or not as long as it should be.
        OSError: a file cannot be opened.
    """
    found = {}
    for name, kind in TYPES.items():
        path, length = _path(folder, name), lengths[name]
        if path.stat().st_size != length * np.dtype(kind).itemsize:
            raise InputError(f"{path}: expected {length:,} values, found another number")
        found[name] = np.memmap(path, kind, "r", shape=(length,)) if length else np.empty(0, kind)
    return found


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
