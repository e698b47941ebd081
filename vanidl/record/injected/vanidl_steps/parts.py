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

from time import time_ns

from .journal import BACKWARD, COLLECTIVE, FORWARD, InThread, enter_thread, this_thread
from .registry import replaces, without_own_frames, wraps
from .waits import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
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


class _Watch:
    """What is watched in this process, in one place: functions that are left behind look here."""

    __slots__ = (
        "base",
        "channel",
        "classes",
        "found",
        "is_grad_enabled",
        "is_over",
        "is_worker",
        "journal",
        "original",
        "passes",
        "session",
        "settled_for",
    )

    def __init__(self) -> None:
        self.channel: Any = None
        self.journal: Any = None
        self.base: Any = None  # torch.nn.Module
        self.original: Any = None  # its __call__
        self.is_grad_enabled: Any = None
        self.classes: tuple[type, ...] = ()
        self.found: frozenset[type] = frozenset()
        self.passes = 0
        self.session: object = None
        self.settled_for: object = None  # a session: its passes on the processor are only timed
        self.is_worker = False
        self.is_over = False


watch = _Watch()
_NONE = object()  # no argument


def watch_modules(module: ModuleType, channel: Channel) -> None:
    """From the first call of a module on."""
    import torch

    watch.channel, watch.journal, watch.base = channel, channel.journal, module.Module
    watch.original, watch.is_grad_enabled = module.Module.__call__, torch.is_grad_enabled
    module.Module.__call__ = _first_calls


