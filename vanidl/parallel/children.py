"""Fresh interpreters as children, which may crash, and none of which outlives the command.

Libraries in C and C++ end their process on some damaged files. So what may do that runs in a fresh
interpreter, which sees the same packages and runs nothing of the caller's program: a crash is then
said, and not shared.

A command that is ended leaves no child at work (`ended_with_block`): threads wait for children, and
the interpreter waits for its threads before it exits. So whoever leaves early ends the children
first, and no thread starts another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Stopped(Exception):
    """The work was given up while a child was at it, or before."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended, and what it had said.

    Attributes:
        status: Of its exit; below zero the number of the signal that ended it.
        output: All of its standard output.
    """

    status: int
    output: bytes


class Children:
    """Those of one piece of work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, code: str, request: bytes, seconds: float) -> Ended:
        """A fresh interpreter that runs the code and reads the request: what it said, how it ended.

        Raises:
            Stopped: The work was given up.
        """
        with self._lock:
            if self._stopped:
                raise Stopped
            child = subprocess.Popen(
                interpreter_command(code),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=interpreter_environment(),
            )
            self._running.add(child)
        try:
            output, _ = child.communicate(request, seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()  # what it had said by then
        finally:
            child.kill()
            child.wait()
            self._running.discard(child)
        if self._stopped:
            raise Stopped
        return Ended(child.returncode, output)

    def stop(self) -> None:
        """Ends all of them, and starts no more."""
        with self._lock:
            self._stopped = True
            for child in tuple(self._running):
                child.kill()


_current = Children()


def current() -> Children:
    """Those of the work at hand: what a thread needs that goes on with it."""
    return _current


@contextmanager
def ended_with_block() -> Iterator[None]:
    """Ends the children of the work inside where it is left by an exception or a signal."""
    global _current
    before, _current = _current, Children()
    try:
        yield
    except BaseException:
        _current.stop()
        raise
    finally:
        _current = before


_THREADS = "OPENBLAS_NUM_THREADS"


def interpreter_command(code: str) -> list[str]:
    """What starts an interpreter that looks for packages where this one does and runs the code."""
    path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def interpreter_environment() -> dict[str, str]:
    """Its variables: those of this process, and one thread for linear algebra."""
    return {**os.environ, _THREADS: "1"}


@contextmanager
def without_threads_of_numpy() -> Iterator[None]:
    """Keeps NumPy, where it is imported first inside, from starting a thread for each core.

    They wait busily for linear algebra, which nothing here does.
    """
    given = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    try:
        yield
    finally:
        if given is None:  # programs that are started later find what the user set
            del os.environ[_THREADS]
