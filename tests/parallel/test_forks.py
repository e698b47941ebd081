"""Workers as copies of a process with one thread: what they share with it, and what they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import DATA

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads of Linux")

START = """
import os, sys, threading, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from tests.parallel import work
from vanidl.parallel.executors import has_one_thread
from vanidl.parallel.executors import local_workers
"""


def said(code: str) -> list[str]:
    """The lines that a fresh interpreter prints after the code."""
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_workers_of_a_process_with_one_thread_have_what_it_imported() -> None:
    code = """
work.KEPT.append("here")
print("waits to be written", has_one_thread())
with local_workers(2) as workers:
    kept = [workers.submit(work.kept).result() for _ in range(4)]
print(kept)
"""
    assert said(code) == ["waits to be written True", str([["here"]] * 4)]


def test_workers_of_a_process_with_threads_are_fresh() -> None:
    code = """
work.KEPT.append("here")
asleep = threading.Event()
threading.Thread(target=asleep.wait).start()
print(has_one_thread())
with local_workers(1) as workers:
    print(workers.submit(work.kept).result())
asleep.set()
"""
    assert said(code) == ["False", "[]"]


def test_another_takes_the_place_of_a_fork_that_died() -> None:
    code = """
with local_workers(1) as workers:
    pid = workers.submit(os.getpid).result()
    try:
        workers.submit(os.kill, pid, 15).result()
    except Exception as error:
        print(type(error).__name__)
    print(workers.submit(os.getpid).result() != pid)
"""
    assert said(code) == ["BrokenExecutor", "True"]


def test_what_a_fork_prints_is_no_answer() -> None:
    code = """
with local_workers(1) as workers:
    print(workers.submit(work.shouting).result())
"""
    assert said(code) == ["done"]


def test_forks_end_with_a_process_that_is_killed() -> None:
    code = """
with local_workers(3) as workers:
    print(*[worker._process._pid for worker in workers._all], flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", START + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        forks = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(forks) == 3
        parent.kill()
    end_s = time.monotonic() + 30
    while any(is_at_work(pid) for pid in forks):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_at_work(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_terminal_that_interrupts_reaches_the_command_alone() -> None:
    code = f"""
with local_workers(1) as workers:
    workers.submit(os.kill, workers._all[0]._process._pid, {int(signal.SIGINT)}).result()
    print(workers.submit(work.kept).result())
"""
    assert said(code) == ["[]"]


def test_a_command_has_one_thread_and_leaves_the_environment_alone() -> None:
    code = f"""
import os, sys, time
from vanidl.cli import main
before = dict(os.environ)
main(["summary", {str(DATA / "torch_pfs_workers0")!r}])
from vanidl.parallel.executors import has_one_thread
end_s = time.monotonic() + 10
while not has_one_thread() and time.monotonic() < end_s:
    time.sleep(0.01)  # one that has ended is still listed for a moment
print("numpy" in sys.modules, has_one_thread(), dict(os.environ) == before)
"""
    env = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "True True True"
