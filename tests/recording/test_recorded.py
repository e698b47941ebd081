"""What Darshan's runtime really records: only where DARSHAN_LIB names its libdarshan.so.

    DARSHAN_LIB=/path/to/libdarshan.so pytest tests/recording

The runtime must have been built without MPI and with --with-log-path-by-env=DARSHAN_LOGPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vanidl
from tests.recording import access_methods

LIBRARY = os.environ.get("DARSHAN_LIB", "")
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(not LIBRARY, reason="DARSHAN_LIB names no Darshan runtime")

WIDE = """MAX_RECORDS 20000 POSIX,STDIO,DXT_POSIX
MODMEM 64
NAMEMEM 16
NAME_EXCLUDE ^/usr,^/proc,^/sys,^/etc,^/opt,^/dev,/lib/python3,pyvenv.cfg$,\\.pyc$ *
"""
SMALL = "MAX_RECORDS 100 POSIX,STDIO,DXT_POSIX\n"


def record(folder: Path, command: list[str], settings: str = WIDE) -> vanidl.Run:
    """The run of a command; Darshan's logs and profiles go to `folder`/run."""
    logs = folder / "run" / "darshan"
    logs.mkdir(parents=True)
    (folder / "darshan.conf").write_text(settings)
    own = {
        "LD_PRELOAD": LIBRARY,
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_LOGPATH": str(logs),
        "DARSHAN_CONFIG_PATH": str(folder / "darshan.conf"),
        "DXT_ENABLE_IO_TRACE": "1",
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(command, check=True, env={**os.environ, **own}, capture_output=True)
    deadline = time.monotonic() + 60  # helpers write their logs after the program has ended
    while list(logs.glob("*.darshan_partial")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return vanidl.open_run(folder / "run")


# way to use a file -> settings, warnings raised, warnings not raised
HABITS: dict[str, tuple[str, set[str], set[str]]] = {
    "np_load": (WIDE, set(), {"offsets_ambiguous", "truncated"}),
    "np_fromfile": (WIDE, set(), {"offsets_ambiguous"}),
    "np_memmap": (WIDE, {"reads_not_seen", "mmap_not_monitored"}, {"offsets_ambiguous"}),
    "raw_mmap": (WIDE, {"reads_not_seen"}, {"stdio_untraced"}),
    "npz": (WIDE, set(), {"reads_not_seen", "offsets_ambiguous"}),
    "threads": (WIDE, set(), {"time_mismatch", "offsets_ambiguous", "reads_not_seen"}),
    "two_descriptors": (WIDE, {"offsets_ambiguous"}, {"reads_not_seen"}),
    "two_descriptors_pread": (WIDE, set(), {"offsets_ambiguous"}),
    "epochs": (WIDE, set(), {"offsets_ambiguous", "reads_not_seen"}),
    "many_files": (SMALL, {"partial", "records_exhausted", "truncated"}, set()),
    "many_reads": (WIDE, set(), {"truncated", "partial", "records_exhausted"}),
    "stdio": (WIDE, {"stdio_untraced"}, {"reads_not_seen"}),
    "fsync": (WIDE, {"sync_untraced"}, {"time_mismatch"}),
}


@pytest.mark.parametrize("habit", sorted(HABITS))
def test_warnings_of_real_logs(habit, tmp_path):
    settings, raised, silent = HABITS[habit]
    access_methods.prepare(tmp_path)
    command = [sys.executable, str(HERE / "habits.py"), habit, str(tmp_path)]
    run = record(tmp_path, command, settings)
    codes = {w.code for w in run.coverage.warnings}
    assert raised <= codes
    assert not silent & codes


@pytest.mark.parametrize("habit", ["np_load", "np_fromfile"])
def test_numpy_is_seen_through_stdio_or_said_not_to_be_seen(habit, tmp_path):
    access_methods.prepare(tmp_path)
    run = record(tmp_path, [sys.executable, str(HERE / "habits.py"), habit, str(tmp_path)])
    codes = {w.code for w in run.coverage.warnings}
    assert len({"reads_not_seen", "stdio_untraced"} & codes) == 1


def test_a_full_trace_buffer_is_said(tmp_path):
    access_methods.prepare(tmp_path)
    command = [sys.executable, str(HERE / "habits.py"), "many_reads", str(tmp_path)]
    run = record(tmp_path, command, WIDE.replace(",DXT_POSIX", ""))
    codes = {w.code for w in run.coverage.warnings}
    assert {"truncated", "partial"} <= codes
    assert "records_exhausted" not in codes


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods_of_this_python(method, tmp_path):
    command = [sys.executable, str(HERE / "pool.py"), str(tmp_path / "p.raw"), method]
    roles = sorted(p.role for p in record(tmp_path, command).trace.processes)
    auxiliary = {"fork": 0, "spawn": 1, "forkserver": 2}[method]
    assert roles == ["auxiliary"] * auxiliary + ["trainer", "worker", "worker"]


def test_programs_that_a_run_starts_join_it(tmp_path):
    command = [sys.executable, str(HERE / "commands.py"), str(tmp_path / "c.raw")]
    run = record(tmp_path, command)
    assert [p.role for p in run.trace.processes] == ["trainer", "auxiliary"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_under_torchrun(method, tmp_path):
    pytest.importorskip("torch", reason="the ranks are trained with PyTorch")
    script = [str(HERE / "train.py"), "--data", str(tmp_path / "x.raw")]
    own = ["--tb", str(tmp_path / "run/tb"), "--workers", "1", "--start-method", method]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    run = record(tmp_path, [*launch, *script, *own])
    roles = [p.role for p in run.trace.processes]
    assert [p.rank for p in run.trace.processes if p.role == "trainer"] == [0, 1]
    assert roles.count("worker" if method == "fork" else "unassigned") == 4
