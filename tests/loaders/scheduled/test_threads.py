"""Threads that read ahead: they end, and errors in them are raised."""

from __future__ import annotations

import threading

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


from tests.loaders.data.stored import N, direct, written
from tests.loaders.scheduled.planned import scheduled, stream
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.scheduled.stage import StageSettings


def readers():
    return {t for t in threading.enumerate() if t.name.startswith("read")}


def test_threads_end_on_close(flat):
    before = readers()
    loader = scheduled(flat, look_ahead=2)
    iteration = iter(loader)
    next(iteration)
    assert readers() - before
    loader.close()
    assert readers() <= before


def test_leaving_an_iteration_ends_its_thread_and_the_next_one_begins_anew(flat):
    loader = scheduled(flat)
    wanted = [b["sample"].tolist() for _, b in stream(loader, [1])]
    iteration = iter(loader)
    next(iteration)
    assert [b["sample"].tolist() for _, b in stream(loader, [1])] == wanted
    assert list(iteration) == []
    loader.close()


def cut(path):
    """Half a file: HDF5 has it open already, and rows lie behind its end."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_an_error_while_reading_ahead_is_raised_in_next_and_ends_the_threads(tmp_path):
    made = written(tmp_path, "contiguous")
    before = readers()
    loader = scheduled(made, look_ahead=1)
    iteration = iter(loader)
    next(iteration)
    cut(made.path(0))
    with pytest.raises(InputError, match="end"):
        list(iteration)
    loader.close()
    assert readers() <= before


def test_what_was_not_read_whole_is_not_held(tmp_path):
    made = written(tmp_path, "contiguous")
    content, stored = made.path(0).read_bytes(), direct(made)
    loader = scheduled(made, buffer=N)
    iteration = iter(loader)
    next(iteration)
    cut(made.path(0))
    with pytest.raises(InputError, match="end"):
        list(iteration)
    made.path(0).write_bytes(content)
    for _, batch in stream(loader, [0]):
        for name, values in stored.items():
            np.testing.assert_array_equal(batch[name], values[batch["sample"].numpy()])
    loader.close()


def test_a_damaged_chunk_is_named(tmp_path):
    made = written(tmp_path, "gzip")
    with h5py.File(made.path(0)) as file:
        chunk = file["x"].id.get_chunk_info(5)
    with made.path(0).open("r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    loader = scheduled(made)
    with pytest.raises(InputError, match="40 to 48 of x"):
        list(loader)
    loader.close()


@pytest.mark.parametrize("damage", ["missing", "foreign", "shape"])
def test_data_that_are_not_as_described_are_named(tmp_path, damage):
    made = written(tmp_path, "contiguous")
    if damage == "missing":
        made.path(0).unlink()
    elif damage == "foreign":
        made.path(0).write_bytes(b"no HDF5")
    else:
        made = SampleSet(tmp_path, "rows", N + 1, made.fields, "rows")
    loader = scheduled(made)
    with pytest.raises(InputError, match=r"rows\.h5"):
        list(loader)
    loader.close()


def test_epochs_beyond_the_plan_are_refused(flat):
    loader = scheduled(flat, epochs=2)
    loader.set_epoch(2)
    with pytest.raises(UsageError, match="plan more"):
        list(loader)
    loader.close()


@pytest.mark.parametrize("wrong", [{"look_ahead": -1}, {"gap": -1}, {"threads": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        StageSettings(**wrong)
