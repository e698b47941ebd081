"""Batches of PyTorch's DataLoader, and of its subclasses, handed out from memory."""

from __future__ import annotations

from .registry import wraps
from .replay import PASS, Pass, Replays
from .waits import in_worker, stands_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel


def watch_loaders(module: ModuleType, channel: Channel) -> None:
    """Has loaders hand out what was kept once they are warm."""
    channel.shared["replays"] = Replays(channel)
    _watch(module, "", module.DataLoader, channel)


def watch_stateful(module: ModuleType, channel: Channel) -> None:
    """The subclass of torchdata has iterators of its own."""
    _watch(module, "_Stateful", module.StatefulDataLoader, channel)


def _watch(module: ModuleType, prefix: str, loader_class: Any, channel: Channel) -> None:  # noqa: ANN401
    replays = channel.shared["replays"]

    def named(name: str) -> Any:  # noqa: ANN401
        return getattr(module, f"{prefix}{name}" if prefix else f"_{name}")

    _watch_get_iterator(loader_class, replays, _replayed(named("BaseDataLoaderIter"), replays))
    for name in ("SingleProcessDataLoaderIter", "MultiProcessingDataLoaderIter"):
        _watch_next_data(named(name))
        _watch_reset(named(name), replays)


def _begin(loader: Any, replays: Replays) -> Pass | None:  # noqa: ANN401
    return None if in_worker() else replays.begin(loader, _length(loader))


def _length(loader: Any) -> int | None:  # noqa: ANN401
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
            self._finished = False  # of torchdata's
            self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
            self.__dict__[PASS] = begun

        def _next_data(self) -> Any:  # noqa: ANN401
            return self.__dict__[PASS].hand_out()

        def _reset(self, loader: Any, first_iter: bool = False, **_: object) -> None:  # noqa: ANN401, ARG002
            self._num_yielded = 0
            self._finished = False
            self.__dict__[PASS] = _begin(loader, replays)

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
        self._finished = False
        _stop(self)
        return None

    iterator_class._reset = _reset
