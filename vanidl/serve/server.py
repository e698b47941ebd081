"""The server on this machine's own address: a page and slices to who knows the token, else nothing.

It ends with Ctrl-C and says nothing. No part of a request names a file: pages and slices are all
there is.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vanidl import __version__
from vanidl.dataclass import dataclass
from vanidl.errors import VanidlError
from vanidl.serve.store import Store
from vanidl.serve.window import MOST_LANES, MOST_WIDTH, Window, answer, find

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
def open_server(page: bytes, store: Store, port: int = 0) -> Iterator[tuple[_Server, str]]:
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


_NUMBER = re.compile(r"-?[0-9]{1,18}\Z")
_MOST_WORDS = 500
_HTML, _JSON, _TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, kind and content of a response."""

    status: int
    kind: str
    body: bytes


@dataclass(frozen=True)
class Site:
    """A page, the slices behind it, and the token that opens both."""

    page: bytes
    store: Store
    token: str
    hosts: frozenset[str]  # that a request may be addressed to, with the port

    def answer(self, target: str, host: str) -> Answer:
        """The answer to a GET of `target` that was addressed to `host`.

        A page of another site that has its name lead here (DNS rebinding) still sends that name.
        """
        if host.lower() not in self.hosts:
            return _refuse("this server answers to its own address alone")
        try:
            found = urlsplit(target)
        except ValueError:  # half an IPv6 address
            return Answer(400, _TEXT, b"expected the address that vanidl view printed\n")
        token, _, name = found.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _refuse("the address lacks the token that vanidl view printed")
        try:
            return self._named(name, parse_qs(found.query, max_num_fields=8))
        except ValueError as error:
            return Answer(400, _TEXT, f"{error}\n".encode())

    def _named(self, name: str, query: Mapping[str, list[str]]) -> Answer:
        if name == "":
            return Answer(200, _HTML, self.page)
        if name == "slices":
            return _answer_json(answer(self.store, _parse_window(query, self.store)))
        if name == "find":
            return _answer_json(find(self.store, query.get("words", [""])[0][:_MOST_WORDS]))
        return Answer(404, _TEXT, b"there is no such thing here\n")


def _parse_window(query: Mapping[str, list[str]], store: Store) -> Window:
    low, high, width = (_parse_number(query, name) for name in ("t0", "t1", "width"))
    lanes = [_parse_whole(text) for text in query.get("lanes", [""])[0].split(".")]
    if not low < high:
        raise ValueError("expected t0 below t1")
    if not 0 < width <= MOST_WIDTH:
        raise ValueError(f"expected a width of 1 to {MOST_WIDTH}")
    if len(lanes) > MOST_LANES or any(n >= len(store.labels.lanes.lanes) or n < 0 for n in lanes):
        raise ValueError(f"expected at most {MOST_LANES} lanes of the run")
    return Window(low, high, min(width, high - low), tuple(lanes))


def _parse_number(query: Mapping[str, list[str]], name: str) -> int:
    return _parse_whole(query.get(name, [""])[0])


def _parse_whole(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError("expected whole numbers t0, t1 and width, and lanes with dots between")
    return int(text)


def _answer_json(value: object) -> Answer:
    return Answer(200, _JSON, json.dumps(value, separators=(",", ":")).encode())


def _refuse(why: str) -> Answer:
    return Answer(403, _TEXT, f"refused: {why}\n".encode())
