"""What this process is doing at this moment, for others on this host to read while it runs.

Events are written once they are over, and only with a later one: a call that does not return would
leave no word of itself. So a page of memory says which call goes on, and what the last event was.
Others read it through `/proc/PID/fd`. A store into it costs 0.15 us, is no call of the system,
which tracers would record and a thread would lose the interpreter by, and fails on no full disk.
"""

from __future__ import annotations

import os
from struct import Struct
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "vanidl-present"
SAVE = 0xFE
"""A checkpoint is being written. Besides, codes are those of rows of the journal."""

_store = Struct("<2q").pack_into  # a code (0 is nothing) and the monotonic clock in nanoseconds
_store_both = Struct("<4q").pack_into
_DOING, _LAST = 0, 16
SIZE = 32

Doing = tuple[int, int]


class Present:
    """The page; memory of this process alone until `publish`."""

    __slots__ = ("_doing", "_page")

    def __init__(self) -> None:
        self._page: Any = bytearray(SIZE)
        self._doing: Doing = (0, 0)

    def publish(self) -> int:
        """The descriptor by which others find the page, -1 where there can be none."""
        try:
            from mmap import mmap

            descriptor = os.memfd_create(NAME)
            os.ftruncate(descriptor, SIZE)
            page = mmap(descriptor, SIZE)
        except (AttributeError, ImportError, OSError):  # no Linux, or no descriptor left
            return -1
        page[:] = bytes(self._page)
        self._page = page
        return descriptor

    def begin(self, code: int) -> Doing:
        """Such a call begins; what went on until now, which `end` takes."""
        before = self._doing
        self._doing = doing = (code, monotonic_ns())
        _store(self._page, _DOING, *doing)
        return before

    def end(self, before: Doing) -> None:
        """The call has ended: what went on before it goes on again."""
        code, self._doing = self._doing[0], before
        _store_both(self._page, _DOING, *before, code, monotonic_ns())

    def happened(self, code: int) -> None:
        """An event that was no call: of a call `end` says it."""
        _store(self._page, _LAST, code, monotonic_ns())
