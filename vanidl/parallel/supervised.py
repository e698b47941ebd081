"""Work in a child whose crash is said: a library may end its process where memory is limited.

C and C++ libraries do not always look at what an allocation gave them. Under a limit of the
address space (ulimit -v, h_vmem) some end in a segmentation fault, by chance and in calls that
nothing in Python can guard.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from vanidl.errors import VanidlError

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


def address_space_is_limited() -> bool:
    """Whether this process may not have all the addresses that it asks for."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def supervised(work: Callable[[], int]) -> int:
    """The status that work returns in a child, which gets the signals that end this process.

    To be called before there are threads. What ends the child and is no crash ends this process.

    Raises:
        VanidlError: The child crashed.
    """
    blocked = (*_ENDING, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _end_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    status = _waited(child, blocked)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number in _CRASHES:
        raise VanidlError(_crashed(number))
    with suppress(OSError):  # SIGKILL has no other
        signal.signal(number, signal.SIG_DFL)
    os.kill(parent, number)
    return 128 + number


def _waited(child: int, numbers: tuple[signal.Signals, ...]) -> int:
    """How the child ended.

    Signals of other processes are passed on, those of a terminal reach it by themselves.
    """
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        came = signal.sigwaitinfo(numbers)
        if came.si_signo in _ENDING and came.si_code <= 0:
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


def _end_with(parent: int) -> None:
    """No core of a crash that is foreseen, and no work for a parent that is gone."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _crashed(number: int) -> str:
    import resource

    limit_mib = resource.getrlimit(resource.RLIMIT_AS)[0] >> 20
    return (
        f"expected memory for the libraries that are used, found a limit of {limit_mib:,} MiB for "
        f"addresses, under which one of them ended with {signal.Signals(number).name}; give the "
        "command more (ulimit -v, the job's limit)"
    )
