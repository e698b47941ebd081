"""The loaders that a process iterates over: their numbers, and where their iterators are."""

from __future__ import annotations

import sys
from threading import local
from weakref import ref

from .journal import EPOCH_SHIFT, LOADER_SHIFT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .hooks import Channel

STATE = "_vanidl_state"
_OWNER = "_vanidl_owner"

_DEEPEST = 100  # frames that are looked at

_now = local()


class as_role:
    """Loaders that this thread begins within are for that: training, evaluation, setup."""

    def __init__(self, role: str) -> None:
        self._role, self._before = role, ""

    def __enter__(self) -> None:
        self._before = current_role()
        _now.role = self._role

    def __exit__(self, *_: object) -> None:
        _now.role = self._before


def current_role() -> str:
    """What the loaders are for that this thread begins now; "" where nothing tells."""
    return getattr(_now, "role", "")


def trains(channel: Channel) -> None:
    """Says of the loader that gave the latest batch that its batches are trained on."""
    position = channel.journal.latest
    if channel.on and isinstance(position, Position) and position.description:
        try:
            description, position.description = position.description, None
            if "role" not in description:
                description["role"] = "training"
                channel.describe(description)
        except Exception as error:
            channel.fail(error)


class Position:
    """Where one iterator is: its loader, its epoch, and how many batches it gave."""

    __slots__ = ("code", "description", "is_over", "number", "session")

    def __init__(self, session: object, loader: int, epoch: int) -> None:
        self.session = session
        self.code = loader << LOADER_SHIFT
        self.number = epoch << EPOCH_SHIFT
        self.description: dict[str, object] | None = None  # of the loader, as long as it may change
        self.is_over = False  # whether the iterator was asked beyond its last batch


class _Known:
    """A loader that has been used, and where: the code that began its first iterator."""

    __slots__ = (
        "data",
        "description",
        "epochs",
        "iterator",
        "loader",
        "number",
        "place",
        "position",
    )

    def __init__(
        self, number: int, loader: object, description: dict[str, object], place: int
    ) -> None:
        self.number, self.epochs, self.place = number, 0, place
        self.iterator: Callable[[], object] = _gone
        self.position: Position | None = None
        self.description = {"loader": number, **description}
        self.loader = reference(loader)
        self.data = reference(getattr(loader, "dataset", None))


class Loaders:
    """The loaders of one kind that this process has used.

    A new loader for each pass with nothing changed counts as the one before it, once that is gone
    or its pass is over: over the same data, or begun by the same code.

    Args:
        channel: where their events go.
        describe: (loader or None, its iterator) -> what tells it from others.
    """

    def __init__(self, channel: Channel, describe: Callable[[Any, Any], dict[str, object]]) -> None:
        self.channel = channel
        self._describe = describe
        self._forget()

    def _forget(self) -> None:
        self._session = self.channel.journal.session
        self._by_id: dict[tuple[int, str], _Known] = {}
        self._by_description: dict[str, list[_Known]] = {}

    def begin(self, loader: Any, iterator: Any) -> Position:  # noqa: ANN401
        """The position of an iterator that a loader, if one is known, has just begun."""
        if self._session is not self.channel.journal.session:
            self._forget()
        used, loader = loader, stands_for(loader)
        key = (id(loader), current_role())
        known = self._by_id.get(key)
        if loader is None or known is None or known.loader() is not loader:
            known = self._by_id[key] = self._new(loader, self._describe(used, iterator))
        position = Position(self._session, known.number, known.epochs)
        position.description = known.description
        known.epochs += 1
        known.position, known.iterator = position, _unless_held(iterator)
        return position

    def _new(self, loader: Any, description: dict[str, object]) -> _Known:  # noqa: ANN401
        if current_role():
            description["role"] = current_role()
        alike = self._by_description.setdefault(repr(description), [])
        place = _calling_code()
        found = next((one for one in alike if _again(one, loader, place)), None)
        if found is not None:
            found.loader = reference(loader)
            return found
        made = _Known(self.channel.journal.new_loader(), loader, description, place)
        self.channel.describe(made.description)
        self.channel.journal.open_now()  # within a wait, not between two
        if loader is not None:
            alike.append(made)
        return made


def in_place_of(owner: object, loader: Any) -> None:  # noqa: ANN401
    """Says that a loader is one of those that another makes, one for each pass."""
    loader.__dict__[_OWNER] = ref(owner)


def stands_for(loader: Any) -> Any:  # noqa: ANN401
    """The loader that made this one for a pass, or itself."""
    owner = getattr(loader, "__dict__", {}).get(_OWNER)
    return loader if owner is None else owner()


def _again(known: _Known, loader: object, place: int) -> bool:
    """Whether a loader takes the place of one that is gone, or whose pass is over."""
    if loader is None:
        return False
    data = getattr(loader, "dataset", None)
    if known.loader() is None and known.data() is data is not None:
        return True
    over = known.position is None or known.position.is_over or known.iterator() is None
    return over and known.place == place


def _calling_code() -> int:
    """A number for the lines of code that led here, but for those of the recorder itself."""
    frame, lines = sys._getframe(2), list[tuple[str, int]]()
    while frame is not None and len(lines) < _DEEPEST:
        if frame.f_globals.get("__package__") != __package__:
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return hash(tuple(lines))


def _gone() -> None:
    """What a reference to nothing gives."""


def _unless_held(iterator: object) -> Callable[[], object]:
    """A reference that keeps nothing alive; to what allows none, as if it were gone."""
    try:
        return ref(iterator)
    except TypeError:
        return _gone


def reference(thing: object) -> Callable[[], object]:
    """A weak reference where the thing allows one, else a strong one."""
    try:
        return ref(thing)
    except TypeError:  # it allows none
        return lambda: thing


def in_worker() -> bool:
    """Whether this is a worker of a loader: what it iterates over is no wait of training."""
    torch = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(torch, "_worker_info", None) is not None:
        return True
    grain = sys.modules.get("grain._src.python.dataset.transformations.process_prefetch")
    return grain is not None and bool(grain.is_in_worker_process())
