"""The server on this machine's own address: a page and slices to who knows the token, else nothing.

It ends with Ctrl-C and says nothing. No part of a request names a file: pages and slices are all
there is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from vanidl import __version__
from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError, VanidlError
from vanidl.schema.dataclass import dataclass
from vanidl.serve.store import REACH_ROWS, VERSION, Segment, Store, open_store
from vanidl.viewer.lanes import COLUMNS, IO, Block, equal_edges
from vanidl.viewer.payload import pack_bins, slices

# Pages and slices of runs that were opened before, in the user's own cache folder.
#
# What lies there is input: of another owner, open to others' writing, damaged or of another
# version, it counts as not there.

MOST_RUNS = 8
"""Runs that are kept; the one that was opened longest ago goes first."""

_PAGE, _DIGEST = "page.html", "page.sha256"
_EDGE_NBYTES = 1 << 16  # of each end of a log: enough to tell two runs apart


def default_folder() -> Path:
    """`vanidl/view` in the user's cache folder."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".cache"
    return base / "vanidl" / "view"


def compute_key(files: Iterable[Path], options: str) -> str:
    """Names a run by its files and how they are read.

    Of each file: its name, size, time of change, and the content at both ends.
    """
    digest = hashlib.sha256(f"{VERSION} {__version__} {options}".encode("utf-8", "surrogateescape"))
    for path in sorted(files):
        digest.update(os.fsencode(path) + b"\0" + _describe_file(path))
    return digest.hexdigest()


def _describe_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            head = file.read(_EDGE_NBYTES)
            file.seek(max(about.st_size - _EDGE_NBYTES, 0))
            ends = hashlib.sha256(head + file.read(_EDGE_NBYTES)).hexdigest()
    except OSError:  # reading the run will say so
        return b"unread"
    return f"{about.st_size} {about.st_mtime_ns} {ends}\0".encode()


def open_kept(folder: Path, key: str) -> tuple[bytes, Store] | None:
    """Page and slices that were left under a key; None where there are none to trust."""
    place = folder / key
    try:
        if not all(_is_trusted(path) for path in (folder, place, *place.iterdir())):
            return None
        page = read_whole(place / _PAGE)
        if hashlib.sha256(page).hexdigest() != read_whole(place / _DIGEST).decode("ascii"):
            return None
        store = open_store(place)
        os.utime(place)
    except (OSError, ValueError, InputError):
        return None
    return page, store


def _is_trusted(path: Path) -> bool:
    """Whether it belongs to us and no other may write there."""
    status = path.lstat()
    is_ours = status.st_uid == os.getuid()
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_ours and not is_open and not stat.S_ISLNK(status.st_mode)


