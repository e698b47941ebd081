"""What the program marks itself: `vanidl.step()`, `vanidl.wait()` and `vanidl.phase()`."""

from __future__ import annotations

from time import time_ns

from .journal import END, EPOCH_SHIFT, OTHER_STEP, PHASE, SAVE, STEP, WAIT
from .phases import Phase
from .registry import wraps
from .waits import Position, in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .registry import Channel

_TRAINING = "training"
_SAVING = ("checkpoint", "save", "saving")
_COROUTINE = 0x80  # of the flags of a function's code
_MOST_NAMES = 100  # a bound on memory; later ones are the last


def watch(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Has the module of marks record them."""
    module.recorder = Marks(channel)


class Marks:
    """Marks of this process."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._session: object = None
        self._positions: dict[str, Position] = {}

    def step(self, label: str) -> Block:
        """A block that is a step; one that saves is none."""
        kind = STEP if label == _TRAINING else PHASE if label in _SAVING else OTHER_STEP
        return Block(self, kind, label)

    def wait(self, name: str) -> Block:
        """A block that is a wait for a batch."""
        return Block(self, WAIT, name)

    def phase(self, label: str) -> Block:
        """A block that is neither."""
        return Block(self, PHASE, label)

    def begin(self, code: int, name: str) -> tuple[int, int]:
        """A block begins; what went on until now."""
        known = self._positions.get(name) if code == WAIT else None
        return self.channel.journal.present.begin(known.code | WAIT if known else code)

    def note(self, kind: int, name: str, begin: int, error: type[BaseException] | None) -> None:
        """A block that has ended, maybe with an exception."""
        end = time_ns()
        if not self.channel.on:
            return
        try:
            if kind != WAIT:
                if error is None and not in_worker():
                    self.channel.add(kind, 0, begin, end)
            elif error is None or issubclass(error, (StopIteration, StopAsyncIteration)):
                self._note_wait(name, begin, end, ended=error is not None)
        except Exception as failure:
            self.channel.fail(failure)

    def _note_wait(self, name: str, begin: int, end: int, *, ended: bool) -> None:
        if in_worker():
            return
        position = self._position(name)
        self.channel.add(position.code | (END if ended else WAIT), position.number, begin, end)
        position.number += 1
        if ended:
            position.number = (position.number >> EPOCH_SHIFT) + 1 << EPOCH_SHIFT
        self.channel.journal.latest = position

    def _position(self, name: str) -> Position:
        journal = self.channel.journal
        if self._session is not journal.session:  # a forked child
            self._session, self._positions = journal.session, {}
        if name not in self._positions and len(self._positions) >= _MOST_NAMES:
            name = next(reversed(self._positions))
        if name not in self._positions:
            number = journal.new_loader()
            position = Position(journal.session, number, 0)
            position.description = {"loader": number, "class": "vanidl.wait", "dataset": name}
            self.channel.describe(position.description)
            self._positions[name] = position
        return self._positions[name]


class Block:
    """One mark, used as a context or around a function; each call of that is one."""

    __slots__ = ("_before", "_begin", "_code", "_kind", "_marks", "_name", "_phase")

    def __init__(self, marks: Marks, kind: int, name: str) -> None:
        self._marks, self._kind, self._name = marks, kind, name
        self._code = SAVE if name in _SAVING else kind
        self._begin, self._before = 0, (0, 0)
        self._phase = Phase(marks.channel, name, "vanidl.phase") if kind == PHASE else None

    def __enter__(self) -> None:
        self._begin = time_ns()
        if self._phase is not None:
            self._phase.__enter__()
        self._before = self._marks.begin(self._code, self._name)

    def __exit__(self, error: type[BaseException] | None, _error: object, _trace: object) -> None:
        self._marks.channel.journal.present.end(self._before)
        if self._phase is not None:
            self._phase.__exit__()
            return
        self._marks.note(self._kind, self._name, self._begin, error)

    def __call__(self, function: Any) -> Any:  # noqa: ANN401
        """The function, each call of which is marked."""
        marks, kind, name = self._marks, self._kind, self._name

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with Block(marks, kind, name):
                return function(*args, **kwargs)

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with Block(marks, kind, name):
                return await function(*args, **kwargs)

        code = getattr(function, "__code__", None)
        return awaited if code is not None and code.co_flags & _COROUTINE else call
