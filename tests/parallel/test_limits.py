from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

from tests import ROOT
from vanidl.parallel.limits import Limits, TimeLimit, limited

MUCH = 1 << 40


def endless() -> None:
    while True:
        pass


def test_work_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeLimit), limited(Limits(0.02, MUCH)):
        endless()


def test_work_that_is_done_in_time_is_left_alone() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with limited(Limits(1e6, MUCH)):
        done = sum(range(1000))
    assert done == 499_500
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_memory_is_limited_and_given_back() -> None:
    code = (
        "from vanidl.parallel.limits import Limits, limited\n"
        "try:\n"
        "    with limited(Limits(1e6, 64 << 20)):\n"
        "        bytearray(256 << 20)\n"
        "except MemoryError:\n"
        "    print(len(bytearray(256 << 20)))\n"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{256 << 20}\n"


STUCK = """
import re
from vanidl.parallel import limits
limits.GRACE_SECONDS = 0.1
with limits.limited(limits.Limits(0.05, 1 << 40)):
    re.compile("(a*)*b").match("a" * 60)
"""
"""One call into C that keeps the interpreter's lock for longer than anybody waits."""


def test_a_call_into_c_that_does_not_return_ends_the_process() -> None:
    line = [sys.executable, "-c", STUCK]
    assert subprocess.run(line, cwd=ROOT, check=False, timeout=60).returncode == -signal.SIGALRM


def test_the_nearest_of_several_ends_counts() -> None:
    with limited(Limits(1e3, MUCH)):
        with limited(Limits(1e2, MUCH)):
            near, _ = signal.getitimer(signal.ITIMER_REAL)
        far, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < near < 200 < far < 1100
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
