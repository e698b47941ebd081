"""Rows that a survey has finished, in its folder: one small file per batch, written whole.

A survey that was stopped resumes from them; only jobs whose logs changed are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vanidl.errors import InputError, VanidlError
from vanidl.files.atomic import write_whole
from vanidl.readers.budget import read_whole
from vanidl.survey.rows import LIMITED, Row, checked

FOLDER = "done"
_VERSION = 2  # of the rows; raised when a column comes or changes its meaning


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
        self.rows: dict[str, Row] = {}
        for path in sorted(self._folder.glob("*.json")):
            self.rows |= _rows(path)

    def add(self, rows: Mapping[str, Row]) -> None:
        """Keeps the rows of some jobs.

        Raises:
            VanidlError: they cannot be written.
        """
        name = hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()[:32]
        self.rows |= rows
        if not self._kept:
            return
        content = json.dumps({"version": _VERSION, "rows": dict(rows)}).encode()
        write_whole(self._folder / f"{name}.json", content, "what is done")


def _rows(path: Path) -> dict[str, Row]:
    """The rows of one file, none where they are of another version or damaged: redone then."""
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
