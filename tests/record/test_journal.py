"""What programs do to descriptors and to their own end costs neither their files nor events."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Barrier, Thread, get_ident
from time import monotonic

import pytest

from vanidl.readers.steps.journal import WAIT, read_journal
from vanidl.record.injected.vanidl_steps import journal
from vanidl.record.injected.vanidl_steps.journal import OwnFile


@pytest.fixture
def taken(tmp_path: Path):
    """A file of the recorder, and one of the program that has got its number."""
    (tmp_path / "steps").mkdir()
    own = OwnFile(str(tmp_path / "steps"), ".steps")
    own.write(b"one,")
    os.close(own._number)
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    if theirs != own._number:
        os.dup2(theirs, own._number)
    return own, tmp_path


def test_nothing_is_written_to_a_file_of_the_program(taken: tuple[OwnFile, Path]) -> None:
    own, folder = taken
    own.write(b"two")
    (path,) = (folder / "steps").iterdir()
    assert (path.read_bytes(), (folder / "theirs").read_bytes()) == (b"one,two", b"")


def test_a_file_of_the_program_is_not_closed(taken: tuple[OwnFile, Path]) -> None:
    own, folder = taken
    own.leave()
    os.write(own._number, b"still open")
    assert (folder / "theirs").read_bytes() == b"still open"


def test_the_end_of_a_program_is_recorded_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[object, ...]] = []
    monkeypatch.setattr(journal, "_calls_before_end", [])
    for name in ("_exit", "execv", "execve"):
        monkeypatch.setattr(os, name, lambda *words, name=name: ended.append((name, *words)))
    events = journal.Journal(str(tmp_path))
    for number, end in enumerate(
        (lambda: os._exit(3), lambda: os.execl("/a", "a"), lambda: os.execvpe("/b", ["b"], {}))
    ):
        events.add(WAIT, number, 10 + number, 11 + number)
        events.flush_ns = 10**19
        end()
        found = read_journal(next(tmp_path.glob("*.steps")))
        assert (len(found.events), found.ended) == (number + 1, True)
    assert ended == [("_exit", 3), ("execv", "/a", ("a",)), ("execve", "/b", ["b"], {})]


def test_threads_that_write_at_once_lose_no_event_and_share_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opens the file, or writes, with every event; threads change hands as often as can be."""
    monkeypatch.setattr(journal, "_FLUSH_NS", -(3 * 10**18))
    events, together = journal.Journal(str(tmp_path)), Barrier(4, timeout=60)

    def add_some(first: int) -> None:
        together.wait()
        for number in range(first, first + 200):
            events.add(WAIT, number, 10 + number, 11 + number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=add_some, args=(1000 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events.close()
    finally:
        sys.setswitchinterval(before)
    (path,) = tmp_path.glob("*.steps")
    found = read_journal(path)
    expected = [1000 * k + number for k in range(4) for number in range(200)]
    assert sorted(found.events.number.tolist()) == expected
    assert found.ended


def test_a_signal_within_writing_does_not_wait_for_itself(tmp_path: Path) -> None:
    events = journal.Journal(str(tmp_path))

    class Interrupted(list):
        def __iter__(self):
            events.close()  # as a handler of SIGTERM that ends the program
            return super().__iter__()

    events.add(WAIT, 0, 10, 11)
    events.flush_ns = 10**19
    events.rows = Interrupted([WAIT, 1, 12, 13, get_ident()])
    started = monotonic()
    events.flush()
    assert monotonic() - started < 2
