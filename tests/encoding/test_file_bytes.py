"""Bytes that are read where they are used are those of the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.encoding.file_bytes import FileBytes, whole_bytes
from vanidl.errors import InputError

OPEN_FILES = Path("/proc/self/fd")  # of Linux

places = st.none() | st.integers(-25, 25)


@given(places, places, st.integers(0, 20), st.integers(0, 20))
def test_slices_are_those_of_the_whole(tmp_path_factory, first, behind, start, length):
    path = tmp_path_factory.getbasetemp() / "twenty"
    path.write_bytes(whole := bytes(range(20)))
    start, stop = min(start, 20), min(start + length, 20)
    some = FileBytes(path).between(start, stop)
    assert len(some) == stop - start
    assert bytes(some[first:behind]) == whole[start:stop][first:behind]
    assert bytes(some.between(0, len(some))[:]) == whole[start:stop]


def test_a_file_that_becomes_shorter_gives_less(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    found = FileBytes(path)
    os.truncate(path, 4)
    assert (len(found), len(found[:]), len(found[6:])) == (10, 4, 0)


def is_open(path: Path) -> bool:
    known = OPEN_FILES.iterdir() if OPEN_FILES.is_dir() else ()
    return any(os.path.realpath(each) == str(path.resolve()) for each in known)


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="only Linux lists open files")
def test_the_file_is_closed_with_the_last_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    part = FileBytes(path).between(0, 1)
    assert is_open(path)
    del part
    assert not is_open(path)


@pytest.mark.parametrize("nbytes", [0, 1, 19, 20, 21])
def test_short_files_are_read_whole(tmp_path: Path, nbytes: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content := bytes(range(nbytes)))
    found = whole_bytes(path, 20)
    assert (found is None) == (nbytes > 20)
    assert found is None or bytes(found) == content
    assert not is_open(path)


@pytest.mark.parametrize("read", [FileBytes, lambda path: whole_bytes(path, 1 << 20)])
def test_what_is_no_file_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="another kind"):
        read(tmp_path / "pipe")
