"""Programs that start DFTracer themselves, as DLIO does, under a DFTracer that was preloaded.

The preloaded one traces from the start of the process to its end. A program's own `initialize`
would move the rest of the trace to a file of its own, and its `finalize` would end a tracer whose
wrappers go on being called: DFTracer 2.2.0 then ends the process with a segmentation fault at the
next call of a file operation. The program's annotations go on being written, to the one trace.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from .hooks import Channel

_PRELOADED = "libdftracer_preload"


def keep_preloaded(module: ModuleType, _channel: Channel) -> None:
    """Takes starting and ending the tracer from the program."""
    if _PRELOADED in os.environ.get("LD_PRELOAD", ""):
        for name in ("initialize", "finalize"):
            setattr(module, name, _nothing)


def _nothing(*_: object, **__: object) -> None:
    """In place of both."""
