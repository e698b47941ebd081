"""Requests of s3torchconnector, whose client sends them outside Python.

What can be seen are calls of its client: each part of an object that it hands out is a read, each
page of a listing one listing, each object that it writes one write. The client fetches ahead and
in parts of its own, so these are not the requests that the server counts; their bytes are.
"""

from __future__ import annotations

from time import time_ns

from .operations import (
    LIST,
    OTHER,
    READ,
    STAT,
    WRITE,
    Operation,
    Operations,
    error_without_text,
    operations,
)
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_OK = 200  # a call that returns had an answer; which is not told


class _Recorder:
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


class _Stream:
    """What the client hands out: parts of an object, or pages of a listing."""

    def __init__(self, inner: Any, recorder: _Recorder, kind: int, name: str, offset: int) -> None:  # noqa: ANN401
        self._inner = inner
        self._recorder = recorder
        self._kind = kind
        self._name = name
        self._offset = offset

    def __iter__(self) -> _Stream:
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
        self._recorder.end(self._kind, self._name, begin, (offset, nbytes), _OK)
        self._offset += nbytes
        return part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


class _Written:
    """An object that is being written."""

    def __init__(self, inner: Any, recorder: _Recorder, name: str, begin: int) -> None:  # noqa: ANN401
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
        self._recorder.end(WRITE, self._name, self._begin, (0, self._nbytes), _OK)
        return closed

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


def watch(module: ModuleType, channel: Channel) -> None:
    """Has the client's methods note what they do."""
    recorder = _Recorder(operations(channel), channel)
    client = module.S3Client
    _watch_get(client, recorder)
    _watch_put(client, recorder)
    _watch_list(client, recorder)
    _watch_call(client, "head_object", STAT, recorder)
    _watch_call(client, "delete_object", OTHER, recorder)
    _watch_call(client, "copy_object", OTHER, recorder)


def _watch_get(client: Any, recorder: _Recorder) -> None:  # noqa: ANN401
    original = client._get_object_stream

    @wraps(original)
    def _get_object_stream(
        self: Any,  # noqa: ANN401
        bucket: str,
        key: str,
        start: int | None = None,
        end: int | None = None,
    ) -> _Stream:
        begin, name = time_ns(), f"s3://{bucket}/{key}"
        try:
            stream = original(self, bucket, key, start, end)
        except BaseException:
            recorder.end(READ, name, begin, (-1, 0), 0)
            raise
        return _Stream(stream, recorder, READ, name, start or 0)

    client._get_object_stream = _get_object_stream


def _watch_put(client: Any, recorder: _Recorder) -> None:  # noqa: ANN401
    original = client.put_object

    @wraps(original)
    def put_object(self: Any, bucket: str, key: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        writer = original(self, bucket, key, *args, **options)
        writer.stream = _Written(writer.stream, recorder, f"s3://{bucket}/{key}", begin)
        return writer

    client.put_object = put_object


def _watch_list(client: Any, recorder: _Recorder) -> None:  # noqa: ANN401
    original = client.list_objects

    @wraps(original)
    def list_objects(self: Any, bucket: str, *args: Any, **options: Any) -> _Stream:  # noqa: ANN401
        pages = original(self, bucket, *args, **options)
        return _Stream(pages, recorder, LIST, f"s3://{bucket}/", -1)

    client.list_objects = list_objects


def _watch_call(client: Any, name: str, kind: int, recorder: _Recorder) -> None:  # noqa: ANN401
    original = getattr(client, name)

    @wraps(original)
    def call(self: Any, bucket: str, key: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        begin, status = time_ns(), 0
        try:
            found = original(self, bucket, key, *args, **options)
            status = _OK
        finally:
            recorder.end(kind, f"s3://{bucket}/{key}", begin, (-1, 0), status)
        return found

    setattr(client, name, call)
