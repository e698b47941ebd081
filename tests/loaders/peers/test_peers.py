"""The peers' loaders, where their packages are installed; their laws are in test_loaders.py."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.data.readers import open_reader
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.peers.shards import convert

pytestmark = [  # WebDataset leaves a shard open when its stream is left early
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PEERS = {"streaming": "mds", "webdataset": "tar"}


@pytest.fixture(params=sorted(PEERS))
def peer(request):
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize("name", ["ptycho", "cosmoflow", "images"])
def test_shards_hold_the_samples(peer, name, small):
    samples = small(name)
    convert(samples, PEERS[peer])
    loader = open_loader(peer, samples, Settings(batch=1))
    source, seen = open_reader(samples), set()
    for batch in loader:
        (i,) = batch["sample"].tolist()
        seen.add(i)
        for field, value in source.read(i).items():
            np.testing.assert_array_equal(batch[field][0].numpy(), value)
    assert seen == set(range(len(samples)))
    assert loader.stats().loads >= len(samples)
    loader.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_goes_on_with_the_same_ids(peer, workers, small):
    samples = small("ptycho")
    convert(samples, PEERS[peer])
    settings = Settings(batch=1, seed=4, workers=workers)

    def opened():
        return open_loader(peer, samples, settings)

    first = opened()
    first.set_epoch(1)
    whole = [batch["sample"].item() for batch in first]
    first.close()
    second = opened()
    second.set_epoch(1)
    for step, _ in enumerate(second, 1):
        if step == 2:
            state = second.state_dict()
            break
    second.close()
    third = opened()
    third.load_state_dict(state)
    third.set_epoch(1)
    assert [batch["sample"].item() for batch in third] == whole[2:]
    third.close()


def test_samples_have_to_be_converted_first(peer, ptycho):
    with pytest.raises(InputError, match="loaders convert"):
        open_loader(peer, ptycho, Settings())


def test_an_unknown_format_is_refused(ptycho):
    with pytest.raises(UsageError, match="mds"):
        convert(ptycho, "zip")


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_peer_that_is_not_installed_is_named(name, ptycho):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match=name):
            open_loader(name, ptycho, Settings())
    else:
        pytest.skip(f"{name} is installed")
