"""Limits of time and memory for one piece of work."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vanidl.schema.dataclass import dataclass

GRACE_SECONDS = 10.0
"""What ending the work in an orderly way may take."""

_STATM = Path("/proc/self/statm")
_deadlines: list[float] = []
_changing = threading.Lock()


class TimeLimit(BaseException):
    """The time is over. No Exception: nothing on the way may take it for an error of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one piece of work may take; by default, what one job of many."""

    seconds: float = 600.0
    nbytes: int = 8 << 30


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Raises TimeLimit or MemoryError where the work inside takes more.

    Memory is limited where the system counts address space (Linux), for the whole process. Time
    is checked between instructions of Python. A call into C that does not return is not ended by
    that, so GRACE_SECONDS later the system ends the process, unless the process handles SIGALRM
    itself: only for workers, whose caller knows what to do about one that died.
    """
    work, over = threading.get_ident(), threading.Lock()

    def end() -> None:
        if over.acquire(blocking=False):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(work), ctypes.py_object(TimeLimit)
            )

    timer = threading.Timer(limits.seconds, end)
    timer.daemon = True
    timer.start()
    try:
        with _limit_memory(limits.nbytes), _set_system_alarm(limits.seconds + GRACE_SECONDS):
            yield
    finally:
        over.acquire(blocking=False)  # from here on the timer does nothing
        timer.cancel()


@contextmanager
def _set_system_alarm(seconds: float) -> Iterator[None]:
    """SIGALRM ends the process where the work inside takes longer, whatever holds it.

    A timer of the kernel, as a thread could not run beside a call that keeps the interpreter's
    lock. It is one for the process, so it is set to the nearest end of all that is under way.
    """
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return
    # The nearest of all deadlines sets the timer, before the work and behind it.
    deadline = time.monotonic() + seconds
    with _changing:
        _deadlines.append(deadline)
        _set_alarm()
    try:
        yield
    finally:
        with _changing:
            _deadlines.remove(deadline)
            _set_alarm()


def _set_alarm() -> None:
    left = max(min(_deadlines) - time.monotonic(), 1e-3) if _deadlines else 0.0
    signal.setitimer(signal.ITIMER_REAL, left)


@contextmanager
def _limit_memory(nbytes: int) -> Iterator[None]:
    try:
        import resource

        used = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        yield
        return
    # What is used plus what is allowed, but never more than was allowed before.
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = min(limit for limit in (used + nbytes, soft, hard) if limit >= 0)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
