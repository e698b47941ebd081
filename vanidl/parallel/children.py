"""Children that end with what asked for them: a command that is ended leaves none at work.

Threads wait for children, and the interpreter waits for its threads before it exits. So whoever
leaves early ends the children first, and no thread starts another.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class Stopped(Exception):
    """The work was given up while a child was at it, or before."""


class Children:
    """Those of one piece of work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, command: Sequence[str], request: bytes, seconds: float, env: Mapping[str, str]
    ) -> int:
        """Exit status of a child that reads the request and says nothing.

        Raises:
            subprocess.TimeoutExpired: It took longer, and was ended.
            Stopped: The work was given up.
        """
        with self._lock:
            if self._stopped:
                raise Stopped
            nowhere = subprocess.DEVNULL
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, env=env
            )
            self._running.add(child)
        try:
            child.communicate(request, seconds)
        finally:
            child.kill()
            child.wait()
            self._running.discard(child)
        if self._stopped:
            raise Stopped
        return child.returncode

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
