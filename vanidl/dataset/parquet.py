"""Parquet files through pyarrow: only the footer is read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vanidl.errors import InputError, UsageError
from vanidl.model.run_facts import ArrayFacts, Block, FileFacts

MOST_COLUMN_CHUNKS = 20_000


def read_facts(path: Path) -> FileFacts:
    """Rows (= samples), columns and the stored sizes of column chunks.

    Raises:
        InputError: the file is no Parquet file.
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise UsageError(
            f"--inspect: {path.name} needs pyarrow, which is not installed: "
            "pip install 'vanidl-io[formats]', or leave --inspect out."
        ) from error
    try:
        # The footer says all: no column is read.
        meta = parquet.read_metadata(path)
    except arrow.ArrowInvalid as error:
        raise InputError(
            f"{path}: expected a Parquet file, found: {error}. Leave it out of --inspect."
        ) from error
    # The stored sizes of column chunks; of a wide or long file those of its first row groups.
    sizes: Counter[tuple[int, str]] = Counter()
    groups = min(meta.num_row_groups, max(MOST_COLUMN_CHUNKS // max(meta.num_columns, 1), 1))
    for group in range(groups):
        for column in range(meta.num_columns):
            chunk = meta.row_group(group).column(column)
            sizes[int(chunk.total_compressed_size), chunk.path_in_schema] += 1
    blocks = tuple(Block(n, k, f"column chunk of {name}") for (n, name), k in sizes.items())
    rows = int(meta.num_rows)
    arrays = tuple(_read_column(meta, c) for c in range(meta.num_columns))
    stored = sum(a.stored_bytes or 0 for a in arrays)
    mean = stored / rows if rows else None
    complete = meta.num_row_groups * meta.num_columns <= MOST_COLUMN_CHUNKS
    return FileFacts(
        str(path), "Parquet", path.stat().st_size, rows, mean, arrays, blocks, complete
    )


def _read_column(meta: Any, column: int) -> ArrayFacts:  # noqa: ANN401
    chunks = [meta.row_group(g).column(column) for g in range(meta.num_row_groups)]
    schema = meta.schema.column(column)
    filters = tuple(sorted({c.compression for c in chunks} - {"UNCOMPRESSED"}))
    stored = sum(int(c.total_compressed_size) for c in chunks)
    return ArrayFacts(
        schema.path, (int(meta.num_rows),), schema.physical_type, None, filters, stored
    )
