"""The rows of a survey as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vanidl.files.atomic import write_whole
from vanidl.schema.meanings import meaning_of
from vanidl.survey.rows import COLUMNS, MORE, Row


def write(rows: Sequence[Row], path: Path) -> None:
    """One row per job; what was not recorded is null.

    Raises:
        VanidlError: it cannot be written there.
    """
    import pyarrow
    from pyarrow import parquet

    kinds = [(name, kind) for name, kind, _ in COLUMNS] + list(MORE)
    schema = pyarrow.schema([_field(name, kind) for name, kind in kinds])
    # One column after the other: cleaned values of all at once take more than the table itself.
    columns = [pyarrow.array((_clean(row[f.name]) for row in rows), f.type) for f in schema]
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), buffer)
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
