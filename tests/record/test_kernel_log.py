"""The truth that `make truth` holds accounts against: calls on files by the kernel's own log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.truth.kernel_log import (
    TRACING,
    Thread,
    bound_storage,
    can_log,
    log_kernel,
    read_threads,
)

MAIN, POOL, STRANGER = 100, 101, 900
LOG = """\
# tracer: nop
   python-100 [000] ..... 1.000000: sys_enter: NR 0 (7, 0, 0, 0, 0, 0)
   python-100 [000] d..2. 1.000010: sched_switch: prev_comm=my python prev_pid=100 prev_prio=120 \
prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
   python-900 [001] ..... 1.000020: sys_enter: NR 0 (7, 0, 0, 0, 0, 0)
   <idle>-0   [000] d..2. 1.002000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 \
prev_state=R ==> next_comm=python next_pid=100 next_prio=120
   python-100 [000] ..... 1.003000: sys_exit: NR 0 = 7
   python-100 [000] d.... 1.004000: page_fault_user: address=0x7f ip=0x7f error_code=0x4
   python-100 [000] d.... 1.005000: page_fault_user: address=0x7f ip=0x7f error_code=0x4
   python-100 [000] d..2. 1.005010: sched_switch: prev_comm=python prev_pid=100 prev_prio=120 \
prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120
   python-100 [001] ..... 1.008000: page_fault_user: address=0x7f ip=0x7f error_code=0x4
   python-100 [000] ..... 1.010000: sched_process_fork: comm=python pid=100 child_comm=python \
child_pid=101
   python-100 [000] d..2. 1.010000: sched_switch: prev_comm=python prev_pid=100 prev_prio=120 \
prev_state=S ==> next_comm=python next_pid=101 next_prio=120
   python-101 [000] ..... 1.010000: sys_enter: NR 0 (7, 0, 0, 0, 0, 0)
   python-101 [000] ..... 1.014000: sys_exit: NR 0 = 7
   python-101 [000] ..... 1.016000: sys_enter: NR 0 (7, 0, 0, 0, 0, 0)
   python-101 [000] ..... 1.017000: sys_exit: NR 0 = 7
   python-101 [000] d..2. 1.018000: sched_switch: prev_comm=python prev_pid=101 prev_prio=120 \
prev_state=S ==> next_comm=python next_pid=100 next_prio=120
"""
MS = 1_000_000


@pytest.fixture
def threads(tmp_path: Path) -> dict[int, Thread]:
    log = tmp_path / "log"
    log.write_text(LOG)
    return read_threads(log, MAIN)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "least_s", "most_s"),
    [
        (0, 4, 0.003, 0.003),  # a read until it returned, not only until it had a core again
        (4, 5, 0.0, 0.0),  # a fault that did not block
        (4, 10, 0.003, 0.003),  # one that did, until the thread was seen on a core
        (10, 15, 0.004, 0.004),  # of a thread that it waits for, which then works
        (10, 18, 0.005, 0.005),
        (2, 12, 0.006, 0.006),
    ],
)  # fmt: skip
def test_waits_are_in_calls_as_the_kernel_saw_them(
    threads: dict[int, Thread], from_ms: int, to_ms: int, least_s: float, most_s: float
) -> None:
    assert set(threads) == {MAIN, POOL}
    waits = np.array([[1000 + from_ms, 1000 + to_ms]]) * MS
    assert bound_storage(threads, MAIN, waits, 0) == pytest.approx((least_s, most_s))


def test_each_call_may_have_taken_more_than_the_kernel_sees(threads: dict[int, Thread]) -> None:
    waits = np.array([[1000, 1018]]) * MS
    assert bound_storage(threads, MAIN, waits, 1000.0)[1] == pytest.approx(0.011 + 4e-6)


def test_what_others_do_beside_a_call_leaves_it_open_whether_it_was_waited_for() -> None:
    """Certain is what nothing else can have been waited for; who works waits for nothing."""
    main = Thread(working=[(90, 100)])
    reads, decodes = Thread(in_calls=[(10, 60)]), Thread(working=[(30, 40)])
    late = Thread(in_calls=[(80, 96)], working=[(80, 96)])
    threads = {1: main, 2: reads, 3: decodes, 4: late}
    least, most = bound_storage(threads, 1, np.array([[0, 100]]), 0)
    assert (least * 1e9, most * 1e9) == pytest.approx((40 + 10, 50 + 10))


def test_the_kernel_says_when_a_process_was_in_a_call(tmp_path: Path) -> None:
    if not can_log():
        pytest.skip("the kernel's log needs root, x86-64 and tracefs")
    code = "import os, time; a = time.monotonic_ns(); os.read(0, 1); print(a, time.monotonic_ns())"
    with log_kernel(tmp_path / "log"):
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as child:
            time.sleep(0.2)
            said = child.communicate("x")[0]
    begin, end = map(int, said.split())
    threads = read_threads(tmp_path / "log", child.pid)
    least, most = bound_storage(threads, child.pid, np.array([[begin, end]]), 0)
    assert least == most
    assert 0.5 * (end - begin) <= least * 1e9 <= end - begin
    assert not (TRACING / "instances" / f"vanidl-{os.getpid()}").exists()
