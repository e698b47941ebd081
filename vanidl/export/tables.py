"""Every frame as a Parquet or CSV file; operations part by part, so memory stays small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vanidl.analyses.frames import OPERATION_COLUMNS, operation_columns, operation_words
from vanidl.breakdown.frames import FRAMES
from vanidl.files.arrow import require_arrow
from vanidl.formatting.units import plural
from vanidl.model.selection import select
from vanidl.model.trace import Part
from vanidl.run import Run

if TYPE_CHECKING:
    import pandas
    import pyarrow

OPERATIONS = "operations"
BATCH_ROWS = 1 << 18

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula."""

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
        tables = _operation_tables(run) if name == OPERATIONS else iter([_typed(run.frame(name))])
        first = next(tables, None)
        if first is not None and first.num_columns:
            path, rows = folder / f"{name}.parquet", 0
            with closing(parquet.ParquetWriter(str(path), first.schema)) as file:
                for table in chain([first], tables):
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
        frames = _operation_frames(run) if name == OPERATIONS else iter([run.frame(name)])
        first = next(frames, None)
        if first is not None and len(first.columns):
            path, rows = folder / f"{name}.csv", 0
            with path.open("w", encoding="utf-8", newline="") as file:
                for frame in chain([first], frames):
                    _flat(frame).to_csv(file, index=False, header=not rows)
                    rows += len(frame)
            written.append((path.name, plural(rows, "row")))
    return written


def _operation_parts(run: Run) -> Iterator[Part]:
    """At most BATCH_ROWS operations at a time; one without rows where nothing was traced of any."""
    seen = False
    for part in select(run.trace, run.selection).io:
        for low in range(0, len(part), BATCH_ROWS):
            seen = True
            yield part.rows(slice(low, low + BATCH_ROWS))
    if not seen and run.trace.layers_traced:
        long, short = np.empty(0, np.int64), np.empty(0, np.int32)
        none = np.empty(0, np.uint8)
        yield Part(0, run.selection.layer, long, long, long, long, short, short, none)


def _operation_tables(run: Run) -> Iterator[pyarrow.Table]:
    import pyarrow

    words = {
        name: pyarrow.array(values, pyarrow.string())
        for name, values in operation_words(run.trace).items()
    }
    for part in _operation_parts(run):
        arrays = {
            name: pyarrow.DictionaryArray.from_arrays(values, words[name])
            if name in words
            else pyarrow.array(values)
            for name, values in operation_columns(part, run.trace).items()
        }
        yield pyarrow.table([arrays[n] for n in OPERATION_COLUMNS], names=OPERATION_COLUMNS)


def _operation_frames(run: Run) -> Iterator[pandas.DataFrame]:
    import pandas

    words = {name: np.array(values, object) for name, values in operation_words(run.trace).items()}
    for part in _operation_parts(run):
        columns = operation_columns(part, run.trace)
        yield pandas.DataFrame(
            {n: words[n][columns[n]] if n in words else columns[n] for n in OPERATION_COLUMNS}
        )


def _typed(frame: pandas.DataFrame) -> pyarrow.Table:
    """The frame as a table; a column without any value counts as one of numbers."""
    import pyarrow

    columns = {
        str(name): list(frame[name])
        if frame[name].dtype.kind not in "iufb"
        else frame[name].to_numpy()
        for name in frame.columns
    }
    arrays = [pyarrow.array(values, from_pandas=True) for values in columns.values()]
    arrays = [a.cast(pyarrow.float64()) if pyarrow.types.is_null(a.type) else a for a in arrays]
    return pyarrow.table(arrays, names=list(columns))


def _flat(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The frame with nothing that a line of CSV cannot hold, or that a spreadsheet would run."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "iuf"]
    return frame.assign(**{name: frame[name].map(_cell, na_action="ignore") for name in texts})


def _cell(value: Any) -> Any:  # noqa: ANN401  (whatever a frame holds)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
