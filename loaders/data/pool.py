"""Threads that read. Unlike those of concurrent.futures, one that hangs holds up nobody's end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")


class ReadThreads:
    """So many daemon threads, begun with the first task. As a block: ends them behind it.

    Attributes:
        threads: How many tasks are under way at once.
    """

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.threads, self._threads = threads, list[threading.Thread]()

    def __enter__(self) -> ReadThreads:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """The result to come of a task; tasks begin in order."""
        future: Future[T] = Future()
        self._tasks.put((future, task))
        if len(self._threads) < self.threads:
            thread = threading.Thread(target=_work, args=(self._tasks,), name="read", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def map(self, work: Callable[[V], T], values: Iterable[V]) -> list[T]:
        """The results for all values, in order; raises what one of them raised."""

        def task(value: V) -> Callable[[], T]:
            return lambda: work(value)

        futures = [self.submit(task(value)) for value in values]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Ends the threads behind what was submitted, and waits for them."""
        for _ in self._threads:
            self._tasks.put(None)
        while self._threads:
            self._threads.pop().join()


def _work(tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (job := tasks.get()) is not None:
        future, task = job
        if future.set_running_or_notify_cancel():
            with Outcome(future):
                future.set_result(task())


class Outcome:
    """What is raised inside is the future's, for whoever asks for the result."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True
