"""What is recorded of the fetches of PyTorch's DataLoader, in its workers and without any.

A fetch gets the samples of one batch (`__getitem__`) and collates them. What a worker fetches
it was told by its loader: the worker records the number of the batch, its loader which worker
and which batch it took. A loader without workers fetches in its own `__next__`.

Events, in the order of their ends (see `journal`): COLLATE from begin to the end of its fetch, with
the number of samples and, of one batch in `_EVERY`, its bytes where others have the loader; FETCH
from begin to end, of the batch whose place in its round is in the lower half of `number`, the round
above it (persistent workers have several). Of the training process: WORKER, where `begin` is the
worker's process id and `end` when its loader's iterator began, and TAKEN when a batch was taken;
both have the iterator's number where others have the loader.
"""

from __future__ import annotations

import sys
from collections import UserDict
from inspect import signature
from itertools import count
from time import time_ns

from .journal import (
    COLLATE,
    EPOCH_SHIFT,
    FETCH,
    LOADER_SHIFT,
    TAKEN,
    WORKER,
    WORKERS_START,
    WORKERS_STOP,
    enter_thread,
    this_thread,
)
from .registry import replaces, without_own_frames, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_STATE = "_vanidl_taken"
_EVERY = 32  # batches, of which the first is measured
_DEEPEST, _MOST_ALIKE = 4, 64  # containers within others, and things in a list that are looked at
_NUMBER_NBYTES = 8
_IDLE_S = 0.02  # without a task for so long, a worker writes what it has: it may be ended any time


class _Place:
    """Which batch this process fetches, if it is a worker, and when it began to collate it."""

    __slots__ = ("number", "samples")

    def __init__(self) -> None:
        self.number = 0
        self.samples = 0


_place = _Place()


class _Collating:
    """When a fetcher began to collate what it fetches now, 0 before that, how many samples.

    And the bytes of that batch, 0 where they were not measured.
    """

    __slots__ = ("batches", "begin", "nbytes", "samples")

    def __init__(self) -> None:
        self.begin = self.samples = self.batches = self.nbytes = 0


def watch_fetchers(module: ModuleType, events: Channel) -> None:
    """Has every fetcher tell when it fetched, and when it collated."""
    _watch_collate(module._BaseDatasetFetcher, events)
    for fetcher_class in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        _watch_fetch(fetcher_class, events)


def _watch_collate(fetcher_class: Any, events: Channel) -> None:  # noqa: ANN401
    original = fetcher_class.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        try:
            collating = _Collating()
            self.collate_fn = _timed(self.collate_fn, collating)
            self._vanidl_collating = collating
        except Exception as error:
            events.fail(error)

    fetcher_class.__init__ = __init__


def _timed(collate: Any, collating: _Collating) -> Any:  # noqa: ANN401
    """The same, which leaves to `fetch` to record it: see `Journal.add`."""

    @replaces(collate)
    def timed(samples: Any) -> Any:  # noqa: ANN401
        collating.samples = len(samples) if type(samples) is list else 1
        collating.begin = time_ns()
        try:
            batch = collate(samples)
        except BaseException as error:
            collating.begin = 0
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        # One batch in so many: to look through each would take too long.
        if not collating.batches % _EVERY:
            collating.nbytes = _measure_nbytes(batch) or 0
        collating.batches += 1
        return batch

    return timed


