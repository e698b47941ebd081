"""`vanidl view` answers its own page and nobody else; it leaves at Ctrl-C without a word."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import DATA
from tests.analyses.test_laws import GRID, US, operations, spans, trace_of
from tests.makers import browser
from tests.viewer import unpacking
from tests.viewer.test_slices import length_of
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.errors import InputError
from vanidl.report.html import page_of, page_with
from vanidl.report.page import render_page
from vanidl.run import Run
from vanidl.serve import server
from vanidl.serve import server as windows
from vanidl.serve.server import Window, answer, find, open_server
from vanidl.serve.store import open_store, write_store
from vanidl.viewer.content import Room, content_of
from vanidl.viewer.payload import payload

RUN = DATA / "torch_pfs_workers0"


@pytest.fixture(scope="module")
def served(opened, tmp_path_factory) -> Iterator[str]:
    """The address of a server of a recorded run, whose page holds few of its slices."""
    run, folder = opened(RUN), tmp_path_factory.mktemp("store")
    page = render_page(page_with(page_of(run), run, Room(400, 4096, served=True)))
    write_store(run, folder)
    with open_server(page.encode(), open_store(folder)) as (server, address):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield address
        server.shutdown()
        thread.join()


def get(address: str, path: str | None = None, **headers: str) -> tuple[int, bytes, dict]:
    found = urlsplit(address)
    connection = HTTPConnection(str(found.hostname), found.port, timeout=120)
    connection.request("GET", found.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def test_the_address_opens_the_page(served):
    status, body, headers = get(served)
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path", ["/", "/slices", "/wrong/", "/wrong/slices?t0=0&t1=9&width=1&lanes=0", "//", "/%00/",
             "/../../etc/passwd", "/favicon.ico", "/%C3%A9/"],
)  # fmt: skip
def test_nothing_is_told_without_the_token(served, path):
    status, body, _ = get(served, path)
    assert status == 403
    assert b"<" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1]:{port}"]
)
def test_an_address_of_another_name_is_refused(served, host):
    found = urlsplit(served)
    status, _, _ = get(served, Host=host.format(port=found.port))
    assert status == 403
    assert get(served, Host=f"localhost:{found.port}")[0] == 200


@pytest.mark.parametrize(
    "rest", ["etc/passwd", "../store.json", "store.json", "%2e%2e/%2e%2e/etc/passwd", "page.html"]
)
def test_no_part_of_a_request_names_a_file(served, rest):
    assert get(served, urlsplit(served).path + rest)[0] == 404


@pytest.mark.parametrize(
    "query",
    ["", "t0=1&t1=0&width=5&lanes=0", "t0=0&t1=9&width=0&lanes=0", "t0=0&t1=9&width=99999&lanes=0",
     "t0=0&t1=9&width=5&lanes=99", "t0=0&t1=9&width=5&lanes=-1", "t0=x&t1=9&width=5&lanes=0",
     "t0=0&t1=" + "9" * 400 + "&width=5&lanes=0", "t0=0&t1=9&width=5&lanes=" + "0." * 999 + "0",
     "&".join(f"a{i}=1" for i in range(99)), "t0=0&t1=%E0%A5%AF&width=5&lanes=0"],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_answered_so(served, query):
    path = urlsplit(served).path + "slices?" + query
    status, body, _ = get(served, path)
    assert status == 400
    assert body.startswith(b"expected") or b"fields" in body


@pytest.mark.parametrize("target", ["http://[/", "//[", "http://[::1/x"])
def test_half_an_address_is_answered_in_one_line(served, target, capsys):
    found = urlsplit(served)
    with socket.create_connection((found.hostname, found.port), timeout=60) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {found.netloc}\r\n\r\n".encode())
        assert connection.recv(1000).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    assert "ValueError" not in capsys.readouterr().err


def test_only_get_is_answered(served):
    found = urlsplit(served)
    connection = HTTPConnection(str(found.hostname), found.port, timeout=120)
    connection.request("POST", found.path, body=b"x")
    assert connection.getresponse().status == 501
    connection.close()


@pytest.mark.browser
def test_the_page_fetches_what_it_does_not_hold(served, driver, opened):
    driver.get(served + "#t=20.0-20.4")
    exact = driver.execute_async_script(
        """
        const done = arguments[0], end = Date.now() + 20000;
        const poll = setInterval(() => {
          const trace = document.querySelector(".viewer").trace;
          const live = trace && trace.model.live;
          if (!live && Date.now() < end) return;
          clearInterval(poll);
          const io = trace.model.packed.lanes.findIndex((l) => l.kind === "io");
          done([live.whole.has(io), trace.model.packed.held, trace.model.packed.total,
                live.tracks.filter((t) => t.lane === io).reduce((n, t) => n + t.entries, 0)]);
        }, 20);
        """
    )
    run = opened(RUN)
    since = run.trace.job.start_ns
    low, high = since + int(19.8e9), since + int(20.6e9)  # half a view more at both sides
    inside = sum(int(((p.start < high) & (p.end > low)).sum()) for p in run.trace.io)
    assert exact[0]
    assert exact[1] <= 400 < exact[2]
    assert exact[3] == inside
    assert browser.console_errors(driver) == []
    assert all(address.startswith(served) for address in browser.requests(driver))


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "vanidl", "view", str(RUN)]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        assert get(address)[0] == 200
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert errors == ""
    assert "Traceback" not in output
    (kept,) = (tmp_path / "vanidl" / "view").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept.iterdir())


def test_a_port_that_is_taken_is_one_clear_line(served, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(server, "open_kept", lambda *_: (b"", None))
    assert main(["view", str(RUN), "--port", str(urlsplit(served).port)]) == 1
    assert "cannot listen there" in capsys.readouterr().err


class TestCache:
    """What was left is used again while the run is the same, and only if it is ours."""

    @pytest.fixture
    def left(self, opened, tmp_path: Path) -> Path:
        folder = tmp_path / "view"
        server.keep(folder, "key", b"page", lambda place: write_store(opened(RUN), place))
        return folder

    def test_is_found_again(self, left):
        found = server.open_kept(left, "key")
        assert found is not None
        assert found[0] == b"page"
        assert server.open_kept(left, "another") is None

    @pytest.mark.parametrize("path", [".", "key", "key/page.html", "key/start.bin"])
    def test_open_to_others_is_not_used(self, left, path):
        (left / path).chmod(0o777)
        assert server.open_kept(left, "key") is None

    def test_links_are_not_followed(self, left, tmp_path):
        (left / "key" / "page.html").rename(tmp_path / "page.html")
        (left / "key" / "page.html").symlink_to(tmp_path / "page.html")
        assert server.open_kept(left, "key") is None

    @pytest.mark.parametrize("name", ["page.html", "page.sha256", "start.bin", "store.json"])
    def test_damage_is_noticed(self, left, name):
        (left / "key" / name).write_bytes(b"x")
        assert server.open_kept(left, "key") is None

    def test_the_oldest_goes(self, left, monkeypatch):
        monkeypatch.setattr(server, "MOST_RUNS", 2)
        for i in range(3):
            (left / f"old{i}").mkdir()
            os.utime(left / f"old{i}", (i, i))
        server._drop_old(left, "key")
        assert {path.name for path in left.iterdir()} == {"key", "old2"}

    def test_a_key_is_of_names_content_and_options(self, tmp_path):
        path = tmp_path / "x.darshan"
        path.write_bytes(b"a" * 100)
        keys = {server.compute_key([path], "")}
        keys.add(server.compute_key([path], "--only dataset"))
        about = path.stat()
        path.write_bytes(b"b" * 100)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        keys.add(server.compute_key([path], ""))
        os.utime(path, ns=(1, 1))
        keys.add(server.compute_key([path], ""))
        keys.add(server.compute_key([path.rename(tmp_path / "y.darshan")], ""))
        assert len(keys) == 5


# What the server answers is what was recorded, at any zoom; a store by a stranger is refused.

times = st.tuples(st.integers(-5, GRID + 5), st.integers(1, GRID)).map(
    lambda t: (t[0] * US, (t[0] + t[1]) * US)
)


def stored(ios, seen, folder: Path):
    trace = trace_of(ios, seen)
    run = Run(trace, analyse(trace))
    write_store(run, folder)
    return run, open_store(folder)


@given(operations(), spans, times, st.integers(1, 40), st.integers(0, 15))
def test_a_window_holds_its_slices_or_how_busy_they_were(ios, seen, window, width, most):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(windows, "MOST_SLICES", most)
        patched.setattr("vanidl.serve.store.REACH_ROWS", 2)
        patched.setattr(windows, "REACH_ROWS", 2)
        run, store = stored(ios, seen, Path(folder))
        low, high = window
        lanes = tuple(range(len(store.labels.lanes.lanes)))
        found = answer(store, Window(low, high, width, lanes))
    whole = payload(content_of(run), None)
    every = unpacking.slices(whole)
    inside = [
        s for s in every if s["pieces"][0][0] < high and s["pieces"][-1][1] > low
    ]  # fmt: skip
    held = unpacking.slices(found)
    key = json.dumps
    assert sorted(map(key, held)) == sorted(key(s) for s in inside if s["lane"] in found["whole"])
    edges = [low + round(i * (high - low) / width) for i in range(width + 1)]
    busy = {}
    for lane, row, fate, place, amount in _bins(found["bins"]):
        busy[lane, row, fate] = busy.get((lane, row, fate), 0) + amount
        assert 0 < amount <= edges[place + 1] - edges[place] + 1
    expected: dict = {}
    for each in every:
        if each["lane"] in found["whole"]:
            continue
        for start, end, fate in each["pieces"]:
            part = min(end, high) - max(start, low)
            if part > 0:
                of_row = expected.setdefault((each["lane"], each["row"], fate), [])
                of_row.append((max(start, low), min(end, high)))
    lengths = {k: length_of(v) for k, v in expected.items()}
    assert busy == lengths


def _bins(packed):
    if packed is None:
        return
    columns = unpacking.columns(packed)
    at = 0
    for lane, row, fate, count in packed["series"]:
        for i in range(at, at + count):
            yield lane, row, fate, columns["place"][i], columns["busy"][i]
        at += count


@given(operations(), spans)
def test_a_file_is_found_with_its_first_operation(ios, seen):
    with tempfile.TemporaryDirectory() as folder:
        run, store = stored(ios, seen, Path(folder))
        paths = run.trace.files.path
        for code, path in enumerate(paths):
            starts = np.concatenate(
                [np.empty(0, np.int64), *(p.start[p.file == code] for p in run.trace.io)]
            )
            found = find(store, path.upper())
            assert found["name"] == paths[next(i for i, p in enumerate(paths) if path in p)]
            if found["name"] == path:
                assert found["count"] == len(starts)
                since = run.trace.job.start_ns
                first = int(starts.min()) - since if len(starts) else None
                assert (found["first"] and found["first"][0]) == first
        assert find(store, "no such file")["matches"] == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tests.makers.records import Io, Span
    from vanidl.model.trace import SpanKind

    ios = [(0, Io(100 * US, 140 * US, 0, 4096)), (1, Io(120 * US, 180 * US, 4096, 4096))]
    stored(ios, [Span(SpanKind.INPUT_WAIT, 100 * US, 150 * US)], tmp_path)
    return tmp_path


def damaged(folder: Path, **changes) -> None:
    path = folder / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 99}, {"segments": [[0, 0, 10**6, 0, 1, 0, []]]}, {"segments": [[]]},
        {"segments": [[-1, 0, 1, 0, 1, 0, []]]}, {"segments": 7}, {"lanes": [{"kind": "io"}]},
        {"since_ns": "0"}, {"since_ns": 2**70}, {"lengths": {}}, {"paths": None},
        {"segments": [[0, 0, 1, 0, 1, 0, [[0, 0, 0, 10**9]]]]},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_a_damaged_store_is_refused(folder, changes):
    damaged(folder, **changes)
    with pytest.raises(InputError, match="expected the slices of a run"):
        open_store(folder)


@pytest.mark.parametrize("name", ["start.bin", "busy_before.bin", "store.json"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_store_with_a_file_cut_or_gone_is_refused(folder, name, how):
    path = folder / name
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="expected the slices of a run"):
        open_store(folder)
