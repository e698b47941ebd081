"""Layers above POSIX are told apart and never added to it; ranks that a trace states."""

from __future__ import annotations

from pathlib import Path

import pytest

import vanidl
from tests.makers.dftracer_traces import PfwTrace
from vanidl.readers.dftracer.reading import combine_files
from vanidl.readers.dftracer.trace_file import read_trace_file

NBYTES = 4096


def layered(rank: int) -> PfwTrace:
    """A rank whose every read and write goes through MPI-IO or HDF5, and so through POSIX."""
    trace = PfwTrace(100 + rank, dialect="typed", command="./sim")
    trace.meta("PR", "rank", str(7 - rank))
    trace.event("MPI_Barrier", "collective", 10, 100, ret=0)
    trace.event("MPI_Bcast", "collective", 60, 100, ret=0, tid=5)  # 50 of them at the same time
    trace.event("MPI_File_open", "MPIIO", 200, 20, ret=0)
    trace.io("open64", "/d/x", 205, 5, flags=66, ret=3)
    for k, name in enumerate(("write_at_all", "write_all_begin", "write_all_end", "iwrite_at",
                              "read", "read_ordered")):  # fmt: skip
        trace.event(f"MPI_File_{name}", "MPIIO", 300 + 100 * k, 50, ret=0)
        call = "pread64" if "read" in name else "pwrite64"
        trace.io(call, "/d/x", 310 + 100 * k, 30, ret=NBYTES, offset=k * NBYTES)
    for k, name in enumerate(("H5Fopen", "H5Dopen2", "H5Dread", "H5Dwrite", "H5Dget_space")):
        trace.event(name, "h5f" if name.startswith("H5F") else "h5d", 1000 + 10 * k, 5, ret=0)
    trace.end(2000)
    return trace


@pytest.fixture
def run(tmp_path: Path) -> vanidl.Run:
    for rank in range(2):
        layered(rank).write(tmp_path / f"t{rank}.pfw")
    return vanidl.open_run(tmp_path)


def test_storage_holds_the_bytes_of_layers_above_posix_once(run: vanidl.Run) -> None:
    assert run.summary.storage_bytes_read == 2 * 2 * NBYTES
    assert run.summary.storage_bytes_written == 2 * 4 * NBYTES
    assert run.summary.ops == 2 * 6


def test_calls_of_layers_above_posix_are_counted_as_darshan_does(run: vanidl.Run) -> None:
    names = (
        "MPIIO_COLL_OPENS", "MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES", "MPIIO_NB_WRITES",
        "MPIIO_INDEP_READS", "MPIIO_COLL_READS", "MPIIO_BYTES_READ",
    )  # fmt: skip
    table = run.trace.counters["MPI-IO"]
    assert [table.total(name) for name in names] == [2, 2, 2, 2, 2, 2, None]
    spent = [table.total_s(f"MPIIO_F_{what}_TIME") for what in ("READ", "WRITE", "META")]
    assert spent == pytest.approx([2 * 100e-6, 2 * 200e-6, 2 * 20e-6])
    of_data = run.trace.counters["H5D"]
    assert [of_data.total(f"H5D_{what}S") for what in ("OPEN", "READ", "WRITE")] == [2, 2, 2]
    assert of_data.total_s("H5D_F_META_TIME") == pytest.approx(2 * 10e-6)
    assert run.trace.counters["H5F"].total("H5F_OPENS") == 2


def test_mpi_time_counts_a_moment_once_and_leaves_mpi_io_out(run: vanidl.Run) -> None:
    assert [m.total_s for m in run.trace.mpi] == pytest.approx([150e-6] * 2)


def test_ranks_that_a_trace_states_are_those_of_its_process(run: vanidl.Run) -> None:
    assert [(p.rank, p.pid) for p in run.trace.processes] == [(6, 101), (7, 100)]


@pytest.mark.parametrize("stated", ["-1", "2147483648", "x", ""])
def test_a_rank_that_is_none_is_not_used(tmp_path: Path, stated: str) -> None:
    trace = PfwTrace()
    trace.meta("PR", "rank", stated)
    trace.io("read", "/d/x", 1, 1, ret=5)
    (log,) = combine_files([read_trace_file(trace.write(tmp_path / "t.pfw"))]).logs
    assert log.rank is None


@pytest.mark.parametrize("category", ["POSIX", "STDIO", "MPIIO"])
def test_a_region_that_a_program_calls_like_a_layer_is_no_call_of_it(
    tmp_path: Path, category: str
) -> None:
    trace = PfwTrace(dialect="typed")
    trace.io("read", "/d/x", 1, 1, ret=5)
    trace.event("read", category, 10, 5, type=6, ret=1000, fhash=trace.define("/d/x"))
    trace.end(20)
    run = combine_files([read_trace_file(trace.write(tmp_path / "t.pfw"))])
    (table,) = run.logs[0].operations
    assert table.nbytes.tolist() == [5]
    assert [records.layer for records in run.counters[run.logs[0].path]] == ["POSIX"]
