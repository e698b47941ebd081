"""Saves and loads of checkpoints: when each was, of which file, how many bytes.

The outermost call counts: what a framework's own method saves lies in one, whatever libraries it
calls. A save takes the name that the program gives it, and the one that it renames it to later.
"""

from __future__ import annotations

import os
import sys
from io import BytesIO
from threading import local
from time import time_ns

from .journal import CHECKPOINT, LOAD, LOADER_SHIFT, SAVE
from .registry import wraps
from .waits import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_MOST_NAMES = 10_000  # of one process; a bound on memory, later ones have none
_SMALL = 1 << 20
_MOST_RENAMED = 100  # the latest, which may be renamed yet


def watch_torch(module: ModuleType, channel: Channel) -> None:
    """`torch.save` and `torch.load`."""
    _watch(module, "torch", channel, save=("f", 1), load=("f", 0))


def watch_distributed(module: ModuleType, channel: Channel) -> None:
    """Checkpoints of sharded models; of `async_save` the part that training waits for."""
    name = "torch.distributed.checkpoint"
    _watch(module, name, channel, save=("checkpoint_id", -1), async_save=("checkpoint_id", -1))


def watch_distributed_loads(module: ModuleType, channel: Channel) -> None:
    """The same the other way round."""
    _watch(module, "torch.distributed.checkpoint", channel, load=("checkpoint_id", -1))


def watch_safetensors(module: ModuleType, channel: Channel) -> None:
    """Weights as Hugging Face's libraries save them."""
    _watch(module, "safetensors", channel, save_file=("filename", 1), save_model=("filename", 1),
           load_file=("filename", 0), load_model=("filename", 1))  # fmt: skip


