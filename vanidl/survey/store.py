"""What a survey keeps: rows that are done, column by column, and the table of all jobs as Parquet.

While a survey runs, rows come in small files, one per batch; at the end all are in one, so that a
night beside many known jobs makes no object of any of them. Jobs that could not be read, which may
be a million, hold the few columns that they say anything of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError, VanidlError
from vanidl.files.arrow import release_memory
from vanidl.files.atomic import streamed_file, write_whole
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import meaning_of
from vanidl.survey.rows import ALWAYS, COLUMNS, LIMITED, MORE, PLACE, Row, check_row

FOLDER = "done"
FILE = "jobs.known"
MOST_ROWS = 4096
"""Rows that are objects at one time."""

_VERSION = 3  # of the rows; raised when a column comes or changes its meaning
_HEAD = b"vanidl jobs %d\n" % _VERSION
_KEY = "key"
_SUM_NBYTES = 4  # CRC-32C at the end of a file
_ROW_GROUP = 4 * MOST_ROWS


class RowCache:
    """Rows by key of their job; where names may not be kept, only in memory.

    Raises:
        VanidlError: the folder cannot be made.
    """

    def __init__(self, output: Path, *, kept: bool = True) -> None:
        self._folder = output / FOLDER
        self._kept = kept
        make_folder(self._folder if kept else output, output)
        stored = read_table(self._folder / FILE, _HEAD, _build_stored_schema())
        keys = stored.column(_KEY).to_pylist()
        self._rows = Rows(build_schema(), stored.drop_columns([_KEY]).cast(build_schema()))
        self._place = {key: place for place, key in enumerate(keys)}
        self._batches = sorted(self._folder.glob("*.json"))
        for path in self._batches:
            self._take(_read_batch(path))

    def __contains__(self, key: str) -> bool:
        return key in self._place

    def add(self, rows: Mapping[str, Row]) -> None:
        """Keeps the rows of some jobs.

        Raises:
            VanidlError: they cannot be written.
        """
        self._take(rows)
        if not self._kept:
            return
        name = hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()[:32]
        content = json.dumps({"version": _VERSION, "rows": dict(rows)}).encode()
        self._batches.append(self._folder / f"{name}.json")
        write_whole(self._batches[-1], content, "what is done")

    def by_start(self, keys: Sequence[str], unread: Rows) -> Ordered:
        """The jobs of those keys, and others that are in no cache, by their start."""
        places = np.array([self._place[key] for key in keys], np.int64)
        return Ordered.of(self._rows.table(), places, unread.table())

    def settle(self) -> None:
        """Puts all rows into one file, but those that other limits may change.

        Raises:
            VanidlError: it cannot be written.
        """
        if not self._batches:
            return
        rows = self._rows.table()
        rows = rows.append_column(_KEY, [list(self._place)]).filter(_is_settled(rows))
        write_table(rows.cast(_build_stored_schema()), self._folder / FILE, _HEAD, "what is done")
        for path in self._batches:
            path.unlink(missing_ok=True)
        self._batches = []

    def _take(self, rows: Mapping[str, Row]) -> None:
        """Of a job that is there already, the first row stays: its logs are the same."""
        new = {key: row for key, row in rows.items() if key not in self._place}
        self._place |= {key: place for place, key in enumerate(new, len(self._place))}
        for row in new.values():
            self._rows.add(row)


def make_folder(folder: Path, output: Path) -> None:
    """Makes the folder of a survey, or one in it.

    Raises:
        VanidlError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VanidlError(
            f"cannot write {output}: {error.strerror or error}; choose another place with -o"
        ) from error


class Rows:
    """Rows that come one by one and are kept as columns."""

    def __init__(self, columns: Any, first: Any = None) -> None:  # noqa: ANN401 - no types
        self._schema = columns
        self._tables = [columns.empty_table() if first is None else first]
        self._new: list[Row] = []  # which are in no table yet

    def add(self, row: Row) -> None:
        """Keeps what the columns hold of a row."""
        self._new.append(row)
        if len(self._new) >= MOST_ROWS:
            self._fold()

    def table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """All rows, each column in one piece."""
        import pyarrow

        self._fold()
        pieces = [[t.column(i) for t in self._tables] for i in range(len(self._schema))]
        self._tables = []
        columns: list[Any] = []
        while pieces:  # which go one column after the other
            chunks = [chunk for column in pieces.pop(0) for chunk in column.chunks]
            columns.append(pyarrow.chunked_array(chunks, self._schema[len(columns)].type))
            del chunks
            columns[-1] = columns[-1].combine_chunks()
            release_memory()
        self._tables = [pyarrow.table(columns, schema=self._schema)]
        return self._tables[0]

    def _fold(self) -> None:
        if self._new:
            self._tables.append(build_table(self._new, self._schema))
            self._new = []


