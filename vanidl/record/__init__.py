"""Run a command under a system tracer and leave a RUN folder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vanidl.record.recording import Recorded, record

__all__ = ["Recorded", "record"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """What records, imported when it is asked for: help needs the names of tracers alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.recording"), name)
