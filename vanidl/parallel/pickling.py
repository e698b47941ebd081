"""Objects with thousands of small arrays on their way from one process to another.

Pickle writes every array on its own, which takes longer than reading the log that it comes
from. Here all arrays of a type are laid into one, and the objects refer to their places.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from operator import attrgetter
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_Kind = tuple[str, int]  # the type of arrays that are laid together, or of one alone and its number

_LARGE_NBYTES = 1 << 16  # arrays of that size are sent as they are, and freed one by one


class _Packer(pickle.Pickler):
    """Writes places instead of arrays; `taken` holds the arrays by type."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.taken: dict[_Kind, list[Array]] = {}
        self._next: dict[_Kind, int] = {}

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's protocol
        """The place of an array, the fields of a record; what else there is goes its usual way."""
        dtype = _type_of(obj.dtype) if type(obj) is np.ndarray else ""
        if not dtype:
            taken = _fields_of(obj.__class__)
            return (obj.__class__, taken(obj)) if taken else NotImplemented
        kind = dtype, 0 if obj.nbytes < _LARGE_NBYTES else 1 + len(self.taken)
        if kind not in self.taken:
            self.taken[kind], self._next[kind] = [], 0
        first = self._next[kind]
        self.taken[kind].append(obj.ravel())
        self._next[kind] = first + obj.size
        return _placed, (kind, first, obj.shape)


@cache
def _type_of(dtype: np.dtype[Any]) -> str:
    """What the arrays of a type are laid together under, "" where they are not."""
    return "" if dtype.hasobject or dtype.names else dtype.str


@cache
def _fields_of(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What takes all fields from a dataclass whose constructor takes them in turn, else None.

    Its own way through pickle takes five times as long, but where it has one that it states.
    """
    if not is_dataclass(kind) or "__reduce__" in kind.__dict__:
        return None
    known = fields(kind)
    if len(known) < 2 or not all(f.init and not f.kw_only for f in known):
        return None
    return attrgetter(*(f.name for f in known))


def _placed(kind: _Kind, first: int, shape: tuple[int, ...]) -> Array:
    """Stands for `_Joined.placed` in what is written."""
    raise AssertionError((kind, first, shape))


class _Joined:
    """All arrays of a value, by type."""

    def __init__(self, arrays: dict[_Kind, Array]) -> None:
        self._arrays = arrays

    def placed(self, kind: _Kind, first: int, shape: tuple[int, ...]) -> Array:
        """The array of a place."""
        if len(shape) == 1:
            return self._arrays[kind][first : first + shape[0]]
        return self._arrays[kind][first : first + prod(shape)].reshape(shape)


class _Unpacker(pickle.Unpickler):
    """Puts read-only views of the arrays back into their places."""

    def __init__(self, file: io.BytesIO, arrays: dict[_Kind, Array]) -> None:
        super().__init__(file)
        # Not a method of this object: it would hold itself, and with it all arrays, until the
        # collector looks.
        self._placed = _Joined(arrays).placed

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's protocol
        """A class or function by its name."""
        if (module, name) == (__name__, _placed.__name__):
            return self._placed
        return super().find_class(module, name)


def dump(value: object, file: IO[bytes]) -> None:
    """Writes one value. Its arrays come back read-only."""
    written = io.BytesIO()
    packer = _Packer(written)
    packer.dump(value)
    joined = {kind: _joined(kind[0], arrays) for kind, arrays in packer.taken.items()}
    pickle.dump((written.getvalue(), joined), file, protocol=5)


def _joined(dtype: str, arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, dtype=dtype)


def load(file: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was written
    """The next value that `dump` wrote.

    Raises:
        EOFError, pickle.UnpicklingError: there is no whole one.
    """
    written, joined = pickle.load(file)
    for array in joined.values():
        array.setflags(write=False)
    return _Unpacker(io.BytesIO(written), joined).load()
