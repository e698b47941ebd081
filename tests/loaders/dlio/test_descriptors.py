"""Files of many threads: none is closed while another is being opened."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")

from vanidl_loaders.dlio import samples
from vanidl_loaders.dlio.samples import Descriptors


@pytest.fixture
def watched(monkeypatch):
    """[(what, files that were being opened meanwhile)]; opens let other threads run."""
    lock, opening, noted = threading.Lock(), set(), []

    def opened(path, flags):
        with lock:
            opening.add(path)
        switched.wait(0.001)
        try:
            return os.open(path, flags)
        finally:
            with lock:
                opening.discard(path)

    def closed(file):
        with lock:
            noted.append(set(opening))
        os.close(file)

    switched = threading.Event()
    calls = SimpleNamespace(open=opened, close=closed, O_RDONLY=os.O_RDONLY, O_CLOEXEC=0)
    monkeypatch.setattr(samples, "os", calls)
    return noted


def test_nothing_is_closed_while_a_file_is_opened_and_all_is_in_the_end(
    tmp_path, monkeypatch, watched
):
    monkeypatch.setattr(samples, "MOST_WAITING", 3)
    paths = [tmp_path / str(number) for number in range(100)]
    for path in paths[:-1]:
        path.write_bytes(path.name.encode())
    files = Descriptors()

    def read(path):
        try:
            with files.opened(path) as file:
                return os.read(file, 10)
        except FileNotFoundError:
            return None

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(read, paths)] == [p.name.encode() for p in paths[:-1]] + [None]
    assert watched == [set()] * 99
