"""A server of objects over HTTP that logs each request and how many bytes it moved.

It speaks as much of S3's and Google's protocols as the tests need, and can fail on purpose: keys
that begin with `reset` break off in the middle, `chunked` says no length, `slow` answers late.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LATENCY_S = 0.01
BODY = bytes(range(256)) * 400  # of every object that nobody has written


@dataclass(frozen=True)
class Served:
    """One request as the server saw it; bytes of bodies, of the object alone."""

    method: str
    path: str
    status: int
    received: int
    sent: int


@dataclass
class Store:
    """Objects by path, and what was asked for."""

    objects: dict[str, bytes] = field(default_factory=dict)
    log: list[Served] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store
    received = 0

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, headers: dict[str, str], *, data: bool) -> None:
        received, self.received = self.received, 0  # the handler lives as long as the connection
        name = unquote(urlsplit(self.path).path)
        key = name.rpartition("/")[2]
        sent = len(body) if data and self.command == "GET" and status < 300 else 0
        if key.startswith("slow"):
            time.sleep(LATENCY_S)
        self.store.log.append(Served(self.command, name, status, received, sent))
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        for header, value in headers.items():
            self.send_header(header, value)
        if key.startswith("chunked") and status < 300:
            self._chunked(body)
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if key.startswith("reset") and status < 300:
            self.wfile.write(body[: len(body) // 2])
            self._reset()
        elif self.command != "HEAD":
            with suppress(ConnectionError):
                self.wfile.write(body)

    def _chunked(self, body: bytes) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 10_000):
            part = body[at : at + 10_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _reset(self) -> None:
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)  # close without a farewell
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        key = path.rpartition("/")[2]
        if "list-type" in query or path.endswith("/o"):
            self._answer(200, b"<ListBucketResult/>", {}, data=False)
        elif key.startswith("none"):
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {}, data=False)
        elif asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            whole = self.store.objects.get(path, BODY)
            low, high = int(first), min(int(last or len(whole)), len(whole) - 1)
            place = {"Content-Range": f"bytes {low}-{high}/{len(whole)}"}
            self._answer(206, whole[low : high + 1], place, data=True)
        else:
            self._answer(200, self.store.objects.get(path, BODY), {}, data=True)

    def do_HEAD(self) -> None:
        whole = self.store.objects.get(unquote(urlsplit(self.path).path), BODY)
        self._answer(200, whole, {}, data=False)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.received = len(body)
        self.store.objects[unquote(urlsplit(self.path).path)] = body
        self._answer(200, b"", {}, data=False)

    def do_DELETE(self) -> None:
        self._answer(204, b"", {}, data=False)


class _Server(ThreadingHTTPServer):
    """A server that does not print what clients break off."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def object_server() -> Iterator[tuple[str, Store]]:
    """(its URL, its store), while the block runs."""
    store = Store()
    handler = type("Handler", (_Handler,), {"store": store})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
