"""What reading one file costs: real memory, measured in a fork, and steps, counted."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError

_KIB = 1024
_SHARED = (type, ModuleType, FunctionType, MethodType, CodeType)


def memory(read: Callable[[Path], object], path: Path) -> tuple[int, int]:
    """(bytes at the most beside those before, bytes that the result holds) of a read, in a fork.

    Only where no other thread is at work. What was freed before is given back first, as it would
    be taken again unseen.
    """
    gc.collect()
    with suppress(AttributeError, OSError):  # the C library has no such call
        ctypes.CDLL(None).malloc_trim(0)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_end)
        _answer(read, path, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = json.loads(pipe.read() or b'"died"')
    os.waitpid(pid, 0)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer[0], answer[1]


def _answer(read: Callable[[Path], object], path: Path, pipe: int) -> None:
    """Writes what it cost, or what went wrong, and leaves the process."""
    before = _most()
    answer: Any
    try:
        result = outcome(read, path)
        answer = (_most() - before) * _KIB, held_bytes(result)
    except BaseException:  # whatever it is, it fails the test
        answer = traceback.format_exc()
    with os.fdopen(pipe, "wb") as file:
        file.write(json.dumps(answer).encode())
    os._exit(0)


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def outcome(read: Callable[[Path], object], path: Path) -> object:
    """The result, or the one short line of a refusal."""
    try:
        return read_one(read, path)
    except InputError as error:
        message = str(error)
        assert len(message) < 1000 + len(str(path))
        return message


def held_bytes(value: object) -> int:
    """Of everything that can be reached from a value, each object once."""
    seen: set[int] = set()
    left, total = [value], 0
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, _SHARED):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        left += [item.base] if isinstance(item, np.ndarray) else gc.get_referents(item)
    return total


def steps(read: Callable[[Path], object], path: Path) -> int:
    """Lines of Python and calls of C functions: the same number whenever it is read."""
    found = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal found
        found += 1
        return line

    def call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        outcome(read, path)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return found
