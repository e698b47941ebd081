"""What is recorded of tf.data: every batch that the program, or a function of its, asks for."""

from __future__ import annotations

import os
import sys
from threading import get_ident
from time import time_ns
from weakref import ref

from . import CEILING_VARIABLE
from .fetches import numbers
from .journal import END, LOADER_SHIFT, WAIT, WORKERS_STOP
from .registry import wraps
from .replay import stays_real
from .replay_frameworks import MEMORY, Memory, from_memory
from .waits import STATE, Position, Waits, current_role, trains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel


_TAKEN_DOWN = "_vanidl_taken_down"
_REAL = "its iterator was not made of a dataset of tf.data in Python"


class _Waits(Waits):
    """Remembers which pass began last, for functions that are traced: they know no iterator."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, _description, memory=False)
        self._last: dict[str, tuple[Position, int, Memory | None]] = {}  # and who waits

    def begin(self, loader: Any, iterator: Any) -> Position:  # noqa: ANN401
        position = super().begin(loader, iterator)
        memory = iterator.__dict__.get(MEMORY)
        if memory is None and position.number == 0 and os.environ.get(CEILING_VARIABLE):
            stays_real(self.channel, type(iterator).__name__, _REAL)
        self._last[current_role()] = position, get_ident(), memory
        return position

    def note_traced(self, role: str, begin_s: float, end_s: float) -> None:
        """A batch that a traced function took; times are seconds since the epoch."""
        try:
            if role in self._last and self.channel.on:
                position, thread, memory = self._last[role]
                begin, end = int(begin_s * 1e9), int(end_s * 1e9)
                if memory is not None:
                    memory.note(begin, end)
                self.channel.add(position.code | WAIT, position.number, begin, end, thread)
                position.number += 1
                self.channel.journal.latest = position
                self.channel.journal.present.happened(position.code | WAIT)
        except Exception as error:
            self.channel.fail(error)


class _TakenDown:
    """Notes how long it takes to take an iterator down, and what reads for it.

    It is the last thing that the iterator holds: it goes behind all others, of which one waits for
    the threads that read. What it calls it holds itself: at the end of the process, when nothing is
    noted any more, the names of a module go first.
    """

    def __init__(self, iterator: object, channel: Channel) -> None:
        self._channel, self._begin = channel, 0
        self._session = channel.journal.session
        self._now, self._is_ending = time_ns, sys.is_finalizing
        self._reference = ref(iterator, self._begins)  # called before anything goes

    def _begins(self, _: object) -> None:
        self._begin = self._now()

    def __del__(self) -> None:
        channel = self._channel
        if not self._begin or self._is_ending():
            return
        if channel.on and self._session is channel.journal.session:
            try:
                code = WORKERS_STOP | next(numbers) << LOADER_SHIFT
                channel.add(code, 0, self._begin, time_ns())
            except Exception as error:
                channel.fail(error)


def _waits(channel: Channel) -> _Waits:
    return channel.shared.setdefault("waits", _Waits(channel))  # type: ignore[no-any-return]


def watch_datasets(module: ModuleType, channel: Channel) -> None:
    """Has datasets note each pass; within a traced function there is none yet."""
    waits = _waits(channel)
    original = module.DatasetV2.__iter__
    replaying = os.environ.get(CEILING_VARIABLE)
    made = from_memory(original, channel) if replaying else original
    begun = waits.following(made, lambda dataset: dataset)

    @wraps(original)
    def __iter__(dataset: Any) -> Any:  # noqa: ANN401
        return begun(dataset) if _eagerly() else original(dataset)

    module.DatasetV2.__iter__ = __iter__


def watch_iterators(module: ModuleType, channel: Channel) -> None:
    """Has iterators note what is asked of them: now, or whenever a traced function runs."""
    waits = _waits(channel)
    original = module.OwnedIterator._next_internal

    @wraps(original)
    def _next_internal(iterator: Any) -> Any:  # noqa: ANN401
        if not channel.on:
            return original(iterator)
        if not _eagerly():
            return _traced(iterator, original, waits)
        begin, present = time_ns(), channel.journal.present
        position = iterator.__dict__.get(STATE)
        before = present.begin(WAIT if position is None else position.code | WAIT)
        try:
            batch = original(iterator)
        except BaseException:
            present.end(before)
            waits.note(iterator, END, begin)
            # Held by the iterator, this goes last, and tells how long it took to take that down.
            iterator.__dict__[_TAKEN_DOWN] = _TakenDown(iterator, channel)
            raise
        present.end(before)
        memory = iterator.__dict__.get(MEMORY)
        if memory is not None:
            memory.note(begin, time_ns())
        waits.note(iterator, WAIT, begin)
        return batch

    module.OwnedIterator._next_internal = _next_internal
    waits.watched_elsewhere(module.OwnedIterator)


def watch_tapes(module: ModuleType, channel: Channel) -> None:
    """A gradient that is computed, or traced, tells which loader trains."""
    original = module.GradientTape.gradient

    @wraps(original)
    def gradient(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        trains(channel)
        return original(*args, **kwargs)

    module.GradientTape.gradient = gradient


def _traced(iterator: Any, original: Any, waits: _Waits) -> Any:  # noqa: ANN401
    """The batch in a function that is being traced, which will tell when it took one.

    Where devices run copies of the function, nothing is added to it.
    """
    tf = sys.modules["tensorflow"]
    if tf.distribute.in_cross_replica_context() or tf.distribute.get_replica_context() is None:
        return original(iterator)
    # Two times in the graph: before the batch is asked for, and when all of it is there.
    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        batch = original(iterator)
    role = current_role()
    try:
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            times = [begin, tf.timestamp()]
            tf.numpy_function(lambda *at: waits.note_traced(role, *at), times, [])
    except Exception as error:
        waits.channel.fail(error)
    return batch


def _eagerly() -> bool:
    return bool(sys.modules["tensorflow.python.eager.context"].executing_eagerly())


def _description(loader: Any, iterator: Any) -> dict[str, object]:  # noqa: ANN401
    return {"class": type(loader if loader is not None else iterator).__name__}
