"""What is recorded of JAX: each call of a compiled function that trains.

A compiled function is traced once and called for every batch. It trains where a gradient is
computed while it is traced, and it returns arrays as what that gradient is of: new parameters, or
the gradients themselves. That is looked at in its first call; later ones only tell of themselves.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import wraps
from threading import local
from time import time_ns
from types import MethodType

from .journal import OPTIMIZER
from .loaders import reference, trains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .hooks import Channel

_now = local()


def watch_functions(module: ModuleType, channel: Channel) -> None:
    """Has functions that the program compiles, and those that compute gradients, tell of calls."""
    module.jit = _compiling(module.jit, channel)  # type: ignore[attr-defined]
    for name in ("vjp", "linearize"):
        setattr(module, name, _differentiating(getattr(module, name), channel))
    original = module.value_and_grad

    @wraps(original)
    def value_and_grad(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        argnums = kwargs.get("argnums", args[1] if len(args) > 1 else 0)
        return _Gradient(original(*args, **kwargs), argnums, channel).told()

    module.value_and_grad = value_and_grad  # type: ignore[attr-defined]


def _compiling(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    """`jit`: what it returns tells of its calls, where it is not the library that compiles."""

    @wraps(original)
    def jit(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        made = original(*args, **kwargs)
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if not channel.on or caller.split(".")[0] in ("jax", "jaxlib"):
            return made
        if args or "fun" in kwargs:
            return Compiled(made, channel)
        return lambda function: Compiled(made(function), channel)

    return jit


class _State:
    """What is known of a compiled function: whether it trains, None as long as it was not called.

    `gradients` are the shapes and types of the arrays of which gradients were computed in it.
    """

    def __init__(self) -> None:
        self.trains: bool | None = None
        self.gradients: Counter[Any] = Counter()


class Compiled:
    """A compiled function, in the place of which it stands whatever is asked of it."""

    def __init__(self, function: Any, channel: Channel) -> None:  # noqa: ANN401
        self._vanidl = function, channel, _state_of(function, channel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, D102
        function, channel, state = self._vanidl
        if state.trains is None and channel.on and _is_outermost():
            return _first_call(function, channel, state, args, kwargs)
        begin = time_ns()
        result = function(*args, **kwargs)
        if state.trains and channel.on and _is_outermost():
            _note(channel, begin)
        return result

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._vanidl[0], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # noqa: ANN401
        return self if instance is None else MethodType(self, instance)

    @property  # type: ignore[misc]  # who asks what it is an instance of hears of the function
    def __class__(self) -> Any:  # noqa: ANN401
        return type(self._vanidl[0])

    def __repr__(self) -> str:
        return repr(self._vanidl[0])

    def __reduce__(self) -> Any:  # noqa: ANN401
        return self._vanidl[0].__reduce__()


def _state_of(function: Any, channel: Channel) -> _State:  # noqa: ANN401
    """Of the function in it: what is compiled twice is traced once."""
    inner = getattr(function, "_fun", function)
    states = channel.shared.setdefault("states", {})
    known = states.get(id(inner))
    if known is None or known[0]() is not inner:
        known = states[id(inner)] = reference(inner), _State()
    state: _State = known[1]
    return state


def _is_outermost() -> bool:
    """Whether this runs, rather than being traced for a function around it."""
    return bool(sys.modules["jax._src.core"].trace_state_clean())


def _first_call(function: Any, channel: Channel, state: _State, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    before, begin = getattr(_now, "state", None), time_ns()
    _now.state = state
    try:
        result = function(*args, **kwargs)
    finally:
        _now.state = before
    try:
        found = _shapes(result)
        state.trains = bool(state.gradients) and not state.gradients - found
        if state.trains:
            _note(channel, begin)
    except Exception as error:
        channel.fail(error)
    return result


def _differentiated(values: Any, channel: Channel, begin: int) -> None:  # noqa: ANN401
    """A gradient of these is being computed: now, or whenever the function around it is called."""
    if not channel.on:
        return
    try:
        state = getattr(_now, "state", None)
        if _is_outermost():
            _note(channel, begin)
        elif state is None:  # traced for something else, whose calls nobody tells of
            trains(channel)
        elif not state.gradients:
            state.gradients = _shapes(values)
    except Exception as error:
        channel.fail(error)


def _shapes(values: Any) -> Counter[Any]:  # noqa: ANN401
    leaves = sys.modules["jax._src.tree_util"].tree_leaves(values)
    return Counter((leaf.shape, str(leaf.dtype)) for leaf in leaves if hasattr(leaf, "shape"))


def _note(channel: Channel, begin: int) -> None:
    channel.add(OPTIMIZER, 0, begin, time_ns())


def _differentiating(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    """`vjp` and `linearize`, of a function at some values."""

    @wraps(original)
    def run(function: Any, *values: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        inside, begin = getattr(_now, "in_gradient", False), time_ns()
        result = original(function, *values, **kwargs)
        if not inside:
            _differentiated(values, channel, begin)
        return result

    return run


class _Gradient:
    """A function that computes gradients, which tells when it is called or traced."""

    def __init__(self, function: Any, argnums: Any, channel: Channel) -> None:  # noqa: ANN401
        self.function, self.channel = function, channel
        self.argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def told(self) -> Any:  # noqa: ANN401
        """The function."""

        @wraps(self.function)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            before, begin = getattr(_now, "in_gradient", False), time_ns()
            _now.in_gradient = True
            try:
                result = self.function(*args, **kwargs)
            finally:
                _now.in_gradient = before
            if not before:
                values = [args[k] for k in self.argnums if -len(args) <= k < len(args)]
                _differentiated(values, self.channel, begin)
            return result

        return run
