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
from contextvars import ContextVar
from struct import Struct
from threading import Lock, get_ident
from time import time_ns
from urllib.parse import unquote

from .journal import OwnFile, call_before_end, is_stopped, process_description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
        call_before_end(self._last)
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
            # The code has a byte for the thread: the last number stands for all others.
            thread = self._threads.setdefault(ident, min(len(self._threads), _OTHER_THREADS))
            number = self._names.get(name)
            if number is None:
                number = self._number(name)
            code |= thread << THREAD_SHIFT
            self._rows.append(_ROW.pack(code, number, *values))
            # Once a second, or before too many rows have gathered.
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


# Requests over HTTP as operations: which object each is for, and what both ends say in headers.
# The libraries for object storage all send through one of two others, and there they are
# recorded, so that each request is one operation, retries included. What only a library above
# knows, it leaves in `known`. The rules are those of S3, of Google Cloud Storage and of plain
# URLs. A name holds scheme, bucket and key, or scheme, host and path: never the query of a URL,
# where signatures and tokens stand, nor a user's name and password.

Target = tuple[int, str]
"""(kind of operation, name of the object)."""

_S3_PARTS = frozenset(
    ("acl", "attributes", "legal-hold", "retention", "tagging", "torrent", "uploads")
)
_KINDS = {"GET": READ, "HEAD": STAT, "PUT": WRITE}
_GCS = "/storage/v1/b"
_GCS_HOST = "storage.googleapis.com"
_SCOPE = "/s3/aws4_request"
_SIGNED = ("%2Fs3%2Faws4_request", "AWSAccessKeyId=")  # presigned URLs of both versions
_AWS = ".amazonaws.com"


class Request:
    """One request as the rules see it; `header` gives a header's text, "" where there is none."""

    __slots__ = ("headers", "host", "method", "path", "query", "scheme")

    def __init__(self, method: str, scheme: str, host: str, target: str, headers: Any) -> None:  # noqa: ANN401
        self.method = method
        self.scheme = scheme
        self.host = host
        self.path, _, self.query = target.partition("?")
        plain = type(headers) is dict  # all other mappings of headers take names in any case
        self.headers = {str(k).lower(): v for k, v in headers.items()} if plain else headers

    def header(self, name: str) -> str:
        """By its name in lower case, however the library spells and keeps it."""
        value = self.headers.get(name) if self.headers else None
        if value is None:
            return ""
        return value.decode("latin-1") if isinstance(value, bytes) else str(value)

    def has(self, parameter: str) -> bool:
        """Whether the query has a parameter."""
        return f"&{parameter}=" in f"&{self.query}=" or f"&{parameter}&" in f"&{self.query}&"


def of_url(request: Request) -> Target | None:
    """The object of a request that its URL or its signature tells to be for object storage."""
    path, host = request.path, request.host
    if _GCS in path[:32]:
        return _gcs(request)
    if host == _GCS_HOST:
        return _s3("gs", request, *_split(path))
    if host.endswith(_AWS) and (".s3." in host or ".s3-" in host or host.startswith("s3")):
        return s3(request)
    query = request.query
    if _SIGNED[0] in query or _SIGNED[1] in query or _SCOPE in request.header("authorization"):
        return s3(request)
    return None


def s3(request: Request, bucket: str | None = None, key: str | None = None) -> Target:
    """The object of a request to S3 or what speaks its protocol.

    Args:
        request: the request.
        bucket: where the library says it; else it is in the host's name or comes first in the path.
        key: likewise.
    """
    if bucket is None:
        bucket, key = _split(request.path)
        before, mark, _ = request.host.partition(".s3")
        if mark and request.host.endswith(_AWS):
            bucket, key = before, unquote(request.path[1:])
    return _s3("s3", request, bucket, key or "")


def plain(request: Request) -> Target:
    """The file behind a URL."""
    kind = _KINDS.get(request.method, OTHER)
    if kind == READ and request.path.endswith("/"):
        kind = LIST  # what file systems over HTTP list a folder with
    host = request.host.rpartition("@")[2]
    return kind, f"{request.scheme}://{host}{request.path}"


