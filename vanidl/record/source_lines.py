"""The source text of the lines that were sampled in the program, kept beside its journals.

A report may be made elsewhere, or when the program has been changed. Nothing of it is read in the
program itself: this is done once the command has ended.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from vanidl.formatting.from_logs import clean_text

NAME = "program.source-lines"
_PARTS = (b'{"lines": "fetch"', b'{"lines": "loop"')  # as `vanidl_steps/lines.py` begins tables
_MOST_TABLE_NBYTES = 1 << 20
_MOST_SOURCE_NBYTES = 4 << 20
_LITTLE = 0.005  # of a part: the text of a line with less is not kept


def keep_source_lines(folder: Path, since_ns: int) -> None:
    """Writes the texts of costly lines; of files that were changed since the run began none.

    Args:
        folder: of the journals.
        since_ns: when the run began.
    """
    costly: dict[str, set[int]] = defaultdict(set)
    with suppress(OSError):
        for path in sorted(folder.glob("*.steps")):
            for table in _last_tables(path.read_bytes()):
                for file, line in _costly_lines(table):
                    costly[file].add(line)
        texts = [
            row for file, lines in sorted(costly.items()) for row in _texts(file, lines, since_ns)
        ]
        if texts:
            (folder / NAME).write_bytes(orjson.dumps(texts))


def _last_tables(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The last table of each part in a journal."""
    for begins in _PARTS:
        at = content.rfind(begins)
        if at >= 0:
            text = content[at : at + _MOST_TABLE_NBYTES].decode("utf-8", "replace")
            with suppress(ValueError):
                yield json.JSONDecoder().raw_decode(text)[0]


def _costly_lines(table: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    with suppress(KeyError, TypeError, ValueError):
        for function in table["functions"]:
            for line, _, wall_ns, *_ in function["costs"]:
                if wall_ns >= _LITTLE * table["wall_ns"]:
                    yield str(function["file"]), int(line)


def _texts(file: str, lines: set[int], since_ns: int) -> Iterator[tuple[str, int, str]]:
    try:
        found = os.stat(file)  # noqa: PTH116 - what it is named may be no path
        if found.st_mtime_ns >= since_ns or found.st_size > _MOST_SOURCE_NBYTES:
            return
        source = Path(file).read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return
    for line in sorted(lines):
        if 0 < line <= len(source):
            yield file, line, clean_text(source[line - 1].strip())
