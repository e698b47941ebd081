"""Libraries through which programs send requests to object storage, each with hooks of its own.

Every attempt is a request of its own, and each hop of a redirect. It ends when the last byte of its
body has come, or when the body is closed or breaks off.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import time_ns
from weakref import WeakSet

from .operations import (
    INCOMPLETE,
    LIST,
    OTHER,
    OTHER_SERVICE,
    PLAIN,
    READ,
    STAT,
    UNKNOWN,
    UNSIZED,
    WRITE,
    Operation,
    Operations,
    Request,
    answered,
    begun,
    error_without_text,
    known,
    operations,
)
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_OPERATION = "_vanidl_operation"

# Through urllib3: boto3 (botocore), google-cloud-storage (requests). The standard library's
# response, which all of them read from, knows where a body ends.

_urllib3_sends: ContextVar[Operation | None] = ContextVar("vanidl_sending", default=None)


def watch_urllib3(module: ModuleType, channel: Channel) -> None:
    """Has urllib3's pools note their requests to object storage, and responses their end."""
    from http.client import HTTPResponse

    from urllib3.response import HTTPResponse as Urllib3Response

    log = operations(channel)
    _watch_urllib3_pool(module.HTTPConnectionPool, channel, log)
    _watch_urllib3_begin(HTTPResponse, channel)
    _watch_urllib3_end(HTTPResponse, channel)
    _watch_urllib3_close(HTTPResponse)
    _watch_urllib3_own_chunks(HTTPResponse, channel)
    _watch_urllib3_chunks(Urllib3Response, channel)


