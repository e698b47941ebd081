"""Every frame as a Parquet or CSV file; operations part by part, so memory stays small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanidl.files.arrow import require_arrow
from vanidl.files.atomic import write_whole
from vanidl.formatting.names import format_csv_cell
from vanidl.formatting.units import plural
from vanidl.frames import FRAMES, TABLES, FrameName, arrow_table, operation_frames, plain_frame
from vanidl.report.summary import summary_kind, summary_object
from vanidl.run import Run
from vanidl.schema.schema import Kind

if TYPE_CHECKING:
    import pandas

OPERATIONS = "operations"
BATCH_ROWS = 1 << 18

Written = list[tuple[str, str]]


def write_parquet(run: Run, folder: Path) -> Written:
    """One Parquet file a frame; text is UTF-8, what was not recorded is null.

    Raises:
        UsageError: pyarrow is not installed.
    """
    require_arrow("--to parquet needs")
    import pyarrow.parquet as parquet

    written = []
    for name in FRAMES:
        path, rows = folder / f"{name}.parquet", 0
        blocks = (arrow_table(name, frame) for frame in _iterate_blocks(run, name))
        first = next(blocks)  # of no operations there is one, too
        with parquet.ParquetWriter(str(path), first.schema) as file:
            for table in chain([first], blocks):
                file.write_table(table)
                rows += table.num_rows
        written.append((path.name, plural(rows, "row")))
    return written


def write_csv(run: Run, folder: Path) -> Written:
    """One CSV file a frame; what was not recorded is empty, lists are JSON.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    written = []
    for name in FRAMES:
        path, rows = folder / f"{name}.csv", 0
        with path.open("w", encoding="utf-8", newline="") as file:
            for frame in _iterate_blocks(run, name):
                _flatten_frame(frame).to_csv(file, index=False, header=not rows)
                rows += len(frame)
        written.append((path.name, plural(rows, "row")))
    return written


def _iterate_blocks(run: Run, name: FrameName) -> Iterator[pandas.DataFrame]:
    """The frame, that of operations in blocks of at most BATCH_ROWS."""
    return operation_frames(run, BATCH_ROWS) if name == OPERATIONS else iter([run.frame(name)])


def _flatten_frame(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The frame with nothing that a line of CSV cannot hold, or that a spreadsheet would run."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "iufM"]
    return frame.assign(
        **{
            name: frame[name].astype(object).map(format_csv_cell, na_action="ignore")
            for name in texts
        }
    )


# The JSON contract with every table in it, as one file.


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """`summary --json` and, under `tables`, every frame but the single operations.

    A table is an object of columns, each a list; what was not recorded is null.
    """
    tables = {name: _read_columns(run, name) for name in FRAMES if name != OPERATIONS}
    content = summary_object(run) | {"tables": tables}
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    write_whole(path, f"{text}\n".encode(), "the export")
    return [
        ("summary", "the contract of summary --json"),
        ("tables", plural(len(tables), "table")),
    ]


def _read_columns(run: Run, name: FrameName) -> dict[str, list[Any]]:
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
