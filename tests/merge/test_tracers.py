"""A process that Darshan and DFTracer both recorded counts once; what one alone saw stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import vanidl
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace

KIB = 1024
START_S = EPOCH_US // 10**6
DARSHAN_BYTES, TRACED_BYTES = 3 * KIB, 20 * 100


def darshan(folder: Path, pid: int = 100, *, ranks: int = 1, **more) -> None:
    rows = [(i * KIB, KIB, 1.0 + i, 1.5 + i, 1) for i in range(3)]
    streams = [[Record(1, rank, "node01", [], rows)] for rank in range(ranks)]
    settings = {"dxt": {"DXT_POSIX": streams}} | more
    log = Log(job=(os.getuid(), 7, ranks), start=(START_S, 0), end=(START_S + 60, 0), metadata=b"",
              names={1: b"/data/a.bin"}, **settings)  # fmt: skip
    (folder / f"u_python_id7-{pid}_11-14-80000-1_1.darshan").write_bytes(log_bytes(log))


def dftracer(folder: Path, pid: int = 100, parent: int = 1) -> None:
    trace = PfwTrace(pid, parent)
    for i in range(20):
        trace.io("pread", "/data/a.bin", 10 * i, 5, ret=100, offset=100 * i)
    trace.end(1000)
    trace.write(folder / f"trace-{pid}.pfw")


def read(folder: Path) -> tuple[int, int, bool]:
    """(bytes read, processes, whether two tracers are said)."""
    run = vanidl.open_run(folder)
    codes = {w.code for w in run.coverage.warnings}
    return run.summary.bytes_read, len(run.trace.processes), "two_tracers" in codes


def test_one_process_counts_once(tmp_path):
    darshan(tmp_path)
    dftracer(tmp_path)
    assert read(tmp_path) == (DARSHAN_BYTES, 1, True)


def test_what_only_one_of_them_recorded_stays(tmp_path):
    darshan(tmp_path)
    dftracer(tmp_path)
    dftracer(tmp_path, pid=101, parent=100)
    assert read(tmp_path) == (DARSHAN_BYTES + TRACED_BYTES, 2, True)


@pytest.mark.parametrize("more", [{"dxt": {}}, {"partial": ("DXT_POSIX",)}])
def test_the_whole_trace_goes_before_one_without_operations_or_with_a_part(tmp_path, more):
    darshan(tmp_path, **more)
    dftracer(tmp_path)
    assert read(tmp_path) == (TRACED_BYTES, 1, True)


def test_ranks_of_a_log_of_all_count_once(tmp_path):
    darshan(tmp_path, ranks=2)
    for pid in (100, 101):
        dftracer(tmp_path, pid)
    assert read(tmp_path) == (2 * DARSHAN_BYTES, 2, True)


def test_different_processes_are_added_up(tmp_path):
    darshan(tmp_path, pid=99)
    dftracer(tmp_path)
    assert read(tmp_path) == (DARSHAN_BYTES + TRACED_BYTES, 2, False)
