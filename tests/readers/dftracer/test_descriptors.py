"""Opens whose descriptor DFTracer forgot, told by the order of each thread's calls."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import vanidl
from tests.makers.dftracer_traces import PfwTrace
from vanidl.check.check import check
from vanidl.formatting.units import plural

THREADS = 16
FILES = 20  # of each thread


def traced(
    folder: Path,
    lost: set[tuple[int, int]],
    *,
    threads: int = THREADS,
    visits: int = 1,
    says: bool = True,
) -> vanidl.Run:
    """Threads that each open, read and close files of their own; nothing follows a lost open.

    DFTracer 2.2.0 does not say whether an open succeeded: `says` is False.
    """
    opened = {"ret": 5} if says else {}
    calls = []
    for thread in range(threads):
        for k in range(FILES * visits):
            path, at = f"/data/{thread}-{k % FILES}.bin", 100 * k + thread
            calls.append((at, "open64", path, thread, {"flags": 0} | opened))
            if (thread, k) not in lost:
                calls.append((at + 20, "read", path, thread, {"ret": 1000}))
                calls.append((at + 40, "close", path, thread, {"ret": 0}))
    trace = PfwTrace(100)
    for at, name, path, thread, arguments in sorted(calls, key=lambda call: call[0]):
        trace.io(name, path, at, 5, tid=1000 + thread, **arguments)
    trace.end(10_000 * visits)
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
    assert message.startswith(plural(count, "open") + f" of {plural(count, 'file')} (")


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


def written(folder: Path, calls: list[tuple[int, str, str, int, dict[str, int]]]) -> vanidl.Run:
    trace = PfwTrace(100)
    for at, name, path, thread, arguments in sorted(calls, key=lambda call: call[0]):
        trace.io(name, path, at, 5, tid=1000 + thread, **arguments)
    trace.end(10_000)
    trace.write(folder / "trace-0-preload.pfw")
    return vanidl.open_run(folder)


def whole(at: int, path: str, thread: int, nbytes: int = 1000) -> list:
    """A visit: open, read, close."""
    return [
        (at, "open64", path, thread, {}),
        (at + 10, "read", path, thread, {"ret": nbytes}),
        (at + 20, "close", path, thread, {"ret": 0}),
    ]


@pytest.mark.parametrize("count", [1, 7])
def test_opens_without_a_result_are_counted_where_their_file_was_read_at_another_visit(
    tmp_path, count
):
    every = [(thread, k) for thread in range(THREADS) for k in range(2 * FILES)]
    lost = set(random.Random(count).sample(every, count))
    (message,) = said(traced(tmp_path, lost, visits=2, says=False))
    assert message.startswith(plural(count, "open") + " of")
    assert "nothing at all" not in message


def test_an_open_of_a_file_that_nothing_else_used_is_unclear(tmp_path):
    (message,) = said(traced(tmp_path, {(3, 7)}, says=False))
    assert message.startswith(
        "1 open of 1 file (for example /data/3-7.bin) was followed by nothing"
    )


def test_opens_that_failed_before_any_thread_closed_a_file_are_none(tmp_path):
    calls = [(i, "open64", f"/data/none-{i}.cfg", 0, {}) for i in range(1, 20)]
    for thread in (1, 2):
        for k in range(10):
            calls += whole(100 + 50 * k + thread, f"/data/{thread}-{k}.bin", thread)
    assert not said(written(tmp_path, calls))


def test_bytecode_that_is_not_there_is_none(tmp_path):
    calls = [(105, "open64", "/usr/lib/python3.11/x.pyc", 3, {})]
    for thread in (1, 2):
        for k in range(10):
            calls += whole(100 + 50 * k + thread, f"/data/{thread}-{k}.bin", thread)
    assert not said(written(tmp_path, calls))


@pytest.mark.parametrize(("nbytes", "lost"), [(1000, 0), (400, 1)])
def test_a_visit_without_a_close_lost_bytes_where_it_moved_fewer_than_the_others(
    tmp_path, nbytes, lost
):
    calls = whole(100, "/data/b.bin", 1)
    for k in range(4):
        visit = whole(200 + 50 * k, "/data/a.bin", 2, nbytes if k == 1 else 1000)
        calls += visit[:2] if k == 1 else visit
    assert len(said(written(tmp_path, calls))) == lost


def test_a_visit_under_way_at_the_end_is_none(tmp_path):
    calls = whole(100, "/data/a.bin", 1) + whole(110, "/data/b.bin", 2)
    calls.append((9_990, "open64", "/data/a.bin", 2, {}))
    assert not said(written(tmp_path, calls))


def test_threads_that_keep_a_file_of_their_own_open_lose_nothing(tmp_path):
    calls = whole(5, "/data/index.json", 9)
    for thread in range(4):
        path = f"/data/{thread}.h5"
        calls.append((10 + thread, "open64", path, thread, {}))
        calls += [(100 * k + thread, "pread", path, thread, {"ret": 9}) for k in range(1, 9)]
    assert not said(written(tmp_path, calls))


@pytest.mark.parametrize("dropped", [0, 1, 30])
def test_events_whose_numbers_are_missing_are_counted(tmp_path, dropped):
    trace = PfwTrace(100)
    for i in range(400):
        trace.io("pread", "/data/a.h5", 10 * i, 5, ret=10, offset=0)
    trace.end(10_000)
    del trace.lines[200 : 200 + dropped]
    trace.write(tmp_path / "trace-0.pfw")
    run = vanidl.open_run(tmp_path)
    found = [w for w in run.coverage.warnings if w.code == "events_lost"]
    assert [w.severity for w in found] == {0: [], 1: ["info"], 30: ["warning"]}[dropped]
    assert all(w.message.startswith(f"{dropped} of 402 events") for w in found)
    assert run.summary.ops == 400 - dropped
    state = check([tmp_path])
    assert [v.state for v in state] == ["partial" if dropped else "whole"]
