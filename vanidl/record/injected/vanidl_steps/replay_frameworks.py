"""Batches of PyTorch's DataLoader, and of its subclasses, handed out from memory."""

from __future__ import annotations

import sys
from time import time_ns

from .journal import REPLAY
from .registry import wraps
from .replay import PASS, Pass, Replays
from .waits import in_worker, stands_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .registry import Channel


def watch_loaders(module: ModuleType, channel: Channel) -> None:
    """Has loaders hand out what was kept once they are warm."""
    channel.shared["replays"] = Replays(channel)
    _replay_loaders(module, "", module.DataLoader, channel)


def watch_stateful(module: ModuleType, channel: Channel) -> None:
    """The subclass of torchdata has iterators of its own."""
    _replay_loaders(module, "_Stateful", module.StatefulDataLoader, channel)


def _replay_loaders(module: ModuleType, prefix: str, loader_class: Any, channel: Channel) -> None:  # noqa: ANN401
    replays = channel.shared["replays"]

    def named(name: str) -> Any:  # noqa: ANN401
        return getattr(module, f"{prefix}{name}" if prefix else f"_{name}")

    _watch_get_iterator(
        loader_class, replays, _replayed_iterators_class(named("BaseDataLoaderIter"), replays)
    )
    for name in ("SingleProcessDataLoaderIter", "MultiProcessingDataLoaderIter"):
        _watch_next_data(named(name))
        _watch_reset(named(name), replays)


def _begin_pass(loader: Any, replays: Replays) -> Pass | None:  # noqa: ANN401
    return None if in_worker() else replays.begin(loader, _batches_of(loader))


def _batches_of(loader: Any) -> int | None:  # noqa: ANN401
    """Batches of a pass that begins now; None of an iterable dataset, whose length is a guess.

    Keras counts batches itself where it can, and never asks for the end of a pass.
    """
    counted = getattr(stands_for(loader), "_num_batches", None)
    if type(counted) is int:
        return counted
    if getattr(loader, "_dataset_kind", None) != 0:
        return None
    if getattr(loader, "next_iter_state", None) is not None:  # goes on in the middle
        return None
    try:
        return len(loader._index_sampler)
    except Exception:
        return None


def _watch_get_iterator(loader_class: Any, replays: Replays, replayed: Any) -> None:  # noqa: ANN401
    original = loader_class._get_iterator

    @wraps(original)
    def _get_iterator(loader: Any) -> Any:  # noqa: ANN401
        begun = _begin_pass(loader, replays)
        if begun is not None and begun.on:
            return replayed(loader, begun)
        iterator = original(loader)
        if begun is not None:
            iterator.__dict__[PASS] = begun
        return iterator

    loader_class._get_iterator = _get_iterator


def _replayed_iterators_class(base: Any, replays: Replays) -> Any:  # noqa: ANN401
    """The class of iterators of passes that are handed out from memory from the start."""

    class _ReplayedDataLoaderIter(base):  # type: ignore[misc]
        """It has what others look at, and neither workers nor an order of samples."""

        def __init__(self, loader: Any, begun: Pass) -> None:  # noqa: ANN401
            self._dataset = loader.dataset
            self._dataset_kind = loader._dataset_kind
            self._IterableDataset_len_called = None
            self._index_sampler = loader._index_sampler
            self._num_workers = loader.num_workers
            self._persistent_workers = False
            self._sampler_iter = iter(())
            self._num_yielded = 0
            self._finished = False  # of torchdata's
            self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
            self.__dict__[PASS] = begun

        def _next_data(self) -> Any:  # noqa: ANN401
            return self.__dict__[PASS].hand_out()

        def _reset(self, loader: Any, first_iter: bool = False, **_: object) -> None:  # noqa: ANN401, ARG002
            self._num_yielded = 0
            self._finished = False
            self.__dict__[PASS] = _begin_pass(loader, replays)

        def state_dict(self) -> dict[str, object]:
            return {}  # of torchdata's: begins at the start

    return _ReplayedDataLoaderIter


def _watch_next_data(iterator_class: Any) -> None:  # noqa: ANN401
    original = iterator_class._next_data

    @wraps(original)
    def _next_data(self: Any) -> Any:  # noqa: ANN401
        begun = self.__dict__.get(PASS)
        if begun is None:
            return original(self)
        return begun.next(lambda: original(self), lambda: _stop_workers(self))

    iterator_class._next_data = _next_data


def _stop_workers(iterator: Any) -> None:  # noqa: ANN401
    """Ends the workers, as at the end of a pass: they neither read nor compete from now on."""
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if shutdown is not None:
        shutdown()