@dataclass(frozen=True)
class Ordered:
    """All jobs of a survey by start, those of an unknown one first: never all of them whole.

    Attributes:
        order: places of the jobs, those that were read before the others.
        many_read: how many of them were read.
    """

    order: NDArray[np.int64]
    many_read: int
    _done: Any
    _places: NDArray[np.int64]
    _unread: Any

    @classmethod
    def of(cls, done: Any, places: NDArray[np.int64], unread: Any) -> Ordered:  # noqa: ANN401
        """The rows of `done` at the places, and all of `unread`, which have fewer columns."""
        import pyarrow
        from pyarrow import compute

        keys = done.select(["start", "first_log"]).take(places)
        none = unread.select(["first_log"]).add_column(
            0, "start", pyarrow.nulls(len(unread), "string")
        )
        keys = pyarrow.concat_tables([keys, none.cast(keys.schema)])
        keys = keys.set_column(0, "start", compute.fill_null(keys.column("start"), ""))
        by = [(name, "ascending") for name in keys.column_names]
        order = compute.sort_indices(keys, sort_keys=by).to_numpy().astype(np.int64)
        return cls(order, len(places), done, places, unread)

    def __len__(self) -> int:
        return len(self.order)

    def tables(self) -> Iterator[Any]:
        """The rows in turn, as tables of some thousand."""
        import pyarrow

        columns = build_schema()
        for first in range(0, len(self.order), _ROW_GROUP):
            some = self.order[first : first + _ROW_GROUP]
            is_read = some < self.many_read
            read = self._done.take(self._places[some[is_read]])
            unread = self._unread.take(some[~is_read] - self.many_read)
            # What could not be read has few columns: the others are null.
            filled = [
                unread.column(field.name)
                if field.name in unread.column_names
                else pyarrow.nulls(len(unread), field.type)
                for field in columns
            ]
            both = pyarrow.concat_tables([read, pyarrow.table(filled, schema=columns)])
            back = np.empty(len(some), np.int64)
            back[np.concatenate([np.flatnonzero(is_read), np.flatnonzero(~is_read)])] = np.arange(
                len(some)
            )
            yield both.take(back).combine_chunks()


