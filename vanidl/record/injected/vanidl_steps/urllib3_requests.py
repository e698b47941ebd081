"""Requests to object storage through urllib3: boto3 (botocore), google-cloud-storage (requests).

Every attempt is a request of its own. It ends when its body has been read to its end, or is closed
or breaks off: the standard library's response, which all of them read from, knows.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import time_ns

from .object_requests import Request, answered, begun
from .operations import INCOMPLETE, UNSIZED, Operation, Operations, error_without_text, operations
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_OPERATION = "_vanidl_operation"
_sending: ContextVar[Operation | None] = ContextVar("vanidl_sending", default=None)


def watch(module: ModuleType, channel: Channel) -> None:
    """Has urllib3's pools note their requests to object storage, and responses their end."""
    from http.client import HTTPResponse

    from urllib3.response import HTTPResponse as Urllib3Response

    log = operations(channel)
    _watch_pool(module.HTTPConnectionPool, channel, log)
    _watch_begin(HTTPResponse, channel)
    _watch_end(HTTPResponse, channel)
    _watch_close(HTTPResponse)
    _watch_own_chunks(HTTPResponse, channel)
    _watch_chunks(Urllib3Response, channel)


def _watch_pool(pool_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
    original = pool_class._make_request

    @wraps(original)
    def _make_request(
        self: Any,  # noqa: ANN401
        conn: Any,  # noqa: ANN401
        method: str,
        url: str,
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if not channel.on:
            return original(self, conn, method, url, *args, **options)
        headers = options.get("headers") or (args[1] if len(args) > 1 else None)
        body = options.get("body") or (args[0] if args else None)
        operation = _sent(self, channel, log, (method, url, headers, body))
        if operation is None:
            return original(self, conn, method, url, *args, **options)
        token = _sending.set(operation)
        try:
            return original(self, conn, method, url, *args, **options)
        except BaseException:
            operation.end(0)
            raise
        finally:
            _sending.reset(token)

    pool_class._make_request = _make_request


def _sent(
    pool: Any,  # noqa: ANN401
    channel: Channel,
    log: Operations,
    parts: tuple[str, str, Any, Any],
) -> Operation | None:
    begin = time_ns()
    try:
        method, url, headers, body = parts
        if not url.startswith("/"):  # to a proxy
            url = f"/{url.partition('://')[2].partition('/')[2]}"
        request = Request(method.upper(), pool.scheme, pool.host, url, headers)
        operation = begun(log, request, begin)
        if operation is not None and operation.sent < 0 and isinstance(body, bytes):
            operation.sent = len(body)  # urllib3 adds the header later
        return operation
    except Exception as error:
        channel.fail(error_without_text(error))
        return None


def _watch_begin(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    """Leaves the operation with the response that its body is read from, before it is read."""
    original = response_class.begin

    @wraps(original)
    def begin(self: Any) -> None:  # noqa: ANN401
        original(self)
        operation = _sending.get()
        if operation is None:
            return
        try:
            if answered(operation, self.status, self.headers.get):
                self.__dict__[_OPERATION] = operation
                if self.isclosed():  # there is no body
                    operation.end(0)
        except Exception as error:
            channel.fail(error_without_text(error))

    response_class.begin = begin


def _watch_end(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    original = response_class._close_conn

    @wraps(original)
    def _close_conn(self: Any) -> None:  # noqa: ANN401
        operation = self.__dict__.pop(_OPERATION, None)
        if operation is not None:
            try:
                _end(self, operation)
            except Exception as error:
                channel.fail(error_without_text(error))
        original(self)

    response_class._close_conn = _close_conn


def _end(response: Any, operation: Operation) -> None:  # noqa: ANN401
    """By what the response has left to come: all of it where reading it as a whole broke off."""
    left, known = response.length, operation.expected
    if left is None or known < 0:
        chunked = response.chunked
        operation.end(operation.received, 0 if chunked else UNSIZED)
        return
    broken = left > 0 and not operation.closing
    operation.end(known - left, INCOMPLETE if broken else 0)


def _watch_close(response_class: Any) -> None:  # noqa: ANN401
    """A body that is closed before its end did not break off, unless closed because of an error."""
    original = response_class.close

    @wraps(original)
    def close(self: Any) -> None:  # noqa: ANN401
        operation = self.__dict__.get(_OPERATION)
        if operation is not None:
            from sys import exc_info

            operation.closing = not isinstance(exc_info()[1], (OSError, EOFError))
        original(self)

    response_class.close = close


def _watch_own_chunks(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    """Counts the chunks of a body of unknown length that the standard library takes apart."""
    original = response_class._read_next_chunk_size

    @wraps(original)
    def _read_next_chunk_size(self: Any) -> Any:  # noqa: ANN401
        size = original(self)
        operation = self.__dict__.get(_OPERATION)
        if operation is not None and channel.on:
            operation.received += size
        return size

    response_class._read_next_chunk_size = _read_next_chunk_size


def _watch_chunks(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    """The same where urllib3 takes them apart."""
    original = response_class._update_chunk_length

    @wraps(original)
    def _update_chunk_length(self: Any) -> None:  # noqa: ANN401
        before = self.chunk_left
        original(self)
        inner = getattr(self, "_original_response", None)
        operation = None if inner is None else inner.__dict__.get(_OPERATION)
        if operation is not None and before is None and self.chunk_left and channel.on:
            operation.received += self.chunk_left

    response_class._update_chunk_length = _update_chunk_length
