"""Containers read straight into a host buffer: the read itself writes the bytes, once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..data.pread import read_into
from ..errors import InputError
from .staging import HostBuffer

T = TypeVar("T")


def read_containers(
    paths: Sequence[Path], buffer: HostBuffer, opened: Callable[[memoryview], T]
) -> tuple[list[T], int]:
    """What `opened` makes of the bytes of each container, and how many bytes there are.

    Raises:
        InputError: A container is missing, cannot be read, or is damaged; it names the file.
    """
    buffer.make_room([_nbytes(path) for path in paths])
    places = [_read(path, buffer) for path in paths]
    held = buffer.bytes.data  # behind the last read: the buffer grows no more
    found = [
        _named(path, held[begin : begin + nbytes], opened)
        for path, (begin, nbytes) in zip(paths, places, strict=True)
    ]
    return found, sum(nbytes for _, nbytes in places)


def _named(path: Path, content: memoryview, opened: Callable[[memoryview], T]) -> T:
    try:
        return opened(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _nbytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(
            f"expected a container {path}, found: {error.strerror}; go on with "
            "python -m vanidl_loaders encode"
        ) from error


def _read(path: Path, buffer: HostBuffer) -> tuple[int, int]:
    """Reads a container into the buffer: where it begins, and its bytes."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            nbytes = os.fstat(file).st_size  # again: it may have been replaced since
            begin = buffer.reserve(nbytes)
            read_into(file, buffer.bytes.data[begin : begin + nbytes], 0)
        finally:
            os.close(file)
    except OSError as error:
        raise InputError(f"expected to read {path}, found: {error.strerror}") from error
    return begin, nbytes
