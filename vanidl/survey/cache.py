"""Rows that a survey has finished, in its folder: it goes on from them when it was stopped.

While it runs they come in small files, one per batch; at the end all are in one, column by column,
so that a night beside many known jobs makes no object of any of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError, VanidlError
from vanidl.files.atomic import write_whole
from vanidl.survey.rows import ALWAYS, LIMITED, Row, checked
from vanidl.survey.stored import read_table, write_table
from vanidl.survey.table import schema, table_of

FOLDER = "done"
FILE = "jobs.known"
_VERSION = 2  # of the rows; raised when a column comes or changes its meaning
_HEAD = b"vanidl jobs %d\n" % _VERSION
_KEY = "key"
_MOST_ROWS = 4096  # that are objects at one time


class RowCache:
    """Rows by key of their job; where names may not be kept, only in memory.

    Raises:
        VanidlError: the folder cannot be made.
    """

    def __init__(self, output: Path, *, kept: bool = True) -> None:
        self._folder = output / FOLDER
        self._kept = kept
        try:
            (self._folder if kept else output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise VanidlError(
                f"cannot write {output}: {error.strerror or error}; choose another place with -o"
            ) from error
        stored = read_table(self._folder / FILE, _HEAD, _schema())
        keys = stored.column(_KEY).to_pylist()
        self._tables = [stored.drop_columns([_KEY]).cast(schema())]
        self._place = {key: place for place, key in enumerate(keys)}
        self._rows: list[Row] = []  # which are in no table yet
        self._batches = sorted(self._folder.glob("*.json"))
        for path in self._batches:
            self._take(_rows(path))

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

    def table(self, keys: Sequence[str], more: Iterable[Row] = ()) -> Any:  # noqa: ANN401
        """The rows of jobs by their keys, in turn, and then some that have none.

        Of those, which may be a million, some thousand at a time are objects.

        Returns:
            A pyarrow.Table with the columns of a row.
        """
        import pyarrow

        rows, tables = iter(more), [self._whole()]
        while some := list(islice(rows, _MOST_ROWS)):
            tables.append(table_of(some))
        whole = pyarrow.concat_tables(tables)
        first = len(self._place)
        places = [*(self._place[key] for key in keys), *range(first, len(whole))]
        return whole.take(np.array(places, np.int64)).combine_chunks()

    def settle(self) -> None:
        """Puts all rows into one file, but those that other limits may change.

        Raises:
            VanidlError: it cannot be written.
        """
        if not self._batches:
            return
        rows = self._whole()
        rows = rows.append_column(_KEY, [list(self._place)]).filter(_is_settled(rows))
        write_table(rows.cast(_schema()), self._folder / FILE, _HEAD, "what is done")
        for path in self._batches:
            path.unlink(missing_ok=True)
        self._batches = []

    def _take(self, rows: Mapping[str, Row]) -> None:
        """Of a job that is there already, the first row stays: its logs are the same."""
        new = {key: row for key, row in rows.items() if key not in self._place}
        self._place |= {key: place for place, key in enumerate(new, len(self._place))}
        self._rows += new.values()
        if len(self._rows) >= _MOST_ROWS:
            self._fold()

    def _fold(self) -> None:
        self._tables.append(table_of(self._rows))
        self._rows = []

    def _whole(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        import pyarrow

        self._fold()
        return pyarrow.concat_tables(self._tables)


def _schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """Columns of the file of all rows, which says what is never null."""
    import pyarrow

    fields = [field.with_nullable(field.name not in ALWAYS) for field in schema()]
    return pyarrow.schema([*fields, pyarrow.field(_KEY, "string", nullable=False)])


def _is_settled(rows: Any) -> Any:  # noqa: ANN401
    """Of which rows the problem, if any, is none that other limits may change."""
    from pyarrow import compute

    problem = compute.fill_null(rows.column("problem"), "")
    return compute.invert(compute.ends_with(problem, LIMITED))


def _rows(path: Path) -> dict[str, Row]:
    """The rows of one batch, none where they are of another version or damaged: redone then."""
    found: dict[str, Row] = {}
    with suppress(OSError, ValueError, TypeError, KeyError, InputError, RecursionError):
        content = json.loads(read_whole(path))
        if content["version"] == _VERSION:
            for key, row in dict(content["rows"]).items():
                with suppress(TypeError, ValueError):
                    found[key] = checked(row)
    return {key: row for key, row in found.items() if not _is_limited(row)}


def _is_limited(row: Row) -> bool:
    """Whether the job was given up because of limits that may be other ones now."""
    return (row["problem"] or "").endswith(LIMITED)
