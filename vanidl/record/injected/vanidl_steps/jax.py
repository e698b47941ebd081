"""What is recorded of JAX: which loader's batches gradients are computed for."""

from __future__ import annotations

from functools import wraps

from .loaders import trains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .hooks import Channel


def watch_gradients(module: ModuleType, channel: Channel) -> None:
    """Has functions that compute gradients tell when they run, if only to be traced."""
    for name in ("value_and_grad", "vjp", "linearize"):
        _watch(module, name, channel)


def _watch(module: ModuleType, name: str, channel: Channel) -> None:
    original = getattr(module, name)
    returns_function = name == "value_and_grad"

    @wraps(original)
    def transform(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if not returns_function:
            trains(channel)
            return original(*args, **kwargs)
        return _telling(original(*args, **kwargs), channel)

    setattr(module, name, transform)


def _telling(function: Any, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        trains(channel)
        return function(*args, **kwargs)

    return run