def _measure_nbytes(batch: Any, depth: int = _DEEPEST) -> int | None:  # noqa: ANN401
    """The bytes of the tensors, arrays and texts of a batch: what a worker hands over.

    The first things of a long list stand for the others. Of classes that are known alone, whose
    answer no program notices: None where the batch holds anything else.
    """
    if isinstance(batch, UserDict):  # of tokenizers
        batch = batch.data
    if isinstance(batch, (list, tuple, dict)):
        held = list(batch.values()) if isinstance(batch, dict) else batch
        sizes = [_measure_nbytes(one, depth - 1) if depth else None for one in held[:_MOST_ALIKE]]
        if None in sizes:
            return None
        return sum(filter(None, sizes)) * len(held) // max(len(sizes), 1)
    if isinstance(batch, (bytes, str)):
        return len(batch)
    if batch is None or isinstance(batch, (bool, int, float, complex)):
        return _NUMBER_NBYTES
    # Not of a subclass that may answer in a way of its own.
    if type(batch) is getattr(sys.modules.get("torch"), "Tensor", None):
        return None if batch.is_sparse else int(batch.numel() * batch.element_size())
    if type(batch) is getattr(sys.modules.get("numpy"), "ndarray", None):
        return None if batch.dtype.hasobject else int(batch.nbytes)
    return None


def _watch_fetch(fetcher_class: Any, events: Channel) -> None:  # noqa: ANN401
    original, journal = fetcher_class.fetch, events.journal
    due, extend = journal.due, journal.rows.extend

    @replaces(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        try:
            if begin >= due.fetch_ns:
                return journal.lines.sample_fetch(original, self, possibly_batched_index)
            return original(self, possibly_batched_index)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        finally:  # the last fetch of a stream, which finds its end, is work as well
            if events.on:
                try:
                    end, number = time_ns(), _place.number
                    ident = (this_thread() or enter_thread()).ident
                    try:
                        collating = self._vanidl_collating
                    except AttributeError:  # its class begins in a way of its own
                        collating = _Collating()
                    if collated := collating.begin:
                        samples, collating.begin = collating.samples, 0
                        code, collating.nbytes = COLLATE | collating.nbytes << LOADER_SHIFT, 0
                        extend((code, samples, collated, end, ident,
                                FETCH, number, begin, end, ident))  # fmt: skip
                    else:
                        extend((FETCH, number, begin, end, ident))
                    if end >= journal.flush_ns:
                        journal.flush()
                except Exception as error:
                    events.fail(error)

    fetcher_class.fetch = fetch


class _Tasks:
    """A worker's queue of tasks, as the worker sees it."""

    def __init__(self, queue: Any, events: Channel) -> None:  # noqa: ANN401
        self._queue = queue
        self._events = events

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401
        """The next task, after which it is known which batch comes."""
        task = self._next(block, timeout)
        try:
            if type(task) is tuple:
                _place.number = _place.number >> EPOCH_SHIFT << EPOCH_SHIFT | task[0]
            elif type(task).__name__ == "_ResumeIteration":
                _place.number = (_place.number >> EPOCH_SHIFT) + 1 << EPOCH_SHIFT
        except Exception as error:
            self._events.fail(error)
        return task

    def _next(self, block: bool, timeout: float | None) -> Any:  # noqa: ANN401
        """The same; writes what was recorded where there is none at once."""
        from queue import Empty

        if not block or (timeout is not None and timeout < _IDLE_S):
            return self._queue.get(block, timeout)
        try:
            return self._queue.get(timeout=_IDLE_S)
        except Empty:
            _flush(self._events)
        return self._queue.get(timeout=timeout)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._queue, name)


def watch_workers(module: Any, events: Channel) -> None:  # noqa: ANN401
    """Has every worker tell which batch it fetches, and write what it recorded before it ends.

    The function keeps its name: a spawned worker finds by it the one that is hooked there.
    """
    original = module._worker_loop
    place = tuple(signature(original).parameters).index("index_queue")

    @wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if events.on:
            _place.number = 0
            if len(args) > place:
                args = (*args[:place], _Tasks(args[place], events), *args[place + 1 :])
            else:
                kwargs["index_queue"] = _Tasks(kwargs["index_queue"], events)
        try:
            original(*args, **kwargs)
        finally:
            _flush(events)

    module._worker_loop = _worker_loop


def _flush(events: Channel) -> None:
    if events.on:
        try:
            events.journal.flush()
        except Exception as error:
            events.fail(error)