def _watch_reset(iterator_class: Any, replays: Replays) -> None:  # noqa: ANN401
    """Workers that are kept over passes have one iterator, which is begun again."""
    original = iterator_class._reset

    @wraps(original)
    def _reset(self: Any, loader: Any, first_iter: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        if first_iter or self.__dict__.get(PASS) is None:
            return original(self, loader, first_iter, **kwargs)
        begun = self.__dict__[PASS] = _begin_pass(loader, replays)
        if begun is None or not begun.on:
            return original(self, loader, first_iter, **kwargs)
        self._num_yielded = 0
        self._finished = False
        _stop_workers(self)
        return None

    iterator_class._reset = _reset


# Batches of tf.data handed out from memory: the datasets that the program iterates over.
#
# Traced functions, those of Keras among them, take batches from TensorFlow's own iterators alone,
# so it is the dataset of a pass that is replaced, when an iterator of it is made: by one that keeps
# the first batches of its source in TensorFlow's memory, and repeats them. Both know the same
# elements. Batches are not copied, as tensors cannot be modified. Where a dataset does not know its
# length, its passes stay real until a whole one has been counted.

MEMORY = "_vanidl_memory"
LENGTH, DATA = "_vanidl_length", "_vanidl_data"
"""Attributes of a dataset: what is kept of it; how many batches a pass has, and what it was made
of, if a framework said."""

INFINITE, _UNKNOWN = -1, -2  # as tf.data has them
_ON_DEVICES = ("_CopyToDeviceDataset", "_PrefetchToDeviceDataset", "_MapOnGpuDataset")


class Memory:
    """What is kept of one dataset.

    Attributes:
        length: batches of a pass, `INFINITE`, or `_UNKNOWN` until one has ended.
        since_ns: batches that were asked for later than this come from memory; None: none do.
    """

    def __init__(self, own: Replays, dataset: Any) -> None:  # noqa: ANN401
        self.length = _UNKNOWN
        self.since_ns: int | None = None
        self._own = own
        self._is_counted = dataset.__dict__.get(LENGTH, 1) > 1
        self._kept = self._nbytes = 0
        self._refused = False
        self._repeated: Any = None
        self._number = own.channel.journal.new_replay()
        self._text: dict[str, object] = {
            "replay": self._number,
            "class": type(dataset).__name__,
            "dataset": dataset.__dict__.get(DATA),
        }
        self._say("warm-up", needed=own.warm_up)

    def _say(self, state: str, **more: object) -> None:
        self._text.update(state=state, **more)
        self._own.channel.describe(self._text)

    def in_place_of(self, dataset: Any) -> Any:  # noqa: ANN401
        """The dataset of a pass that begins."""
        if self._refused:
            return dataset
        try:
            if self.length == _UNKNOWN:
                self.length = _dataset_length(dataset, self._own)
            if self.length == _UNKNOWN:
                return _dataset_counted(dataset, self._whole)
            if self._repeated is None:
                self._repeated = self._repeating(dataset)
                known = None if self.length < 0 else self.length
                self._say("warm-up", length=known, endless=self.length == INFINITE)
            if self.since_ns is None:  # the pass before did not get so far
                self._forget()
        except Exception as error:
            self._refuse(error)
            return dataset
        return self._repeated

    def _repeating(self, dataset: Any) -> Any:  # noqa: ANN401
        _check_dataset(dataset)
        most = self._own.warm_up
        if self.length != INFINITE:  # who knows the length never asks for the end, so that the
            most = min(most, self.length - self._is_counted)  # last batch finds the memory full
        repeated = _dataset_watched(dataset.take(most), self.keeps, self.is_full).cache().repeat()
        if self.length == most:
            repeated = _first_and_one_more(repeated, most)
        elif self.length != INFINITE:
            repeated = repeated.take(self.length)
        if repeated.element_spec != dataset.element_spec:
            raise TypeError(f"kept batches would be {repeated.element_spec}")
        return repeated

    def keeps(self, nbytes: int) -> bool:
        """Whether the next batch of the source is kept; at least one is."""
        if self.since_ns is not None:  # TensorFlow fills its memory again
            self._forget()
        if self._kept and nbytes > self._own.left:
            return False
        self._kept += 1
        self._nbytes += nbytes
        self._own.left -= nbytes
        return True

    def is_full(self) -> None:
        """No more of the source is kept: from now on batches come from memory."""
        if not self._kept:
            return
        self.since_ns = time_ns()
        length = None if self.length == INFINITE else self.length
        try:
            self._say("on", kept=self._kept, nbytes=self._nbytes, length=length)
        except Exception as error:  # TensorFlow would hand it to the program
            self._own.channel.fail(error)

    def _forget(self) -> None:
        self._own.left += self._nbytes
        self._kept = self._nbytes = 0
        self.since_ns = None

    def _whole(self, count: int) -> None:
        """A whole pass has ended."""
        if self.length == _UNKNOWN:
            self.length = count

    def _refuse(self, error: Exception) -> None:
        self._refused, self._repeated = True, None
        self._say("refused", why=" ".join(f"{type(error).__name__}: {error}".split())[:200])

    def note(self, begin: int, end: int) -> None:
        """A batch was taken between these times."""
        if self.since_ns is not None and begin > self.since_ns:
            self._own.channel.add(REPLAY, self._number, begin, end)


def from_memory(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    """`Dataset.__iter__`, whose iterators take their batches from memory once it is warm."""
    own = Replays(channel)

    @wraps(original)
    def __iter__(dataset: Any) -> Any:  # noqa: ANN401
        try:
            # Kept with the dataset, which has a new iterator in each pass.
            memory = dataset.__dict__.get(MEMORY)
            if memory is None and not channel.on:
                return original(dataset)
            if memory is None:
                memory = dataset.__dict__[MEMORY] = Memory(own, dataset)
            chosen = memory.in_place_of(dataset)
        except Exception as error:
            channel.fail(error)
            return original(dataset)
        iterator = original(chosen)
        # By this its calls are noted as batches from memory.
        iterator.__dict__[MEMORY] = memory
        return iterator

    return __iter__


def _dataset_length(dataset: Any, own: Replays) -> int:  # noqa: ANN401
    known = int(dataset.__dict__.get(LENGTH, dataset.cardinality()))
    if known == _UNKNOWN and own.epoch_batches is not None:
        return own.epoch_batches
    return known


def _check_dataset(dataset: Any) -> None:  # noqa: ANN401
    """Refuses what TensorFlow cannot keep.

    Raises:
        TypeError: its batches lie on a device, or are of no tensors.
    """
    tf = sys.modules["tensorflow"]
    waiting = [dataset]
    while waiting:
        one = waiting.pop()
        if type(one).__name__ in _ON_DEVICES:
            raise TypeError("its batches are copied to a device by the dataset itself")
        waiting += one._inputs() if "Options" in type(one).__name__ else ()
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)):
            raise TypeError(f"its batches hold {type(spec).__name__}")


