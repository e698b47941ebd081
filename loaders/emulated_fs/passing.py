"""A folder passed through FUSE unchanged: what a training run needs of a file system."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import mfusepy

_ATTRIBUTES = {  # libfuse's name -> os.stat_result's
    "st_atime": "st_atime_ns",
    "st_ctime": "st_ctime_ns",
    "st_mtime": "st_mtime_ns",
} | {
    name: name
    for name in ("st_gid", "st_ino", "st_mode", "st_nlink", "st_size", "st_uid", "st_blocks")
}
_SPACE = (
    "f_bavail",
    "f_bfree",
    "f_blocks",
    "f_bsize",
    "f_favail",
    "f_ffree",
    "f_files",
    "f_frsize",
)


class PassThrough(mfusepy.Operations):
    """Operations on `source`. The names of the methods are libfuse's."""

    use_ns = True

    def __init__(self, source: Path) -> None:
        self._source = source.resolve()

    def _at(self, path: str) -> Path:
        return self._source / path.lstrip("/")

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, int]:
        """Attributes of a file."""
        found = self._at(path).lstat()
        return {name: getattr(found, source) for name, source in _ATTRIBUTES.items()}

    def readdir(self, path: str, _fh: int) -> Iterable[str]:
        """Names in a folder."""
        return [".", "..", *(entry.name for entry in self._at(path).iterdir())]

    def readlink(self, path: str) -> str:
        """Where a link points."""
        return os.fspath(self._at(path).readlink())

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file below, whose reads need no aligned buffer."""
        return os.open(self._at(path), flags & ~os.O_DIRECT)

    def create(self, path: str, mode: int, _fi: object = None) -> int:
        """A descriptor of a new file."""
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        """Bytes written."""
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, _fh: int | None = None) -> int:
        """Cuts or extends a file."""
        os.truncate(self._at(path), length)
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        """Nothing is held back."""
        return 0

    def fsync(self, _path: str, _datasync: int, fh: int) -> int:
        """Brings a file to the disk below."""
        os.fsync(fh)
        return 0

    def release(self, _path: str, fh: int) -> int:
        """Closes the descriptor."""
        os.close(fh)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Makes a folder."""
        self._at(path).mkdir(mode)
        return 0

    def rmdir(self, path: str) -> int:
        """Removes a folder."""
        self._at(path).rmdir()
        return 0

    def unlink(self, path: str) -> int:
        """Removes a file."""
        self._at(path).unlink()
        return 0

    def rename(self, old: str, new: str) -> int:
        """Moves a file, over another if there is one."""
        self._at(old).replace(self._at(new))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Sets the permissions of a file."""
        self._at(path).chmod(mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        """Sets the times of a file, nanoseconds."""
        os.utime(self._at(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Space on the file system below."""
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in _SPACE}
