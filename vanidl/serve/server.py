"""The server on this machine's own address; it ends with Ctrl-C and says nothing."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vanidl import __version__
from vanidl.errors import VanidlError
from vanidl.serve.site import HEADERS, Answer, Site
from vanidl.serve.store import Store

ADDRESS = "127.0.0.1"
_TOKEN_BYTES = 24
_IDLE_S = 60  # a connection without a request is closed then


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """A browser that goes away is no error; others are named in a line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(f"vanidl view: {type(error).__name__}: {error}\n")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = f"vanidl/{__version__}"
    sys_version = ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """Answers what `Site` says."""
        self._send(self.server.site.answer(self.path, self.headers.get("Host", "")))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401
        """Nothing: the terminal belongs to who started us."""


@contextmanager
def listening(page: bytes, store: Store, port: int = 0) -> Iterator[tuple[_Server, str]]:
    """A server that is ready to `serve_forever`, and its address; closed at the end.

    Raises:
        VanidlError: the port is taken.
    """
    try:
        server = _Server((ADDRESS, port), _Handler)
    except OSError as error:
        raise VanidlError(
            f"--port {port}: cannot listen there: {error.strerror or error}; choose another, or "
            "leave it out"
        ) from error
    try:
        number, token = server.server_address[1], secrets.token_urlsafe(_TOKEN_BYTES)
        hosts = frozenset(f"{name}:{number}" for name in (ADDRESS, "localhost"))
        server.site = Site(page, store, token, hosts)
        yield server, f"http://{ADDRESS}:{number}/{token}/"
    finally:
        server.server_close()
