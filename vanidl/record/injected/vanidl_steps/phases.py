"""What the training thread does beside training: evaluations of frameworks, marks of the program.

Also each switch of a model between training and evaluation: who reads the journal sees from these,
and from the loaders, where a loop of the program validates.
"""

from __future__ import annotations

from functools import wraps
from threading import local
from time import time_ns

from .journal import LOADER_SHIFT, MODE, PHASE
from .loaders import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .hooks import Channel

VALIDATION = "validation"
_KERAS = ("TorchTrainer", "JAXTrainer", "TensorFlowTrainer")
_MOST_NAMES = 100  # a bound on memory; later ones are the last
_now = local()


class Phase:
    """A block of the training thread that is a window of its own; one within another is of that."""

    __slots__ = ("_begin", "_call", "_channel", "_is_outermost", "_label")

    def __init__(self, channel: Channel, label: str, call: str) -> None:
        self._channel, self._label, self._call = channel, label, call
        self._begin, self._is_outermost = 0, False

    def __enter__(self) -> None:
        self._is_outermost = not getattr(_now, "inside", False)
        _now.inside = True
        self._begin = time_ns()

    def __exit__(self, *_: object) -> None:
        if not self._is_outermost:
            return
        end, channel = time_ns(), self._channel
        _now.inside = False
        if not channel.on or in_worker():
            return
        try:
            number = _number(channel, self._label, self._call)
            channel.add(PHASE | number << LOADER_SHIFT, 0, self._begin, end)
        except Exception as error:
            channel.fail(error)


def _number(channel: Channel, label: str, call: str) -> int:
    """The number of a name, which the journal is told first."""
    session, names = channel.shared.get("phases", (None, None))
    if session is not channel.journal.session:
        session, names = channel.shared["phases"] = channel.journal.session, {}
    key = label, call
    if key not in names and len(names) >= _MOST_NAMES:
        key = next(reversed(names))
    if key not in names:
        names[key] = len(names)
        channel.describe({"phase": names[key], "label": label, "call": call})
    number: int = names[key]
    return number


def watch_lightning(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Validation and tests, the check before training among them."""
    _watch(module._EvaluationLoop, ("run",), "Trainer.validate", channel)


def watch_transformers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`Trainer.evaluate` and `predict`."""
    _watch(module.Trainer, ("evaluate", "predict"), "Trainer.evaluate", channel)


def watch_keras(module: ModuleType, channel: Channel) -> None:
    """`Model.evaluate`, which `fit` calls as well."""
    for name in _KERAS:
        if hasattr(module, name):
            _watch(getattr(module, name), ("evaluate",), "Model.evaluate", channel)


def watch_fastai(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The validation of an epoch."""
    _watch(module.Learner, ("_do_epoch_validate",), "Learner.validate", channel)


def watch_ignite(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """An engine that another one runs evaluates."""
    original = module.Engine.run

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        trains, _now.trains = getattr(_now, "trains", False), True
        try:
            if not trains:
                return original(*args, **kwargs)
            with Phase(channel, VALIDATION, "Engine.run"):
                return original(*args, **kwargs)
        finally:
            _now.trains = trains

    module.Engine.run = run


def _watch(owner: Any, names: tuple[str, ...], call: str, channel: Channel) -> None:  # noqa: ANN401
    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, _within(getattr(owner, name), call, channel))


def _within(original: Any, call: str, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with Phase(channel, VALIDATION, call):
            return original(*args, **kwargs)

    return run


def watch_modules(module: ModuleType, channel: Channel) -> None:
    """`model.eval()` and `model.train()`, of the outermost module: both call those of its parts."""
    original = module.Module.train

    @wraps(original)
    def train(model: Any, mode: bool = True) -> Any:  # noqa: ANN401
        if getattr(_now, "switching", False):
            return original(model, mode)
        _now.switching = True
        try:
            return original(model, mode)
        finally:
            _now.switching = False
            _note_mode(channel, model, is_training=bool(mode))

    module.Module.train = train


def _note_mode(channel: Channel, model: object, *, is_training: bool) -> None:
    if not channel.on or in_worker():
        return
    try:
        now = time_ns()
        channel.add(MODE, id(model) >> 3 << 1 | is_training, now, now)
    except Exception as error:
        channel.fail(error)
