"""The rows of a survey as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from vanidl.files.atomic import write_whole
from vanidl.survey.rows import COLUMNS, MORE, Row


def write(rows: Sequence[Row], path: Path) -> None:
    """One row per job; what was not recorded is null.

    Raises:
        VanidlError: it cannot be written there.
    """
    import pyarrow
    from pyarrow import parquet

    kinds = [(name, kind) for name, kind, _ in COLUMNS] + list(MORE)
    schema = pyarrow.schema([(n, getattr(pyarrow, _FACTORY[k])()) for n, k in kinds])
    columns = {name: [_clean(row[name]) for row in rows] for name, _ in kinds}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), buffer)
    write_whole(path, buffer.getvalue(), "the table of jobs")


_FACTORY = {"string": "string", "double": "float64", "int64": "int64", "bool": "bool_"}


def _clean(value: object) -> object:
    """Text that UTF-8 can hold: a path may have bytes that it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
