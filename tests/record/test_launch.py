"""The command must not notice: exit status, output, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.conftest import LOOKED_AT, _available
from vanidl.record import launch
from vanidl.record.launch import pass_signals_on


def launched(*command: str) -> launch.Ended:
    with pass_signals_on() as signals:
        return launch.run(command, os.environ, signals)


@pytest.mark.parametrize("status", [0, 1, 3, 255])
def test_exit_status_passes(status: int) -> None:
    assert launched(sys.executable, "-c", f"raise SystemExit({status})").exit_status == status


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_a_signal_that_ends_the_command_is_told_as_shells_do(name: str) -> None:
    number = getattr(signal, name)
    code = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"os.kill(os.getpid(), {number})\n"
    )
    assert launched(sys.executable, "-c", code).exit_status == 128 + number


def test_a_command_is_waited_for_beside_more_open_files_than_select_knows() -> None:
    resource = pytest.importorskip("resource", reason="this system has no limits of resources")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2048:
        pytest.skip("this system lets a process open fewer files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, limits[0]), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert launched(sys.executable, "-c", "raise SystemExit(3)").exit_status == 3
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_command_starts_with_signals_as_they_were() -> None:
    code = (
        "import signal\n"
        "assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    )
    before = signal.getsignal(signal.SIGTERM)
    assert launched(sys.executable, "-c", code).exit_status == 0
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = "import signal; assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN"
        assert launched(sys.executable, "-c", code).exit_status == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_before_the_start_is_not_lost() -> None:
    with pass_signals_on() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        ended = launch.run([sys.executable, "-c", "import time; time.sleep(60)"], os.environ,
                           signals)  # fmt: skip
    assert ended.exit_status == 128 + signal.SIGUSR1


def test_without_pidfd_the_end_is_seen_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert launched(sys.executable, "-c", "raise SystemExit(5)").exit_status == 5


@pytest.mark.parametrize("foreground", [True, False])
def test_keys_of_the_terminal_are_not_sent_twice(
    monkeypatch: pytest.MonkeyPatch, foreground: bool
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(launch, "_is_in_foreground", lambda: foreground)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    passing = launch.Signals(pid=1)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        passing(number, None)
    keys = [] if foreground else [signal.SIGINT, signal.SIGQUIT]
    assert sent == [*keys, signal.SIGTERM]


def test_cpu_time_is_that_of_the_command_and_its_children() -> None:
    code = (
        "import os, time\n"
        "def burn():\n"
        "    while time.process_time() < 0.3: pass\n"
        "child = os.fork()\n"
        "burn()\n"
        "os.waitpid(child, 0) if child else None\n"
    )
    assert launched(sys.executable, "-c", code).cpu_s >= 0.6


CAUGHT = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIG{name}, lambda *_: sys.exit(42))
print("ready", flush=True)
for _ in range(600):  # one that came just before a sleep began is looked at after it
    time.sleep(0.1)
"""


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1"])
@pytest.mark.parametrize("tracer", ["darshan", "dftracer"])
def test_a_signal_to_the_recorder_reaches_the_command(
    tmp_path: Path, tracer: str, name: str
) -> None:
    library = _available(tracer)
    options = ["--darshan-lib", library] if library else []
    with subprocess.Popen(
        [sys.executable, "-m", "vanidl", "record", "-o", str(tmp_path / "RUN"), "--tracer", tracer,
         *options, "--", sys.executable, "-c", CAUGHT.format(name=name)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 42
    assert "recorded with" in errors
    assert (tmp_path / "RUN" / "run.json").is_file()


def test_output_of_the_command_is_its_own(tmp_path: Path) -> None:
    _available("dftracer")
    code = "import sys; print('out'); print('err', file=sys.stderr); print(sys.stdin.read())"
    done = subprocess.run(
        [sys.executable, "-m", "vanidl", "record", "-o", str(tmp_path / "RUN"), "--tracer",
         "dftracer", "--", sys.executable, "-c", code],
        input="in", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout == "out\nin\n"
    assert "err\n" in done.stderr  # behind what DFTracer can do to a program


@pytest.mark.usefixtures("looks")
def test_processes_that_outlive_the_command_are_waited_for_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.1)
    code = "import os, time\ntime.sleep(60) if os.fork() == 0 else looked_at()"
    ended = launched(sys.executable, "-c", LOOKED_AT + code)
    _, child = ended.watch.seen
    os.kill(child, signal.SIGKILL)  # it is still there
    assert [seen.gone for seen in ended.watch.seen.values()] == [True, False]


def test_a_missing_program_has_the_exit_status_of_shells(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vanidl", "record", "-o", str(tmp_path / "RUN"), "--tracer",
         "none", "--", "no-such-program-here"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 127
    assert done.stderr.count("\n") == 1
