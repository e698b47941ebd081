"""Reads at an offset of a file, straight into memory, by the C library's `pread`.

`os.preadv` would do the same, but DFTracer does not wrap it: a loader whose reads a tracer misses
would seem to read nothing. Both Darshan and DFTracer see `pread`. Threads may read side by side.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import InputError

Writable = memoryview | NDArray[Any]

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_PREAD = _LIBRARY.pread64 if hasattr(_LIBRARY, "pread64") else _LIBRARY.pread
_PREAD.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
_PREAD.restype = ctypes.c_ssize_t


@dataclass(frozen=True)
class ReadTotals:
    """What reads took: bytes that they returned, and read calls, one per contiguous run."""

    nbytes: int = 0
    requests: int = 0

    def __add__(self, other: ReadTotals) -> ReadTotals:
        return ReadTotals(self.nbytes + other.nbytes, self.requests + other.requests)

    def __sub__(self, other: ReadTotals) -> ReadTotals:
        return ReadTotals(self.nbytes - other.nbytes, self.requests - other.requests)


@dataclass(frozen=True)
class NamedFile:
    """An open file, and what it is called where it cannot be read."""

    number: int
    path: Path

    def read_into(self, target: Writable, offset: int) -> int:
        """As the function of that name.

        Raises:
            InputError: The file ends before, or cannot be read; it is named.
        """
        with self._named(offset, target.nbytes):
            return read_into(self.number, target, offset)

    def read_pieces(self, pieces: Iterable[tuple[int, int, int]]) -> ReadTotals:
        """Reads pieces of (offset in the file, address in memory, bytes), each by itself.

        The memory is the caller's to hold. A call takes half the time of `read_into`.

        Raises:
            InputError: The file ends before, or cannot be read; it is named.
        """
        file, read, done, calls = self.number, _PREAD, 0, 0
        for offset, address, nbytes in pieces:
            if read(file, address, nbytes, offset) == nbytes:
                calls += 1
            else:  # an error, or a part of it: once more, with care
                with self._named(offset, nbytes):
                    calls += _read_at(file, address, nbytes, offset)
            done += nbytes
        return ReadTotals(done, calls)

    @contextmanager
    def _named(self, offset: int, nbytes: int) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error
        except OSError as error:
            raise InputError(
                f"expected to read bytes {offset} to {offset + nbytes} of {self.path}, found: "
                f"{error.strerror}; see to the storage and start again"
            ) from error


def read_into(file: int, target: Writable, offset: int) -> int:
    """Fills `target` (contiguous, writable) from an open file; the calls that it took.

    One call, as far as the operating system allows: it brings at most 2 GiB.

    Raises:
        InputError: The file ends before.
        OSError: It cannot be read.
    """
    return _read_at(file, _find_address(target), target.nbytes, offset) if target.nbytes else 0


def _read_at(file: int, address: int, left: int, offset: int) -> int:
    calls = 0
    while left:
        got = _pread(file, address, left, offset)
        if got == 0:
            raise InputError(f"expected data at byte {offset}, found the file's end: make it again")
        address, left, offset, calls = address + got, left - got, offset + got, calls + 1
    return calls


def _find_address(target: Writable) -> int:
    memory = target if isinstance(target, memoryview) else target.data
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _pread(file: int, address: int, nbytes: int, offset: int) -> int:
    while (got := int(_PREAD(file, address, nbytes, offset))) < 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return got


# Files that are there whole or not at all, however the command that writes them ends.


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write a file or folder instead; it takes its place when the block ends well.

    Left by an exception, also by that of a signal, nothing of it stays.
    """
    # Beside the target, on the same file system: to rename it is one step.
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        yield part
        part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
