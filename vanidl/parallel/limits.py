"""Limits of time and memory for one piece of work in a process that goes on afterwards."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")


class TimeLimit(BaseException):
    """The time is over. No Exception: nothing on the way may take it for an error of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one piece of work may take."""

    seconds: float
    nbytes: int


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Raises TimeLimit or MemoryError where the work inside takes more.

    Memory is limited where the system counts address space (Linux), for the whole process. Time
    is checked between instructions of Python: one call into C that never returns is not ended.
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
        with _memory(limits.nbytes):
            yield
    finally:
        over.acquire(blocking=False)  # from here on the timer does nothing
        timer.cancel()


@contextmanager
def _memory(nbytes: int) -> Iterator[None]:
    try:
        import resource

        used = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = min(limit for limit in (used + nbytes, soft, hard) if limit >= 0)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
