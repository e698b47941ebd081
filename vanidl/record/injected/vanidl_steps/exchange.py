"""Requests over HTTP as operations: what both ends say in their headers.

The libraries for object storage all send through one of two others, and there they are recorded,
so that each request is one operation, retries included. What only a library above knows, it leaves
in `known`.
"""

from __future__ import annotations

from contextvars import ContextVar

from .operations import LIST, READ, UNSIZED, WRITE, Operation, Operations
from .targets import of_url, plain, s3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .targets import Request

UNKNOWN, PLAIN, OTHER_SERVICE = range(3)

known: ContextVar[int | tuple[str | None, str | None]] = ContextVar("vanidl_known", default=UNKNOWN)
"""What the library that is calling knows: (bucket, key) of S3, or one of the numbers above."""


def begun(log: Operations, request: Request, begin: int) -> Operation | None:
    """The operation that a request is, None where it is not for object storage."""
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
