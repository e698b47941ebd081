"""The registry of hooks: which function is told of which module that the program imports.

What is recorded of one more framework is one more module here, and its lines in `HOOKS`. Such a
module is imported only once the program has imported what it is for. Its functions take the
program's module and a `Channel` to write events to. They and all that they leave behind in the
program catch their own errors: `Channel.fail` ends the recording of that module, and of no other.
`wraps` puts functions in the place of the program's, so that nobody sees them who does not look.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

    from .journal import Journal

    Calls = Sequence[Callable[[ModuleType], None]]

HOOKS = (
    ("torch.utils.data.dataloader", "pytorch.watch_loaders"),
    ("torch.utils.data.dataloader", "pytorch.watch_stops"),
    ("torch.optim.optimizer", "pytorch.watch_optimizers"),
    ("torch.utils.data._utils.fetch", "fetches.watch_fetchers"),
    ("torch.utils.data._utils.fetch", "lines.watch_fetchers"),
    ("torch.utils.data._utils.worker", "lines.watch_workers"),
    ("torch.utils.data._utils.worker", "fetches.watch_workers"),
    ("torch.utils.data.dataloader", "fetches.watch_iterators"),
    ("torchdata.stateful_dataloader.worker", "fetches.watch_workers"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "fetches.watch_iterators"),
    ("torch.utils.data.dataloader", "device.watch_loaders"),
    ("torch.optim.optimizer", "device.watch_optimizers"),
    ("torch.amp.grad_scaler", "pytorch.watch_scalers"),
    ("torch._dynamo.callback", "phases.watch_dynamo"),
    ("fastai.optimizer", "pytorch.watch_fastai"),
    ("torch.serialization", "saves.watch_torch"),
    ("torch.distributed.checkpoint.state_dict_saver", "saves.watch_distributed"),
    ("torch.distributed.checkpoint.state_dict_loader", "saves.watch_distributed_loads"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "pytorch.watch_stateful"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "pytorch.watch_stops"),
    ("accelerate.data_loader", "pytorch.watch_accelerate"),
    ("torchdata.nodes.loader", "named.watch"),
    ("grain._src.python.dataset.dataset", "grain.watch_datasets"),
    ("keras.src.backend.jax.trainer", "keras.watch_jax"),
    ("keras.src.backend.tensorflow.trainer", "keras.watch_tensorflow"),
    ("keras.src.backend.torch.trainer", "keras.watch_torch"),
    ("keras.src.optimizers.base_optimizer", "keras.watch_optimizers"),
    ("tensorflow.python.data.ops.dataset_ops", "tensorflow.watch_datasets"),
    ("tensorflow.python.data.ops.iterator_ops", "tensorflow.watch_iterators"),
    ("tensorflow.python.eager.backprop", "tensorflow.watch_tapes"),
    (
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        "phases.watch_tensorflow",
    ),
    ("jax._src.api", "jax.watch_gradients"),
    ("jax._src.pjit", "jax.watch_functions"),
    ("jax._src.monitoring", "phases.watch_jax"),
    ("vanidl.marks", "marks.watch"),
    ("mmap", "files.watch_mmap"),
    ("numpy.lib.format", "files.watch_numpy"),
    ("pyarrow", "files.watch_arrow"),
    ("safetensors", "files.watch_safetensors"),
    ("safetensors.torch", "saves.watch_safetensors"),
    ("keras.src.saving.saving_api", "saves.watch_keras"),
    ("tensorflow.python.checkpoint.checkpoint", "saves.watch_tensorflow"),
    ("lightning.pytorch.trainer.trainer", "saves.watch_lightning"),
    ("pytorch_lightning.trainer.trainer", "saves.watch_lightning"),
    ("transformers.trainer", "saves.watch_transformers"),
    ("accelerate.accelerator", "saves.watch_accelerate"),
    ("orbax.checkpoint._src.checkpointers.checkpointer", "saves.watch_orbax"),
    ("orbax.checkpoint._src.checkpointers.async_checkpointer", "saves.watch_orbax_async"),
    ("torch.nn.modules.module", "phases.watch_modules"),
    ("torch.nn.modules.module", "parts.watch_modules"),
    ("torch.autograd", "parts.watch_backward"),
    ("torch._dynamo.eval_frame", "parts.watch_compilers"),
    ("torch.distributed.distributed_c10d", "parts.watch_collectives"),
    ("lightning.pytorch.loops.evaluation_loop", "phases.watch_lightning"),
    ("pytorch_lightning.loops.evaluation_loop", "phases.watch_lightning"),
    ("transformers.trainer", "phases.watch_transformers"),
    ("keras.src.backend.jax.trainer", "phases.watch_keras"),
    ("keras.src.backend.tensorflow.trainer", "phases.watch_keras"),
    ("keras.src.backend.torch.trainer", "phases.watch_keras"),
    ("fastai.learner", "phases.watch_fastai"),
    ("ignite.engine.engine", "phases.watch_ignite"),
    ("botocore.endpoint", "object_clients.watch_botocore"),
    ("aiobotocore.endpoint", "object_clients.watch_aiobotocore"),
    ("urllib3.connectionpool", "object_clients.watch_urllib3"),
    ("aiohttp.client", "object_clients.watch_aiohttp"),
    ("s3torchconnector._s3client._s3client", "object_clients.watch_s3torchconnector"),
    ("fsspec.implementations.http", "object_clients.watch_fsspec"),
    ("dftracer.dftracer", "registry.keep_preloaded"),
    ("dftracer.dftracer_dbg", "registry.keep_preloaded"),
)
"""(module of the program, module here and its function); several may be for one module."""

_EACH_BY_ITSELF = ("object_clients",)
"""Modules whose hooks have nothing in common: an error ends the recording of one of them alone."""

PROFILE_HOOKS = (
    ("torch.utils.data.dataloader", "window.watch_loaders"),
    ("torch.optim.optimizer", "window.watch_optimizers"),
    ("torch.autograd.profiler", "window.watch_profilers"),
    ("torch.profiler.profiler", "window.watch_profilers"),
)
"""The same for `--profile`; those of one module come after the above, around them."""

REPLAY_HOOKS = (
    ("torch.utils.data.dataloader", "replay_frameworks.watch_loaders"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "replay_frameworks.watch_stateful"),
)
"""The same for `vanidl ceiling`; they come before the above, inside of them."""


def replaying() -> Iterator[tuple[str, str]]:
    """The hooks of a run whose batches come from memory: what fetches do is of no interest then."""
    yield from REPLAY_HOOKS
    yield from (hook for hook in HOOKS if not hook[1].startswith(("fetches.", "lines.")))


class Channel:
    """The journal as the hooks of one module use it.

    Attributes:
        on: whether to record; False after an error.
        add: `Journal.add`.
        describe: `Journal.describe`.
        journal: the journal; its `session` is another object in a forked child.
        shared: what the hooks of the module leave for each other.
    """

    __slots__ = ("_name", "add", "describe", "journal", "on", "shared")

    def __init__(self, name: str, journal: Journal) -> None:
        self.on = True
        self.journal = journal
        self.add = journal.add
        self.describe = journal.describe
        self.shared: dict[str, Any] = {}
        self._name = name

    def fail(self, error: Exception) -> None:
        """Ends this channel, and says so once, in the folder."""
        if self.on:
            self.on = False
            self.journal.note_failure(self._name, error)


def install(journal: Journal, hooks: Iterable[tuple[str, str]] = HOOKS) -> None:
    """Waits for the program to import each of the modules; imports none itself."""
    channels: dict[str, Channel] = {}
    waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
    for theirs, ours in hooks:
        name, _, function = ours.partition(".")
        of = ours if name in _EACH_BY_ITSELF else name
        channel = channels.setdefault(of, Channel(of, journal))
        waiting.setdefault(theirs, []).append(_hook(name, function, channel))
    passed_by = after(waiting)

    def say() -> None:
        if names := passed_by():
            why = "imported past the recorder, which is not first in sys.meta_path: "
            journal.note_failure("imports", ImportError(why + ", ".join(names)))

    atexit.register(say)


def _hook(name: str, function: str, channel: Channel) -> Callable[[ModuleType], None]:
    """Calls a function of a module of this package; its errors end its channel."""

    def call(module: ModuleType) -> None:
        try:
            from importlib import import_module

            getattr(import_module(f"{__package__}.{name}"), function)(module, channel)
        except Exception as error:
            channel.fail(error)

    return call


_COROUTINE = 0x80  # of the flags of a function's code


def replaces(original: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """As `wraps`, of a function that is called in each step and does the same for errors itself."""
    decorate: Callable[[Any], Any] = functools.wraps(original)
    return decorate


def wraps(original: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """As `functools.wraps`; errors that pass through are left without the recorder's frames."""

    def decorate(function: Any) -> Any:  # noqa: ANN401
        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise

        # Errors of a coroutine are raised while it is awaited, not as it is called.
        @functools.wraps(original)
        async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise

        return awaited if function.__code__.co_flags & _COROUTINE else run

    return decorate


