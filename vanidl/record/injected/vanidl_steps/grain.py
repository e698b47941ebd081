"""What is recorded of Grain: every `__next__` of the iterator that a program asks for batches."""

from __future__ import annotations

from .waits import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .registry import Channel


def watch_datasets(module: ModuleType, channel: Channel) -> None:
    """Has every class of datasets note its passes: those that are here, and those to come.

    Each comes by a function that Grain lays around its `__iter__`. Within the `__iter__` of one
    dataset those of its parents are no passes of their own.
    """
    waits = Waits(channel, _description)
    inject: Callable[[Any], Any] = module.output_dataset_injector

    def injector(make_iterator: Any) -> Any:  # noqa: ANN401
        return waits.following(inject(make_iterator), _outermost)

    module.output_dataset_injector = injector  # type: ignore[attr-defined]
    for found in list(vars(module).values()):
        if isinstance(found, type) and issubclass(found, module.IterDataset):
            waits.watch_iter(found)


def _outermost(dataset: Any) -> Any:  # noqa: ANN401
    """The dataset of the program: what makes an iterator of a map is new for each pass."""
    is_made = type(dataset).__name__ == "PrefetchIterDataset"
    return dataset._parent if is_made else dataset


def _description(loader: Any, _iterator: Any) -> dict[str, object]:  # noqa: ANN401
    names = []
    while loader is not None:
        names.append(type(loader).__name__)
        parents = getattr(loader, "_parents", ())
        loader = parents[0] if parents else None
    return {"class": names[0], "dataset": names[-1]} if names else {"class": "Grain"}
