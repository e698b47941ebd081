"""Marks that a training program makes itself: its steps, its waits for input, what else it does.

Under `vanidl record` they are recorded; else they do nothing. Nothing is imported for them.

    for batch in loader:
        with vanidl.step():
            train(batch)
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol, TypeVar

    Function = TypeVar("Function", bound=Callable[..., object])

    class Mark(Protocol):
        """A block of the program, or a function of its."""

        def __enter__(self) -> object: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...
        def __call__(self, function: Function) -> Function:
            """The function, each call of which is marked."""

    class Recorder(Protocol):
        """What the recorder puts here."""

        def step(self, label: str) -> Mark:
            """A block that is a step."""

        def wait(self, name: str) -> Mark:
            """A block that is a wait."""

        def phase(self, label: str) -> Mark:
            """A block that is neither."""


class _Nothing:
    """A mark that nobody records."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, _error: object, _trace: object) -> None:
        return None

    def __call__(self, function: Function) -> Function:
        return function


_NOTHING = _Nothing()
recorder: Recorder | None = None
"""Set by `vanidl record` in the processes that it records."""


def step(label: str = "training") -> Mark:
    """Marks a block as one step: `with vanidl.step():`, or a function: `@vanidl.step()`.

    Where a process marks training steps, these alone are its steps: those that the recorder finds
    by optimizers and loaders are left out. A step begins with the first wait for its batch, before
    the block or in it, and ends with the block. One that ends with an exception is not counted.

    Args:
        label: "training", or what else the step is: "validation". Those are counted apart.
    """
    return _NOTHING if recorder is None else recorder.step(label)


def phase(label: str) -> Mark:
    """Marks a block that trains nothing: `with vanidl.phase("validation"):`, or a function.

    Its time is of no step: one that it lies within is shorter by it.

    Args:
        label: "validation", "checkpoint" (a save), "load", "inference", or any other word.
    """
    return _NOTHING if recorder is None else recorder.phase(label)


def wait(name: str = "") -> Mark:
    """Marks a block as a wait for a batch, or a function: `with vanidl.wait():`, `@vanidl.wait()`.

    For input that the recorder does not know. What it does know and waits for within the block
    counts once. A StopIteration that leaves the block is the end of a pass.

    Args:
        name: what is waited for, where there are several.
    """
    return _NOTHING if recorder is None else recorder.wait(name)
