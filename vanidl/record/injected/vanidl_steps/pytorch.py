"""What is recorded of PyTorch: every `__next__` of a DataLoader, every step of an optimizer."""

from __future__ import annotations

from time import time_ns

from .journal import OPTIMIZER, SAY_NS, enter_thread, this_thread
from .registry import wraps
from .waits import Waits, Widened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .registry import Channel


_KINDS: dict[object, str] = {0: "map", 1: "iterable"}
"""PyTorch's number of a kind of dataset -> as it is recorded: by index, or as a stream."""


def watch_loaders(module: ModuleType, channel: Channel) -> None:
    """Has DataLoader and its iterators, subclasses included, note what they do."""
    waits = Waits(channel, _description, memory=False)  # `replay_frameworks` does that
    waits.watch_steps(module._BaseDataLoaderIter)
    waits.watch_iter(module.DataLoader)
    channel.shared["waits"] = waits


def watch_stops(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Stopping the workers of a pass that is left before its end takes time as well."""
    for name in ("_MultiProcessingDataLoaderIter", "_StatefulMultiProcessingDataLoaderIter"):
        if hasattr(module, name):
            channel.shared["waits"].watch_stop(getattr(module, name), "_shutdown_workers")


def watch_stateful(module: ModuleType, channel: Channel) -> None:
    """The subclass of torchdata has an `__iter__` of its own."""
    channel.shared["waits"].watch_iter(module.StatefulDataLoader)


def watch_accelerate(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Its loaders ask PyTorch's ahead, and put batches where the model is: all of it is a wait."""
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        if hasattr(module, name):
            _widen_waits(getattr(module, name), channel)


def _widen_waits(loader_class: Any, channel: Channel) -> None:  # noqa: ANN401
    original = loader_class.__iter__

    @wraps(original)
    def __iter__(loader: Any) -> Widened:  # noqa: ANN401
        return Widened(channel, original(loader))

    loader_class.__iter__ = __iter__


def watch_optimizers(module: ModuleType, channel: Channel) -> None:
    """Has PyTorch tell of every step of every optimizer, through its own global hook."""

    def begins(_optimizer: object, _args: object, _kwargs: object) -> None:
        now = this_thread() or enter_thread()
        now.optimizer = time_ns()

    module.register_optimizer_step_pre_hook(begins)
    module.register_optimizer_step_post_hook(_noting_step(channel))


def _noting_step(channel: Channel) -> Callable[..., None]:
    """To be called after each step, whatever it is called with. See `Journal.add`."""
    journal, extend, due = channel.journal, channel.journal.rows.extend, channel.journal.due

    def stepped(_optimizer: object = None, _args: object = None, _kwargs: object = None) -> None:
        if channel.on:
            try:
                end, now = time_ns(), this_thread() or enter_thread()
                extend((OPTIMIZER, 0, now.optimizer or end, end, now.ident))
                now.optimizer = 0
                # Now and then it is said that the run goes on, and written what has gathered.
                if end >= due.say_ns:
                    journal.present.happened(OPTIMIZER)
                    due.say_ns = end + SAY_NS
                    if end >= journal.flush_ns:
                        journal.flush()
            except Exception as error:
                channel.fail(error)

    return stepped


def watch_scalers(module: ModuleType, channel: Channel) -> None:
    """A step that GradScaler skips, as gradients were not finite, is a step of the loop."""
    _watch_step(module.GradScaler, channel)


def watch_fastai(module: ModuleType, channel: Channel) -> None:
    """Its optimizer is none of PyTorch's."""
    _watch_step(module.Optimizer, channel)


def _watch_step(stepping: Any, channel: Channel) -> None:  # noqa: ANN401
    """Has a class tell of every call of its `step`, after it."""
    original, stepped = stepping.step, _noting_step(channel)

    @wraps(original)
    def step(own: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(own, *args, **kwargs)
        stepped()
        return result

    stepping.step = step


def _description(loader: Any, iterator: Any) -> dict[str, object]:  # noqa: ANN401
    """What tells one loader from another; nothing is called that a program could notice."""
    dataset = getattr(iterator, "_dataset", None)
    return {
        "class": type(loader if loader is not None else iterator).__name__,
        "dataset": type(dataset).__name__,
        "data": _KINDS.get(getattr(iterator, "_dataset_kind", None)),
        "batches": _batches(iterator),
        "batch_size": _number(getattr(loader, "batch_size", None)),
        "workers": _number(getattr(iterator, "_num_workers", None)),
        "prefetch": _number(getattr(iterator, "_prefetch_factor", None)),
        "in_order": bool(getattr(iterator, "_in_order", True)),
    }


def _batches(iterator: Any) -> int | None:  # noqa: ANN401
    """Batches of an epoch. The length of an iterable dataset is not asked for: that may warn."""
    if getattr(iterator, "_dataset_kind", None) != 0:
        return None
    try:
        return len(iterator._index_sampler)
    except Exception:
        return None


def _number(value: object) -> int | None:
    return value if type(value) is int else None
