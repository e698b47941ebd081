"""Runs one command as if vanidl were not there: output, signals and exit status pass through."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vanidl.errors import CommandError
from vanidl.record.watch import Watch

LOOK_SECONDS = 0.02
MOST_SECONDS = 0.5
GRACE_SECONDS = 2.0
_FORWARDED = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
_HELD = _FORWARDED | {signal.SIGCHLD}
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `exit_status` is 128 + N where signal N ended it."""

    exit_status: int
    start_ns: int
    end_ns: int
    cpu_s: float  # of the command and all descendants that it waited for
    watch: Watch


@contextmanager
def held_signals() -> Iterator[set[signal.Signals]]:
    """Keeps signals that would end us until the block is left; yields the mask before.

    What arrives and is not passed on meanwhile is dropped: it was meant for the command.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        while signal.sigtimedwait(_HELD - before, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(command: Sequence[str], environment: Mapping[str, str], mask: set[signal.Signals]) -> Ended:
    """Runs a command to its end; call with signals held, `mask` is the command's.

    Raises:
        CommandError: it cannot be started.
    """
    start = time.time_ns()
    try:
        pid = os.posix_spawnp(
            command[0], list(command), dict(environment),
            setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON,
        )  # fmt: skip
    except OSError as error:
        raise CommandError(
            f"{command[0]}: expected a program to run, found none ({error.strerror}); check its "
            "name, PATH and permissions"
        ) from error
    watch = Watch(pid, " ".join(command))
    status, cpu_s = _wait(pid, watch)
    return Ended(_exit_status(status), start, time.time_ns(), cpu_s, watch)


def _wait(pid: int, watch: Watch) -> tuple[int, float]:
    """Wait status and CPU seconds of a child; passes signals on and looks around meanwhile."""
    while True:
        received = signal.sigtimedwait(_HELD, _look(watch))
        if received is not None and _is_for_us_alone(received):
            os.kill(pid, received.si_signo)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            _let_go(watch)
            return status, usage.ru_utime + usage.ru_stime


def _look(watch: Watch) -> float:
    """Looks around; seconds until the next time, so that looking takes 1 % of a core at most."""
    before = time.thread_time()
    watch.look()
    return min(max(LOOK_SECONDS, 100 * (time.thread_time() - before)), MOST_SECONDS)


def _let_go(watch: Watch) -> None:
    """Gives processes that outlive the command, as fork servers do, time to write their logs."""
    deadline = time.monotonic() + GRACE_SECONDS
    watch.look()
    while watch.anyone_left() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        watch.look()


def _is_for_us_alone(received: signal.struct_siginfo) -> bool:
    """Whether a process sent it to us; what a terminal sends, the command gets as well."""
    return received.si_signo in _FORWARDED and received.si_code <= 0


def _exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
