"""Operations of logs as parts, against plain sorting of each process's rows."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.makers.records import Io, darshan_log
from vanidl.merge.files import FileCodes, number_files, path_of
from vanidl.merge.operations import merge_operations
from vanidl.merge.processes import identify_processes
from vanidl.model.trace import MPIIO
from vanidl.readers.records import OperationTable, TracerLog

# File codes: of logs that share their names, as of others, those of the paths one by one.


def test_codes_of_ids_are_those_of_their_paths() -> None:
    shared = {id_: f"/data/{id_ % 7}" for id_ in range(20)}
    others = [{id_: f"/data/{(id_ + i) % 7}" for id_ in range(20)} for i in range(80)]
    logs = [darshan_log([], names=names) for names in (shared, shared, *others)]
    codes = FileCodes(sorted(set(shared.values())))
    rng = np.random.default_rng(0)
    for log in [*logs, *logs]:
        ids = rng.integers(0, 20, 5).astype(np.uint64)
        assert codes.of_ids(log, ids).tolist() == [codes[path_of(log, i)] for i in ids.tolist()]


OPERATIONS = st.builds(
    Io,
    start=st.integers(0, 6),
    end=st.integers(6, 9),
    offset=st.integers(-1, 2),
    nbytes=st.integers(0, 3),
    file=st.integers(1, 3),
    op=st.integers(0, 1),
    rank=st.just(0),
)
MANY = st.lists(st.lists(OPERATIONS, max_size=6), min_size=1, max_size=5)


def logs_of(processes: list[list[Io]], *, threads: bool) -> list[TracerLog]:
    """A process each, its operations through POSIX and once more through MPI-IO."""
    logs = []
    for i, operations in enumerate(processes):
        log = darshan_log(operations, pid=100 + i, start_ns=1000 + 3 * i)
        numbers = np.arange(len(operations), dtype=np.uint64) % 2 if threads else None
        own = [replace(table, thread=numbers) for table in log.operations]
        both = [replace(table, layer=layer) for table in own for layer in (table.layer, MPIIO)]
        logs.append(replace(log, operations=tuple(both)))
    return logs


def rows_of(log: TracerLog, table: OperationTable) -> list[tuple[object, ...]]:
    """Start, end, offset, bytes, path and direction of each row by start, then place."""
    rows = [
        (
            int(table.start_ns[i]) + log.start_ns,
            int(table.end_ns[i]) + log.start_ns,
            int(table.offset[i]),
            int(table.nbytes[i]),
            path_of(log, int(table.record_file[table.record[i]])),
            int(table.op[i]),
        )
        for i in range(len(table.op))
    ]
    return sorted(rows, key=lambda row: (row[0], row[4], row[2], row[3]))


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("max_rows", [1, 2, 8_000_000])
@given(processes=MANY)
def test_parts_hold_the_rows_of_each_process_and_layer_by_start(
    max_rows: int, threads: bool, processes: list[list[Io]]
) -> None:
    """However many logs are merged at once, and where parts are cut."""
    logs = logs_of(processes, threads=threads)
    table, codes = identify_processes(logs, []), number_files(logs, {})
    paths = list(codes)
    found: dict[tuple[int, str], list[tuple[object, ...]]] = {}
    for part in merge_operations(logs, table, codes, max_rows, spilled=False):
        assert 0 < len(part) <= max_rows
        assert not part.start.flags.writeable
        columns = (part.start, part.end, part.offset, part.nbytes, part.file, part.op)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        named = [(*row[:4], paths[row[4]], row[5]) for row in rows]
        found.setdefault((part.process, part.layer), []).extend(named)
        assert (part.thread >= 0).all() if threads else (part.thread == -1).all()
    wanted = {
        (table.of_log[i, 0], each.layer): rows_of(log, each)
        for i, log in enumerate(logs)
        for each in log.operations
    }
    for key, rows in wanted.items():
        places = [(row[0], row[4], row[2], row[3]) for row in found[key]]
        assert places == [(row[0], row[4], row[2], row[3]) for row in rows]
        assert sorted(found[key], key=repr) == sorted(rows, key=repr)
    assert found.keys() == wanted.keys()


@given(
    alone=st.lists(OPERATIONS, min_size=1, max_size=4),
    shared=st.lists(st.tuples(OPERATIONS, st.integers(0, 1)), min_size=1, max_size=6),
)
def test_a_log_of_several_ranks_beside_small_ones_has_the_parts_of_each_rank(alone, shared):
    """Small logs of one process are merged together; one of several ranks is none of them."""
    of_ranks = [io._replace(rank=rank) for io, rank in shared]
    logs = [
        darshan_log(alone, pid=100, start_ns=1000),
        darshan_log(of_ranks, pid=None, nprocs=2, start_ns=1000, job_id="9"),
        darshan_log(alone, pid=102, start_ns=1000),
    ]
    table, codes = identify_processes(logs, []), number_files(logs, {})
    found = merge_operations(logs, table, codes, 8_000_000, spilled=False)
    rows = {part.process: len(part) for part in found}
    wanted = {table.of_log[i, 0]: len(alone) for i in (0, 2)}
    for rank in (0, 1):
        mine = sum(io.rank == rank for io in of_ranks)
        wanted |= {table.of_log[1, rank]: mine} if mine else {}
    assert rows == wanted
