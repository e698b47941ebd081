"""Copies of this process: everything is imported there already. Safe where it has one thread."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

_THREADS = Path("/proc/self/task")
_ANSWER_NBYTES = 1 << 20  # room in the pipe for answers: with 64 KiB both wait for each other
_HANDLED = (signal.SIGTERM, signal.SIGHUP)


def has_one_thread() -> bool:
    """Whether no other thread, also of a library, can hold a lock that a copy would wait for."""
    with suppress(OSError):  # elsewhere than on Linux nobody can tell
        return len(list(_THREADS.iterdir())) == 1
    return False


class Fork:
    """A copy of this process with pipes as standard streams: what of `Popen` workers need."""

    def __init__(self, work: Callable[[], object]) -> None:
        """Starts it: it does the work and ends, whatever this process has to do at its own end."""
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # else both would write what waits
        from_us, to_child = os.pipe()
        from_child, to_us = os.pipe()
        with suppress(OSError):  # of a user who has many: then it is as short as all are
            fcntl.fcntl(to_us, fcntl.F_SETPIPE_SZ, _ANSWER_NBYTES)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_HANDLED))
        self._pid = os.fork()
        if self._pid == 0:
            os.close(to_child)  # else it would never see the end of what we ask
            os.close(from_child)
            _work(work, (from_us, to_us), before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(from_us)
        os.close(to_us)
        self.stdin, self.stdout = os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb")
        self._waited = False

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if not self._waited:
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        """Waits for its end."""
        if not self._waited:
            os.waitpid(self._pid, 0)
            self._waited = True


def _work(work: Callable[[], object], streams: tuple[int, int], before: Collection[int]) -> None:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; we are ended
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for i, stream in enumerate(streams):
            os.dup2(stream, i)
        work()
    finally:
        os._exit(0)