def keep(folder: Path, key: str, page: bytes, write: Callable[[Path], None]) -> tuple[bytes, Store]:
    """Leaves page and slices under a key, whole or not at all, and opens them.

    Raises:
        VanidlError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Under a name of its own until all of it is there: another command may look at the same
        # time.
        made = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
        try:
            write(made)
            (made / _PAGE).write_bytes(page)
            (made / _DIGEST).write_text(hashlib.sha256(page).hexdigest(), encoding="ascii")
            # Names of files and commands are in it: for this user alone.
            for path in made.iterdir():
                path.chmod(0o600)
            shutil.rmtree(folder / key, ignore_errors=True)
            made.replace(folder / key)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise VanidlError(
            f"cannot write slices to {folder}: {error.strerror or error}; name a folder with room "
            "in the environment variable XDG_CACHE_HOME"
        ) from error
    _drop_old(folder, key)
    return page, open_store(folder / key)


def _drop_old(folder: Path, key: str) -> None:
    """Leaves the newest runs; folders that never became whole go with the rest."""
    with suppress(OSError):
        found = [path for path in folder.iterdir() if path.is_dir() and path.name != key]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[MOST_RUNS - 1 :]:
            shutil.rmtree(path, ignore_errors=True)


# What a window of time shows: single slices where they are few, else how busy each bin was.

Int64Array = NDArray[np.int64]

MOST_SLICES = 20_000  # in one answer: more than a screen can show apart
MOST_WIDTH = 16_384  # pixels that are asked for
MOST_LANES = 256
_AT_ONCE = 1 << 22  # rows that are searched at a time


@dataclass(frozen=True, slots=True)
class Window:
    """A time in ns since the start of the job, the lanes in view, and how wide they are drawn."""

    low: int
    high: int
    width: int  # bins
    lanes: tuple[int, ...]


def answer(store: Store, window: Window) -> dict[str, Any]:
    """The slices of a window, or bins of the lanes that have too many; as a page reads them."""
    since = store.labels.since_ns
    low, high = window.low + since, window.high + since
    mine = [
        segment for segment in store.segments
        if segment.lane in window.lanes and segment.low_ns < high and segment.high_ns > low
    ]  # fmt: skip
    rows = [_find_rows(store, segment, low, high) for segment in mine]
    counts = dict.fromkeys(window.lanes, 0)
    for segment, (first, last) in zip(mine, rows, strict=True):
        counts[segment.lane] += last - first
    # Lanes whose slices are sent, those with the fewest first.
    left, whole = MOST_SLICES, set()
    for lane, count in sorted(counts.items(), key=lambda item: item[1]):
        left -= count
        if left >= 0:
            whole.add(lane)
    held = [
        _read_block(store, segment, place, low)
        for segment, place in zip(mine, rows, strict=True) if segment.lane in whole
    ]  # fmt: skip
    # Of the other lanes how busy each bin was.
    amounts: dict[tuple[int, int, int], Int64Array] = {}
    edges = equal_edges(low, high, window.width)
    for segment in mine:
        if segment.lane not in whole:
            _add_busy(store, segment, edges, amounts)
    used = np.unique(np.concatenate([b.process for b in held])).tolist() if held else []
    return {
        **slices(held, store.labels, fast=True),
        "low": window.low,
        "high": window.high,
        "whole": sorted(whole),
        "windows": [],
        "bins": pack_bins(amounts, window.width, fast=True),
        "processes": {str(p): store.processes[p] for p in used if 0 <= p < len(store.processes)},
    }


def _find_rows(store: Store, segment: Segment, low: int, high: int) -> tuple[int, int]:
    """Rows among which are all slices of a segment that overlap [low, high)."""
    blocks = -(-(segment.last - segment.first) // REACH_ROWS)
    reach = store.columns["reach"][segment.reach : segment.reach + blocks]
    first = segment.first + int(np.searchsorted(reach, low, side="right")) * REACH_ROWS
    start = store.columns["start"][segment.first : segment.last]
    last = segment.first + int(np.searchsorted(start, high))
    begin = segment.first + int(np.searchsorted(start, low))
    first = min(first, begin)  # none that begins in the window is left out
    return first, max(last, first)


def _read_block(store: Store, segment: Segment, place: tuple[int, int], low: int) -> Block:
    rows = slice(*place)
    columns = {name: np.asarray(store.columns[name][rows]) for name in COLUMNS}
    block = Block(segment.lane, **columns)
    return block.pick(block.end > low)


def _add_busy(
    store: Store,
    segment: Segment,
    edges: Int64Array,
    amounts: dict[tuple[int, int, int], Int64Array],
) -> None:
    for row, fate, first, last in segment.busy:
        done = _measure_busy_before(store, slice(first, last), edges)
        found = np.diff(done)
        if found.any():
            key = (segment.lane, row, fate)
            amounts[key] = amounts[key] + found if key in amounts else found


def _measure_busy_before(store: Store, rows: slice, at: Int64Array) -> Int64Array:
    """For each instant how long one row was busy before it; looks at few of its intervals."""
    start, end, before = (store.columns[f"busy_{n}"][rows] for n in ("start", "end", "before"))
    index = np.searchsorted(start, at, side="right") - 1
    known = np.maximum(index, 0)
    done: Int64Array = before[known] + np.minimum(end[known], at) - start[known]
    return np.where(index >= 0, done, 0)


def find(store: Store, words: str) -> dict[str, Any]:
    """The first file whose name holds the words, how many do, and its earliest operation."""
    wanted = words.lower()
    matching = [i for i, path in enumerate(store.labels.paths) if wanted in path.lower()]
    if not matching:
        return {"matches": 0}
    code, count = matching[0], 0
    earliest: tuple[int, int, int] | None = None  # start, lane, row
    for segment in store.segments:
        if store.labels.lanes.lanes[segment.lane].kind != IO:
            continue
        found: Sequence[Int64Array] = [
            low
            + np.flatnonzero(store.columns["name"][low : min(low + _AT_ONCE, segment.last)] == code)
            for low in range(segment.first, segment.last, _AT_ONCE)
        ]
        rows = np.concatenate(found)
        count += len(rows)
        if len(rows):
            at = int(store.columns["start"][rows[0]])
            place = (at - store.labels.since_ns, segment.lane, int(store.columns["row"][rows[0]]))
            earliest = place if earliest is None else min(earliest, place)
    return {
        "matches": len(matching), "name": store.labels.paths[code], "count": count,
        "first": earliest,
    }  # fmt: skip


ADDRESS = "127.0.0.1"
_TOKEN_BYTES = 24  # 192 bits: nobody guesses it
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
        answer = self.server.site.answer(self.path, self.headers.get("Host", ""))
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
        # The address has a secret, and only these two hosts are answered: another page of the
        # browser can neither guess it nor reach it under a name of its own (DNS rebinding).
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
            query = parse_qs(found.query, max_num_fields=8)
            if name == "":
                return Answer(200, _HTML, self.page)
            if name == "slices":
                return _answer_json(answer(self.store, _parse_window(query, self.store)))
            if name == "find":
                return _answer_json(find(self.store, query.get("words", [""])[0][:_MOST_WORDS]))
            return Answer(404, _TEXT, b"there is no such thing here\n")
        except ValueError as error:
            return Answer(400, _TEXT, f"{error}\n".encode())


def _parse_window(query: Mapping[str, list[str]], store: Store) -> Window:
    low, high, width = (_parse_whole(query.get(name, [""])[0]) for name in ("t0", "t1", "width"))
    lanes = [_parse_whole(text) for text in query.get("lanes", [""])[0].split(".")]
    if not low < high:
        raise ValueError("expected t0 below t1")
    if not 0 < width <= MOST_WIDTH:
        raise ValueError(f"expected a width of 1 to {MOST_WIDTH}")
    if len(lanes) > MOST_LANES or any(n >= len(store.labels.lanes.lanes) or n < 0 for n in lanes):
        raise ValueError(f"expected at most {MOST_LANES} lanes of the run")
    return Window(low, high, min(width, high - low), tuple(lanes))


def _parse_whole(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError("expected whole numbers t0, t1 and width, and lanes with dots between")
    return int(text)


def _answer_json(value: object) -> Answer:
    return Answer(200, _JSON, json.dumps(value, separators=(",", ":")).encode())


def _refuse(why: str) -> Answer:
    return Answer(403, _TEXT, f"refused: {why}\n".encode())
