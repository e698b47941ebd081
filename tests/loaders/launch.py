"""Commands that start ranks."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import pytest

FOLDER = Path(__file__).parent
TRAINING = ["--import", "torch._dynamo"]  # what an optimizer imports at its first step: seconds


def mpiexec(ranks):
    """`mpiexec -n ranks`, which what it starts follows; skips where there is none."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("mpiexec is not installed")
    return [found, "-n", ranks]


def torchrun(ranks):
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks]


@cache
def prefork():
    """A process that has imported PyTorch and forks ranks, for as long as this one works.

    The first worker of pytest-xdist that asks starts it for all: it reads what they hold open.
    """
    folder = Path(gettempdir(), f"prefork-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}")
    folder.mkdir(0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            alive = os.open(folder / "alive", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no such pipe, or nobody reads it
            alive = _prefork_in(folder)
        atexit.register(os.close, alive)
    return [sys.executable, "-I", "-S", FOLDER / "prefork_client.py", folder / "socket"]


def _prefork_in(folder):
    """Starts it; the end of its input, which is when all who hold that have ended."""
    for name in ("alive", "socket"):  # of one that was killed
        (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / "alive")
    reader = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    alive = os.open(folder / "alive", os.O_WRONLY)
    line = [sys.executable, FOLDER / "prefork.py", folder / "socket"]
    server = subprocess.Popen(line, stdin=reader, stdout=subprocess.PIPE, text=True)
    os.close(reader)
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.wait)  # its time is that of the tests
    assert server.stdout.readline() == "ready\n"
    return alive


STARTED_BY = {
    "torchrun": torchrun,
    "mpiexec": lambda ranks: [*mpiexec(ranks), sys.executable],
    "forked": lambda ranks: [*prefork(), "--ranks", ranks],
    "forked to train": lambda ranks: [*prefork(), "--ranks", ranks, *TRAINING],
    "mpi": lambda ranks: [*mpiexec(ranks), *prefork()],
    "mpi to train": lambda ranks: [*mpiexec(ranks), *prefork(), *TRAINING],
}
"""Launcher -> ranks -> the command that a Python program (or -m and a module) follows.

The last four fork ranks of a process that has PyTorch, two with torchrun's environment, two as
what mpiexec started.
"""


def run(line, *, folder, **environment):
    """Runs a command that finds this repository's packages as this process does."""
    return subprocess.run(
        [str(part) for part in line],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def json_objects(text):
    """Every JSON object in the output of ranks that write when they like."""
    found, decoder = [], json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found