def _watch_urllib3_pool(pool_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
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
        # Given by name or in place.
        headers = options.get("headers") or (args[1] if len(args) > 1 else None)
        body = options.get("body") or (args[0] if args else None)
        operation = _sent_by_urllib3(self, channel, log, (method, url, headers, body))
        if operation is None:
            return original(self, conn, method, url, *args, **options)
        # The response that begins meanwhile finds its operation by this.
        token = _urllib3_sends.set(operation)
        try:
            return original(self, conn, method, url, *args, **options)
        except BaseException:
            operation.end(0)
            raise
        finally:
            _urllib3_sends.reset(token)

    pool_class._make_request = _make_request


def _sent_by_urllib3(
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


def _watch_urllib3_begin(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    """Leaves the operation with the response that its body is read from, before it is read."""
    original = response_class.begin

    @wraps(original)
    def begin(self: Any) -> None:  # noqa: ANN401
        original(self)
        operation = _urllib3_sends.get()
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


def _watch_urllib3_end(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
    original = response_class._close_conn

    @wraps(original)
    def _close_conn(self: Any) -> None:  # noqa: ANN401
        operation = self.__dict__.pop(_OPERATION, None)
        if operation is not None:
            try:
                _end_of_urllib3(self, operation)
            except Exception as error:
                channel.fail(error_without_text(error))
        original(self)

    response_class._close_conn = _close_conn


def _end_of_urllib3(response: Any, operation: Operation) -> None:  # noqa: ANN401
    """By what the response has left to come: all of it where reading it as a whole broke off."""
    left, known = response.length, operation.expected
    if left is None or known < 0:
        chunked = response.chunked
        operation.end(operation.received, 0 if chunked else UNSIZED)
        return
    broken = left > 0 and not operation.closing
    operation.end(known - left, INCOMPLETE if broken else 0)


def _watch_urllib3_close(response_class: Any) -> None:  # noqa: ANN401
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


def _watch_urllib3_own_chunks(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
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


def _watch_urllib3_chunks(response_class: Any, channel: Channel) -> None:  # noqa: ANN401
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


# Which service, bucket and key a request of botocore or aiobotocore is for.
# The requests themselves are recorded where they are sent: through urllib3 or aiohttp.


def watch_botocore(module: ModuleType, channel: Channel) -> None:
    """botocore: one call is one attempt."""
    endpoint = module.Endpoint
    original = endpoint._do_get_response

    @wraps(original)
    def _do_get_response(self: Any, request: Any, model: Any, context: Any) -> Any:  # noqa: ANN401
        token = known.set(_object_of_botocore(model, context, channel))
        try:
            return original(self, request, model, context)
        finally:
            known.reset(token)

    endpoint._do_get_response = _do_get_response


def watch_aiobotocore(module: ModuleType, channel: Channel) -> None:
    """aiobotocore: the same."""
    endpoint = module.AioEndpoint
    original = endpoint._do_get_response

    @wraps(original)
    async def _do_get_response(
        self: Any,  # noqa: ANN401
        request: Any,  # noqa: ANN401
        model: Any,  # noqa: ANN401
        context: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        token = known.set(_object_of_botocore(model, context, channel))
        try:
            return await original(self, request, model, context)
        finally:
            known.reset(token)

    endpoint._do_get_response = _do_get_response


def _object_of_botocore(
    model: Any,  # noqa: ANN401
    context: Any,  # noqa: ANN401
    channel: Channel,
) -> int | tuple[str | None, str | None]:
    try:
        if model.service_model.service_name != "s3":
            return OTHER_SERVICE
        asked = (context.get("s3_redirect") or {}).get("params") or {}
        return asked.get("Bucket"), asked.get("Key")
    except Exception as error:
        channel.fail(error_without_text(error))
        return None, None


# Through aiohttp: s3fs (aiobotocore), gcsfs, the HTTP of fsspec.

_call: ContextVar[_Call | None] = ContextVar("vanidl_call", default=None)
_of_files: WeakSet[Any] = WeakSet()
"""Sessions whose every request is for a file."""


class _Call:
    """One call of the program, which may take several requests."""

    __slots__ = ("begin", "requests")

    def __init__(self) -> None:
        self.begin = time_ns()
        self.requests = 0


def watch_fsspec(module: ModuleType, channel: Channel) -> None:
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


def watch_aiohttp(module: ModuleType, channel: Channel) -> None:
    """Has all sessions of aiohttp note their requests to object storage."""
    log = operations(channel)
    _watch_aiohttp_session(module.ClientSession, channel, log)
    _watch_aiohttp_start(module.ClientResponse, channel, log)
    for name in ("close", "release", "__del__"):
        _watch_aiohttp_close(module.ClientResponse, name, channel)


def _watch_aiohttp_session(session_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
    original = session_class._request

    @wraps(original)
    async def _request(self: Any, method: str, url: Any, **options: Any) -> Any:  # noqa: ANN401
        if not channel.on:
            return await original(self, method, url, **options)
        call = _Call()
        of_call = _call.set(call)
        # Every request of fsspec's own session is for a file, unless a library said more of it.
        of_files = known.get() == UNKNOWN and self in _of_files
        token = known.set(PLAIN) if of_files else None
        try:
            return await original(self, method, url, **options)
        except BaseException:
            # Nothing was sent: there was no connection.
            if not call.requests:
                _note_not_sent(log, channel, call, (method, url, options.get("headers")))
            raise
        finally:
            if token is not None:
                known.reset(token)
            _call.reset(of_call)

    session_class._request = _request


def _note_not_sent(
    log: Operations, channel: Channel, call: _Call, parts: tuple[str, Any, Any]
) -> None:
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


def _watch_aiohttp_start(response_class: Any, channel: Channel, log: Operations) -> None:  # noqa: ANN401
    original = response_class.start

    @wraps(original)
    async def start(self: Any, connection: Any) -> Any:  # noqa: ANN401
        operation = _sent_by_aiohttp(self, channel, log)
        if operation is None:
            return await original(self, connection)
        try:
            response = await original(self, connection)
        except BaseException:
            operation.end(0)
            raise
        try:
            # It ends when its body has come, or is closed.
            _await_aiohttp_body(self, operation)
        except Exception as error:
            channel.fail(error_without_text(error))
        return response

    response_class.start = start


def _sent_by_aiohttp(response: Any, channel: Channel, log: Operations) -> Operation | None:  # noqa: ANN401
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


def _await_aiohttp_body(response: Any, operation: Operation) -> None:  # noqa: ANN401
    if not answered(operation, response.status, response.headers.get):
        return
    content = response.content
    response.__dict__[_OPERATION] = operation
    content.on_eof(lambda: operation.end(_received_by_aiohttp(content)))


def _received_by_aiohttp(content: Any) -> int:  # noqa: ANN401
    """Bytes that came, before anything was decompressed."""
    nbytes = getattr(content, "total_raw_bytes", None)
    return int(content.total_bytes if nbytes is None else nbytes)


def _watch_aiohttp_close(response_class: Any, name: str, channel: Channel) -> None:  # noqa: ANN401
    original = getattr(response_class, name)

    @wraps(original)
    def close(self: Any) -> Any:  # noqa: ANN401
        operation = self.__dict__.pop(_OPERATION, None)
        if operation is not None:
            try:
                broken = self.content.exception() is not None
                operation.end(_received_by_aiohttp(self.content), INCOMPLETE if broken else 0)
            except Exception as error:
                channel.fail(error_without_text(error))
        return original(self)

    setattr(response_class, name, close)


# Requests of s3torchconnector, whose client sends them outside Python.
#
# What can be seen are calls of its client: each part of an object that it hands out is a read, each
# page of a listing one listing, each object that it writes one write. The client fetches ahead and
# in parts of its own, so these are not the requests that the server counts; their bytes are.

_S3_OK = 200  # a call that returns had an answer; which is not told


class _S3Calls:
    """Notes calls of one kind on one object."""

    def __init__(self, log: Operations, channel: Channel) -> None:
        self.log = log
        self.channel = channel

    def end(self, kind: int, name: str, begin: int, place: tuple[int, int], status: int) -> None:
        if not self.channel.on:
            return
        try:
            operation = Operation(self.log, kind, name, begin)
            operation.offset, operation.status = place[0], status
            operation.end(place[1])
        except Exception as error:
            self.channel.fail(error_without_text(error))


class _S3Stream:
    """What the client hands out: parts of an object, or pages of a listing."""

    def __init__(self, inner: Any, recorder: _S3Calls, kind: int, name: str, offset: int) -> None:  # noqa: ANN401
        self._inner = inner
        self._recorder = recorder
        self._kind = kind
        self._name = name
        self._offset = offset

    def __iter__(self) -> _S3Stream:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        begin = time_ns()
        try:
            part = next(self._inner)
        except StopIteration:
            raise
        except BaseException:
            self._recorder.end(self._kind, self._name, begin, (-1, 0), 0)
            raise
        reads = self._kind == READ
        nbytes, offset = (len(part), self._offset) if reads else (0, -1)
        self._recorder.end(self._kind, self._name, begin, (offset, nbytes), _S3_OK)
        self._offset += nbytes
        return part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


class _S3Written:
    """An object that is being written."""

    def __init__(self, inner: Any, recorder: _S3Calls, name: str, begin: int) -> None:  # noqa: ANN401
        self._inner = inner
        self._recorder = recorder
        self._name = name
        self._begin = begin
        self._nbytes = 0

    def write(self, data: Any) -> Any:  # noqa: ANN401
        written = self._inner.write(data)
        self._nbytes += len(data)
        return written

    def close(self) -> Any:  # noqa: ANN401
        try:
            closed = self._inner.close()
        except BaseException:
            self._recorder.end(WRITE, self._name, self._begin, (0, 0), 0)
            raise
        self._recorder.end(WRITE, self._name, self._begin, (0, self._nbytes), _S3_OK)
        return closed

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


def watch_s3torchconnector(module: ModuleType, channel: Channel) -> None:
    """Has the client's methods note what they do."""
    recorder = _S3Calls(operations(channel), channel)
    client = module.S3Client
    _watch_s3_get(client, recorder)
    _watch_s3_put(client, recorder)
    _watch_s3_list(client, recorder)
    _watch_s3_call(client, "head_object", STAT, recorder)
    _watch_s3_call(client, "delete_object", OTHER, recorder)
    _watch_s3_call(client, "copy_object", OTHER, recorder)


def _watch_s3_get(client: Any, recorder: _S3Calls) -> None:  # noqa: ANN401
    original = client._get_object_stream

    @wraps(original)
    def _get_object_stream(
        self: Any,  # noqa: ANN401
        bucket: str,
        key: str,
        start: int | None = None,
        end: int | None = None,
    ) -> _S3Stream:
        begin, name = time_ns(), f"s3://{bucket}/{key}"
        try:
            stream = original(self, bucket, key, start, end)
        except BaseException:
            recorder.end(READ, name, begin, (-1, 0), 0)
            raise
        return _S3Stream(stream, recorder, READ, name, start or 0)

    client._get_object_stream = _get_object_stream


def _watch_s3_put(client: Any, recorder: _S3Calls) -> None:  # noqa: ANN401
    original = client.put_object

    @wraps(original)
    def put_object(self: Any, bucket: str, key: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        writer = original(self, bucket, key, *args, **options)
        writer.stream = _S3Written(writer.stream, recorder, f"s3://{bucket}/{key}", begin)
        return writer

    client.put_object = put_object


def _watch_s3_list(client: Any, recorder: _S3Calls) -> None:  # noqa: ANN401
    original = client.list_objects

    @wraps(original)
    def list_objects(self: Any, bucket: str, *args: Any, **options: Any) -> _S3Stream:  # noqa: ANN401
        pages = original(self, bucket, *args, **options)
        return _S3Stream(pages, recorder, LIST, f"s3://{bucket}/", -1)

    client.list_objects = list_objects


def _watch_s3_call(client: Any, name: str, kind: int, recorder: _S3Calls) -> None:  # noqa: ANN401
    original = getattr(client, name)

    @wraps(original)
    def call(self: Any, bucket: str, key: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        begin, status = time_ns(), 0
        try:
            found = original(self, bucket, key, *args, **options)
            status = _S3_OK
        finally:
            recorder.end(kind, f"s3://{bucket}/{key}", begin, (-1, 0), status)
        return found

    setattr(client, name, call)
