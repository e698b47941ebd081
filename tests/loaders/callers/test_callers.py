"""Wrong data without a word, each case as the callers of four kinds of loop meet it."""

from __future__ import annotations

import os
import random
from contextlib import suppress

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from torch.utils.data import DataLoader

from tests.loaders.callers.loops import LOOPS, Left, Seen
from vanidl_loaders import pls
from vanidl_loaders.errors import UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.messages import Alone
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.dataset import buffered_loader
from vanidl_loaders.scheduled.plan import PlanSettings
from vanidl_loaders.workloads.making import make

N, BATCH, EPOCHS = 23, 4, 3
STEPS = 6

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of frameworks, about themselves
    pytest.mark.parametrize("loop", LOOPS),
]


class Files:
    """Samples in files of one size, as a data set of one's own has them."""

    def __init__(self, folder):
        self.paths = [folder / f"{i}.bin" for i in range(N)]

    def write(self, first):
        self.paths[0].parent.mkdir(exist_ok=True)
        for i, path in enumerate(self.paths):
            path.write_bytes(bytes([first + i]))
            os.utime(path, ns=(0, 0))  # as an archive has it that is unpacked again
        return self

    def __len__(self):
        return N

    def __getitem__(self, sample):
        return {"id": torch.tensor(self.paths[sample].read_bytes()[0]), "x": torch.zeros(1)}


class Ids:
    """Samples that hold their id."""

    def __len__(self):
        return N

    def __getitem__(self, sample):
        return {"id": torch.tensor(sample)}


def planned(workers=0):
    options = {"num_workers": workers}
    return buffered_loader(Ids(), PlanSettings(N, 1, BATCH, EPOCHS, 9), rank=0, options=options)


def exchanging(base, workers=0, **more):
    dataset = pls.PartialLocalDataset(base, world=World(), **more)
    sampler = pls.LocalSampler(dataset, BATCH)
    loader = DataLoader(dataset, BATCH, sampler=sampler, num_workers=workers)
    scheduler = pls.Scheduler(dataset, BATCH, 0.5, transport=Alone(World()))
    return pls.Exchanging(scheduler, loader)


def ids_of(batches):
    return [i for batch in batches for i in batch]


def trained(loop, loader, epochs=EPOCHS, stop=None):
    seen = Seen(stop)
    with suppress(Left):
        LOOPS[loop](loader, epochs, seen)
    return list(seen)


@pytest.mark.parametrize("kind", [planned, lambda: exchanging(Ids())])
def test_every_sample_is_seen_once_an_epoch_in_another_order_each(loop, kind):
    """Nobody tells the epoch in a plain loop, or under accelerate."""
    seen = trained(loop, kind())
    epochs = [ids_of(seen[e * STEPS : (e + 1) * STEPS]) for e in range(EPOCHS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(N))] * EPOCHS
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@pytest.mark.parametrize(
    ("kind", "workers", "stop"),
    [(planned, 0, 5), (planned, 1, 8), (exchanging, 0, 7), (exchanging, 2, 4)],
)
def test_a_state_goes_on_behind_the_batch_that_was_trained_last(loop, kind, workers, stop):
    def opened():
        return kind(workers=workers) if kind is planned else kind(Ids(), workers)

    whole, first, again = trained("plain", opened()), opened(), opened()
    seen = trained(loop, first, stop=stop)
    again.load_state_dict(first.state_dict())
    assert seen + trained("plain", again, EPOCHS - stop // STEPS) == whole


def test_a_folder_of_another_data_set_or_of_rewritten_files_is_read_anew(loop, tmp_path):
    local = tmp_path / "local"
    cases = [("a", 0, N), ("a", 0, 0), ("a", 100, N), ("b", 100, N), ("b", 100, 0)]
    for name, first, loads in cases:
        files = Files(tmp_path / name)
        if loads:
            files.write(first)
        loader = exchanging(files, folder=local)
        seen = trained(loop, loader, 1)
        assert sorted(ids_of(seen)) == list(range(first, first + N))
        assert loader._scheduler._dataset.counts.stats([]).loads == loads


def draw(item):
    """An augmentation that draws from all that augmentations draw from."""
    drawn = [float(torch.rand(())), np.random.rand(), random.random()]
    return item | {"x": torch.tensor(drawn, dtype=torch.float64)}


class Noting(Seen):
    """What was drawn for each sample in each epoch."""

    def __init__(self):
        super().__init__()
        self.drawn = {}

    def take(self, batch):
        epoch = len(self) // STEPS
        for i, x in zip(batch["id"].tolist(), batch["x"].tolist(), strict=True):
            self.drawn[epoch, i] = tuple(x)
        super().take(batch)


def test_an_augmentation_draws_anew_in_each_epoch(loop):
    found = []
    for workers in (0, 2):
        noting = Noting()
        LOOPS[loop](exchanging(Ids(), workers, transform=draw), EPOCHS, noting)
        found.append(noting.drawn)
    assert found[0] == found[1]  # by epoch and sample alone
    assert len(set(found[0].values())) == EPOCHS * N


class Augmented(Ids):
    def __getitem__(self, sample):
        return draw(super().__getitem__(sample))


def test_an_augmentation_inside_the_data_set_is_refused(loop):
    with pytest.raises(UsageError, match="transform="):
        trained(loop, exchanging(Augmented()))
    named = Ids()
    named.transform = draw
    with pytest.raises(UsageError, match="PartialLocalDataset"):
        exchanging(named)


def test_pressure_stays_pressure(loop, tmp_path):
    """A channel around 101,325 of encoded samples comes back finite, as near as it was said."""
    pytest.importorskip("numba", reason="numba is not installed")
    from vanidl_loaders.decoders import DeepCam, encode_sample
    from vanidl_loaders.decoders.folders import sample_path, write_whole

    samples = make("deepcam", tmp_path / "data", samples=4, seed=1, size=16)
    noise, kept = np.random.default_rng(0), {}
    for i in range(4):
        kept[i] = 101_325 + np.cumsum(noise.normal(size=(2, 8, 64)) * 50, -1).astype(np.float32)
        content = encode_sample({"x": kept[i]}, {"x": DeepCam(channels="first")})
        write_whole(sample_path(tmp_path / "encoded", i), content)
    options = {"encoded": str(tmp_path / "encoded"), "decode_on": "cpu"}
    loader = open_loader("decoded", samples, Settings(batch=2), options)

    class Checking(Seen):
        def take(self, batch):
            for i, x in zip(batch["sample"].tolist(), batch["x"].double().numpy(), strict=True):
                assert np.abs(x - kept[i]).max() < 50
            super().take({"id": batch["sample"]})

    seen = Checking()
    LOOPS[loop](loader, 1, seen)
    assert sorted(ids_of(seen)) == [0, 1, 2, 3]
