"""Opens whose descriptor DFTracer forgot, told by the order of each thread's calls."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import vanidl
from tests.makers.dftracer_traces import PfwTrace

THREADS = 16
FILES = 20  # of each thread


def traced(folder: Path, lost: set[tuple[int, int]], *, threads: int = THREADS) -> vanidl.Run:
    """Threads that each open, read and close files of their own; nothing follows a lost open."""
    calls = []
    for thread in range(threads):
        for k in range(FILES):
            path, at = f"/data/{thread}-{k}.bin", 100 * k + thread
            calls.append((at, "open64", path, thread, {"ret": 5, "flags": 0}))
            if (thread, k) not in lost:
                calls.append((at + 20, "read", path, thread, {"ret": 1000}))
                calls.append((at + 40, "close", path, thread, {"ret": 0}))
    trace = PfwTrace(100)
    for at, name, path, thread, arguments in sorted(calls, key=lambda call: call[0]):
        trace.io(name, path, at, 5, tid=1000 + thread, **arguments)
    trace.end(10_000)
    trace.write(folder / "trace-0-preload.pfw")
    return vanidl.open_run(folder)


def said(run: vanidl.Run) -> list[str]:
    return [w.message for w in run.coverage.warnings if w.code == "descriptors_lost"]


@pytest.mark.parametrize("count", [1, 5, 40])
def test_every_forgotten_descriptor_is_counted(tmp_path, count):
    every = [(thread, k) for thread in range(THREADS) for k in range(FILES)]
    run = traced(tmp_path, set(random.Random(1).sample(every, count)))
    assert run.summary.bytes_read == 1000 * (len(every) - count)
    (message,) = said(run)
    assert message.startswith(f"{count} opens of {count} files")


def test_nothing_is_said_of_a_whole_trace(tmp_path):
    assert not said(traced(tmp_path, set()))


def test_one_thread_cannot_lose_a_descriptor_to_another(tmp_path):
    assert not said(traced(tmp_path, {(0, 3)}, threads=1))


def test_a_file_that_stays_open_for_other_threads_is_none(tmp_path):
    trace = PfwTrace(100)
    trace.io("open64", "/data/all.h5", 1, 1, tid=1, ret=5)
    trace.io("open64", "/data/b.h5", 2, 1, tid=2, ret=6)
    for i in range(10):
        trace.io("pread", "/data/all.h5", 10 + i, 1, tid=3, ret=10, offset=0)
    trace.io("pread", "/data/b.h5", 50, 1, tid=2, ret=10, offset=0)
    trace.end(100)
    trace.write(tmp_path / "trace-0.pfw")
    assert not said(vanidl.open_run(tmp_path))
