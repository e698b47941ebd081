"""Requests over HTTP as operations: which object each is for, and what both ends say in headers.

The libraries for object storage all send through one of two others, and there they are recorded,
so that each request is one operation, retries included. What only a library above knows, it leaves
in `known`. The rules are those of S3, of Google Cloud Storage and of plain URLs. A name holds
scheme, bucket and key, or scheme, host and path: never the query of a URL, where signatures and
tokens stand, nor a user's name and password.
"""

from __future__ import annotations

from contextvars import ContextVar
from urllib.parse import unquote

from .operations import LIST, OTHER, READ, STAT, UNSIZED, WRITE, Operation, Operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
