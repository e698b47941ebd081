"""Every frame as a Parquet or CSV file; operations part by part, so memory stays small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
from vanidl.model.trace import Part, Trace
from vanidl.run import Run

if TYPE_CHECKING:
    import pandas
    import pyarrow

OPERATIONS = "operations"
BATCH_ROWS = 1 << 18

_FORMULA = r"\A[=+\-@\t\r\n]"

Written = list[tuple[str, str]]


def write_parquet(run: Run, folder: Path) -> Written:
    """One Parquet file a frame; text is UTF-8, what was not recorded is null.

    Raises:
        UsageError: pyarrow is not installed.
    """
    require_arrow("--to parquet needs")
    import pyarrow.parquet as parquet

    return _write(run, folder, ".parquet", lambda path, schema: parquet.ParquetWriter(path, schema))


def write_csv(run: Run, folder: Path) -> Written:
    """One CSV file a frame; what was not recorded is empty, lists are JSON.

    A text that a spreadsheet would take for a formula has an apostrophe before it.

    Raises:
        UsageError: pyarrow is not installed.
    """
    require_arrow("--to csv needs")
    from pyarrow import csv

    return _write(run, folder, ".csv", lambda path, schema: csv.CSVWriter(path, schema), _flat)


def _write(
    run: Run,
    folder: Path,
    suffix: str,
    writer: Callable[[str, pyarrow.Schema], Any],
    prepared: Callable[[pyarrow.Table], pyarrow.Table] = lambda table: table,
) -> Written:
    written = []
    for name in FRAMES:
        batches = (prepared(batch) for batch in _batches(run, name))
        first = next(batches, None)
        if first is not None:
            rows = 0
            with closing(writer(str(folder / f"{name}{suffix}"), first.schema)) as file:
                for batch in chain([first], batches):
                    file.write_table(batch)
                    rows += batch.num_rows
            written.append((f"{name}{suffix}", plural(rows, "row")))
    return written


def _batches(run: Run, name: str) -> Iterator[pyarrow.Table]:
    """The rows of a frame; nothing where it has no columns, as nothing was recorded."""
    if name == OPERATIONS:
        yield from _operation_batches(run)
        return
    table = _typed(run.frame(name))
    if table.num_columns:
        yield table


def _operation_batches(run: Run) -> Iterator[pyarrow.Table]:
    """At most BATCH_ROWS operations at a time; one empty batch where there is none."""
    words = {name: _array(values) for name, values in operation_words(run.trace).items()}
    seen = False
    for part in select(run.trace, run.selection).io:
        for low in range(0, len(part), BATCH_ROWS):
            seen = True
            yield _operation_batch(part.rows(slice(low, low + BATCH_ROWS)), run.trace, words)
    if not seen and run.trace.layers_traced:
        yield _operation_batch(_no_rows(run.selection.layer), run.trace, words)


def _operation_batch(part: Part, trace: Trace, words: dict[str, Any]) -> pyarrow.Table:
    import pyarrow

    columns = operation_columns(part, trace)
    arrays = {
        name: pyarrow.DictionaryArray.from_arrays(codes, words[name])
        if name in words
        else pyarrow.array(codes)
        for name, codes in columns.items()
    }
    return pyarrow.table([arrays[name] for name in OPERATION_COLUMNS], names=OPERATION_COLUMNS)


def _no_rows(layer: str) -> Part:
    long, short = np.empty(0, np.int64), np.empty(0, np.int32)
    return Part(0, layer, long, long, long, long, short, short, np.empty(0, np.uint8))


def _array(values: list[str]) -> Any:  # noqa: ANN401  (pyarrow has no types)
    import pyarrow

    return pyarrow.array(values, pyarrow.string())


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


def _flat(table: pyarrow.Table) -> pyarrow.Table:
    """The table with nothing that a line of CSV cannot hold, or that a spreadsheet would run."""
    import pyarrow

    for i, column in enumerate(table.columns):
        if pyarrow.types.is_nested(column.type):
            column = pyarrow.array([json.dumps(value) for value in column.to_pylist()])
        elif pyarrow.types.is_dictionary(column.type):
            column = column.cast(pyarrow.string())
        if pyarrow.types.is_string(column.type):
            table = table.set_column(i, table.column_names[i], _inert(column))
    return table


def _inert(column: Any) -> Any:  # noqa: ANN401  (pyarrow has no types)
    """The texts, with an apostrophe before those that a spreadsheet takes for formulas."""
    from pyarrow import compute

    runs = compute.match_substring_regex(column, _FORMULA)
    return compute.if_else(runs, compute.binary_join_element_wise("'", column, ""), column)
