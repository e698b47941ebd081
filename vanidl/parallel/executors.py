"""Distributes work over processes of this machine or a Dask cluster.

Both are executors of `concurrent.futures`. What a worker that died was doing is done again, at
last item by item; only an item that kills a worker alone is given up.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from vanidl.errors import UsageError, package_missing
from vanidl.parallel.threads import core_count
from vanidl.parallel.workers import local_workers

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 4  # batches per worker that wait for it


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """Where work runs: `workers` processes, or those of a Dask scheduler."""

    workers: int | None = None
    dask: str | None = None

    @property
    def on_dask(self) -> bool:
        """Whether Dask is asked for."""
        return self.dask is not None or self.workers is not None


@contextmanager
def dask_executor(options: ExecutorOptions) -> Iterator[Executor]:
    """An executor on a Dask scheduler, or on a cluster of `workers` processes started here.

    Whoever reaches a port of Dask's can run code as its user, also from other accounts of the
    same machine. So the cluster here speaks TLS only, with a certificate that is made for it,
    is held in memory and given to nobody else.

    Raises:
        UsageError: Dask is not installed, or there is no scheduler at the address.
    """
    distributed = _distributed()
    with ExitStack() as stack:
        try:
            stack.enter_context(_dask().config.set(_SETTINGS))
            if options.dask is None:
                cluster = distributed.LocalCluster(
                    n_workers=options.workers,
                    security=_throw_away_certificate(distributed),
                    **_LOCAL,
                )
                client = distributed.Client(stack.enter_context(cluster))
            else:
                client = distributed.Client(options.dask, timeout=10)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(
                f"--dask {options.dask}: expected the address of a Dask scheduler "
                f"(tls://HOST:8786), and none answers: {error or type(error).__name__}"
            ) from error
        stack.enter_context(client)
        yield _ClusterWorkers(client)


class _ClusterWorkers(Executor):
    """Dask's executor, which says how many workers there are now: a cluster grows and shrinks."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - without types
        self._client = client
        self._executor: Executor = client.get_executor(pure=False)

    @property
    def count(self) -> int:
        """Threads of all workers."""
        return sum(self._client.nthreads().values())

    def submit(
        self, fn: Callable[..., Result], /, *args: object, **kwargs: object
    ) -> Future[Result]:
        """Calls the function in a worker."""
        return self._executor.submit(fn, *args, **kwargs)


def worker_count(executor: Executor) -> int:
    """How many calls an executor works on at a time, at least 1."""
    own: int | None = getattr(executor, "count", None)
    return max(core_count() if own is None else own, 1)


_LOCAL: dict[str, Any] = {
    "threads_per_worker": 1,
    "dashboard_address": "127.0.0.1:0",  # any free port: without one, a second cluster warns
    "scheduler_kwargs": {"dashboard": False},
    "silence_logs": logging.CRITICAL,  # of workers that end slowly; what fails is raised
}
_SETTINGS: dict[str, Any] = {
    # Parts are sent as they are: a megabyte of operations is no large graph here.
    "distributed.admin.large-graph-warning-threshold": "1 GB",
    # Pages of calls and their arguments, which are served without TLS to whoever asks.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


def _throw_away_certificate(distributed: Any) -> Any:  # noqa: ANN401 - without types
    try:
        return distributed.Security.temporary()
    except ImportError as error:
        raise package_missing(error, "--workers needs", "cryptography", "dask") from error


def warning_about(options: ExecutorOptions) -> str | None:
    """What to say before a scheduler is used that everyone on its network can use, too."""
    if options.dask is None or options.dask.startswith(_PROTECTED):
        return None
    return (
        f"{options.dask}: the connection is neither encrypted nor authenticated, so whoever "
        "reaches the scheduler can read what is sent and run code as its user; use a scheduler "
        "with TLS (tls://HOST:8786)"
    )


_PROTECTED = ("tls://", "inproc://")


def _dask() -> Any:  # noqa: ANN401 - an optional package without types
    import dask

    return dask


def _distributed() -> Any:  # noqa: ANN401 - an optional package without types
    try:
        import distributed
    except ImportError as error:
        raise package_missing(error, "--dask and --workers need", "distributed", "dask") from error
    return distributed


@contextmanager
def open_executor(options: ExecutorOptions) -> Iterator[Executor]:
    """An executor on Dask where the options ask for it, else on this machine."""
    with dask_executor(options) if options.on_dask else local_workers() as executor:
        yield executor


def run_batches(
    work: Callable[[list[Item]], list[Result]],
    batches: Iterable[list[Item]],
    executor: Executor,
    lost: Callable[[Item], Result],
) -> Iterator[tuple[list[Item], list[Result]]]:
    """(items, results) of every batch, in any order.

    Args:
        work: the results of the items of one batch, in turn; sent to the workers.
        batches: what to do; taken as workers become free.
        executor: whose workers do it; one that died is replaced.
        lost: the result of an item that killed its worker twice, alone.
    """
    source, suspects = iter(batches), deque[list[Item]]()
    for batch in source:  # once more after each death
        yield from _together(work, chain([batch], source), executor, suspects)
    seen: set[int] = set()
    while suspects:
        items = suspects.popleft()
        results = _alone(work, items, executor)
        if results is not None:
            yield items, results
        elif len(items) > 1:
            # Not in halves: each of them would wait once more for an item that never ends.
            suspects.extendleft([item] for item in reversed(items))
        elif id(items) in seen:
            yield items, [lost(items[0])]
        else:
            seen.add(id(items))
            suspects.appendleft(items)


def _together(
    work: Callable[[list[Item]], list[Result]],
    batches: Iterator[list[Item]],
    executor: Executor,
    suspects: deque[list[Item]],
) -> Iterator[tuple[list[Item], list[Result]]]:
    """Results until all is done or a worker died: what was under way then is suspect."""
    running: deque[tuple[list[Item], Future[list[Result]]]] = deque()
    try:
        while True:
            room = max(0, _AHEAD * worker_count(executor) - len(running))
            for items in islice(batches, room):
                running.append((items, _submitted(work, items, executor)))
            if not running:
                return
            yield running[0][0], running[0][1].result()
            running.popleft()
    except deaths():
        for items, future in running:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield items, future.result()
            else:
                future.cancel()
                suspects.append(items)


def _submitted(
    work: Callable[[list[Item]], list[Result]], items: list[Item], executor: Executor
) -> Future[list[Result]]:
    """The results to come; a worker may be dead already."""
    try:
        return executor.submit(work, items)
    except deaths() as error:
        dead = Future[list[Result]]()
        dead.set_exception(error)
        return dead


def _alone(
    work: Callable[[list[Item]], list[Result]], items: list[Item], executor: Executor
) -> list[Result] | None:
    """The results, or None where the worker died."""
    try:
        return executor.submit(work, items).result()
    except deaths():
        return None


def deaths() -> tuple[type[BaseException], ...]:
    """What an executor raises where a worker died, Dask's own where Dask is in use."""
    own: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    if "distributed" not in sys.modules:
        return own
    from distributed.scheduler import KilledWorker

    return (*own, KilledWorker)
