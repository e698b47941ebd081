"""On a terminal a command tells how far it is, in one line that is gone at the end."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from tests import DATA
from vanidl.cli import main

RUN = DATA / "torch_pfs_workers0"
EVIL = "\x1b]0;owned\x07"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[Terminal]:
    """In place of standard error; not as a fixture, since pytest sets the stream for each test."""
    with redirect_stderr(Terminal()) as stream:
        yield stream


def test_one_line_that_grows_and_is_gone() -> None:
    with terminal() as stream:
        assert main(["summary", str(RUN)]) == 0
    _, *lines, last = stream.getvalue().split("\r")
    shown = [re.fullmatch(r"reading (.+) \[(#*)(\.*)\] (\d+)/(\d+)\x1b\[K", line) for line in lines]
    assert lines
    assert all(shown)
    for what in {match[1] for match in shown}:
        done = [int(match[4]) for match in shown if match[1] == what]
        assert done == sorted(done)
    assert all(len(match[2] + match[3]) == 24 for match in shown)
    assert last == "\x1b[K"


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    log = next(RUN.rglob("*.darshan"))
    shutil.copy(log, tmp_path / f"{EVIL}.darshan")
    with terminal() as stream:
        assert main(["summary", str(tmp_path / f"{EVIL}.darshan"), "--layer", EVIL]) in (1, 2)
        assert main(["summary", str(tmp_path)]) == 0
    assert "reading" in stream.getvalue()
    said = stream.getvalue().replace("\x1b[K", "").replace("\r", "").replace("\n", "")
    assert said.isprintable()


def test_a_thread_of_ones_own_may_run_a_command(capsys) -> None:
    """Where signals are the main thread's, and standard streams may be closed."""
    import threading

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(main(["summary", str(RUN), "--json"])))
    thread.start()
    thread.join()
    assert found == [0]
    assert capsys.readouterr().out.startswith("{")


def test_without_standard_streams_a_command_is_silent(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["report", str(RUN), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 0