def watch_lightning(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """All that Lightning does for a checkpoint, hooks of the program included."""
    _watch(module.Trainer, "Trainer", channel, save_checkpoint=("filepath", 1))


def watch_transformers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The checkpoint of `Trainer`: model, optimizer, states."""
    _watch(module.Trainer, "Trainer", channel, _save_checkpoint=("", -1),
           save_model=("output_dir", 1), _load_from_checkpoint=("resume_from_checkpoint", 1),
           _load_optimizer_and_scheduler=("checkpoint", 1))  # fmt: skip


def watch_accelerate(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """States of all that was prepared."""
    _watch(module.Accelerator, "Accelerator", channel, save_state=("output_dir", 1),
           save_model=("save_directory", 2), load_state=("input_dir", 1))  # fmt: skip


def watch_keras(module: ModuleType, channel: Channel) -> None:
    """`Model.save`, `save_weights` and their loads, with every backend."""
    _watch(module, "keras", channel, save_model=("filepath", 1), save_weights=("filepath", 1),
           load_model=("filepath", 0), load_weights=("filepath", 1))  # fmt: skip


def watch_tensorflow(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`tf.train.Checkpoint`, and the manager of these."""
    _watch(module.TrackableSaver, "tf.train.Checkpoint", channel,
           save=("file_prefix", 1), restore=("save_path", 1))  # fmt: skip


def watch_orbax(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Checkpoints of JAX; of one that is written in the background what training waits for."""
    _watch(module.Checkpointer, "orbax", channel, save=("directory", 1), restore=("directory", 1))


def watch_orbax_async(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The class that writes in the background."""
    _watch(module.AsyncCheckpointer, "orbax", channel, save=("directory", 1))


def _watch(owner: Any, library: str, channel: Channel, **functions: tuple[str, int]) -> None:  # noqa: ANN401
    """Has functions of a module or class noted: name -> where its target is among its arguments."""
    for name, (keyword, place) in functions.items():
        if hasattr(owner, name):
            call = f"{library}.{name.lstrip('_')}"
            kind = LOAD if "load" in name or name == "restore" else CHECKPOINT
            original = getattr(owner, name)
            noted = _noted(original, kind, call, keyword, place, channel)
            for holder in (owner, *_packages_of(owner)):
                if getattr(holder, name, None) is original:
                    setattr(holder, name, noted)


def _packages_of(owner: Any) -> Iterator[ModuleType]:  # noqa: ANN401
    """The packages that a module lies in: `torch.save` is that of `torch.serialization`.

    Where recording begins late they have taken its functions already.
    """
    name = getattr(owner, "__name__", "") if type(owner) is type(sys) else ""
    while name := name.rpartition(".")[0]:
        if name in sys.modules:
            yield sys.modules[name]


class _Call:
    """One that is under way in a thread, and what those within it saved."""

    __slots__ = ("is_small", "nbytes", "path")

    def __init__(self) -> None:
        self.path, self.nbytes = "", 0
        self.is_small = False  # in memory: a tensor is pickled so


_now = local()


def _noted(
    original: Any,  # noqa: ANN401
    kind: int,
    name: str,
    keyword: str,
    place: int,
    channel: Channel,
) -> Any:  # noqa: ANN401
    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if not channel.on or in_worker():
            return original(*args, **kwargs)
        outer: _Call | None = getattr(_now, "call", None)
        mine = _now.call = _Call()
        present = channel.journal.present
        before = present.begin(SAVE) if kind == CHECKPOINT else None
        begin = time_ns()
        try:
            return original(*args, **kwargs)
        finally:
            end = time_ns()
            if before is not None:
                present.end(before)
            _now.call = outer
            try:
                target = kwargs.get(keyword, args[place] if 0 <= place < len(args) else None)
                _look_at(target, mine)
                # What is saved within another save is part of that one.
                if outer is not None:
                    outer.path = outer.path or mine.path
                    outer.nbytes += mine.nbytes
                elif not mine.is_small:
                    # A tensor is pickled by a save into memory, which is none of a checkpoint.
                    _names(channel).add(kind, name, mine, begin, end)
            except Exception as error:
                channel.fail(error)

    return run


def _look_at(target: Any, call: _Call) -> None:  # noqa: ANN401
    """Takes the name of what was saved or loaded, and the size of a file."""
    stream = None if isinstance(target, (str, bytes, os.PathLike)) else target
    if isinstance(stream, BytesIO):
        call.nbytes = stream.tell()
        call.is_small = call.nbytes < _SMALL
    name = getattr(stream, "name", None) if stream is not None else target
    if not isinstance(name, (str, bytes, os.PathLike)):
        return
    path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100 - pathlib loads too much
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:  # of an object store, or a prefix of several files
        found = None
    if found is not None and found.st_mode & 0o170000 == 0o100000:
        size = found.st_size
        if stream is not None and stream.writable() and not stream.closed:
            size = max(size, stream.tell())  # what it has not handed to the system yet
        call.nbytes = size
    call.path = path if found is not None else os.fsdecode(name)


class _Names:
    """What each save of this process is called: renames change that."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.session = channel.journal.session
        self._count = 0
        self._latest: dict[int, tuple[str, str]] = {}

    def add(self, kind: int, name: str, call: _Call, begin: int, end: int) -> None:
        """A call that has ended."""
        number = 0
        if self._count < _MOST_NAMES:
            self._count = number = self._count + 1
            self._describe(number, call.path, name)
            if kind == CHECKPOINT and call.path:
                self._latest[number] = call.path, name
                if len(self._latest) > _MOST_RENAMED:
                    del self._latest[next(iter(self._latest))]
                _follow_renames()
        self.channel.add(kind | number << LOADER_SHIFT, call.nbytes, begin, end)

    def rename(self, old: str, new: str, begin: int, end: int) -> None:
        """A file or folder has another name now: that is a part of its save."""
        mine = [n for n, (p, _) in self._latest.items() if p == old or p.startswith(old + "/")]
        for number in mine:
            path, name = self._latest[number]
            self._latest[number] = path, _ = new + path[len(old) :], name
            self._describe(number, path, name)
        if mine:
            self.channel.add(CHECKPOINT | mine[-1] << LOADER_SHIFT, 0, begin, end)

    def _describe(self, number: int, path: str, name: str) -> None:
        self.channel.describe({"checkpoint": number, "path": path, "call": name})


def _names(channel: Channel) -> _Names:
    found: _Names | None = channel.shared.get("names")
    if found is None or found.session is not channel.journal.session:  # a forked child
        found = channel.shared["names"] = _Names(channel)
        _followed[:] = [found]
    return found


_followed: list[_Names] = []
_is_following = False


def _follow_renames() -> None:
    """From the first save on: programs write to a temporary name and rename that."""
    global _is_following
    if _is_following:
        return
    _is_following = True
    for name in ("rename", "replace"):
        setattr(os, name, _renaming(getattr(os, name)))


def _renaming(original: Any) -> Any:  # noqa: ANN401
    @wraps(original)
    def rename(src: Any, dst: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        result = original(src, dst, **kwargs)
        end = time_ns()
        names = _followed[-1]
        try:
            old, new = (os.path.abspath(os.fsdecode(path)) for path in (src, dst))  # noqa: PTH100
            if names.session is names.channel.journal.session:
                names.rename(old, new, begin, end)
        except Exception as error:
            names.channel.fail(error)
        return result

    return rename
