"""Under a limit of the address space a crash is one line, and all else is as without a child."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")

LIMIT = 64 << 30
STARTED = (
    f"import os, signal, sys, time, resource; resource.setrlimit(resource.RLIMIT_AS, "
    f"({LIMIT}, {LIMIT})); from vanidl import cli; sys.argv[1:] = ['summary', 'RUN'];"
)


def entry_with(main: str) -> subprocess.Popen[str]:
    """The console script, with that in place of the command."""
    code = f"{STARTED} cli.main = lambda: {main}; cli.entry()"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_of_a_library_is_one_line_and_status_1(number):
    child = entry_with(f"os.kill(os.getpid(), {int(number)})")
    _, said = child.communicate(timeout=300)
    assert child.returncode == 1
    assert said.count("\n") == 1
    assert signal.Signals(number).name in said
    assert f"{LIMIT >> 20:,} MiB" in said


def test_statuses_and_other_signals_are_those_of_the_command():
    status = entry_with("print('said') or 7")
    killed = entry_with(f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    assert status.communicate(timeout=300) == ("said\n", "")
    assert status.returncode == 7
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL


def test_a_signal_that_ends_the_command_ends_its_child():
    child = entry_with(
        "(signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)), print('ready', flush=True), "
        # In short sleeps: Python's own handler runs after one that had just begun.
        "[time.sleep(0.1) for _ in range(6000)])"
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=300)  # also until the child has closed its ends
    assert child.returncode == 143


def test_nothing_is_forked_without_a_limit():
    from vanidl.cli import _may_crash

    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    assert _may_crash(["summary"]) is limited
    assert not _may_crash(["record"])