def _first_calls(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """In the place of `Module.__call__` during the first steps."""
    now = this_thread() or enter_thread()
    is_outermost = not (now.inside or watch.is_over)
    try:
        if is_outermost:
            now.inside = True
            _look_at(args[0], now)
        return watch.original(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        raise
    finally:
        if is_outermost:
            now.inside = False


def _look_at(module: Any, now: InThread) -> None:  # noqa: ANN401
    """A module that is called at the outermost level: one with weights that train is a model."""
    try:
        if not watch.is_grad_enabled() or in_worker():
            return
        if any(weights.requires_grad for weights in module.parameters()):
            watch.found |= {type(module)}
            latest = watch.journal.latest
            number = latest.number if latest is not None else 0
            if not now.called or now.latest is not latest or now.number != number:
                now.called, now.latest, now.number = time_ns(), latest, number
    except Exception as error:
        watch.channel.fail(error)


def _call(model: Any, one: Any = _NONE, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """`__call__` of the classes of models, after the first steps: most take one batch."""
    # The forward pass begins with the first call since the latest batch.
    if watch.is_grad_enabled():
        now, latest = this_thread() or enter_thread(), watch.journal.latest
        number = latest.number if latest is not None else 0
        if not now.called or now.latest is not latest or now.number != number:
            now.called, now.latest, now.number = time_ns(), latest, number
    try:
        if one is _NONE:
            return watch.base.__call__(model, **kwargs)
        if args or kwargs:
            return watch.base.__call__(model, one, *args, **kwargs)
        return watch.base.__call__(model, one)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        raise


def _settle() -> None:
    """Ends looking at all modules: from now on at the classes that were found."""
    watch.is_over = True
    if watch.base.__dict__.get("__call__") is not _first_calls:
        return  # somebody else has put another one there, which calls it
    watch.base.__call__ = watch.original
    # A class with a __call__ of its own, or of a parent of its, keeps it.
    plain = [kind for kind in watch.found if kind.__call__ is watch.original]
    watch.classes = tuple(plain[:_MOST_CLASSES])
    for kind in watch.classes:
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
    classes, watch.classes = watch.classes, ()
    for kind in classes:
        if kind.__dict__.get("__call__") is _call:
            del kind.__call__
    watch.is_over = True
    (this_thread() or enter_thread()).called = 0
    if watch.base is not None and watch.base.__dict__.get("__call__") is _first_calls:
        watch.base.__call__ = watch.original


def watch_backward(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`loss.backward()`, and gradients that are asked for by themselves."""
    backward, grad = module.backward, module.grad
    usual = _names_of(backward) == _NAMES
    module.backward = (_passing_as_usual if usual else _passing)(backward, channel)
    module.grad = _passing(grad, channel)


_NAMES = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


def _names_of(function: Any) -> tuple[str, ...]:  # noqa: ANN401
    code: CodeType | None = getattr(function, "__code__", None)
    return () if code is None else code.co_varnames[: code.co_argcount]


def _passing(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @replaces(original)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        now = this_thread() or enter_thread()
        # A pass within another one is part of it.
        if now.backward or not channel.on:
            return original(*args, **kwargs)
        called, now.backward, begin = now.called, True, time_ns()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        finally:
            end = time_ns()
            now.backward, now.called = False, 0
            of = args[0] if args else kwargs.get("tensors", kwargs.get("outputs", ()))
            _note_pass(channel, of, called, begin, end)

    return run


def _passing_as_usual(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    """The same for PyTorch's own arguments: to hand any others on takes 1 us more.

    What can be asked before a pass is: it leaves nothing in caches. See `Journal.add`.
    """
    journal, extend = channel.journal, channel.journal.rows.extend

    @replaces(original)
    def backward(
        tensors: Any,  # noqa: ANN401
        grad_tensors: Any = None,  # noqa: ANN401
        retain_graph: Any = None,  # noqa: ANN401
        create_graph: Any = False,  # noqa: ANN401
        grad_variables: Any = None,  # noqa: ANN401
        inputs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        now = this_thread() or enter_thread()
        try:
            is_timed = tensors.is_cpu and watch.settled_for is journal.session and channel.on
        except Exception:
            is_timed = False
        begins, called = not now.backward, now.called
        now.backward, begin = True, time_ns()
        try:
            return original(
                tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs
            )
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        finally:
            end = time_ns()
            # The outermost pass alone; where it only has to be timed, its rows are added in place.
            if begins:
                now.backward, now.called = False, 0
                if not is_timed or end >= journal.flush_ns:
                    _note_pass(channel, tensors, called, begin, end)
                elif called:
                    extend((FORWARD, 0, called, begin, now.ident,
                            BACKWARD, 0, begin, end, now.ident))  # fmt: skip
                else:
                    extend((BACKWARD, 0, begin, end, now.ident))

    return backward


def _note_pass(channel: Channel, of: Any, called: int, begin: int, end: int) -> None:  # noqa: ANN401
    """One of the first passes of this process, of a worker, on a device, or of several tensors."""
    if not channel.on:
        return
    try:
        is_cpu = getattr(of, "is_cpu", None)
        if is_cpu is None:  # several
            is_cpu = getattr(next(iter(of), None), "is_cpu", False)
        if _is_worker(channel):
            return
        if not is_cpu:  # that it was, and nothing of how long it took
            channel.add(BACKWARD, 0, end, end)
            return
        if called:
            channel.add(FORWARD, 0, called, begin)
        channel.add(BACKWARD, 0, begin, end)
        if not watch.is_over:
            _count_pass()
        if watch.is_over or watch.base is None:
            watch.settled_for = channel.journal.session
    except Exception as error:
        channel.fail(error)


def _count_pass() -> None:
    if watch.base is not None:
        watch.passes += 1
        if watch.passes >= _FIRST:
            _settle()


def watch_collectives(module: ModuleType, channel: Channel) -> None:
    """Calls that return once every rank has come: not those that give something to wait for."""
    for name in _COLLECTIVES:
        if hasattr(module, name):
            setattr(module, name, _meeting(getattr(module, name), channel))


def _meeting(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(original)
    def meet(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        now = this_thread() or enter_thread()
        # A collective within another one is part of it.
        if now.meeting or not channel.on:
            return original(*args, **kwargs)
        now.meeting = True
        begin = time_ns()
        try:
            result = original(*args, **kwargs)
        finally:
            now.meeting = False
        try:
            # What returns before it is done says nothing of how long it takes.
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
    if watch.session is not channel.journal.session:
        watch.session, watch.is_worker = channel.journal.session, in_worker()
    return watch.is_worker