def without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """What is behind the recorder's frames at the head of a traceback."""
    while traceback is not None and _is_own(traceback):
        traceback = traceback.tb_next
    return traceback


def _is_own(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_globals.get("__package__") == __package__


def after(hooks: Mapping[str, Calls]) -> Callable[[], list[str]]:
    """Calls each hook with its module, right after that has run; the hooks raise nothing.

    A module that is there already, as a `.pth` file of the site may import it, has run.

    Returns:
        Which modules are there and were not seen: the program has replaced `sys.meta_path`, or
        finds them by itself.
    """
    here = {name: sys.modules[name] for name in hooks if name in sys.modules}
    finder = _Finder({name: hooks[name] for name in hooks if name not in here})
    sys.meta_path.insert(0, finder)
    for name, module in here.items():
        for hook in hooks[name]:
            hook(module)
    return finder.passed_by


class _Finder:
    """Finds nothing itself: it has the others find a module, and is called when that has run."""

    def __init__(self, hooks: Mapping[str, Calls]) -> None:
        self._hooks = dict(hooks)

    def passed_by(self) -> list[str]:
        """The modules that were imported and whose hooks were not called."""
        return [name for name in self._hooks if sys.modules.get(name) is not None]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec that the other finders have for a module that a hook is for."""
        if name not in self._hooks:
            return None
        others = [other for other in sys.meta_path if other is not self]
        found = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name: str, loader: Loader) -> None:
        """Has a loader call the hooks when it has run its module, once.

        Who only asks whether there is such a module gets a loader as well, and never runs it. The
        loader stays what it is, so that nobody who looks at the module sees another.
        """
        try:
            kept = vars(loader)
        except TypeError:  # nothing can be kept in it
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            kept.pop("exec_module", None)
            run(module)
            for hook in self._hooks.pop(name, ()):
                hook(module)

        kept["exec_module"] = exec_module


_PRELOADED = "libdftracer_preload"


def keep_preloaded(module: ModuleType, _channel: Channel) -> None:
    """Takes starting and ending the tracer from the program."""
    if _PRELOADED in os.environ.get("LD_PRELOAD", ""):
        for name in ("initialize", "finalize"):
            setattr(module, name, _nothing)


def _nothing(*_: object, **__: object) -> None:
    """In place of both."""