class StoredTable:
    """A Parquet file, of which each column is read when it is asked for, and let go after."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(path)
        self.num_rows: int = self._file.metadata.num_rows

    def column(self, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """A pyarrow.ChunkedArray."""
        return self._file.read([name], use_threads=False).column(0)

    def pieces(self, name: str) -> Iterator[Any]:
        """The same column as arrays of some thousand rows, of which one is held at a time."""
        for group in range(self._file.num_row_groups):
            column = self._file.read_row_group(group, [name], use_threads=False).column(0)
            yield from column.iterchunks()

    def take(self, places: NDArray[np.intp]) -> Any:  # noqa: ANN401
        """The rows of those places, whole and in turn: a pyarrow.Table."""
        import pyarrow

        tables, found = [self._file.schema_arrow.empty_table()], [np.empty(0, np.intp)]
        first = 0
        for group in range(self._file.num_row_groups):
            behind = first + self._file.metadata.row_group(group).num_rows
            inside = np.flatnonzero((places >= first) & (places < behind))
            if len(inside):
                rows = self._file.read_row_group(group, use_threads=False)
                tables.append(rows.take(places[inside] - first))
                found.append(inside)
            first = behind
        return pyarrow.concat_tables(tables).take(np.argsort(np.concatenate(found)))


def build_schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """A pyarrow.Schema: the columns of a row, what they mean and in which units."""
    import pyarrow

    fields = []
    for name, kind in [(name, kind) for name, kind, _ in COLUMNS] + list(MORE):
        item = getattr(pyarrow, _FACTORY[kind.removesuffix("s")])()
        meaning = meaning_of(f"survey.{name}")
        about = {"description": meaning.text, "unit": meaning.unit}
        whole = pyarrow.list_(item) if kind.endswith("s") else item
        fields.append(pyarrow.field(name, whole, metadata=about))
    return pyarrow.schema(fields)


def build_unread_schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """The columns that say something of a job that could not be read."""
    import pyarrow

    return pyarrow.schema([field for field in build_schema() if field.name in PLACE])


_FACTORY = {"string": "string", "double": "float64", "int64": "int64", "bool": "bool_"}


def build_table(rows: Sequence[Row], columns: Any = None) -> Any:  # noqa: ANN401
    """A pyarrow.Table with one row per job; what was not recorded is null."""
    import pyarrow

    columns = build_schema() if columns is None else columns
    # One column after the other: cleaned values of all at once take more than the table itself.
    arrays = [pyarrow.array((clean_value(row[f.name]) for row in rows), f.type) for f in columns]
    return pyarrow.table(arrays, schema=columns)


def write_jobs(
    tables: Iterable[Any],
    path: Path,
    shown: Callable[[Sequence[Row]], Sequence[Row]] | None = None,
) -> None:
    """Writes tables one after the other as Parquet: whole or not at all.

    Args:
        tables: with the columns of a row.
        path: of the file.
        shown: what is written instead of some rows, None: they themselves.

    Raises:
        VanidlError: it cannot be written there.
    """
    from pyarrow import parquet

    with streamed_file(path) as file, parquet.ParquetWriter(file, build_schema()) as writer:
        for table in tables:
            release_memory()
            if shown is None:
                writer.write_table(table)
                continue
            for first in range(0, len(table), MOST_ROWS):
                writer.write_table(build_table(shown(table.slice(first, MOST_ROWS).to_pylist())))


def write_table(table: Any, path: Path, head: bytes, what: str) -> None:  # noqa: ANN401
    """Writes a pyarrow.Table between a head and a sum: whole or not at all.

    `what` it is, an error says.

    Raises:
        VanidlError: it cannot be written there.
    """
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as file:
        file.write_table(table.combine_chunks())
    content = sink.getvalue()
    # Names of logs as they are, to find them again: for the owner alone.
    write_whole(path, b"".join((head, content, _sum(content))), what, private=True)


def read_table(path: Path, head: bytes, columns: Any) -> Any:  # noqa: ANN401
    """The pyarrow.Table of a file; an empty one where it is damaged or of another version.

    Columns that the schema says are never null are not.
    """
    import pyarrow

    with suppress(OSError, InputError, ValueError, pyarrow.ArrowException):
        whole = pyarrow.py_buffer(read_whole(path))
        nbytes = whole.size - len(head) - _SUM_NBYTES
        if nbytes > 0 and whole.slice(0, len(head)).to_pybytes() == head:
            content = whole.slice(len(head), nbytes)
            if whole.slice(len(head) + nbytes).to_pybytes() == _sum(content):
                return _check_table(pyarrow.ipc.open_file(content).read_all(), columns)
    return columns.empty_table()


def _check_table(table: Any, columns: Any) -> Any:  # noqa: ANN401
    """Raises ValueError where it is no table of these columns."""
    table.validate(full=True)
    if not table.schema.equals(columns):
        raise ValueError("a table with other columns")
    if any(table.column(field.name).null_count for field in columns if not field.nullable):
        raise ValueError("a table without what is always known")
    return table.cast(columns)


def _sum(content: Any) -> bytes:  # noqa: ANN401 - pyarrow has no types
    value: int = google_crc32c.value(content)
    return value.to_bytes(_SUM_NBYTES, "little")


def clean_value(value: Any) -> Any:  # noqa: ANN401
    """A value, list or row with text as UTF-8 holds it: a path may have bytes that it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: clean_value(each) for name, each in value.items()}
    return [clean_value(item) for item in value] if isinstance(value, list) else value


def _build_stored_schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """Columns of the file of all rows, which says what is never null."""
    import pyarrow

    fields = [field.with_nullable(field.name not in ALWAYS) for field in build_schema()]
    return pyarrow.schema([*fields, pyarrow.field(_KEY, "string", nullable=False)])


def _is_settled(rows: Any) -> Any:  # noqa: ANN401
    """Of which rows the problem, if any, is none that other limits may change."""
    from pyarrow import compute

    problem = compute.fill_null(rows.column("problem"), "")
    return compute.invert(compute.ends_with(problem, LIMITED))


def _read_batch(path: Path) -> dict[str, Row]:
    """The rows of one batch, none where they are of another version or damaged: redone then."""
    found: dict[str, Row] = {}
    with suppress(OSError, ValueError, TypeError, KeyError, InputError, RecursionError):
        content = json.loads(read_whole(path))
        if content["version"] == _VERSION:
            for key, row in dict(content["rows"]).items():
                with suppress(TypeError, ValueError):
                    found[key] = check_row(row)
    # One that was given up because of limits may be read within other ones.
    return {k: row for k, row in found.items() if not (row["problem"] or "").endswith(LIMITED)}
