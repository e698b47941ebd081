"""Threads that read, and reads that are waited for together, by as many threads as storage needs.

Unlike those of concurrent.futures, a thread that hangs holds up nobody's end (`ReadThreads`).

Handing a read to a thread and waking who waits for it takes more processor time than reading
64 KiB from the page cache. Where reads are quick, whoever waits for them does them; where they are
slow, threads do, and latencies overlap. What the last reads took decides (`GroupedReads`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from ..errors import Caught
from .pread import ReadTotals

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
        # Threads are begun as they are needed: where few reads are made, few are.
        if len(self._threads) < self.threads:
            thread = threading.Thread(
                target=_run_tasks, args=(self._tasks,), name="read", daemon=True
            )
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


def _run_tasks(tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (job := tasks.get()) is not None:
        future, task = job
        if future.set_running_or_notify_cancel():
            with Outcome(future):
                future.set_result(task())


class Outcome(Caught):
    """What is raised inside is the future's, for whoever asks for the result."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self._future = future

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        caught = super().__exit__(kind, error, trace)
        if self.error is not None:
            self._future.set_exception(self.error)
        return caught


Task = Callable[[], ReadTotals]

QUICK_S, QUICK_BYTES_PER_S = 60e-6, 4e9
"""A read within this time, and its bytes at this speed, is quick: no disk was asked."""
SLOW_S = 1e-3
"""A read that takes longer has one more thread join in at once."""


class ReadGroup:
    """Reads that were begun together.

    Args:
        tasks: The reads; they begin in order.
        pool: Who does them.
        workers: Threads to begin with; 0: `result` reads. Slow reads add more.
    """

    def __init__(self, tasks: Sequence[Task], pool: ReadThreads, workers: int) -> None:
        self._waiting, self._tasks, self._pool = deque(tasks), len(tasks), pool
        self._done, self._seconds, self._counted = list[ReadTotals](), list[float](), 0
        self._workers = list[Future[None]]()
        for _ in range(min(workers, len(tasks))):
            self._join()

    def result(self) -> None:
        """Waits for all reads.

        Raises:
            InputError: What one of them raised.
        """
        if not self._workers:
            self._work()
        at = 0
        while at < len(self._workers):  # one that works may add another, before it ends
            # Where no read waits, a thread that has not begun need not.
            if self._waiting or not self._workers[at].cancel():
                self._workers[at].result()
            at += 1

    def abandon(self) -> bool:
        """Waits for reads that are under way, begins no more; True where all were done."""
        self._waiting.clear()
        for worker in self._workers:
            if not worker.cancel():
                worker.exception()
        return len(self._done) == self._tasks

    def totals(self) -> ReadTotals:
        """What was read since this was asked last; nothing may be under way."""
        fresh, self._counted = self._done[self._counted :], len(self._done)
        return ReadTotals(sum([d.nbytes for d in fresh]), sum([d.requests for d in fresh]))

    def is_quick(self) -> bool | None:
        """True where a request of the median read was quick; None where there was none."""
        if not self._done:
            return None
        taken = zip(self._seconds, self._done, strict=True)
        # What a request took beyond moving its bytes from memory.
        beyond = sorted(
            [(s - read.nbytes / QUICK_BYTES_PER_S) / max(read.requests, 1) for s, read in taken]
        )
        return beyond[len(beyond) // 2] < QUICK_S

    def _join(self) -> None:
        self._workers.append(self._pool.submit(self._work))

    def _work(self) -> None:
        while (task := self._next()) is not None:
            start = time.perf_counter()
            read = task()
            seconds = time.perf_counter() - start
            self._seconds.append(seconds)
            self._done.append(read)
            # Slow storage: another thread joins, so that latencies overlap.
            if seconds > SLOW_S and self._waiting and len(self._workers) < self._pool.threads:
                self._join()

    def _next(self) -> Task | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


class GroupedReads:
    """Begins groups of reads: without threads where those of the last group were quick.

    Attributes:
        quick: They were.
    """

    def __init__(self, threads: int) -> None:
        self._pool, self.quick = ReadThreads(threads), False
        self._nothing = ReadGroup((), self._pool, 0)

    def begin(self, tasks: Sequence[Task]) -> ReadGroup:
        """The reads, under way where they may be slow."""
        if not tasks:
            return self._nothing
        return ReadGroup(tasks, self._pool, 0 if self.quick else self._pool.threads)

    def finish(self, group: ReadGroup) -> None:
        """Waits for a group's reads.

        Raises:
            InputError: What one of them raised.
        """
        group.result()
        # A group without reads says nothing about the storage.
        quick = group.is_quick()
        self.quick = self.quick if quick is None else quick

    def close(self) -> None:
        """Ends the threads behind what was begun."""
        self._pool.close()
