"""Where mapped pages are not safe calls are written: all are there, a full disk harms nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.truth import harm
from tests.makers.recorded_calls import RecordedCalls, all_calls, library, run_traced
from tests.record.tracer.test_harm import programs as programs
from vanidl.readers.tracer.calls_file import read_calls
from vanidl.record import tracer as own

SLOTS = 1638
QUICK = ("fork", "exec", "close all", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "512 threads",
         "short threads", "seccomp strict", "seccomp filter", "small signal stack")  # fmt: skip


def written(tmp_path: Path, code: str, *, status: int = 0) -> list[RecordedCalls]:
    """What was recorded of Python code that runs in `tmp_path`, which has a file of 1,000 bytes."""
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    program = (
        f"import os, threading, time\nos.chdir({str(tmp_path)!r})\n"
        f"fd = os.open('a.bin', os.O_RDONLY)\n{code}"
    )
    done = run_traced(
        [sys.executable, "-I", "-c", program], tmp_path / "calls", check=False,
        VANIDL_TRACER_NEVER_MAPPED="1",
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return list(all_calls(tmp_path / "calls"))


def count_reads(calls: RecordedCalls) -> int:
    """Reads of the file, one by one and in counters."""
    single = sum(c.name == "pread" and c.path.endswith("/a.bin") for c in calls.calls)
    named = [n for n, name in calls.names.items() if name.endswith("/a.bin")]
    return single + sum(int(r["reads"]) for r in calls.counters if int(r["file"]) in named)


@pytest.mark.parametrize("name", QUICK)
def test_a_program_ends_the_same(
    name: str, programs: dict[str, harm.Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = harm.run_case(programs[name], "none", None, tmp_path / "alone")
    monkeypatch.setenv(own.NEVER_MAPPED, "1")
    recorded = harm.run_case(programs[name], "vanidl", None, tmp_path / "recorded")
    assert not alone.differences(recorded)
    assert recorded.traced


def test_all_calls_of_all_threads_are_there(tmp_path: Path) -> None:
    reads = 5 * SLOTS
    (calls,) = written(
        tmp_path,
        f"def work():\n for i in range({reads}): os.pread(fd, 10, i % 900)\n"
        "some = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in some]; [t.join() for t in some]",
    )
    assert count_reads(calls) == 4 * reads
    assert calls.damaged == 0
    assert calls.header["end"] > calls.header["start"]
    (path,) = (tmp_path / "calls").glob("*.calls")
    assert not read_calls(path).losses


def test_a_child_names_the_files_whose_chunk_was_given_back(tmp_path: Path) -> None:
    parent, child = written(
        tmp_path,
        f"for i in range({3 * SLOTS}): os.pread(fd, 10, 0)\n"
        "if not os.fork(): os.pread(fd, 10, 0); os._exit(0)\n"
        "os.wait()",
    )
    assert (count_reads(parent), count_reads(child)) == (3 * SLOTS, 1)


def test_of_a_killed_process_only_its_last_seconds_are_missing(tmp_path: Path) -> None:
    reads = 2 * SLOTS
    (calls,) = written(
        tmp_path,
        f"for i in range({reads}): os.pread(fd, 10, 0)\n"
        "time.sleep(2.1); os.stat('a.bin'); os.kill(os.getpid(), 9)",
        status=-signal.SIGKILL,
    )
    assert count_reads(calls) == reads
    (path,) = (tmp_path / "calls").glob("*.calls")
    assert read_calls(path).header.written_every_ms == 2000
    assert not read_calls(path).losses


@pytest.mark.parametrize("room", [4, 40])
def test_calls_that_cannot_be_written_are_counted(tmp_path: Path, room: int) -> None:
    reads = 200_000
    (calls,) = written(
        tmp_path,
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room} << 16, -1))\n"
        f"for i in range({reads}): os.pread(fd, 10, 0)",
    )
    assert count_reads(calls) == reads
    assert calls.header["reason"] == 2
    assert calls.header["chunks"] * SLOTS < reads


def test_the_recorder_can_stop_it(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    code = (
        f"import os, sys, time\nfd = os.open({str(tmp_path / 'a.bin')!r}, os.O_RDONLY)\n"
        "os.pread(fd, 10, 0); print(flush=True); input(); time.sleep(2.1)\n"
        f"for i in range({9 * SLOTS}): os.pread(fd, 10, 0)"
    )
    folder = tmp_path / "calls"
    folder.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=-1, stdout=-1, text=True,
        env={**os.environ, "LD_PRELOAD": str(library()), "VANIDL_TRACER": str(folder),
             own.NEVER_MAPPED: "1"},
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    own.stop(folder)
    child.communicate("\n")
    (calls,) = all_calls(folder)
    assert count_reads(calls) == 9 * SLOTS + 1
    assert calls.header["chunks"] == 2  # the one at hand
    assert child.returncode == 0


def test_where_pages_are_safe_files_are_mapped(tmp_path: Path) -> None:
    """Whatever this folder lies on: of a file that is mapped nothing is missing."""
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    code = f"import os; os.stat({str(tmp_path / 'a.bin')!r}); os.kill(os.getpid(), 9)"
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no memory file system here")
    folder = shared / f"vanidl-test-{os.getpid()}"
    try:
        run_traced([sys.executable, "-I", "-c", code], folder, check=False)
        (path,) = folder.glob("*.calls")
        found = read_calls(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert found.header.written_every_ms == 0
    assert found.header.end_monotonic_ns == 0


def test_an_overlay_is_mapped_where_its_upper_layer_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = os.statvfs(tmp_path).f_fsid & 0xFFFFFFFF
    for kind, passed in {b"ext4": number, b"tmpfs": number, b"btrfs": 0, b"": 0}.items():
        monkeypatch.setattr(own, "find_upper_kind", lambda _, kind=kind: kind)
        assert own.identify_safe_overlay(tmp_path) == passed
        environment = own.make_tracer(tmp_path / "run").environment
        assert int(environment.get("VANIDL_TRACER_SAFE_OVERLAY") or 0) == passed
