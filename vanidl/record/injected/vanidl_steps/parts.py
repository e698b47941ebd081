"""Parts of a step: where the model is called first, its backward pass, the optimizer's step.

And collectives of torch.distributed that the program calls, on the processor likewise. Those within
a backward pass (DistributedDataParallel) are made in C++, and are in its time.

Only on the processor: on a device these calls return before their work is done, and times of the
host would say nothing of it. There a backward pass is a moment, which tells that the loop trains.

Which modules a program calls at the outermost level shows in its first steps; from then on calls
of their classes alone are seen. No module or class of the program is left with anything that cannot
be pickled: `_call` is found by its name. Where a program compiles, this ends: what is compiled must
find modules as they are.
"""

from __future__ import annotations

from threading import local
from time import time_ns

from .journal import BACKWARD, COLLECTIVE, FORWARD
from .registry import replaces, without_own_frames, wraps
from .waits import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_FIRST = 3  # backward passes until it is taken as known which modules are called
_MOST_CLASSES = 4
_COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object",
    "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "scatter_object_list",
)  # fmt: skip
_COMPILERS = ("optimize", "_optimize", "optimize_assert", "export")


class _Now(local):
    """What goes on in a thread: times in ns, 0 for none."""

    inside = False  # a call at the outermost level
    backward = False
    meeting = False  # a collective, which may call others
    called = 0  # when a model was called first for this batch
    batch: object = None
    optimizer = 0  # when its step began


now_in_thread = _Now()


class _Watch:
    """What is watched in this process, in one place: functions that are left behind look here."""

    channel: Any = None
    base: Any = None  # torch.nn.Module
    original: Any = None  # its __call__
    is_grad_enabled: Any = None
    classes: tuple[type, ...] = ()
    found: frozenset[type] = frozenset()
    passes = 0
    session: object = None
    is_worker = False
    is_over = False


def watch_modules(module: ModuleType, channel: Channel) -> None:
    """From the first call of a module on."""
    import torch

    _Watch.channel, _Watch.base = channel, module.Module
    _Watch.original, _Watch.is_grad_enabled = module.Module.__call__, torch.is_grad_enabled
    module.Module.__call__ = _first_calls


def _first_calls(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """In the place of `Module.__call__` during the first steps."""
    is_outermost = not (now_in_thread.inside or _Watch.is_over)
    try:
        if is_outermost:
            now_in_thread.inside = True
            _look_at(args[0])
        return _Watch.original(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        raise
    finally:
        if is_outermost:
            now_in_thread.inside = False


def _look_at(module: Any) -> None:  # noqa: ANN401
    """A module that is called at the outermost level: one with weights that train is a model."""
    try:
        if not _Watch.is_grad_enabled() or in_worker():
            return
        if any(weights.requires_grad for weights in module.parameters()):
            _Watch.found |= {type(module)}
            latest = _Watch.channel.journal.latest
            batch = (id(latest), latest.number) if latest is not None else None
            if not now_in_thread.called or batch != now_in_thread.batch:
                now_in_thread.called, now_in_thread.batch = time_ns(), batch
    except Exception as error:
        _Watch.channel.fail(error)


def _call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """`__call__` of the classes of models, after the first steps."""
    if _Watch.is_grad_enabled():
        latest = _Watch.channel.journal.latest
        batch = (id(latest), latest.number) if latest is not None else None
        if not now_in_thread.called or batch != now_in_thread.batch:
            now_in_thread.called, now_in_thread.batch = time_ns(), batch
    try:
        return _Watch.base.__call__(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        raise


def _settle() -> None:
    """Ends looking at all modules: from now on at the classes that were found."""
    _Watch.is_over = True
    if _Watch.base.__dict__.get("__call__") is not _first_calls:
        return  # somebody else has put another one there, which calls it
    _Watch.base.__call__ = _Watch.original
    # A class with a __call__ of its own, or of a parent of its, keeps it.
    plain = [kind for kind in _Watch.found if kind.__call__ is _Watch.original]
    _Watch.classes = tuple(plain[:_MOST_CLASSES])
    for kind in _Watch.classes:
        kind.__call__ = _call  # type: ignore[method-assign]


def watch_compilers(module: ModuleType, channel: Channel) -> None:
    """What TorchDynamo compiles, it must find as it is."""
    for name in _COMPILERS:
        if hasattr(module, name):
            setattr(module, name, _leaving(getattr(module, name), channel))


def _leaving(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(original)
    def compile_(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            _leave()
        except Exception as error:
            channel.fail(error)
        return original(*args, **kwargs)

    return compile_


def _leave() -> None:
    classes, _Watch.classes = _Watch.classes, ()
    for kind in classes:
        if kind.__dict__.get("__call__") is _call:
            del kind.__call__
    _Watch.is_over, now_in_thread.called = True, 0
    if _Watch.base is not None and _Watch.base.__dict__.get("__call__") is _first_calls:
        _Watch.base.__call__ = _Watch.original


def watch_backward(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`loss.backward()`, and gradients that are asked for by themselves."""
    for name in ("backward", "grad"):
        setattr(module, name, _passing(getattr(module, name), channel))


def _passing(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @replaces(original)
    def backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if now_in_thread.backward or not channel.on:
            return original(*args, **kwargs)
        now_in_thread.backward = True
        begin = time_ns()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        finally:
            now_in_thread.backward = False
            _note_pass(channel, args[0] if args else kwargs, begin)

    return backward


def _note_pass(channel: Channel, of: Any, begin: int) -> None:  # noqa: ANN401
    try:
        end, called = time_ns(), now_in_thread.called
        now_in_thread.called = 0
        first = of if hasattr(of, "is_cpu") else next(iter(of), None)
        is_known = _Watch.session is channel.journal.session
        if _Watch.is_worker if is_known else _is_worker(channel):
            return
        if not getattr(first, "is_cpu", False):  # that it was, and nothing of how long it took
            channel.add(BACKWARD, 0, end, end)
            return
        if called:
            channel.add(FORWARD, 0, called, begin)
        channel.add(BACKWARD, 0, begin, end)
        if not _Watch.is_over and _Watch.base is not None:
            _Watch.passes += 1
            if _Watch.passes >= _FIRST:
                _settle()
    except Exception as error:
        channel.fail(error)


def watch_collectives(module: ModuleType, channel: Channel) -> None:
    """Calls that return once every rank has come: not those that give something to wait for."""
    for name in _COLLECTIVES:
        if hasattr(module, name):
            setattr(module, name, _meeting(getattr(module, name), channel))


def _meeting(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(original)
    def meet(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if now_in_thread.meeting or not channel.on:
            return original(*args, **kwargs)
        now_in_thread.meeting = True
        begin = time_ns()
        try:
            result = original(*args, **kwargs)
        finally:
            now_in_thread.meeting = False
        try:
            first = args[0] if args else None
            returns_before = hasattr(result, "wait") or getattr(first, "is_cuda", False)
            if not returns_before and not _is_worker(channel):
                channel.add(COLLECTIVE, 0, begin, time_ns())
        except Exception as error:
            channel.fail(error)
        return result

    return meet


def _is_worker(channel: Channel) -> bool:
    """Looked up once in each process."""
    if _Watch.session is not channel.journal.session:
        _Watch.session, _Watch.is_worker = channel.journal.session, in_worker()
    return _Watch.is_worker


def optimizer_begins(*_: object) -> None:
    """An optimizer's step begins in this thread."""
    now_in_thread.optimizer = time_ns()
