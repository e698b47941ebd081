from __future__ import annotations

import pickle

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data.distributed import DistributedSampler

from vanidl_loaders.baseline import BaselineLoader, SampleDataset
from vanidl_loaders.data.readers import MOST_OPEN_FILES, HDF5Reader, open_reader
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Counts, Settings
from vanidl_loaders.ranks.world import World
from vanidl_loaders.workloads.making import make


def ids(loader):
    return [batch["sample"].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_equal_direct_reads(ptycho, workers):
    loader = BaselineLoader(ptycho, Settings(batch=4, workers=workers))
    with h5py.File(ptycho.path(0)) as file:
        stored = {field.name: file[field.name][()] for field in ptycho.fields}
    seen = []
    for batch in loader:
        rows = batch["sample"].numpy()
        for name, values in stored.items():
            np.testing.assert_array_equal(batch[name].numpy(), values[rows])
        seen += rows.tolist()
    assert sorted(seen) == list(range(21))
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_counts_are_those_of_the_reads(ptycho, workers):
    loader = BaselineLoader(ptycho, Settings(batch=4, workers=workers))
    for epoch in range(2):
        loader.set_epoch(epoch)
        assert len(ids(loader)) == len(loader) == 6
    stats = loader.stats()
    assert (stats.loads, stats.hits, stats.steps) == (42, 0, 12)
    assert stats.nbytes == 42 * 3 * 16 * 16 * 4
    assert stats.requests == 42 * 3
    assert all(wait > 0 for wait in stats.exposed_wait_s)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_follow_the_distributed_sampler_in_step(ptycho, ranks, drop_last):
    lengths = set()
    for rank in range(ranks):
        settings = Settings(World(rank, ranks, 0, 1), batch=4, seed=9, drop_last=drop_last)
        loader = BaselineLoader(ptycho, settings)
        peer = DistributedSampler(range(21), ranks, rank, seed=9, drop_last=drop_last)
        for epoch in (0, 1):
            loader.set_epoch(epoch)
            peer.set_epoch(epoch)
            found, flat = ids(loader), list(peer)
            assert found == [flat[4 * i : 4 * i + 4] for i in range(len(loader))]
            lengths |= {len(found), len(loader)}
    assert len(lengths) == 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_state_goes_on_with_the_same_ids(ptycho, workers, stop):
    settings = Settings(batch=4, seed=2, workers=workers)
    first = BaselineLoader(ptycho, settings)
    first.set_epoch(1)
    whole = ids(first)
    first.set_epoch(1)
    for step, _ in enumerate(first, 1):
        if step == stop:
            state = first.state_dict()
            break
    second = BaselineLoader(ptycho, settings)
    second.load_state_dict(state)
    second.set_epoch(1)
    assert ids(second) == whole[stop:]
    assert second.stats().loads == sum(map(len, whole[stop:]))  # what is skipped is not read
    second.set_epoch(2)
    first.set_epoch(2)
    assert ids(second) == ids(first)


def test_a_state_of_another_stream_is_refused(ptycho):
    state = BaselineLoader(ptycho, Settings(batch=4)).state_dict()
    with pytest.raises(UsageError, match="expected a state"):
        BaselineLoader(ptycho, Settings(batch=5)).load_state_dict(state)


@pytest.mark.parametrize("name", ["ptycho", "cosmoflow", "deepcam", "images"])
def test_every_workload_is_batched(name, small):
    loader = BaselineLoader(small(name), Settings(batch=2))
    batches = list(loader)
    assert [len(batch["sample"]) for batch in batches] == [2, 2, 1]
    for field in small(name).fields:
        assert batches[0][field.name].shape == (2, *field.shape)


def test_files_are_opened_lazily_and_not_pickled(ptycho):
    dataset = SampleDataset(ptycho, Counts())
    first = dataset[3]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy._reader._files == {}
    np.testing.assert_array_equal(copy[3]["phase"], first["phase"])
    dataset.close()
    assert dataset._reader._files == {}
    np.testing.assert_array_equal(dataset[3]["phase"], first["phase"])
    dataset.close()
    copy.close()


def test_only_so_many_files_stay_open(tmp_path):
    made = make("cosmoflow", tmp_path, samples=MOST_OPEN_FILES + 3, size=4)
    reads = HDF5Reader(made)
    for i in range(len(made)):
        reads.read(i)
    assert len(reads._files) == MOST_OPEN_FILES
    assert made.path(len(made) - 1) in reads._files
    assert made.path(0) not in reads._files
    reads.close()


def test_missing_and_foreign_files_are_named(tmp_path):
    made = make("ptycho", tmp_path, samples=2, size=16)
    made.path(0).write_bytes(b"no HDF5")
    with pytest.raises(InputError, match=r"ptycho\.h5"):
        open_reader(made).read(0)
    with h5py.File(made.path(0), "w") as file:
        file["diffraction"] = np.zeros((2, 8, 8), "f4")
    with pytest.raises(InputError, match="of shape"):
        open_reader(made).read(0)
    made.path(0).unlink()
    with pytest.raises(InputError, match="make the data again"):
        open_reader(made).read(0)
    with pytest.raises(IndexError):
        open_reader(made).read(2)
