"""The JSON contract with every table in it, as one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vanidl.export.tables import OPERATIONS
from vanidl.files.atomic import write_whole
from vanidl.formatting.units import plural
from vanidl.frames import FRAMES, TABLES, FrameName, plain_frame
from vanidl.report.summary import summary_kind, summary_object
from vanidl.run import Run
from vanidl.schema import Kind


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """`summary --json` and, under `tables`, every frame but the single operations.

    A table is an object of columns, each a list; what was not recorded is null.
    """
    tables = {name: _columns(run, name) for name in FRAMES if name != OPERATIONS}
    content = summary_object(run) | {"tables": tables}
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    write_whole(path, f"{text}\n".encode(), "the export")
    return [
        ("summary", "the contract of summary --json"),
        ("tables", plural(len(tables), "table")),
    ]


def _columns(run: Run, name: FrameName) -> dict[str, list[Any]]:
    frame = plain_frame(run.frame(name))
    return {str(column): frame[column].tolist() for column in frame.columns}


def document_kind() -> dict[str, Kind]:
    """What `write` writes."""
    tables = {
        name: {column: [kind] for column, kind in TABLES[name].items()}
        for name in FRAMES
        if name != OPERATIONS
    }
    return summary_kind() | {"tables": tables}
