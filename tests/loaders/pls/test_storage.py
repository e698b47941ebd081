"""Stores and sources: the bytes that went in come out, and a killed write leaves nothing."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.data.readers import open_reader
from vanidl_loaders.errors import InputError
from vanidl_loaders.loader.loader import Counts
from vanidl_loaders.pls import storage
from vanidl_loaders.pls.sources import Items, open_source
from vanidl_loaders.pls.storage import (
    FolderStore,
    Measured,
    MemoryStore,
    content,
    new_message,
    sample_of,
)

WORKLOADS = ("ptycho", "cosmoflow", "deepcam", "images")


def message(sample, nbytes=100):
    made = new_message(sample, nbytes)
    content(made)[:] = np.random.default_rng(sample).integers(0, 256, nbytes)
    return made


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return (
        MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "own", "x", "same")
    )


def test_what_was_kept_comes_back(store):
    kept = {i: message(i, 10 + i % 100) for i in (3, 70, 1 << 33)}
    for each in kept.values():
        store.add(each.copy())
    assert store.sizes() == {3: 13, 70: 80, 1 << 33: 10 + (1 << 33) % 100}
    for sample, each in kept.items():
        assert sample_of(store.message(sample)) == sample
        assert np.array_equal(store.message(sample), each)
    store.discard(70)
    store.discard(70)
    assert set(store.sizes()) == {3, 1 << 33}
    with pytest.raises(InputError, match="sample 70"):
        store.message(70)


def test_the_most_that_was_held_is_known(store):
    measured = Measured(store)
    for sample in range(4):
        measured.add(message(sample, 50))
    measured.discard(0)
    measured.add(message(9, 10))
    assert (len(measured), measured.peak_samples, measured.peak_nbytes) == (4, 4, 200)
    assert 9 in measured
    assert 0 not in measured
    assert sorted(measured) == [1, 2, 3, 9]
    assert measured.nbytes(9) == 10


def test_a_store_can_be_pickled_for_workers(store):
    measured = Measured(store)
    measured.add(message(4))
    assert np.array_equal(pickle.loads(pickle.dumps(measured)).message(4), message(4))


@pytest.mark.parametrize("after", [0, 40])
def test_a_write_that_is_cut_leaves_no_sample(after, tmp_path, monkeypatch):
    store = FolderStore(tmp_path, "x", "same")
    store.add(message(1))

    class Dies(Exception):
        pass

    def dies(path, values, trailer):
        path.with_name(f"{path.name}{storage.PART}").write_bytes(values[:after].tobytes())
        raise Dies

    monkeypatch.setattr(storage, "_write", dies)  # what a kill leaves behind
    with pytest.raises(Dies):
        store.add(message(2))
    monkeypatch.undo()
    assert len(list(tmp_path.glob("*.part"))) == 1
    again = FolderStore(tmp_path, "x", "same")
    assert again.sizes() == {1: 100}
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    store = FolderStore(tmp_path, "x", "same")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space"):
        store.add(message(2))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {storage.IDENTITY, storage.FINGERPRINT}


def test_a_folder_of_other_samples_is_refused(tmp_path):
    FolderStore(tmp_path / "a", "these", "same")
    FolderStore(tmp_path / "a", "these", "same")
    with pytest.raises(InputError, match="samples of others"):
        FolderStore(tmp_path / "a", "others", "same")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "0000000001.sample").write_bytes(b"x")
    with pytest.raises(InputError, match="found none"):
        FolderStore(tmp_path / "b", "these", "same")


@pytest.mark.parametrize("place", [0, 50, -1, -9])
def test_a_kept_sample_that_was_damaged_is_noticed(place, tmp_path):
    store = FolderStore(tmp_path, "x", "same")
    store.add(message(1))
    store.add(message(2))
    (path,) = tmp_path.glob("*1.sample")
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        store.message(1)
    assert FolderStore(tmp_path, "x", "same").sizes() == {2: 100}


def test_kept_samples_of_a_source_that_was_replaced_are_read_again(small, tmp_path):
    """A replaced image, and zeros in place of a kept sample, come back as they are now."""
    import os
    import shutil

    from vanidl_loaders.data.samples import open_samples
    from vanidl_loaders.pls import PartialLocalDataset
    from vanidl_loaders.ranks.world import World

    shutil.copytree(small("images").folder, tmp_path / "data")
    samples = open_samples(tmp_path / "data")

    def images():
        dataset = PartialLocalDataset(
            samples, world=World(), folder=tmp_path / "local", partition="blocks"
        )
        read = dataset.settle(dataset.held())
        return read, [dataset[slot]["image"].tobytes() for slot in range(len(dataset))]

    read, first = images()
    assert (read, images()) == (len(samples), (0, first))
    content_of_2 = samples.path(2).read_bytes()
    samples.path(0).write_bytes(content_of_2)
    os.utime(samples.path(0), (1, 1))  # older than before: a newer date is no condition
    kept = tmp_path / "local" / "rank00000" / "0000000003.sample"
    kept.write_bytes(bytes(kept.stat().st_size))
    assert images() == (2, [first[2], *first[1:]])


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_source_gives_what_the_baseline_reads(workload, small):
    samples = small(workload)
    source, counts, direct = open_source(samples), Counts(), open_reader(samples)
    ids = [4, 0, 3]
    messages = {sample_of(each): each for each in source.read(ids, counts)}
    assert sorted(messages) == sorted(ids)
    for sample, each in messages.items():
        found, expected = source.decode(each), direct.read(sample)
        assert found.pop("sample") == sample
        assert sorted(found) == sorted(expected)
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            assert np.array_equal(found[name], values)
            found[name][...] = 0  # the sample's own memory
        again = source.decode(each)
        assert all(np.array_equal(again[name], expected[name]) for name in expected)
    assert counts.stats([]).loads == 3
    assert counts.stats([]).requests >= 3 or workload == "ptycho"
    assert counts.stats([]).nbytes == sum(content(each).nbytes for each in messages.values())
    direct.close()


def test_items_of_any_data_set():
    data = [{"x": np.arange(i), "label": str(i)} for i in range(5)]
    source = Items(data)
    (found,) = map(source.decode, source.read([3], Counts()))
    assert found["label"] == "3"
    assert np.array_equal(found["x"], np.arange(3))
