"""Batches of PyTorch's DataLoader, and of its subclasses, handed out from memory."""

from __future__ import annotations

from functools import wraps

from .loaders import in_worker
from .replay import PASS, Pass, Replays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .hooks import Channel


def watch_loaders(module: ModuleType, channel: Channel) -> None:
    """Has loaders hand out what was kept once they are warm."""
    replays = Replays(channel)
    replayed = _replayed(module._BaseDataLoaderIter, replays)
    channel.shared["replay"] = replays, replayed
    _watch_get_iterator(module.DataLoader, replays, replayed)
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        watch_iterators(getattr(module, name), replays)


def watch_iterators(iterator_class: Any, replays: Replays) -> None:  # noqa: ANN401
    """Has the real iterators of a class end from memory, and stop their workers."""
    _watch_next_data(iterator_class)
    _watch_reset(iterator_class, replays)


def _begin(loader: Any, replays: Replays) -> Pass | None:  # noqa: ANN401
    return None if in_worker() else replays.begin(loader, _length(loader))


def _length(loader: Any) -> int | None:  # noqa: ANN401
    """Batches of a pass that begins now; None of an iterable dataset, whose length is a guess."""
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
        begun = _begin(loader, replays)
        if begun is not None and begun.on:
            return replayed(loader, begun)
        iterator = original(loader)
        if begun is not None:
            iterator.__dict__[PASS] = begun
        return iterator

    loader_class._get_iterator = _get_iterator


def _replayed(base: Any, replays: Replays) -> Any:  # noqa: ANN401
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
            self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
            self.__dict__[PASS] = begun

        def _next_data(self) -> Any:  # noqa: ANN401
            return self.__dict__[PASS].hand_out()

        def _reset(self, loader: Any, first_iter: bool = False, **_: object) -> None:  # noqa: ANN401, ARG002
            self._num_yielded = 0
            self.__dict__[PASS] = _begin(loader, replays)

    return _ReplayedDataLoaderIter


def _watch_next_data(iterator_class: Any) -> None:  # noqa: ANN401
    original = iterator_class._next_data

    @wraps(original)
    def _next_data(self: Any) -> Any:  # noqa: ANN401
        begun = self.__dict__.get(PASS)
        if begun is None:
            return original(self)
        return begun.next(lambda: original(self), lambda: _stop(self))

    iterator_class._next_data = _next_data


def _stop(iterator: Any) -> None:  # noqa: ANN401
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
        begun = self.__dict__[PASS] = _begin(loader, replays)
        if begun is None or not begun.on:
            return original(self, loader, first_iter, **kwargs)
        self._num_yielded = 0
        _stop(self)
        return None

    iterator_class._reset = _reset
