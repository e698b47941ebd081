"""Parts that wait packed in memory, or in a temporary Parquet file: one row group a part.

They are unpacked or read when they are asked for, the same bits, so that of many operations only
those of the parts at work take their whole room in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import VanidlError
from vanidl.model.trace import COLUMNS, Part
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow.parquet


# Parts in as few bytes as their numbers need: about half of the memory, the same bits.

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
        pack_part: dict[str, NDArray[Any] | _Runs] = dict(columns)
        pack_part |= {name: _narrow_column(columns[name]) for name in _NARROW}
        pack_part |= {name: _join_runs(columns[name]) for name in _RUNS}
        return cls(process, layer, pack_part)

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
        pack_part = self.columns[name]
        if isinstance(pack_part, _Runs):
            pack_part = np.repeat(pack_part.values, pack_part.counts)
        column: NDArray[Any] = pack_part.astype(_TYPES[name], copy=False)
        column.flags.writeable = False
        return column


def pack_part(process: int, layer: str, columns: Mapping[str, NDArray[Any]]) -> PackedPart | Part:
    """What keeps columns by name, as in `Part`: a small part as it is."""
    if len(columns["start"]) >= _SMALL:
        return PackedPart.of(process, layer, columns)
    wide = {name: columns[name].astype(_TYPES[name], copy=False) for name in COLUMNS}
    for column in wide.values():
        column.flags.writeable = False
    return Part(process, layer, **wide)


def _narrow_column(column: NDArray[Any]) -> NDArray[Any]:
    """In 32 bits, without a copy where it is already."""
    if column.dtype != np.int64 or not len(column):
        return column
    # A negative number is a very large one where it is taken without its sign.
    fits = int(column.view(np.uint64).max()) <= np.iinfo(np.uint32).max
    return column.astype(np.uint32) if fits else column


def _join_runs(column: NDArray[Any]) -> NDArray[Any] | _Runs:
    first = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    if len(first) * _SHORT_RUNS > len(column):
        return column
    return _Runs(column[first], np.diff(first, append=len(column)))


MOST_ROWS = 64_000_000
"""More operations than this are never all held in memory: 1.6 GB where their numbers are small,
and as much again while they are analysed."""

ROW_NBYTES = 45  # at most
_SHARE = 4  # the parts may take a quarter of the memory at hand


def read_free_memory() -> int | None:
    """Bytes of memory that are free now, None where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def is_too_many(rows: int) -> bool:
    """Whether that many operations should not all be held in memory."""
    free = read_free_memory()
    short = free is not None and rows > (1 << 20) and rows * ROW_NBYTES > free // _SHARE
    return rows > MOST_ROWS or short


@dataclass(frozen=True, slots=True)
class _Place:
    """One part: where it lies, or the part itself."""

    layer: str
    process: int
    start: int
    rows: int
    group: int  # row group in the file
    part: PackedPart | Part | None
    shift_ns: int = 0  # to add to the times of what is packed or lies in the file

    @property
    def key(self) -> tuple[str, int, int]:
        """Parts come by layer, process and time."""
        return self.layer, self.process, self.start

    def shifted(self, offset_ns: int) -> _Place:
        """The same part that much later."""
        if not offset_ns:
            return self
        start = self.start + offset_ns
        if isinstance(self.part, Part):
            return replace(self, start=start, part=self.part.shifted(offset_ns))
        return replace(self, start=start, shift_ns=self.shift_ns + offset_ns)


