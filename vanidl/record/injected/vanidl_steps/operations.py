"""The file of one process's operations on object storage, gathered and written like the journal.

A file is rows of six little-endian 64-bit integers: (code, object, offset, bytes, begin, end),
times in nanoseconds since the epoch, an offset of -1 where none is known. The code holds the kind
in its lowest byte, the thread in the next one, the HTTP status in the sixteen bits above (0: no
answer came) and flags above these. The first row is `MAGIC`. A row of kind `TEXT` or `NAME` says in
`object` how many rows follow that hold text, padded with blanks. `TEXT` is JSON that describes the
process, and as the last row says when it ended. `NAME` is the name, in UTF-8, of the object whose
number stands in `offset`. Rows are only ever added, whole ones at a time, every name before the
first operation on it.
"""

from __future__ import annotations

import atexit
import os
import sys
from struct import Struct
from threading import Lock, get_ident
from time import time_ns

from . import endings
from .journal import process_description
from .own_file import OwnFile, is_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .registry import Channel

MAGIC = b"vanidl-objects 1".ljust(47) + b"\n"
TEXT, NAME, READ, WRITE, STAT, LIST, OTHER = range(7)
"""Kinds of rows: text, a name; then what a request does, as GET, PUT, HEAD, a listing, the rest."""

THREAD_SHIFT = 8
STATUS_SHIFT = 16
INCOMPLETE = 1 << 32
"""The body broke off: `bytes` of it had come."""
UNSIZED = 1 << 33
"""Neither side said how long the body is: `bytes` is a lower bound."""

SUFFIX = ".objects"

_ROW = Struct("<6q")
_FLUSH_NS = 1_000_000_000
_MOST_ROWS = 4096  # bounds on memory: some hundred kilobytes of rows, some megabytes of names
_MOST_NAMES = 16_384
_MOST_S = 1.0  # to wait at the end for another thread that writes
_OTHER_THREADS = 255


class Operations:
    """Operations of this process; a forked child has a file of its own.

    Args:
        folder: where the file goes.
        failed: called, once, with the name of this module and why no more can be written.
    """

    def __init__(self, folder: str, failed: Callable[[str, Exception], None] | None = None) -> None:
        self._folder = folder
        self._failed = failed
        self._closed = False
        self._begin()
        atexit.register(self._last)
        endings.before(self._last)
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self._lock = Lock()  # requests end in many threads; a copy's may have been held
        self._rows: list[bytes] = []
        self._names: dict[str, int] = {}
        self._named = 0
        self._threads: dict[int, int] = {}
        self._file: OwnFile | None = None
        self._ends = self._ended = False
        self._started_ns = self._flushed_ns = time_ns()

    def _forked(self) -> None:
        if self._file is not None:
            self._file.leave()  # the parent's
        self._begin()

    def add(self, code: int, name: str, offset: int, nbytes: int, begin: int, end: int) -> None:
        """An operation that has ended, in the calling thread; raises nothing."""
        try:
            self._add(code, name, (offset, nbytes, begin, end))
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._closed = True
        failed, self._failed = self._failed, None
        if failed is not None:
            failed("operations", error_without_text(error))

    def _add(self, code: int, name: str, values: tuple[int, int, int, int]) -> None:
        ident = get_ident()
        with self._lock:
            if self._closed:
                return
            if not self._ends:
                self._at_end()
            thread = self._threads.setdefault(ident, min(len(self._threads), _OTHER_THREADS))
            number = self._names.get(name)
            if number is None:
                number = self._number(name)
            code |= thread << THREAD_SHIFT
            self._rows.append(_ROW.pack(code, number, *values))
            if values[-1] - self._flushed_ns >= _FLUSH_NS or len(self._rows) >= _MOST_ROWS:
                self._flush()

    def _at_end(self) -> None:
        """Has the last rows written by children of multiprocessing, which end without atexit."""
        self._ends = True
        if "multiprocessing.util" in sys.modules:
            from multiprocessing.util import Finalize

            Finalize(None, self._last, exitpriority=0)

    def _number(self, name: str) -> int:
        """A number for a name; after very many the first ones are forgotten and named again."""
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        number = self._names[name] = self._named
        self._named += 1
        text = name.encode("utf-8", "replace")
        rows = -(-len(text) // _ROW.size)
        self._rows.append(_ROW.pack(NAME, rows, number, 0, 0, 0) + text.ljust(rows * _ROW.size))
        return number

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self._flushed_ns = time_ns()
        if not rows:
            return
        if is_stopped(self._folder):
            self._closed = True
            return
        self._closed = True  # should this fail: a file that ends within a row takes no more
        if self._file is None:
            self._file = OwnFile(self._folder, SUFFIX)
            opening = process_description() | {"start_ns": self._started_ns}
            rows = [MAGIC, _text(opening), *rows]
        self._file.write(b"".join(rows))
        self._closed = False

    def _last(self) -> None:
        try:
            if not self._lock.acquire(timeout=_MOST_S):  # a signal's handler may end the process
                return
            try:
                unsaid = self._file is not None and not self._ended
                if not self._closed and (self._rows or unsaid):
                    self._ended = True
                    self._rows.append(_text({"end_ns": time_ns()}))
                    self._flush()
            finally:
                self._lock.release()
        except Exception as error:
            self._give_up(error)


def _text(values: dict[str, object]) -> bytes:
    import json

    # Names may be bytes that are no text: no JSON may hold these.
    text = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
    rows = -(-len(text) // _ROW.size)
    return _ROW.pack(TEXT, rows, 0, 0, 0, 0) + text.ljust(rows * _ROW.size)


_of_folder: dict[str, Operations] = {}


def operations(channel: Channel) -> Operations:
    """The operations of this process, the same for all libraries."""
    folder = channel.journal.folder
    if folder not in _of_folder:
        _of_folder[folder] = Operations(folder, channel.journal.note_failure)
    return _of_folder[folder]


class Operation:
    """One request that is under way; `end` records it, once."""

    __slots__ = (
        "_log",
        "begin",
        "closing",
        "expected",
        "kind",
        "name",
        "offset",
        "received",
        "sent",
        "status",
    )

    def __init__(self, log: Operations, kind: int, name: str, begin: int) -> None:
        self._log: Operations | None = log
        self.kind = kind
        self.name = name
        self.begin = begin
        self.offset = -1
        self.status = 0
        self.sent = -1  # bytes of the request's body, where it says how many
        self.expected = -1  # the same of the answer's
        self.received = 0  # bytes of a body that comes in chunks
        self.closing = False  # the program has closed the body

    def end(self, nbytes: int, flags: int = 0) -> None:
        """It has ended now, and that many bytes of the object came or went."""
        log, self._log = self._log, None
        if log is not None:
            code = self.kind | self.status << STATUS_SHIFT | flags
            log.add(code, self.name, self.offset, nbytes, self.begin, time_ns())


def error_without_text(error: Exception) -> Exception:
    """An error that names kind and place alone: its text may hold a URL with its signature."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f" in {at.tb_frame.f_code.co_name}, line {at.tb_lineno}"
    return RuntimeError(f"{type(error).__name__}{where}")
