"""Files that are read past every tracer: mapped into memory, or loaded by NumPy.

Which files, and how large they are; not what was read of them: a page of a mapping is read when it
is first touched, and nothing in the process is called then.
"""

from __future__ import annotations

import os

from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_MOST_FILES = 1000  # of one process; a bound on memory
_IN_MEMORY = ("/dev/", "/memfd:", "/proc/", "/SYSV")


class _Files:
    """The files of this process, each told once for each way to read it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._begin()

    def _begin(self) -> None:
        self._session = self.channel.journal.session
        self._told: set[tuple[str, object]] = set()

    def note(self, way: str, file: object) -> None:
        """A file, by its path or its descriptor."""
        if not self.channel.on:
            return
        try:
            if self._session is not self.channel.journal.session:
                self._begin()
            self._note(way, file)
        except OSError:  # closed or removed meanwhile
            return
        except Exception as error:
            self.channel.fail(error)

    def _note(self, way: str, file: object) -> None:
        if isinstance(file, int):
            path = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
        elif isinstance(file, (str, os.PathLike)):
            path = os.path.abspath(file)  # noqa: PTH100 - pathlib loads too much
        else:
            return
        if (way, path) in self._told or len(self._told) >= _MOST_FILES:
            return
        if path.startswith(_IN_MEMORY) or not path.startswith("/"):
            return
        size = os.stat(file if isinstance(file, int) else path).st_size  # noqa: PTH116
        self._told.add((way, path))
        self.channel.describe({"unseen": way, "path": path, "size": size})


def _files(channel: Channel) -> _Files:
    if "files" not in channel.shared:
        channel.shared["files"] = _Files(channel)
    found: _Files = channel.shared["files"]
    return found


def watch_mmap(module: ModuleType, channel: Channel) -> None:
    """Puts a class in the place of `mmap.mmap` that notes its file; np.memmap uses it as well."""
    original, files = module.mmap, _files(channel)

    class Mapping(original):  # type: ignore[misc,valid-type]
        __slots__ = ()

        def __new__(cls, fileno: int, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            made = original.__new__(cls, fileno, *args, **options)
            if isinstance(fileno, int) and fileno >= 0:
                files.note("mapped", fileno)
            return made

    Mapping.__name__, Mapping.__qualname__, Mapping.__module__ = "mmap", "mmap", "mmap"
    Mapping.__doc__ = original.__doc__
    module.mmap = Mapping  # type: ignore[attr-defined]


def watch_numpy(module: ModuleType, channel: Channel) -> None:
    """NumPy reads the data of a file with calls inside the C library."""
    original, files = module.read_array, _files(channel)

    @wraps(original)
    def read_array(fp: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        array = original(fp, *args, **options)
        name = getattr(fp, "name", None)
        if isinstance(name, str) and hasattr(fp, "fileno"):
            files.note("loaded", name)
        return array

    module.read_array = read_array  # type: ignore[attr-defined]


def watch_arrow(module: ModuleType, channel: Channel) -> None:
    """Arrow tables that lie in a file, as Hugging Face's datasets do."""
    _watch_function(module, "memory_map", channel)


def watch_safetensors(module: ModuleType, channel: Channel) -> None:
    """Weights are mapped, then copied."""
    _watch_function(module, "safe_open", channel)


def _watch_function(module: ModuleType, name: str, channel: Channel) -> None:
    original, files = getattr(module, name), _files(channel)

    @wraps(original)
    def call(path: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        made = original(path, *args, **options)
        files.note("mapped", path)
        return made

    setattr(module, name, call)
