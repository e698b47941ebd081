"""Work in children, which may crash or hang, and none of which outlives the command.

Libraries in C and C++ end their process on some damaged files. So what may do that runs in a fresh
interpreter (`Children.run`), which sees the same packages and runs nothing of the caller's program:
a crash is then said, and not shared. Under a limit of the address space (ulimit -v, h_vmem) some
end in a segmentation fault by chance, as they do not look at what an allocation gave them; and a
call to a mount whose server is gone never returns. So a command that may meet either is a fork of
itself (`run_supervised`), which can be left behind.

A command that is ended leaves no child at work (`ended_with_block`): threads wait for children, and
the interpreter waits for its threads before it exits. So whoever leaves early ends the children
first, and no thread starts another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from vanidl.errors import VanidlError
from vanidl.parallel.storage import (
    ANSWER_S,
    Question,
    descendants,
    processor_ticks,
    waits_for_storage,
)
from vanidl.schema.dataclass import dataclass


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
        # Started under the lock, so that whoever stops the work finds every child.
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


def current_children() -> Children:
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


# What every process of ours keeps of freed memory, children and the command alike.

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_ARENAS = -1, -3, -8  # of glibc's mallopt
_LARGEST_KEPT = 16 << 20  # larger arrays have pages of their own, which go back at once
_MOST_KEPT = 64 << 20  # at the end of the heap


def keep_freed_memory() -> None:
    """Keeps up to 64 MB of what is freed, and all arrays of less than 16 MB among it.

    Else every passing array of a few megabytes comes from the system anew, page by page and
    cleared: of thousands of logs that takes a tenth of the time. All threads share what is kept:
    what each would keep for itself is a tenth of the memory. Without effect where the C
    library is another one than glibc, or the user set its limits (MALLOC_..._THRESHOLD_).
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    import ctypes

    with suppress(AttributeError, OSError):  # no such function, no such library
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        library.mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
        library.mallopt(_MOST_ARENAS, 1)


# The command itself as a child.


GIVEN_UP_S = 30.0
"""How long one read or write is waited for where storage answers other questions."""


_ASKED_S = 2.0  # after a question that was answered
_LOOK_S = 0.2  # between two looks at storage
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def address_space_is_limited() -> bool:
    """Whether this process may not have all the addresses that it asks for."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def run_supervised(work: Callable[[], int], remote: Mapping[str, str] | None = None) -> int:
    """The status that work returns in a child, which gets the signals that end this process.

    To be called before there are threads. What ends the child and is no crash ends this process.

    Args:
        work: what is done in the child.
        remote: paths that it uses on storage of elsewhere, with their mounts.

    Raises:
        VanidlError: The child crashed, or waits for storage that does not answer.
    """
    # Blocked before the fork: a signal that comes now is waited for, not lost.
    blocked = (*_ENDING, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        # No core of a crash that is foreseen, and no work for a parent that is gone.
        import ctypes
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, AttributeError):  # elsewhere than on Linux
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    # The parent asks storage itself while it waits, so that it can leave a child that hangs.
    storage = _Storage(child, remote) if remote else None
    try:
        status = _wait_for(child, blocked, storage)
    except VanidlError:
        for pid in reversed(descendants(child)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # As the child ended so does this process: by its status, or by the same signal.
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number in _CRASHES:
        raise VanidlError(_explain_crash(number))
    with suppress(OSError):  # SIGKILL has no other
        signal.signal(number, signal.SIG_DFL)
    os.kill(parent, number)
    return 128 + number


def _wait_for(child: int, numbers: tuple[signal.Signals, ...], storage: _Storage | None) -> int:
    """How the child ended.

    Signals of other processes are passed on, those of a terminal reach it by themselves.

    Raises:
        VanidlError: It waits for storage that does not answer.
    """
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if storage is None:
            came: signal.struct_siginfo | None = signal.sigwaitinfo(numbers)
        else:
            came = signal.sigtimedwait(numbers, _LOOK_S)
            storage.look()
        if came is not None and came.si_signo in _ENDING and came.si_code <= 0:
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


class _Storage:
    """Whether the storage of elsewhere that a child uses still answers."""

    def __init__(self, child: int, remote: Mapping[str, str]) -> None:
        self._child, self._remote = child, remote
        self._questions = {path: Question([path]) for path in remote}
        self._ticks, self._since_s = 0, time.monotonic()
        self._told = False

    def look(self) -> None:
        """Asks again where the answer has come.

        Raises:
            VanidlError: It has not come for too long.
        """
        now_s = time.monotonic()
        for path, question in self._questions.items():
            if question.is_overdue:
                raise VanidlError(
                    f"{path}: expected storage that answers, found none at {self._remote[path]} "
                    f"for {ANSWER_S:.0f} s; bring it back, or name a copy elsewhere"
                )
            if question.is_answered() and now_s - question.began_s > _ASKED_S:
                self._questions[path] = Question([path])

        # It may answer that, and not what the child asks.
        # Only a child that computes nothing and waits in the kernel counts as waiting for storage.
        processes = descendants(self._child)
        ticks = processor_ticks(processes)
        if ticks != self._ticks or not waits_for_storage(processes):
            self._ticks, self._since_s = ticks, now_s
        still_s = now_s - self._since_s
        mounts = ", ".join(sorted({*self._remote.values()}))
        if still_s > GIVEN_UP_S:
            raise VanidlError(
                f"{mounts}: expected storage that answers, waited {GIVEN_UP_S:.0f} s for one "
                "read or write; bring it back, or name a copy elsewhere"
            )
        if still_s > ANSWER_S and not self._told:
            self._told = True
            sys.stderr.write(
                f"vanidl: {mounts}: no answer to a read or write for {ANSWER_S:.0f} s; waiting up "
                f"to {GIVEN_UP_S:.0f} s\n"
            )
            sys.stderr.flush()


def _explain_crash(number: int) -> str:
    import resource

    limit_mib = resource.getrlimit(resource.RLIMIT_AS)[0] >> 20
    return (
        f"expected memory for the libraries that are used, found a limit of {limit_mib:,} MiB for "
        f"addresses, under which one of them ended with {signal.Signals(number).name}; give the "
        "command more (ulimit -v, the job's limit)"
    )
