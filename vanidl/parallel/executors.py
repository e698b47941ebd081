"""Work on processes of this machine or of a Dask cluster: executors of `concurrent.futures`.

What a worker that died was doing is done again, at last item by item; only an item that kills a
worker alone is given up (`run_batches`).

Workers of this machine run nothing of the caller's own program. `multiprocessing` imports the
caller's script once more in every worker that it spawns, which a script without a guard against it
does not survive. A fork imports nothing, but copies the locks of threads: so these workers are
forks of a process with one thread, as commands are, and of any other one fresh interpreters, whose
imports take as long as reading a thousand logs. They read pickled calls from a pipe and answer
through another.

Pickle writes every array on its own, which takes longer than reading the log that it comes from. In
answers all arrays of a type are laid into one, and the objects refer to their places (`dump`).
"""

from __future__ import annotations

import fcntl
import gc
import io
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain, islice
from math import prod
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import UsageError, package_missing
from vanidl.parallel.children import (
    interpreter_command,
    interpreter_environment,
    keep_freed_memory,
)
from vanidl.parallel.threads import core_count
from vanidl.schema.dataclass import dataclass

Value = TypeVar("Value")
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
def open_executor(options: ExecutorOptions) -> Iterator[Executor]:
    """An executor on Dask where the options ask for it, else on this machine."""
    with dask_executor(options) if options.on_dask else local_workers() as executor:
        yield executor


def worker_count(executor: Executor) -> int:
    """How many calls an executor works on at a time, at least 1."""
    own: int | None = getattr(executor, "count", None)
    return max(core_count() if own is None else own, 1)


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
        yield from _run_until_death(work, chain([batch], source), executor, suspects)
    seen: set[int] = set()
    while suspects:
        items = suspects.popleft()
        try:
            results: list[Result] | None = executor.submit(work, items).result()
        except list_deaths():
            results = None
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


def _run_until_death(
    work: Callable[[list[Item]], list[Result]],
    batches: Iterator[list[Item]],
    executor: Executor,
    suspects: deque[list[Item]],
) -> Iterator[tuple[list[Item], list[Result]]]:
    """Results until all is done or a worker died: what was under way then is suspect."""
    running: deque[tuple[list[Item], Future[list[Result]]]] = deque()
    try:
        while True:
            # A few batches ahead for each worker; results come in the order of the batches.
            room = max(0, _AHEAD * worker_count(executor) - len(running))
            for items in islice(batches, room):
                running.append((items, _submit(work, items, executor)))
            if not running:
                return
            yield running[0][0], running[0][1].result()
            running.popleft()
    except list_deaths():
        # A worker died: what was done is kept, the rest is done again elsewhere, and more
        # carefully.
        for items, future in running:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield items, future.result()
            else:
                future.cancel()
                suspects.append(items)


def _submit(
    work: Callable[[list[Item]], list[Result]], items: list[Item], executor: Executor
) -> Future[list[Result]]:
    """The results to come; a worker may be dead already."""
    try:
        return executor.submit(work, items)
    except list_deaths() as error:
        dead = Future[list[Result]]()
        dead.set_exception(error)
        return dead


def list_deaths() -> tuple[type[BaseException], ...]:
    """What an executor raises where a worker died, Dask's own where Dask is in use."""
    own: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    if "distributed" not in sys.modules:
        return own
    from distributed.scheduler import KilledWorker

    return (*own, KilledWorker)


