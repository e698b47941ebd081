from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.data import pread
from vanidl_loaders.data.pread import NamedFile, read_into
from vanidl_loaders.errors import InputError


@pytest.fixture
def stored(tmp_path):
    """(open file, its content)."""
    content = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    path = tmp_path / "data.bin"
    content.tofile(path)
    file = os.open(path, os.O_RDONLY)
    yield file, content
    os.close(file)


@pytest.mark.parametrize("offset", [0, 1, 4096, 99_999])
@pytest.mark.parametrize("nbytes", [0, 1, 4095, 70_000])
def test_bytes_are_those_of_the_file(stored, offset, nbytes):
    file, content = stored
    expected = content[offset : offset + nbytes]
    target = np.zeros(len(expected) + 2, np.uint8)
    calls = read_into(file, target[1:-1].data, offset)
    assert calls == (len(expected) > 0)
    np.testing.assert_array_equal(target[1:-1], expected)
    assert target[0] == target[-1] == 0  # nothing beside the target


def test_what_one_call_does_not_bring_the_next_ones_do(stored, monkeypatch):
    """As Linux does behind 2 GiB."""
    file, content = stored
    whole, most = pread._PREAD, 30_000
    monkeypatch.setattr(pread, "_PREAD", lambda f, to, n, at: whole(f, to, min(n, most), at))
    target = np.zeros(99_000, np.uint8)
    assert read_into(file, target.data, 7) == 4
    np.testing.assert_array_equal(target, content[7:99_007])


PIECES = ((90_000, 3_000), (0, 1), (5, 0), (4_095, 2), (99_999, 1))
"""(offset, bytes)"""


@pytest.mark.parametrize("most", [1_000, 100_000])
def test_pieces_are_those_of_the_file(stored, most, monkeypatch, tmp_path):
    """However many calls a piece takes."""
    file, content = stored
    whole, calls = pread._PREAD, []

    def some(number, address, nbytes, offset):
        calls.append(nbytes)
        return whole(number, address, min(nbytes, most), offset)

    monkeypatch.setattr(pread, "_PREAD", some)
    targets = [np.full(nbytes + 2, 7, np.uint8) for _, nbytes in PIECES]
    pieces = [(at, t.ctypes.data + 1, n) for (at, n), t in zip(PIECES, targets, strict=True)]
    totals = NamedFile(file, tmp_path / "data.bin").read_pieces(pieces)
    assert totals.nbytes == sum(nbytes for _, nbytes in PIECES)
    assert totals.requests <= len(calls)
    for (at, nbytes), target in zip(PIECES, targets, strict=True):
        np.testing.assert_array_equal(target[1:-1], content[at : at + nbytes])
        assert target[0] == target[-1] == 7  # nothing beside it


def test_a_piece_that_cannot_be_read_names_the_file(stored, tmp_path):
    file, _ = stored
    target = np.empty(11, np.uint8)
    with pytest.raises(InputError, match=r"data\.bin: expected data at byte 100000"):
        NamedFile(file, tmp_path / "data.bin").read_pieces([(99_990, target.ctypes.data, 11)])
    with pytest.raises(InputError, match=r"bytes 0 to 11 of .*data\.bin, found: Bad file descr"):
        NamedFile(-1, tmp_path / "data.bin").read_pieces([(0, target.ctypes.data, 11)])


def test_the_file_ends_before(stored):
    file, content = stored
    with pytest.raises(InputError, match="at byte 100000, found the file's end"):
        read_into(file, memoryview(bytearray(11)), len(content) - 10)


def test_what_cannot_be_read_says_why(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            read_into(folder, memoryview(bytearray(1)), 0)
    finally:
        os.close(folder)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_into(folder, memoryview(bytearray(1)), 0)
