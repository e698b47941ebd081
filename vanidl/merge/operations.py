"""Operations of logs -> parts: one per process and layer, by start, none too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.merge.files import FileCodes
from vanidl.merge.processes import ProcessTable
from vanidl.model.ordering import stable_order
from vanidl.model.parts import Parts, Store, pack_part
from vanidl.model.trace import COLUMNS, Part
from vanidl.parallel.threads import batches
from vanidl.readers.records import OperationTable, TracerLog

_TOGETHER_ROWS = 1 << 17  # operations of small logs that are merged at once: they fit the cache
_SMALL_ROWS = 4096

Int64Array = NDArray[np.int64]
Rows = Int64Array | slice
Columns = dict[str, NDArray[Any]]
_Table = tuple[int, TracerLog, OperationTable]  # of a log and its number


def merge_operations(
    logs: Sequence[TracerLog],
    processes: ProcessTable,
    code: FileCodes,
    max_rows: int,
    *,
    spilled: bool | None = None,
) -> Parts:
    """All operations by layer, process and start, at most `max_rows` per part.

    Args:
        logs: what was read.
        processes: which process each log and rank is.
        code: path to file code.
        max_rows: of a part.
        spilled: whether the parts go to a temporary file; None: where there are too many for
            the memory at hand. The parts are the same.
    """
    rows = sum(len(table.op) for log in logs for table in log.operations)
    store = Store.for_rows(rows, spilled=spilled)
    most = min(_SMALL_ROWS, max_rows)

    def weigh(table: _Table) -> int:
        """Its operations in a small log of one process; what is taken alone weighs too much."""
        _, log, of_log = table
        is_small = log.nprocs <= 1 and len(of_log.op) <= most
        return len(of_log.op) if is_small else _TOGETHER_ROWS + 1

    # Small logs of one process are merged together; others alone, in parts of `max_rows`.
    tables = ((i, log, table) for i, log in enumerate(logs) for table in log.operations)
    for some in batches(tables, weigh, _TOGETHER_ROWS):
        if len(some) > 1:
            for part in _merge_small_parts(some, processes, code):
                store.add(part)
            continue
        ((i, log, table),) = some
        for process, columns in _split_by_process(i, log, table, processes, code):
            for low in range(0, len(columns["start"]), max_rows):
                rows_of_part = slice(low, low + max_rows)
                piece = {name: column[rows_of_part] for name, column in columns.items()}
                store.add(pack_part(process, table.layer, piece))
    return store.finished()


def _merge_small_parts(
    some: Sequence[_Table], processes: ProcessTable, code: FileCodes
) -> Iterator[Part]:
    """The parts of small logs of one process each: a few calls of numpy for thousands of them."""
    by_layer: dict[str, list[_Table]] = {}
    for i, log, table in some:
        if len(table.op) and (i, 0) in processes.of_log:
            by_layer.setdefault(table.layer, []).append((i, log, table))
    for layer, tables in by_layer.items():
        columns = _join_columns(tables, processes, code)
        # Parts are views of the same columns: nobody may write into them.
        for column in columns:
            column.flags.writeable = False
        pairs = pairwise(accumulate((len(table.op) for _, _, table in tables), initial=0))
        for (i, _, _), rows in zip(tables, (slice(*pair) for pair in pairs), strict=True):
            yield Part(processes.of_log[i, 0], layer, *[column[rows] for column in columns])


def _join_columns(
    tables: Sequence[_Table], processes: ProcessTable, code: FileCodes
) -> list[NDArray[Any]]:
    """Columns as in `Part` of tables behind one another, each by start."""
    lengths = [len(table.op) for _, _, table in tables]
    start, end, offset, nbytes, op = (
        np.concatenate([getattr(table, name) for _, _, table in tables], dtype=kind)
        for name, kind in _READ_AS.items()
    )
    # Times of a table count from the start of its log.
    since = np.repeat([log.start_ns for _, log, _ in tables], lengths)
    start += since
    end += since
    # Files are looked up by record, not by operation: records of all tables in one row.
    codes = [code.of_ids(log, table.record_file) for _, log, table in tables]
    record = np.concatenate([table.record for _, _, table in tables], dtype=np.intp)
    record += np.repeat([0, *accumulate(map(len, codes))][:-1], lengths)
    thread = np.concatenate(
        [
            _code_threads(table, slice(None), processes.threads.get(processes.of_log[i, 0], ()))
            for i, _, table in tables
        ]
    )
    columns = [start, end, offset, nbytes, thread, np.concatenate(codes)[record], op]
    _sort_each(columns, lengths)
    return columns


_READ_AS: dict[str, type[np.integer]] = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "offset": np.int64,
    "nbytes": np.int64,
    "op": np.uint8,
}


def _sort_each(columns: Sequence[NDArray[Any]], lengths: Sequence[int]) -> None:
    """Puts the rows of each table by start where they are not."""
    start, _, offset, nbytes, _, file, _ = columns
    first = np.array([0, *accumulate(lengths)])
    # Rows that do not begin after the one before, but for the first of each table.
    late = np.append(False, start[1:] <= start[:-1])
    late[first[:-1]] = False
    for i in np.unique(np.searchsorted(first, np.flatnonzero(late), "right") - 1).tolist():
        rows = slice(first[i], first[i + 1])
        order = _order_by_start(start[rows], (file[rows], offset[rows], nbytes[rows]))
        for column in columns:
            column[rows] = column[rows][order]


def _split_by_process(
    i: int, log: TracerLog, table: OperationTable, processes: ProcessTable, code: FileCodes
) -> Iterator[tuple[int, Columns]]:
    """(process, its operations)."""
    file_code = code.of_ids(log, table.record_file)
    shared = log.nprocs > 1
    for rank in np.unique(table.record_rank).tolist() if shared else [0]:
        process = processes.of_log.get((i, rank))
        if process is not None:
            rows = _find_rows(table, rank) if shared else slice(None)
            threads = _code_threads(table, rows, processes.threads.get(process, ()))
            yield process, _make_columns(log.start_ns, table, rows, (threads, file_code))


def _find_rows(table: OperationTable, rank: int) -> Rows:
    """The rows of one rank: where its records follow each other, as they do, a slice."""
    # Of the rows' own type: else numpy would convert all rows for every rank.
    records = np.flatnonzero(table.record_rank == rank).astype(table.record.dtype)
    low = np.searchsorted(table.record, records)
    high = np.searchsorted(table.record, records, "right")
    if (low[1:] == high[:-1]).all():
        return slice(int(low[0]), int(high[-1]))
    return np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])


def _make_columns(
    since_ns: int,
    table: OperationTable,
    rows: Rows,
    codes: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> Columns:
    """Columns as in `Part`, by start; codes are those of the threads of the rows, of the files."""
    threads, file_code = codes
    start, end = table.start_ns[rows] + since_ns, table.end_ns[rows] + since_ns
    offset, nbytes, file = table.offset[rows], table.nbytes[rows], file_code[table.record[rows]]
    columns: list[NDArray[Any]]
    columns = [start, end, offset, nbytes, threads, file, table.op[rows]]
    # Equal starts count as out of order: ties have an order of their own.
    if (start[1:] <= start[:-1]).any():
        order = _order_by_start(start, (file, offset, nbytes))
        columns = [column[order] for column in columns]
    return dict(zip(COLUMNS, columns, strict=True))


def _order_by_start(start: Int64Array, place: Sequence[NDArray[np.integer]]) -> Int64Array:
    """Rows by start, equal starts by file, offset and size: so parts may be cut anywhere."""
    order = stable_order(start)
    in_order = start[order]
    # Only ties are sorted by the other keys: there are few.
    equal = in_order[1:] == in_order[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(key[rows] for key in reversed(place)), start[rows]))]
    return order


def _code_threads(
    table: OperationTable, rows: Rows, training: AbstractSet[int] | tuple[()]
) -> NDArray[np.int32]:
    """Codes by number of the thread, 0 of the one that trains, if its numbers are known.

    Neighbours often have the same one.
    """
    if table.thread is None:
        return np.full(len(table.op[rows]), -1, np.int32)
    thread = table.thread[rows]
    first = np.flatnonzero(np.append(True, thread[1:] != thread[:-1])[: len(thread)])
    numbers, codes = np.unique(thread[first], return_inverse=True)
    if training:
        codes = np.where(np.isin(numbers, list(training)), 0, np.arange(len(numbers)) + 1)[codes]
    return np.repeat(codes.astype(np.int32), np.diff(first, append=len(thread)))
