"""A folder passed through FUSE unchanged: what a training run needs of a file system."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mfusepy

_STAT = ("st_atime_ns", "st_ctime_ns", "st_gid", "st_ino", "st_mode", "st_mtime_ns", "st_nlink")
_STAT += ("st_size", "st_uid", "st_blocks")


class PassThrough(mfusepy.Operations):
    """Operations on `source`. The names of the methods are libfuse's."""

    use_ns = True

    def __init__(self, source: Path) -> None:
        self._source = os.fspath(source.resolve())

    def _at(self, path: str) -> str:
        return self._source + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Attributes of a file."""
        found = os.lstat(self._at(path))
        return {name.removesuffix("_ns"): getattr(found, name) for name in _STAT}

    def readdir(self, path: str, fh: int) -> Iterable[str]:
        """Names in a folder."""
        return [".", "..", *os.listdir(self._at(path))]

    def access(self, path: str, amode: int) -> int:
        """0 where the access is allowed."""
        if not os.access(self._at(path), amode):
            raise mfusepy.FuseOSError(13)
        return 0

    def readlink(self, path: str) -> str:
        """Where a link points."""
        return os.readlink(self._at(path))

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file below."""
        return os.open(self._at(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """A descriptor of a new file."""
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """Bytes written, at full speed."""
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Cuts or extends a file."""
        os.truncate(self._at(path), length)
        return 0

    def flush(self, path: str, fh: int) -> int:
        """Nothing is held back."""
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Brings a file to the disk below."""
        os.fsync(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        """Closes the descriptor."""
        os.close(fh)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Makes a folder."""
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        """Removes a folder."""
        os.rmdir(self._at(path))
        return 0

    def unlink(self, path: str) -> int:
        """Removes a file."""
        os.unlink(self._at(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        """Moves a file, over another if there is one."""
        os.replace(self._at(old), self._at(new))
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        """Sets the times of a file."""
        os.utime(self._at(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Space on the file system below."""
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}