def _dataset_counted(dataset: Any, whole: Callable[[int], None]) -> Any:  # noqa: ANN401
    """The same dataset, which tells how many batches it gave, if it came to its end."""
    _check_dataset(dataset)
    given: list[None] = []

    def more(_part_nbytes: int) -> bool:
        given.append(None)
        return True

    return _dataset_watched(dataset, more, lambda: whole(len(given)))


def _dataset_watched(dataset: Any, more: Callable[[int], bool], ended: Callable[[], None]) -> Any:  # noqa: ANN401
    """A dataset up to the first batch that `more` declines, given its bytes; then calls `ended`."""
    tf = sys.modules["tensorflow"]

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def asks(*batch: Any) -> Any:  # noqa: ANN401
        parts = tf.nest.flatten(batch, expand_composites=True)
        asked = tf.numpy_function(
            _asked_of(more), [tf.add_n(list(map(_part_nbytes, parts)))], tf.bool
        )
        return tf.ensure_shape(asked, ())

    # A dataset of no batches, which is asked for one when the other is over.
    def nothing() -> Any:  # noqa: ANN401
        ended()
        yield from ()

    with tf.device("/CPU:0"):
        end = tf.data.Dataset.from_generator(nothing, output_signature=dataset.element_spec)
        return dataset.take_while(asks).concatenate(end)


def _first_and_one_more(dataset: Any, count: int) -> Any:  # noqa: ANN401
    """So many batches; one more is asked for at their end, or the memory would not be full."""
    tf = sys.modules["tensorflow"]
    convert = tf.autograph.experimental.do_not_convert
    numbered = dataset.enumerate().take_while(convert(lambda number, _: number < count))
    return numbered.map(convert(lambda _, batch: batch))


def _asked_of(more: Callable[[int], bool]) -> Callable[[Any], Any]:
    """TensorFlow wants a boolean of NumPy."""
    return lambda nbytes: sys.modules["numpy"].bool_(more(int(nbytes)))


def _part_nbytes(part: Any) -> Any:  # noqa: ANN401
    """Bytes of a tensor: of strings what they hold, and the 24 of each."""
    tf = sys.modules["tensorflow"]
    if part.dtype == tf.string:
        held = tf.reduce_sum(tf.cast(tf.strings.length(part), tf.int64))
        return held + 24 * tf.size(part, out_type=tf.int64)
    return part.dtype.size * tf.size(part, out_type=tf.int64)
