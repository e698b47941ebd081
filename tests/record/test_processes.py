from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from vanidl.record.processes import RANK_VARIABLES, Watch, rank_in

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"),  # noqa: PTH110
    reason="processes are seen through /proc",
)

TREE = """
import os, subprocess, sys, time
environment = {**os.environ, "RANK": sys.argv[1]}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
print(child.pid, flush=True)
child.wait()
"""


def test_descendants_and_their_ranks_are_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TREE, "5"], stdout=subprocess.PIPE, text=True,
        env={k: v for k, v in os.environ.items() if k not in RANK_VARIABLES},
    ) as process:  # fmt: skip
        watch = Watch(process.pid, ["tree"])
        assert process.stdout is not None
        child = int(process.stdout.readline())
        deadline = time.monotonic() + 120
        while watch.ranks().get(child) != 5 and time.monotonic() < deadline:
            watch.look()
        assert watch.ranks() == {process.pid: None, child: 5}
        assert watch.seen[child].parent_pid == process.pid
        assert "time.sleep(60)\0" in watch.seen[child].command
        os.kill(child, 9)
        process.wait()
    watch.look()
    assert not watch.anyone_left()
    assert watch.ranks()[child] == 5


def test_a_zombie_is_gone_and_stays_what_it_was() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        watch = Watch(os.getpid(), ["me"])
        deadline = time.monotonic() + 120
        while process.pid not in watch.seen and time.monotonic() < deadline:
            watch.look()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet reaped
        for _ in range(3):
            watch.look()
        first = watch.seen[process.pid].first_ns
        watch.look()
        assert watch.seen[process.pid].gone
        assert watch.seen[process.pid].first_ns == first


def test_the_launcher_closest_to_the_program_gives_the_rank() -> None:
    everything = {name: str(i) for i, name in enumerate(RANK_VARIABLES)}
    for i, name in enumerate(RANK_VARIABLES):
        assert rank_in(everything) == i
        del everything[name]
    assert rank_in(everything) is None
    assert rank_in({"RANK": "", "PMI_RANK": "3"}) == 3
    assert rank_in({"RANK": "first"}) is None