class Parts(Sequence[Part]):
    """Parts in memory or in a temporary file, which goes when the last of these does."""

    def __init__(self, places: Sequence[_Place], folder: _Folder | None) -> None:
        self._places = places
        self._folder = folder

    @property
    def layers(self) -> tuple[str, ...]:
        """The layer of each part; reads none."""
        return tuple(place.layer for place in self._places)

    @property
    def processes(self) -> tuple[int, ...]:
        """The process of each part; reads none."""
        return tuple(place.process for place in self._places)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of operations of each part; reads none."""
        return tuple(place.rows for place in self._places)

    def at(self, indices: Iterable[int]) -> Parts:
        """The parts of these indices; reads none."""
        return Parts([self._places[i] for i in indices], self._folder)

    def by_process(self, layer: str) -> dict[int, Parts]:
        """Process -> its parts of one layer; reads none."""
        found: dict[int, list[_Place]] = {}
        for place in self._places:
            if place.layer == layer:
                found.setdefault(place.process, []).append(place)
        return {process: Parts(places, self._folder) for process, places in found.items()}

    def shifted(self, offset_ns: Mapping[int, int], without: str = "") -> Parts:
        """The same operations, those of each process in `offset_ns` that much later.

        Those of the layer `without` stay where they are.
        """
        places = [
            place.shifted(offset_ns.get(place.process, 0))
            if offset_ns and place.layer != without
            else place
            for place in self._places
        ]
        return Parts(sorted(places, key=lambda place: place.key), self._folder)

    @property
    def spilled(self) -> bool:
        """Whether the parts lie in a file."""
        return self._folder is not None

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Parts: ...
    def __getitem__(self, index: int | slice) -> Part | Parts:
        """One part, unpacked or read where it lies in the file, or fewer of them."""
        if isinstance(index, slice):
            return Parts(self._places[index], self._folder)
        return self._part(self._places[index])

    def __iter__(self) -> Iterator[Part]:
        """Every part in turn."""
        return map(self._part, self._places)

    def _part(self, place: _Place) -> Part:
        if isinstance(place.part, Part):
            return place.part
        if place.part is not None:
            return place.part.unpacked().shifted(place.shift_ns)
        if self._folder is None:
            raise AssertionError("a part without a place")
        return self._folder.read(place).shifted(place.shift_ns)


def sizes_of(parts: Sequence[Part]) -> list[int]:
    """The number of operations of each part; unpacks and reads none where that is known."""
    sizes = getattr(parts, "sizes", None)
    return [*map(len, parts)] if sizes is None else [*sizes]


class Store:
    """Takes parts one by one and keeps them where there is room."""

    def __init__(self, folder: _Folder | None) -> None:
        self._folder = folder
        self._places: list[_Place] = []

    @classmethod
    def for_rows(cls, rows: int, *, spilled: bool | None = None) -> Store:
        """A store for so many operations; `spilled` says where, None: what fits.

        Raises:
            VanidlError: there is no room for a temporary file.
        """
        wanted = is_too_many(rows) if spilled is None else spilled
        can = find_spec("pyarrow") is not None  # without it, all stays in memory
        return cls(_Folder() if wanted and can else None)

    def add(self, part: PackedPart | Part) -> None:
        """Keeps one part.

        Raises:
            VanidlError: the temporary file has no more room.
        """
        start = int(part.start[0]) if len(part) else 0
        if self._folder is None:
            place = _Place(part.layer, part.process, start, len(part), -1, part)
            self._places.append(place)
        elif len(part):
            group = self._folder.write(part if isinstance(part, Part) else part.unpacked())
            place = _Place(part.layer, part.process, start, len(part), group, None)
            self._places.append(place)

    def finished(self) -> Parts:
        """All parts by layer, process and start."""
        if self._folder is not None:
            self._folder.close()
        return Parts(sorted(self._places, key=lambda place: place.key), self._folder)


class _Folder:
    """One Parquet file in a folder of its own.

    A copy in another process reads the same file, where that process sees it, and leaves it
    there: it belongs to the process that wrote it, which must hold the original for as long.
    """

    def __init__(self) -> None:
        try:
            folder = tempfile.mkdtemp(prefix="vanidl-")
        except OSError as error:
            raise _explain_no_room(error) from error
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path = Path(folder) / "operations.parquet"
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._groups = 0

    def __getstate__(self) -> dict[str, object]:
        return {"_path": self._path, "_writer": None, "_groups": self._groups}

    def write(self, part: Part) -> int:
        """Appends a part; the number of its row group."""
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({name: getattr(part, name) for name in COLUMNS})
        try:
            # Made with the first part, whose columns are those of all.
            if self._writer is None:
                self._writer = pyarrow.parquet.ParquetWriter(
                    self._path, table.schema, compression="none", use_dictionary=False,
                    write_statistics=False,
                )  # fmt: skip
            self._writer.write_table(table, row_group_size=len(part))
        except OSError as error:
            raise _explain_no_room(error) from error
        self._groups += 1
        return self._groups - 1

    def close(self) -> None:
        """No more parts come."""
        if self._writer is not None:
            self._writer.close()

    def read(self, place: _Place) -> Part:
        """The part of a place, its columns read-only."""
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self._path) as file:
            table = file.read_row_group(place.group, use_threads=False)
        columns = [table.column(name).to_numpy() for name in COLUMNS]
        for column in columns:
            column.setflags(write=False)
        return Part(place.process, place.layer, *(np.ascontiguousarray(c) for c in columns))


def _explain_no_room(error: OSError) -> VanidlError:
    return VanidlError(
        f"cannot write temporary files: {error.strerror or error}; name a folder with room in "
        "the environment variable TMPDIR"
    )
