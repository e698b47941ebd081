"""Requests to object storage through aiohttp: s3fs (aiobotocore), gcsfs, fsspec's HTTP.

Each hop of a redirect and each attempt on another connection is a request of its own. It ends when
the last byte of its body has come, or when the body is closed or breaks off.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import time_ns
from weakref import WeakSet

from .object_requests import PLAIN, UNKNOWN, Request, answered, begun, known
from .operations import INCOMPLETE, Operation, Operations, error_without_text, operations
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_OPERATION = "_vanidl_operation"
_call: ContextVar[_Call | None] = ContextVar("vanidl_call", default=None)
_of_files: WeakSet[Any] = WeakSet()
"""Sessions whose every request is for a file."""


class _Call:
    """One call of the program, which may take several requests."""

    __slots__ = ("begin", "requests")

    def __init__(self) -> None:
        self.begin = time_ns()
        self.requests = 0


def watch_file_system(module: ModuleType, channel: Channel) -> None:
    """Has fsspec's HTTP file system say which of the sessions is its own."""
    original = module.HTTPFileSystem.set_session

    @wraps(original)
    async def set_session(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        session = await original(self, *args, **options)
        try:
            _of_files.add(session)
        except Exception as error:
            channel.fail(error_without_text(error))
        return session

    module.HTTPFileSystem.set_session = set_session


def watch(module: ModuleType, channel: Channel) -> None:
    """Has all sessions of aiohttp note their requests to object storage."""
    log = operations(channel)
    _watch_session(module.ClientSession, channel, log)
    _watch_start(module.ClientResponse, channel, log)
    for name in ("close", "release", "__del__"):
        _watch_close(module.ClientResponse, name, channel)


def _watch_session(session_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
    original = session_class._request

    @wraps(original)
    async def _request(self: Any, method: str, url: Any, **options: Any) -> Any:  # noqa: ANN401
        if not channel.on:
            return await original(self, method, url, **options)
        call = _Call()
        of_call = _call.set(call)
        of_files = known.get() == UNKNOWN and self in _of_files
        token = known.set(PLAIN) if of_files else None
        try:
            return await original(self, method, url, **options)
        except BaseException:
            if not call.requests:
                _not_sent(log, channel, call, (method, url, options.get("headers")))
            raise
        finally:
            if token is not None:
                known.reset(token)
            _call.reset(of_call)

    session_class._request = _request


def _not_sent(log: Operations, channel: Channel, call: _Call, parts: tuple[str, Any, Any]) -> None:
    """A call for which there was no connection."""
    try:
        operation = begun(log, _request_of(*parts), call.begin)
        if operation is not None:
            operation.end(0)
    except Exception as error:
        channel.fail(error_without_text(error))


def _request_of(method: str, url: Any, headers: Any) -> Request:  # noqa: ANN401
    """From the URL as text or as yarl's."""
    scheme, _, rest = str(url).partition("#")[0].partition("://")
    host, _, target = rest.partition("/")
    return Request(method.upper(), scheme, host, f"/{target}", headers)


def _watch_start(response_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
    original = response_class.start

    @wraps(original)
    async def start(self: Any, connection: Any) -> Any:  # noqa: ANN401
        operation = _sent(self, channel, log)
        if operation is None:
            return await original(self, connection)
        try:
            response = await original(self, connection)
        except BaseException:
            operation.end(0)
            raise
        try:
            _await_body(self, operation)
        except Exception as error:
            channel.fail(error_without_text(error))
        return response

    response_class.start = start


def _sent(response: Any, channel: Channel, log: Operations) -> Operation | None:  # noqa: ANN401
    """The operation that has been sent and that this is the answer to."""
    call = _call.get()
    if call is None or not channel.on:
        return None
    try:
        info = response.request_info
        request = _request_of(info.method, info.url, info.headers)
        begin = time_ns() if call.requests else call.begin
        call.requests += 1
        return begun(log, request, begin)
    except Exception as error:
        channel.fail(error_without_text(error))
        return None


def _await_body(response: Any, operation: Operation) -> None:  # noqa: ANN401
    if not answered(operation, response.status, response.headers.get):
        return
    content = response.content
    response.__dict__[_OPERATION] = operation
    content.on_eof(lambda: operation.end(_received(content)))


def _received(content: Any) -> int:  # noqa: ANN401
    """Bytes that came, before anything was decompressed."""
    nbytes = getattr(content, "total_raw_bytes", None)
    return int(content.total_bytes if nbytes is None else nbytes)


def _watch_close(response_class: Any, name: str, channel: Channel) -> None:  # noqa: ANN401
    original = getattr(response_class, name)

    @wraps(original)
    def close(self: Any) -> Any:  # noqa: ANN401
        operation = self.__dict__.pop(_OPERATION, None)
        if operation is not None:
            try:
                broken = self.content.exception() is not None
                operation.end(_received(self.content), INCOMPLETE if broken else 0)
            except Exception as error:
                channel.fail(error_without_text(error))
        return original(self)

    setattr(response_class, name, close)
