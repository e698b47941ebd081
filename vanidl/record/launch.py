"""Runs one command as if vanidl were not there: output, signals and exit status pass through."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from types import FrameType

from vanidl.errors import CommandError
from vanidl.record.processes import Watch
from vanidl.schema.dataclass import dataclass

LOOK_SECONDS = 0.02
SHARE = 0.003  # of a core, that looking around may take
MOST_SECONDS = 0.5
GRACE_SECONDS = 2.0
_KEYS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to its whole foreground group
_PASSED_ON = (*_KEYS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `exit_status` is 128 + N where signal N ended it."""

    exit_status: int
    start_ns: int
    end_ns: int
    cpu_s: float  # of the command and all descendants that it waited for
    watch: Watch


@dataclass(slots=True)
class Signals:
    """Passes signals on to the command while it runs; drops them before and after."""

    pid: int | None = None
    early: list[int] = field(default_factory=list)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if number in _KEYS and _is_in_foreground():
            return  # the terminal has sent it to the command as well
        if self.pid is None:
            self.early.append(number)
        else:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def start(self, pid: int) -> None:
        """From now on to this process, to begin with those that came too early."""
        self.pid = pid
        for number in self.early:
            os.kill(pid, number)


@contextmanager
def pass_signals_on() -> Iterator[Signals]:
    """Handles signals that would end us until the block is left; ignored ones stay ignored.

    Blocking them would not do: libraries have threads of their own, which would receive them.
    Outside the main thread, where Python allows no handlers, signals keep their meaning.
    """
    signals = Signals()
    before = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _PASSED_ON}
        before = {n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signals)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether we belong to the foreground group of our terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    signals: Signals,
    looked: Callable[[Watch], object] = lambda _: None,
) -> Ended:
    """Runs a command to its end; `looked` is called whenever its processes were looked at.

    Raises:
        CommandError: it cannot be started.
    """
    start = time.time_ns()
    try:
        pid = os.posix_spawnp(
            command[0], list(command), dict(environment), setsigdef=_IGNORED_BY_PYTHON
        )
    except OSError as error:
        raise CommandError(
            f"{command[0]}: expected a program to run, found none ({error.strerror}); check its "
            "name, PATH and permissions"
        ) from error
    signals.start(pid)
    watch = Watch(pid, command)
    # Looks at its processes until it has ended.
    with _await_end(pid) as ended:
        while not ended(_look(watch, looked)):
            pass
    _, status, usage = os.wait4(pid, 0)
    signals.pid = None
    end = time.time_ns()
    # Gives processes that outlive the command, as fork servers do, time to write their logs.
    deadline = time.monotonic() + GRACE_SECONDS
    watch.look()
    while watch.anyone_left() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        watch.look()
    code = os.waitstatus_to_exitcode(status)
    exit_status = code if code >= 0 else 128 - code
    return Ended(exit_status, start, end, usage.ru_utime + usage.ru_stime, watch)


@contextmanager
def _await_end(pid: int) -> Iterator[Callable[[float], bool]]:
    """A question: did the child end within so many seconds?"""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # no Linux, or one before 5.3
        yield lambda seconds: _has_ended_after(pid, seconds)
        return
    asked = select.poll()  # unlike select, of any number of descriptors
    asked.register(descriptor, select.POLLIN)
    try:
        yield lambda seconds: bool(asked.poll(1000 * seconds))
    finally:
        os.close(descriptor)


def _has_ended_after(pid: int, seconds: float) -> bool:
    time.sleep(min(seconds, LOOK_SECONDS))
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _look(watch: Watch, looked: Callable[[Watch], object]) -> float:
    """Looks around; seconds until the next time: looking takes `SHARE` of a core at most.

    What else is done with those seen has budgets of its own, and makes no look later.
    """
    before = time.thread_time()
    watch.look()
    spent_s = time.thread_time() - before
    looked(watch)
    return min(max(LOOK_SECONDS, spent_s / SHARE), MOST_SECONDS)
