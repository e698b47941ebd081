"""What the child of `library` does, done in this process: by whole logs and cut ones."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.readers.darshan.test_library import assert_same, check, log_with, several
from vanidl.readers.darshan import library, library_child
from vanidl.readers.darshan.library import read_counters


@pytest.fixture(autouse=True)
def requests(monkeypatch, darshan_library):
    """The number of requests so far; neither the memory nor the time of this process ends."""
    done = SimpleNamespace(count=0)

    def wait(request: bytes, seconds: float, mine: object) -> str:
        done.count += 1
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(request)))
        return library.ending(library_child.main())

    monkeypatch.setattr(library, "_wait", wait)
    monkeypatch.setattr(library_child, "_backend", lambda: darshan_library)
    monkeypatch.setattr(library_child, "_limit_memory", lambda nbytes: None)
    monkeypatch.setattr(signal, "alarm", lambda seconds: 0)
    return done


def test_pydarshan_without_its_library_is_said(tmp_path, monkeypatch):
    """As where no wheel fits the version of Python."""

    def none():
        raise RuntimeError("Could not find libdarshan-util.so!")

    monkeypatch.setattr(library_child, "_backend", none)
    (file,) = read_counters(several(tmp_path, [log_with(3)])).values()
    assert file.layers == ()
    assert "PyDarshan comes without Darshan's library" in file.losses[0]


def test_one_process_reads_many_logs(tmp_path, requests):
    paths = several(tmp_path, [log_with(3), b"no log", log_with(40)])
    first, none, second = read_counters(paths).values()
    check(first, 3)
    check(second, 40)
    assert none.losses == ("Darshan's library cannot open the log",)
    assert requests.count == 1


def test_what_follows_a_damaged_log_is_left_to_a_new_process(tmp_path, requests, monkeypatch):
    """The library may have written anywhere, so that its process ends there."""
    paths = several(tmp_path, [log_with(5)] * 3)
    read, taken = library_child._read, library_child._all

    def one_record(*module):
        return taken(*module)[0][:1], False

    def reading(backend, path, modules):
        ended = path == paths[1]  # as where the library stops within the records of a module
        monkeypatch.setattr(library_child, "_all", one_record if ended else taken)
        return read(backend, path, modules)

    monkeypatch.setattr(library_child, "_read", reading)
    first, cut, last = read_counters(paths).values()
    check(first, 5)
    check(last, 5)
    assert cut.losses == (
        "POSIX counters are incomplete: 1 records were read",
        "STDIO counters are incomplete: 1 records were read",
    )
    assert requests.count == 2


def test_wheel_logs_equal_pydarshan(wheel_logs: tuple[Path, ...]) -> None:
    for path, file in read_counters([str(path) for path in wheel_logs]).items():
        assert_same(Path(path), file)
