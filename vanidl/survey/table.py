"""The rows of a survey as a table of columns, and as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vanidl.files.atomic import write_whole
from vanidl.schema.meanings import meaning_of
from vanidl.survey.rows import COLUMNS, MORE, Row


def schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """A pyarrow.Schema: the columns of a row, what they mean and in which units."""
    import pyarrow

    kinds = [(name, kind) for name, kind, _ in COLUMNS] + list(MORE)
    return pyarrow.schema([_field(name, kind) for name, kind in kinds])


def table_of(rows: Sequence[Row]) -> Any:  # noqa: ANN401
    """A pyarrow.Table with one row per job; what was not recorded is null."""
    import pyarrow

    columns = schema()
    # One column after the other: cleaned values of all at once take more than the table itself.
    arrays = [pyarrow.array((_clean(row[f.name]) for row in rows), f.type) for f in columns]
    return pyarrow.table(arrays, schema=columns)


def write(table: Any, path: Path) -> None:  # noqa: ANN401
    """Writes a table as Parquet: whole or not at all.

    Raises:
        VanidlError: it cannot be written there.
    """
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    write_whole(path, buffer.getvalue(), "the table of jobs")


def _field(name: str, kind: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The column, which says what it means and in which unit."""
    import pyarrow

    meaning = meaning_of(f"survey.{name}")
    about = {"description": meaning.text, "unit": meaning.unit}
    return pyarrow.field(name, _type(kind), metadata=about)


def _type(kind: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow

    item = getattr(pyarrow, _FACTORY[kind.removesuffix("s")])()
    return pyarrow.list_(item) if kind.endswith("s") else item


_FACTORY = {"string": "string", "double": "float64", "int64": "int64", "bool": "bool_"}


def _clean(value: object) -> object:
    """Text that UTF-8 can hold: a path may have bytes that it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return [_clean(item) for item in value] if isinstance(value, list) else value
