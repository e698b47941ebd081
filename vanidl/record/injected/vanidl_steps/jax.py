"""What is recorded of JAX: each call of a compiled function that trains.

A compiled function is traced once and called for every batch. It trains where a gradient is
computed while it is traced, and it returns arrays as what that gradient is of: new parameters, or
the gradients themselves. That is looked at in its first call; later ones only tell of themselves.
"""

from __future__ import annotations

import sys
from collections import Counter
from threading import local
from time import time_ns

from . import registry
from .journal import OPTIMIZER
from .registry import wraps
from .waits import reference, trains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_KEPT = 4096  # signatures of arguments: as many as JAX keeps
_now = local()


def watch_gradients(module: ModuleType, channel: Channel) -> None:
    """Has functions that compute gradients tell when they are called or traced."""
    for name in ("vjp", "linearize"):
        setattr(module, name, _differentiating(getattr(module, name), channel))
    original = module.value_and_grad

    @wraps(original)
    def value_and_grad(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        argnums = kwargs.get("argnums", args[1] if len(args) > 1 else 0)
        return _Gradient(original(*args, **kwargs), argnums, channel).told()

    module.value_and_grad = value_and_grad  # type: ignore[attr-defined]


def watch_functions(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Has functions that the program compiles tell of calls, and leaves them what they are.

    JAX makes such a function in C++, of one in Python that it calls where it has no compiled code
    for the arguments. That one is replaced: it sees first calls. Of a function that trains it says
    that there is no such code, so that it sees each call, and calls a second function made in C++,
    which has it: 1.4 us a call of 2 arrays, 17 us in place of 75 with 50.
    """
    for file in (__file__, registry.__file__):  # JAX leaves their frames out of its tracebacks
        sys.modules["jax._src.traceback_util"].register_exclusion(file)
    library = module._jax if hasattr(module, "_jax") else module.xc._xla
    make, new_cache = library.pjit, library.PjitFunctionCache

    @wraps(make)
    def pjit(name: Any, function: Any, missed: Any, *others: Any) -> Any:  # noqa: ANN401
        # Code is compiled by the library as well, that of functions of its own among it.
        owner = str(getattr(function, "__module__", "")).partition(".")[0]
        if "_cpp_pjit" not in missed.__qualname__ or owner in ("jax", "jaxlib") or not channel.on:
            return make(name, function, missed, *others)
        state = _state_of(function, channel)

        def make_fast() -> Any:  # noqa: ANN401
            return make(name, function, missed, *others[:-1], new_cache(capacity=_KEPT))

        return make(name, function, _noting(missed, make_fast, state, channel), *others)

    library.pjit = pjit
    evict = module.jit_evict_fn

    @wraps(evict)
    def jit_evict_fn(own: Any) -> Any:  # noqa: ANN401
        for function in _state_of(own, channel).fast:
            function._clear_cache()
        return evict(own)

    module.jit_evict_fn = jit_evict_fn


class _State:
    """What is known of a compiled function: whether it trains, None as long as it was not called.

    `gradients` are the shapes and types of the arrays of which gradients were computed in it,
    `fast` those that have compiled code of it.
    """

    def __init__(self) -> None:
        self.trains: bool | None = None
        self.gradients: Counter[Any] = Counter()
        self.fast: list[Any] = []


def _state_of(function: Any, channel: Channel) -> _State:  # noqa: ANN401
    """Of the function in it: what is compiled twice is traced once."""
    inner = getattr(function, "_fun", function)
    states = channel.shared.setdefault("states", {})
    known = states.get(id(inner))
    if known is None or known[0]() is not inner:
        known = states[id(inner)] = reference(inner), _State()
    state: _State = known[1]
    return state


def _noting(missed: Any, make_fast: Callable[[], Any], state: _State, channel: Channel) -> Any:  # noqa: ANN401
    """In the place of what JAX calls where it has no compiled code: that, and notes of steps."""
    fast: list[Any] = []

    @wraps(missed)
    def noting(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if state.trains is False or not channel.on or not _is_outermost():
            return missed(*args, **kwargs)
        begin = time_ns()
        # By compiled code, once there is some; the first call shows whether it trains.
        if fast:
            result = fast[0](*args, **kwargs), None, False
        elif state.trains is None:
            result = _first_call(missed, channel, state, args, kwargs)
        else:
            result = missed(*args, **kwargs)
        if not state.trains:
            return result
        _note(channel, begin)
        if not fast:
            fast.append(make_fast())
            state.fast += fast
        # JAX is told of no compiled code, so that later calls come here as well.
        return (result[0], None, *result[2:])

    return noting


def _is_outermost() -> bool:
    """Whether this runs, rather than being traced for a function around it."""
    return bool(sys.modules["jax._src.core"].trace_state_clean())


def _first_call(missed: Any, channel: Channel, state: _State, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    before, _now.state = getattr(_now, "state", None), state
    try:
        result = missed(*args, **kwargs)
    finally:
        _now.state = before
    try:
        state.trains = bool(state.gradients) and not state.gradients - _shapes(result[0])
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
        elif state is None:
            # Traced for something else, whose calls nobody tells of, or to be looked at.
            if not channel.shared.get("has_steps"):
                trains(channel)
        elif not state.gradients:
            state.gradients = _shapes(values)
    except Exception as error:
        channel.fail(error)


def _shapes(values: Any) -> Counter[Any]:  # noqa: ANN401
    leaves = sys.modules["jax._src.tree_util"].tree_leaves(values)
    return Counter((leaf.shape, str(leaf.dtype)) for leaf in leaves if hasattr(leaf, "shape"))


def _note(channel: Channel, begin: int) -> None:
    channel.shared["has_steps"] = True
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