def _s3(scheme: str, request: Request, bucket: str, key: str) -> Target:
    name = f"{scheme}://{bucket}/{key}"
    kind = _KINDS.get(request.method, OTHER)
    if not key:
        return (LIST if kind == READ else STAT if kind == STAT else OTHER), name
    if kind in (READ, WRITE) and request.query and _of_parts(request, kind):
        return OTHER, name
    if kind == WRITE and request.header("x-amz-copy-source"):
        return OTHER, name
    return kind, name


def _of_parts(request: Request, kind: int) -> bool:
    """Whether a request is for what S3 keeps beside an object, or for the parts of an upload."""
    names = {part.partition("=")[0] for part in request.query.split("&")}
    return not names.isdisjoint(_S3_PARTS) or (kind == READ and "uploadId" in names)


def _split(path: str) -> tuple[str, str]:
    bucket, _, key = path[1:].partition("/")
    return unquote(bucket), unquote(key)


def _gcs(request: Request) -> Target:
    """Google's JSON interface: `/storage/v1/b/BUCKET/o/KEY`, uploads and downloads before it."""
    before, _, rest = request.path.partition(_GCS)
    bucket, _, key = rest[1:].partition("/o")
    bucket, key = unquote(bucket), unquote(key[1:])
    method = request.method
    if before.endswith("/upload"):
        named = next((p[5:] for p in request.query.split("&") if p.startswith("name=")), "")
        return (_gcs_upload(request), f"gs://{bucket}/{unquote(named)}")
    if method == "GET" and key:
        media = before.endswith("/download") or "alt=media" in request.query
        return (READ if media else STAT), f"gs://{bucket}/{key}"
    if method == "GET":
        return (LIST if rest.endswith("/o") or not bucket else STAT), f"gs://{bucket}/"
    return OTHER, f"gs://{bucket}/{key}"


def _gcs_upload(request: Request) -> int:
    """A resumable upload begins with a request without data, and may ask how far it came."""
    resumable = "uploadType=resumable" in request.query
    begins = resumable and request.method == "POST" and not request.has("upload_id")
    asks = request.header("content-range").startswith("bytes */")
    return OTHER if begins or asks else WRITE


UNKNOWN, PLAIN, OTHER_SERVICE = range(3)

known: ContextVar[int | tuple[str | None, str | None]] = ContextVar("vanidl_known", default=UNKNOWN)
"""What the library that is calling knows: (bucket, key) of S3, or one of the numbers above."""


def begun(log: Operations, request: Request, begin: int) -> Operation | None:
    """The operation that a request is, None where it is not for object storage."""
    # What the calling library says comes before what the URL tells.
    knows = known.get()
    if knows == OTHER_SERVICE:
        return None
    if knows == UNKNOWN:
        target = of_url(request)
        if target is None:
            return None
    elif isinstance(knows, tuple):
        target = s3(request, *knows)
    else:
        target = plain(request)
    operation = Operation(log, *target, begin)
    if operation.kind == READ:
        operation.offset = _first(request.header("range"), "=")
    elif operation.kind == WRITE:
        _written(operation, request)
    return operation


def _written(operation: Operation, request: Request) -> None:
    """Size and place of what is sent: parts of an upload do not say where they belong."""
    size = request.header("x-amz-decoded-content-length") or request.header("content-length")
    operation.sent = int(size) if size.isdecimal() else -1
    part = request.header("content-range")
    if part:
        operation.offset = _first(part, " ")
    elif not request.has("partNumber"):
        operation.offset = 0


def answered(operation: Operation, status: int, header: Callable[[str], str | None]) -> bool:
    """Takes in the head of an answer; whether the operation goes on until its body has come."""
    operation.status = status
    if status >= 400 or operation.kind not in (READ, LIST):
        sent = operation.sent if operation.kind == WRITE and status < 400 else 0
        operation.end(max(sent, 0), UNSIZED if sent < 0 else 0)
        return False
    if status >= 300 or status == 204:
        operation.end(0)
        return False
    if operation.kind == READ:
        operation.offset = _first(header("Content-Range") or "", " ") if status == 206 else 0
    size = header("Content-Length") or ""
    operation.expected = int(size) if size.isdecimal() else -1
    return True


def _first(text: str, mark: str) -> int:
    """The first byte of `bytes=5-9` or `bytes 5-9/20`, -1 where it names none."""
    number = text.partition(mark)[2].partition("-")[0].strip()
    return int(number) if number.isdecimal() else -1
