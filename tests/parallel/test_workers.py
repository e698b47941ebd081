"""Workers of this machine: calls, errors, deaths, and callers that no guard protects."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.makers.large_logs import Workload, write_logs
from tests.makers.sameness import same
from vanidl.errors import InputError
from vanidl.merge.pipeline import Inputs, read_trace
from vanidl.parallel import children
from vanidl.parallel.executors import LocalWorkers, local_workers
from vanidl.readers.darshan import reading as darshan_run


def doubled(values: np.ndarray, *, shout: bool = False) -> np.ndarray:
    """What a worker does."""
    if shout:
        sys.stdout.write("to standard output\n")
        sys.stdout.flush()
    return 2 * values


def failing() -> None:
    """An error that is told."""
    raise InputError("expected that")


def dying() -> None:
    """The end of a worker."""
    os._exit(3)


def where() -> int:
    """Which process it is."""
    time.sleep(0.2)
    return os.getpid()


def test_calls_are_answered() -> None:
    with local_workers(2) as workers:
        futures = [workers.submit(doubled, np.arange(i), shout=True) for i in range(20)]
        for i, future in enumerate(futures):
            assert same(future.result(), 2 * np.arange(i))


def test_workers_work_at_the_same_time_and_are_no_more_than_asked_for() -> None:
    with local_workers(2) as workers:
        pids = {future.result() for future in [workers.submit(where) for _ in range(6)]}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_errors_come_back() -> None:
    with local_workers(1) as workers:
        pid = workers.submit(where).result()
        with pytest.raises(InputError, match="expected that"):
            workers.submit(failing).result()
        assert workers.submit(where).result() == pid


def test_another_takes_the_place_of_one_that_died() -> None:
    with local_workers(1) as workers:
        with pytest.raises(BrokenExecutor):
            workers.submit(dying).result()
        assert workers.submit(doubled, 3).result() == 6


def test_the_end_does_not_wait_for_those_at_work() -> None:
    begin = time.monotonic()
    with local_workers(1) as workers:
        workers.submit(doubled, 1).result()
        workers.submit(time.sleep, 60)
        time.sleep(0.2)
    assert time.monotonic() - begin < 30


def test_logs_that_workers_read_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path, 40, Workload(60, files=3))
    (tmp_path / "broken.darshan").write_bytes(b"no log")
    here = read_trace(tmp_path, Inputs())
    monkeypatch.setattr(darshan_run, "_MANY", 10)
    asked = []
    submit = LocalWorkers.submit

    def counted(self, *call):
        asked.append(call)
        return submit(self, *call)

    monkeypatch.setattr(LocalWorkers, "submit", counted)
    there = read_trace(tmp_path, Inputs())
    assert asked
    assert same(tuple(here.io), tuple(there.io))
    for name in ("job", "processes", "files", "counters", "logs", "warnings"):
        assert same(getattr(here, name), getattr(there, name)), name


@pytest.mark.parametrize("most", [0, 25, 1000])
def test_batches_hold_all_logs_and_not_too_much(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(darshan_run, "_BATCH_NBYTES", most)
    paths = [tmp_path / f"{i}" for i in range(9)]
    for path in paths[:-1]:  # the last one is not there
        path.write_bytes(bytes(10))
    batches = list(darshan_run._split_batches(paths, 4))
    assert [path for batch in batches for path in batch] == paths
    for batch in batches:
        assert len(batch) <= 4
        assert len(batch) == 1 or 10 * len(batch) <= most + 10


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write_logs(tmp_path / "logs", 20, Workload(30, files=2))
    script = tmp_path / "script.py"
    script.write_text(
        "import vanidl, vanidl.readers.darshan.reading\n"
        "print('started')\n"
        "vanidl.readers.darshan.reading._MANY = 5\n"
        f"print(vanidl.open_run({str(tmp_path / 'logs')!r}).summary.reads)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["started", str(20 * 20)]


def test_who_leaves_early_ends_the_children_and_starts_no_more() -> None:
    code = "import sys, time; sys.stdin.read(); time.sleep(600)"
    endings = []

    def once(mine: children.Children) -> None:
        with contextlib.suppress(children.Stopped):
            mine.run(code, b"", 600)
        endings.append(None)

    def leave() -> None:
        with children.ended_with_block():
            mine = children.current_children()
            threads.extend(threading.Thread(target=once, args=(mine,)) for _ in range(3))
            threads[0].start()
            while not mine._running:
                time.sleep(0.01)
            raise SystemExit(143)

    threads: list[threading.Thread] = []
    with pytest.raises(SystemExit):
        leave()
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(endings) == 3


def test_a_child_that_takes_too_long_is_ended() -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    ended = children.Children().run(code, b"", 5)
    assert (ended.status, ended.output) == (-signal.SIGKILL, b"begun\n")


def test_a_child_says_what_it_says_and_how_it_ended() -> None:
    ended = children.Children().run(
        "import sys; sys.stdout.write(sys.stdin.read()[::-1]); sys.exit(3)", b"abc", 60
    )
    assert (ended.status, ended.output) == (3, b"cba")