class _Taken:
    """One iterator with workers: its number, its round, and the task that it got last."""

    __slots__ = ("code", "got", "number", "session")

    def __init__(self, number: int, session: object) -> None:
        self.session = session
        self.code = number << LOADER_SHIFT
        self.number = 0
        self.got: Any = None


numbers = count()
"""Of iterators that start and stop something."""


def watch_iterators(module: ModuleType, events: Channel) -> None:
    """Has iterators with workers tell which they are, and which batch they took."""
    name = "_MultiProcessingDataLoaderIter"
    own = f"_Stateful{name[1:]}"  # torchdata's
    iterator_class = getattr(module, own if hasattr(module, own) else name)
    _watch_start(iterator_class, events)
    _watch_stop(iterator_class, events)
    _watch_reset(iterator_class, events)
    _watch_get_data(iterator_class)
    _watch_next_data(iterator_class, events)


def _watch_start(iterator_class: Any, events: Channel) -> None:  # noqa: ANN401
    original = iterator_class.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        begin = time_ns()
        self.__dict__[_STATE] = taken = _Taken(next(numbers), events.journal.session)
        original(self, *args, **kwargs)
        if events.on:
            try:
                # Who works for this iterator, and how long it took to start them.
                for number, worker in enumerate(self._workers):
                    events.add(WORKER | taken.code, number, worker.pid, begin)
                events.add(WORKERS_START | taken.code, len(self._workers), begin, time_ns())
            except Exception as error:
                events.fail(error)

    iterator_class.__init__ = __init__


def _watch_stop(iterator_class: Any, events: Channel) -> None:  # noqa: ANN401
    original = iterator_class._shutdown_workers

    @wraps(original)
    def _shutdown_workers(self: Any) -> Any:  # noqa: ANN401
        taken = self.__dict__.get(_STATE)
        mine = taken is not None and taken.session is events.journal.session
        # Called again when the iterator goes: only the first call stops anything.
        stops = events.on and mine and not self.__dict__.get("_shutdown", True)
        begin = time_ns()
        try:
            return original(self)
        finally:
            if stops:
                try:
                    workers = len(self.__dict__.get("_workers", ()))
                    events.add(WORKERS_STOP | taken.code, workers, begin, time_ns())
                except Exception as error:
                    events.fail(error)

    iterator_class._shutdown_workers = _shutdown_workers


def _watch_reset(iterator_class: Any, events: Channel) -> None:  # noqa: ANN401
    original = iterator_class._reset

    @wraps(original)
    def _reset(self: Any, loader: Any, first_iter: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        taken = self.__dict__.get(_STATE)
        if events.on and taken is not None and not first_iter:
            taken.number += 1
        return original(self, loader, first_iter, **kwargs)

    iterator_class._reset = _reset


def _watch_get_data(iterator_class: Any) -> None:  # noqa: ANN401
    """Batches that are taken as they come are known by what was got last."""
    original = iterator_class._get_data

    @replaces(original)
    def _get_data(self: Any) -> Any:  # noqa: ANN401
        try:
            got = original(self)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        taken = self.__dict__.get(_STATE)
        if taken is not None:
            taken.got = got[0]
        return got

    iterator_class._get_data = _get_data


def _watch_next_data(iterator_class: Any, events: Channel) -> None:  # noqa: ANN401
    original = iterator_class._next_data

    @replaces(original)
    def _next_data(self: Any) -> Any:  # noqa: ANN401
        try:
            data = original(self)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        taken = self.__dict__.get(_STATE)
        if events.on and taken is not None:
            try:
                # In order a batch is known by its place, else by the task that was got last.
                place = self._rcvd_idx - 1 if getattr(self, "_in_order", True) else taken.got
                now = time_ns()
                events.add(TAKEN | taken.code, taken.number << EPOCH_SHIFT | place, now, now)
            except Exception as error:
                events.fail(error)
        return data

    iterator_class._next_data = _next_data
