"""Workers of this machine, which run nothing of the caller's own program.

`multiprocessing` imports the caller's script once more in every worker that it spawns, which a
script without a guard against it does not survive. A fork imports nothing, but copies the locks
of threads: so these workers are forks of a process with one thread, as commands are, and of any
other one fresh interpreters, whose imports take as long as reading a thousand logs. They read
pickled calls from a pipe and answer through another.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from vanidl.parallel import interpreter
from vanidl.parallel.allocator import keep_freed_memory
from vanidl.parallel.forks import Fork, has_one_thread
from vanidl.parallel.pickling import dump, load
from vanidl.parallel.threads import core_count

Value = TypeVar("Value")


class _Worker:
    """One worker: a process and the pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes] | Fork) -> None:
        self._process = process

    def call(self, *call: Any) -> Any:  # noqa: ANN401 - whatever the function takes and returns
        """The value that (function, arguments, keywords) has there.

        Raises:
            BrokenExecutor: the worker died.
            Exception: what the function raised.
        """
        calls, answers = self._process.stdin, self._process.stdout
        if calls is None or answers is None:
            raise BrokenExecutor("a worker without pipes")
        try:
            pickle.dump(call, calls, protocol=5)
            calls.flush()
            error, value = load(answers)
        except (EOFError, OSError, pickle.UnpicklingError) as problem:
            raise BrokenExecutor(f"the worker ended: {problem}") from problem
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # of a worker that died in the middle of a call
                    pipe.close()
        self._process.wait()


def _fresh() -> subprocess.Popen[bytes]:
    """An interpreter that serves."""
    return subprocess.Popen(
        interpreter.command("from vanidl.parallel.workers import serve; serve()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=interpreter.environment(),
    )


_MOST_FORKS = 8


class LocalWorkers(Executor):
    """An executor of so many workers: a few forks at once, fresh ones when they are needed.

    A worker that dies fails the call at hand with BrokenExecutor; another takes its place.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        forks = min(count, _MOST_FORKS) if has_one_thread() else 0
        self._all = [_Worker(Fork(serve)) for _ in range(forks)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="workers")

    def submit(self, fn: Callable[..., Value], /, *args: object, **kwargs: object) -> Future[Value]:
        """Calls the function, which a module defines, in the next idle worker."""
        return self._threads.submit(self._called, fn, args, kwargs)

    def _called(self, *call: Any) -> Any:  # noqa: ANN401
        worker, alive = self._idle_worker(), True
        try:
            return worker.call(*call)
        except BrokenExecutor:
            alive = False
            worker.end()
            raise
        finally:
            if alive:
                self._idle.put(worker)

    def _idle_worker(self) -> _Worker:
        """An idle worker, or a new one: there are no more of them than threads."""
        try:
            return self._idle.get_nowait()
        except Empty:
            worker = _Worker(_fresh())
            self._all.append(worker)
            return worker

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends all workers, also those at work."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        for worker in self._all:
            worker.end()
        self._threads.shutdown(wait=wait)


@contextmanager
def local_workers(count: int | None = None) -> Iterator[LocalWorkers]:
    """An executor of so many workers, None: one for each core; they end with the block."""
    executor = LocalWorkers(count or core_count())
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


_GARBAGE = 200_000  # new objects before the collector looks; 700 unless set


def serve() -> None:
    """What a worker does: calls functions until nobody asks any more."""
    gc.set_threshold(_GARBAGE)  # what it reads stays until it is sent: a fifth of the time else
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the caller ends us
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints must not get between the answers
    with ThreadPoolExecutor(1) as thread:
        while True:
            try:
                function, args, kwargs = pickle.load(calls)
            except EOFError:
                return
            done = thread.submit(function, *args, **kwargs)
            error = done.exception()
            dump((error, None if error else done.result()), answers)
            answers.flush()
