"""What the training thread does beside training: evaluations of frameworks, marks of the program.

Also each switch of a model between training and evaluation: who reads the journal sees from these,
and from the loaders, where a loop of the program validates.
"""

from __future__ import annotations

from threading import local
from time import time_ns

from .journal import LOADER_SHIFT, MODE, PHASE
from .registry import wraps
from .waits import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

VALIDATION, COMPILE = "validation", "compile"
_JAX_COMPILES = "/jax/core/compile/"
_SHORT_S = 0.0005  # of compiling: a function of the library itself, of which there are hundreds
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
        _now.inside = False
        _note(self._channel, self._label, self._call, self._begin, time_ns())


def _note(channel: Channel, label: str, call: str, begin: int, end: int) -> None:
    if not channel.on or in_worker():
        return
    try:
        number = _number(channel, label, call)
        channel.add(PHASE | number << LOADER_SHIFT, 0, begin, end)
    except Exception as error:
        channel.fail(error)


_numbered: dict[str, Any] = {"session": None, "names": {}}  # of all channels: they share a journal


def _number(channel: Channel, label: str, call: str) -> int:
    """The number of a name, which the journal is told first."""
    if _numbered["session"] is not channel.journal.session:
        _numbered.update(session=channel.journal.session, names={})
    names = _numbered["names"]
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


def watch_jax(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Tracing, lowering and compiling, as JAX itself measures them."""

    def listen(event: str, duration: float, **_: Any) -> None:  # noqa: ANN401
        if duration >= _SHORT_S and event.startswith(_JAX_COMPILES):
            end = time_ns()
            _note(channel, COMPILE, "jax.jit", end - int(duration * 1e9), end)

    module.register_event_duration_secs_listener(listen)


def watch_dynamo(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`torch.compile`: a first call compiles, and one with arguments of another shape."""
    begun: list[int] = []

    def starts(_: object) -> None:
        begun[:] = [time_ns()]

    def ends(_: object) -> None:
        if begun:
            _note(channel, COMPILE, "torch.compile", begun.pop(), time_ns())

    module.callback_handler.register_start_callback(starts)
    module.callback_handler.register_end_callback(ends)


def watch_tensorflow(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The first call of a `tf.function` traces it."""
    original = module.Function._initialize

    @wraps(original)
    def _initialize(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        try:
            return original(*args, **kwargs)
        finally:
            _note(channel, COMPILE, "tf.function", begin, time_ns())

    module.Function._initialize = _initialize


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
