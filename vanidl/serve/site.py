"""What the server answers to a request: a page and slices to who knows the token, else nothing.

No part of a request names a file: pages and slices are all there is.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from vanidl.serve.store import Store
from vanidl.serve.window import MOST_LANES, MOST_WIDTH, Window, answer, find

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
            return _refused("this server answers to its own address alone")
        try:
            found = urlsplit(target)
        except ValueError:  # half an IPv6 address
            return Answer(400, _TEXT, b"expected the address that vanidl view printed\n")
        token, _, name = found.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _refused("the address lacks the token that vanidl view printed")
        try:
            return self._named(name, parse_qs(found.query, max_num_fields=8))
        except ValueError as error:
            return Answer(400, _TEXT, f"{error}\n".encode())

    def _named(self, name: str, query: Mapping[str, list[str]]) -> Answer:
        if name == "":
            return Answer(200, _HTML, self.page)
        if name == "slices":
            return _json(answer(self.store, _window(query, self.store)))
        if name == "find":
            return _json(find(self.store, query.get("words", [""])[0][:_MOST_WORDS]))
        return Answer(404, _TEXT, b"there is no such thing here\n")


def _window(query: Mapping[str, list[str]], store: Store) -> Window:
    low, high, width = (_number(query, name) for name in ("t0", "t1", "width"))
    lanes = [_whole(text) for text in query.get("lanes", [""])[0].split(".")]
    if not low < high:
        raise ValueError("expected t0 below t1")
    if not 0 < width <= MOST_WIDTH:
        raise ValueError(f"expected a width of 1 to {MOST_WIDTH}")
    if len(lanes) > MOST_LANES or any(n >= len(store.labels.lanes.lanes) or n < 0 for n in lanes):
        raise ValueError(f"expected at most {MOST_LANES} lanes of the run")
    return Window(low, high, min(width, high - low), tuple(lanes))


def _number(query: Mapping[str, list[str]], name: str) -> int:
    return _whole(query.get(name, [""])[0])


def _whole(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError("expected whole numbers t0, t1 and width, and lanes with dots between")
    return int(text)


def _json(value: object) -> Answer:
    return Answer(200, _JSON, json.dumps(value, separators=(",", ":")).encode())


def _refused(why: str) -> Answer:
    return Answer(403, _TEXT, f"refused: {why}\n".encode())
