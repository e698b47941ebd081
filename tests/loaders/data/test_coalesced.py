"""Rows of HDF5 read together: every chunk once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import direct, written
from vanidl_loaders.data.coalesce import RowReads


def test_no_chunk_is_decoded_twice_in_a_window(tmp_path):
    made = written(tmp_path, "gzip")
    reads = RowReads(made, 0, 1)
    ids = np.array([0, 1, 7, 8, 9, 30, 31, 33, 100])  # chunks of 8: 0 1 3 4 12
    place = {(f.name, i): np.empty(f.shape, f.dtype) for f in made.fields for i in ids.tolist()}
    done = [task() for task in reads.tasks(ids, ids[:0], lambda name, i: place[name, i])]
    assert sum(d.requests for d in done[: len(done)]) == 5 + len(
        reads._sources["deep/y"].runs(ids)[0]
    )
    covered = reads.covered(ids)
    assert set(ids.tolist()) <= set(covered.tolist())
    start, stop = reads._sources["x"].runs(ids)
    assert (start[1:] >= stop[:-1]).all()
    assert (start % 8 == 0).all()
    stored = direct(made)
    for (name, i), values in place.items():
        np.testing.assert_array_equal(values, stored[name][i])
    reads.close()


def test_closing_says_nothing_where_storage_is_gone(tmp_path, monkeypatch):
    """The read that failed has said it, and a second error would hide that one."""
    made = written(tmp_path, "contiguous")
    reads = RowReads(made, 0, 1)
    ids = np.array([0])
    place = {(f.name, 0): np.empty(f.shape, f.dtype) for f in made.fields}
    for task in reads.tasks(ids, ids[:0], lambda name, i: place[name, i]):
        task()
    opened, closed = next(iter(reads._sources.values())).file.number, []

    def gone(file):
        closed.append(file)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", gone)
        reads.close()
    assert closed == [opened]
    os.close(opened)


def test_files_of_reads_that_nobody_closes_are_closed_with_them(tmp_path, collect):
    made, folder = written(tmp_path, "contiguous"), Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not list open files")

    def opened():
        return [each for each in folder.iterdir() if each.resolve() == made.path(0).resolve()]

    reads, ids = RowReads(made, 0, 1), np.array([0])
    place = {(f.name, 0): np.empty(f.shape, f.dtype) for f in made.fields}
    for task in reads.tasks(ids, ids[:0], lambda name, i: place[name, i]):
        task()
    assert opened()
    del reads, task
    collect()
    assert not opened()
