"""Tables of what a survey knows: Arrow between a head that says what it is and a sum over it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c

from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError
from vanidl.files.atomic import write_whole

_SUM_NBYTES = 4


def write_table(table: Any, path: Path, head: bytes, what: str) -> None:  # noqa: ANN401
    """Writes a pyarrow.Table: whole or not at all. `what` it is, an error says.

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


def read_table(path: Path, head: bytes, schema: Any) -> Any:  # noqa: ANN401
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
                return _checked(pyarrow.ipc.open_file(content).read_all(), schema)
    return schema.empty_table()


def _checked(table: Any, schema: Any) -> Any:  # noqa: ANN401
    """Raises ValueError where it is no table of these columns."""
    table.validate(full=True)
    if not table.schema.equals(schema):
        raise ValueError("a table with other columns")
    if any(table.column(field.name).null_count for field in schema if not field.nullable):
        raise ValueError("a table without what is always known")
    return table.cast(schema)


def _sum(content: Any) -> bytes:  # noqa: ANN401 - pyarrow has no types
    value: int = google_crc32c.value(content)
    return value.to_bytes(_SUM_NBYTES, "little")