# Workers of this machine.


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
        return self._threads.submit(self._call_worker, fn, args, kwargs)

    def _call_worker(self, *call: Any) -> Any:  # noqa: ANN401
        worker, alive = self._find_idle_worker(), True
        try:
            return worker.call(*call)
        except BrokenExecutor:
            alive = False
            worker.end()
            raise
        finally:
            if alive:
                self._idle.put(worker)

    def _find_idle_worker(self) -> _Worker:
        """An idle worker, or a new one: there are no more of them than threads."""
        try:
            return self._idle.get_nowait()
        except Empty:
            # An interpreter that serves.
            interpreter = subprocess.Popen(
                interpreter_command("from vanidl.parallel.executors import serve; serve()"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=interpreter_environment(),
            )
            worker = _Worker(interpreter)
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


_THREADS = Path("/proc/self/task")
_ANSWER_NBYTES = 1 << 20  # room in the pipe for answers: with 64 KiB both wait for each other
_HANDLED = (signal.SIGTERM, signal.SIGHUP)


def has_one_thread() -> bool:
    """Whether no other thread, also of a library, can hold a lock that a copy would wait for."""
    with suppress(OSError):  # elsewhere than on Linux nobody can tell
        return len(list(_THREADS.iterdir())) == 1
    return False


class Fork:
    """A copy of this process with pipes as standard streams: what of `Popen` workers need."""

    def __init__(self, work: Callable[[], object]) -> None:
        """Starts it: it does the work and ends, whatever this process has to do at its own end."""
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # else both would write what waits
        from_us, to_child = os.pipe()
        from_child, to_us = os.pipe()
        with suppress(OSError):  # of a user who has many: then it is as short as all are
            fcntl.fcntl(to_us, fcntl.F_SETPIPE_SZ, _ANSWER_NBYTES)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_HANDLED))
        self._pid = os.fork()
        if self._pid == 0:
            os.close(to_child)  # else it would never see the end of what we ask
            os.close(from_child)
            _work_in_fork(work, (from_us, to_us), before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(from_us)
        os.close(to_us)
        self.stdin, self.stdout = os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb")
        self._waited = False

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if not self._waited:
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        """Waits for its end."""
        if not self._waited:
            os.waitpid(self._pid, 0)
            self._waited = True


def _work_in_fork(
    work: Callable[[], object], streams: tuple[int, int], before: Collection[int]
) -> None:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; we are ended
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for i, stream in enumerate(streams):
            os.dup2(stream, i)
        work()
    finally:
        os._exit(0)


# What workers answer, their arrays laid together.


Array = NDArray[Any]
_Kind = tuple[str, int]  # the type of arrays that are laid together, or of one alone and its number
_LARGE_NBYTES = 1 << 16  # arrays of that size are sent as they are, and freed one by one


class _Packer(pickle.Pickler):
    """Writes places instead of arrays; `taken` holds the arrays by type."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.taken: dict[_Kind, list[Array]] = {}
        self._next: dict[_Kind, int] = {}

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's protocol
        """The place of an array, the fields of a record; what else there is goes its usual way."""
        dtype = _group_type(obj.dtype) if type(obj) is np.ndarray else ""
        if not dtype:
            taken = _read_fields(obj.__class__)
            return (obj.__class__, taken(obj)) if taken else NotImplemented
        kind = dtype, 0 if obj.nbytes < _LARGE_NBYTES else 1 + len(self.taken)
        if kind not in self.taken:
            self.taken[kind], self._next[kind] = [], 0
        first = self._next[kind]
        self.taken[kind].append(obj.ravel())
        self._next[kind] = first + obj.size
        return _place, (kind, first, obj.shape)


@cache
def _group_type(dtype: np.dtype[Any]) -> str:
    """What the arrays of a type are laid together under, "" where they are not."""
    return "" if dtype.hasobject or dtype.names else dtype.str


@cache
def _read_fields(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What takes all fields from a dataclass whose constructor takes them in turn, else None.

    Its own way through pickle takes five times as long, but where it has one that it states.
    """
    if not is_dataclass(kind) or "__reduce__" in kind.__dict__:
        return None
    known = fields(kind)
    if len(known) < 2 or not all(f.init and not f.kw_only for f in known):
        return None
    return attrgetter(*(f.name for f in known))


def _place(kind: _Kind, first: int, shape: tuple[int, ...]) -> Array:
    """Stands for `_Joined.placed` in what is written."""
    raise AssertionError((kind, first, shape))


class _Joined:
    """All arrays of a value, by type."""

    def __init__(self, arrays: dict[_Kind, Array]) -> None:
        self._arrays = arrays

    def placed(self, kind: _Kind, first: int, shape: tuple[int, ...]) -> Array:
        """The array of a place."""
        if len(shape) == 1:
            return self._arrays[kind][first : first + shape[0]]
        return self._arrays[kind][first : first + prod(shape)].reshape(shape)


class _Unpacker(pickle.Unpickler):
    """Puts read-only views of the arrays back into their places."""

    def __init__(self, file: io.BytesIO, arrays: dict[_Kind, Array]) -> None:
        super().__init__(file)
        # Not a method of this object: it would hold itself, and with it all arrays, until the
        # collector looks.
        self._placed = _Joined(arrays).placed

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's protocol
        """A class or function by its name."""
        if (module, name) == (__name__, _place.__name__):
            return self._placed
        return super().find_class(module, name)


def dump(value: object, file: IO[bytes]) -> None:
    """Writes one value. Its arrays come back read-only."""
    written = io.BytesIO()
    packer = _Packer(written)
    packer.dump(value)
    joined = {kind: _join_arrays(kind[0], arrays) for kind, arrays in packer.taken.items()}
    pickle.dump((written.getvalue(), joined), file, protocol=5)


def _join_arrays(dtype: str, arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, dtype=dtype)


def load(file: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was written
    """The next value that `dump` wrote.

    Raises:
        EOFError, pickle.UnpicklingError: there is no whole one.
    """
    written, joined = pickle.load(file)
    for array in joined.values():
        array.setflags(write=False)
    return _Unpacker(io.BytesIO(written), joined).load()


# A Dask cluster.


@contextmanager
def dask_executor(options: ExecutorOptions) -> Iterator[Executor]:
    """An executor on a Dask scheduler, or on a cluster of `workers` processes started here.

    Whoever reaches a port of Dask's can run code as its user, also from other accounts of the
    same machine. So the cluster here speaks TLS only, with a certificate that is made for it,
    is held in memory and given to nobody else.

    Raises:
        UsageError: Dask is not installed, or there is no scheduler at the address.
    """
    distributed = _import_distributed()
    with ExitStack() as stack:
        try:
            stack.enter_context(_import_dask().config.set(_SETTINGS))
            # A cluster of our own, which speaks to this process alone.
            if options.dask is None:
                cluster = distributed.LocalCluster(
                    n_workers=options.workers,
                    security=_make_certificate(distributed),
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


def _make_certificate(distributed: Any) -> Any:  # noqa: ANN401 - without types
    try:
        return distributed.Security.temporary()
    except ImportError as error:
        raise package_missing(error, "--workers needs", "cryptography", "dask") from error


def warn_about(options: ExecutorOptions) -> str | None:
    """What to say before a scheduler is used that everyone on its network can use, too."""
    if options.dask is None or options.dask.startswith(_PROTECTED):
        return None
    return (
        f"{options.dask}: the connection is neither encrypted nor authenticated, so whoever "
        "reaches the scheduler can read what is sent and run code as its user; use a scheduler "
        "with TLS (tls://HOST:8786)"
    )


_PROTECTED = ("tls://", "inproc://")


def _import_dask() -> Any:  # noqa: ANN401 - an optional package without types
    import dask

    return dask


def _import_distributed() -> Any:  # noqa: ANN401 - an optional package without types
    try:
        import distributed
    except ImportError as error:
        raise package_missing(error, "--dask and --workers need", "distributed", "dask") from error
    return distributed
