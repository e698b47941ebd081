from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vanidl
from tests.record.conftest import LOOKED_AT
from vanidl.record import record
from vanidl.record.processes import (
    RANK_VARIABLES,
    Seen,
    Watch,
    explain_missing_steps,
    explain_still_running,
    explain_tasks_elsewhere,
    find_rank,
)

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
        assert find_rank(everything) == i
        del everything[name]
    assert find_rank(everything) is None
    assert find_rank({"RANK": "", "PMI_RANK": "3"}) == 3
    assert find_rank({"RANK": "first"}) is None


# Programs that cannot record their steps, by how they were started, are named once.

GIVEN = {"PYTHONPATH": "/injected:/own", "VANIDL_STEPS": "/run/steps"}


def seen(command: str, parent: int = 1, **environment: str) -> Seen:
    words = "".join(f"{word}\0" for word in command.split())
    return Seen(id(words), parent, 1, 0, 0, words, environment=environment or GIVEN)


@pytest.mark.parametrize(
    ("command", "deaf"),
    [
        ("python train.py", False),
        ("python -I train.py", True),
        ("/usr/bin/python3.12 -uE -m train", True),
        ("python -s -u -S train.py", True),
        ("python -W ignore -I train.py", True),
        ("python -WIgnore train.py", False),
        ("python -X importtime train.py -I", False),
        ("python -m train -E", False),
        ("python -c I", False),
        ("python --check-hash-based-pycs default train.py", False),
        ("bash -E train.sh", False),
    ],
)
def test_flags_with_which_python_imports_no_recorder(command: str, deaf: bool) -> None:
    assert len([*explain_missing_steps({1: seen(command)}, GIVEN)]) == deaf


@pytest.mark.parametrize(
    ("name", "why"), [("VANIDL_STEPS", "srun --export=ALL"), ("PYTHONPATH", "no longer in their")]
)
def test_an_environment_that_was_not_passed_on(name: str, why: str) -> None:
    (said,) = explain_missing_steps(
        {1: seen("python train.py", **{**GIVEN, name: "/another"})}, GIVEN
    )
    assert why in said
    assert not [
        *explain_missing_steps(
            {1: seen("python a.py", **{**GIVEN, "PYTHONPATH": "/b:/injected"})}, GIVEN
        )
    ]


def test_a_launcher_whose_ranks_are_recorded_is_not_named() -> None:
    launcher = seen("python -sE /bin/torchrun train.py")
    assert not [
        *explain_missing_steps({1: launcher, 2: seen("python train.py", launcher.pid)}, GIVEN)
    ]


def test_processes_that_go_on_are_named() -> None:
    with subprocess.Popen(["sleep", "60"], env={"VANIDL_RUN": "/a run"}) as daemon:
        # A program that is just being started has no environment for a moment.
        while not Path(f"/proc/{daemon.pid}/environ").read_bytes():
            time.sleep(0.01)
        (said,) = explain_still_running("VANIDL_RUN", "/a run")
        assert f"1 process of the command is still running (first: process {daemon.pid})" in said
        assert not [*explain_still_running("VANIDL_RUN", "/another")]
        daemon.kill()


def test_tasks_of_slurm_that_did_not_record_are_named(tmp_path: Path) -> None:
    """They are children of slurmstepd: only srun itself is seen."""
    launcher = {1: seen("/usr/bin/srun --export=NONE -n 2 python train.py")}
    (said,) = explain_tasks_elsewhere(launcher, tmp_path)
    assert "--export=ALL" in said
    assert not [*explain_tasks_elsewhere({1: seen("python train.py")}, tmp_path)]
    (tmp_path / "host-7.steps").touch()
    assert not [*explain_tasks_elsewhere(launcher, tmp_path)]


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize(
    "how", [["env", "-u", "PYTHONPATH", sys.executable], [sys.executable, "-I"]]
)
def test_it_is_said_once_and_the_program_runs_as_it_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: list[str]
) -> None:
    script = LOOKED_AT + "looked_at(); print('done'); raise SystemExit(7)"
    done = record([*how, "-c", script], tmp_path / "RUN", tracer="none")
    assert (done.exit_status, capfd.readouterr().out) == (7, "done\n")
    (said,) = done.unheard
    assert said.startswith("Steps and waits of 1 Python process are not recorded")
    assert said in done.run.losses
    with pytest.raises(vanidl.InputError, match=re.escape(said)):  # it is why there is nothing
        vanidl.open_run(tmp_path / "RUN")
