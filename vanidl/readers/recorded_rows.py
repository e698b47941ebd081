"""Files that the recorder's hooks write in a process: a line, then rows of 64-bit integers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.readers.budget import read_whole

_INTEGER_BYTES = 8


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """The whole rows of a file, its first line among them; `losses` says what is cut."""

    rows: NDArray[np.int64]  # (rows, integers of a row)
    nbytes: int  # of the file
    losses: tuple[str, ...]


def read_rows(path: Path, magics: tuple[bytes, ...], what: str) -> RecordedRows:
    """The rows of a file that begins with one of `magics`, which are one row long each.

    Raises:
        InputError: it cannot be read, or is something else than `what`.
    """
    try:
        content = read_whole(path)
    except OSError as error:
        raise unusable(path, what, f"no readable file ({error.strerror})") from error
    if not content.startswith(magics):
        raise unusable(path, what, "something else or nothing")
    row_bytes = len(magics[0])
    columns = row_bytes // _INTEGER_BYTES
    cut = len(content) % row_bytes
    losses = (f"its last row is cut: {cut} of {row_bytes} bytes",) if cut else ()
    rows = np.frombuffer(content, "<i8", len(content) // row_bytes * columns)
    return RecordedRows(rows.reshape(-1, columns), len(content), losses)


def unusable(path: Path, what: str, found: str) -> InputError:
    """The error of a file that holds none of what was recorded."""
    return InputError(
        f"{path}: expected {what} recorded by `vanidl record`, found {found}; remove it, the rest "
        "of the run can be used without"
    )
