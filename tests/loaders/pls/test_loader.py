"""The loader of the registry: steps, order, resume."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.launch import STARTED_BY, run
from tests.loaders.ranks.threads import on_ranks, outcomes_on_ranks
from vanidl_loaders import pls
from vanidl_loaders.data.readers import open_reader
from vanidl_loaders.errors import InputError, LoadersError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.pls import loader as module
from vanidl_loaders.ranks.world import World
from vanidl_loaders.workloads.making import make

RANKS = 3


def opened(samples, rank, **more):
    settings = Settings(world=World(rank, RANKS), batch=2, epochs=3, seed=7, **more)
    return open_loader("pls", samples, settings, {"exchange_fraction": 0.5})


@pytest.fixture
def connected(monkeypatch):
    """Loaders of one process find the transport of their rank."""
    transports = {}
    monkeypatch.setattr(module, "open_transport", lambda world, backend: transports[world.rank])
    return transports


def ids(loader, epoch):
    loader.set_epoch(epoch)
    return [batch["sample"].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("drop_last", [False, True])
def test_steps_are_the_baselines_and_batches_hold_the_local_part(
    workers, drop_last, ptycho, connected
):
    def work(transport):
        rank = transport.world.rank
        connected[rank] = transport
        loader = opened(ptycho, rank, workers=workers, drop_last=drop_last)
        settings = Settings(world=World(rank, RANKS), batch=2, drop_last=drop_last)
        assert len(loader) == settings.steps(ptycho)
        epochs = [ids(loader, epoch) for epoch in range(3)]
        assert [len(batches) for batches in epochs] == [len(loader)] * 3
        loader.close()
        return epochs, loader.stats()

    results, _ = on_ranks(RANKS, work)
    owner = pls.Ownership(pls.deal(21, RANKS, seed=7), 0.5, seed=7)
    for epoch in range(3):
        seen = [{i for batch in result[0][epoch] for i in batch} for result in results]
        for rank, own in enumerate(seen):
            assert own <= set(owner.held_by(rank, epoch).tolist())
        if not drop_last:
            assert set().union(*seen) == set(range(21))
    stats = [result[1] for result in results]
    assert sum(s.loads for s in stats) == 21
    assert {s.hits for s in stats} == {sum(len(b) for b in results[0][0][0]) * 3}
    assert all(s.peak_samples <= 7 * 1.5 for s in stats)


def test_batches_hold_the_samples_bytes(ptycho):
    loader = open_loader("pls", ptycho, Settings(batch=4))
    direct = open_reader(ptycho)
    for batch in loader:
        for row, sample in enumerate(batch["sample"].tolist()):
            for name, values in direct.read(sample).items():
                assert torch.equal(batch[name][row], torch.from_numpy(values))
    direct.close()
    loader.close()


@pytest.mark.parametrize("stop", [(0, 1), (1, 2), (2, 4)])
def test_a_resumed_run_gives_the_identical_remaining_stream(stop, ptycho, connected):
    def whole(transport):
        rank = transport.world.rank
        connected[rank] = transport
        loader = opened(ptycho, rank)
        stream, state = [], None
        for epoch in range(3):
            loader.set_epoch(epoch)
            for batch in loader:
                stream.append(batch["sample"].tolist())
                if (loader.state_dict()["epoch"], loader.state_dict()["step"]) == stop:
                    state, stream = loader.state_dict(), []
        loader.close()
        return stream, state

    wholes, _ = on_ranks(RANKS, whole)

    def rest(transport):
        rank = transport.world.rank
        connected[rank] = transport
        loader = opened(ptycho, rank)
        loader.load_state_dict(wholes[rank][1])
        stream = [batch for epoch in range(stop[0], 3) for batch in ids(loader, epoch)]
        loader.close()
        return stream, loader.stats().loads

    for (expected, _), (found, loads) in zip(wholes, on_ranks(RANKS, rest)[0], strict=True):
        assert found == expected
        assert loads == 7  # what it held then, no more


def test_a_repeated_epoch_is_the_same(ptycho, connected):
    def work(transport):
        rank = transport.world.rank
        connected[rank] = transport
        loader = opened(ptycho, rank)
        first, second, again = (ids(loader, epoch) for epoch in (0, 1, 0))
        loader.close()
        return first, second, again

    for first, second, again in on_ranks(RANKS, work)[0]:
        assert first == again != second


def test_a_state_of_another_fraction_is_refused(ptycho):
    loader = open_loader("pls", ptycho, Settings(batch=4))
    other = open_loader("pls", ptycho, Settings(batch=4), {"exchange_fraction": 0.9})
    with pytest.raises(UsageError, match="fraction"):
        loader.load_state_dict(other.state_dict())


def test_a_share_beyond_the_budget_is_refused_or_kept_in_a_folder(ptycho, tmp_path):
    """(1 + Q) N / M samples: what a rank never exceeds."""
    own = len(ptycho)
    nbytes = (own + int(0.3 * own)) * ptycho.sample_nbytes
    loader = open_loader("pls", ptycho, Settings(batch=4, memory_nbytes=nbytes))
    list(loader)
    assert loader.stats().peak_nbytes <= nbytes
    loader.close()
    less = Settings(batch=4, memory_nbytes=nbytes - 1)
    with pytest.raises(UsageError, match=f"at least {nbytes} bytes"):
        open_loader("pls", ptycho, less)
    open_loader("pls", ptycho, less, {"local_folder": str(tmp_path)}).close()


def test_a_local_folder_is_used_again(ptycho, tmp_path):
    loads = []
    for _ in range(2):
        loader = open_loader("pls", ptycho, Settings(batch=4), {"local_folder": str(tmp_path)})
        assert len(list(loader)) == 6
        loader.close()
        loads.append(loader.stats().loads)
    assert loads == [21, 0]


class Unreadable:
    """Samples of which one cannot be read, by whoever it belongs to."""

    def __len__(self):
        return 12

    def __getitem__(self, sample):
        if sample == 5:
            raise InputError("expected sample 5, found: Input/output error; start again")
        return sample


def test_an_unreadable_sample_ends_all_ranks():
    """Nobody waits for the rank that could not read: each says whose sample it was."""

    def work(transport):
        dataset = pls.PartialLocalDataset(Unreadable(), world=transport.world)
        scheduler = pls.Scheduler(dataset, 2, 0.5, transport=transport, limits=pls.Limits(1, 20))
        scheduler.scheduling(0)

    found = outcomes_on_ranks(RANKS, work)
    (rank,) = np.flatnonzero((pls.deal(12, RANKS) == 5).any(0)).tolist()
    for each, error in enumerate(found):
        assert isinstance(error, InputError)
        assert ("rank" in str(error)) == (each != rank)
        assert "sample 5" in str(error)


def test_a_rank_that_never_comes_is_an_error_within_the_limit():
    def work(transport):
        if transport.world.rank == 1:
            return
        dataset = pls.PartialLocalDataset(list(range(12)), world=transport.world)
        pls.Scheduler(dataset, 2, 0.5, transport=transport, limits=pls.Limits(1, 0.2))

    found = outcomes_on_ranks(RANKS, work)
    for rank in (0, 2):
        assert isinstance(found[rank], LoadersError)
        assert "exchange-timeout-s" in str(found[rank])


@pytest.mark.parametrize(
    "launcher", [pytest.param("mpi to train", marks=pytest.mark.mpi), "forked to train"]
)
def test_an_unreadable_file_ends_the_command_on_every_rank(launcher, tmp_path):
    samples = make("images", tmp_path / "data", samples=8, seed=1, size=8)
    samples.path(3).unlink()
    train = [*STARTED_BY[launcher](2), "-m", "vanidl_loaders", "train", "--data", samples.folder]
    done = run([*train, "--loader", "pls", "--exchange-timeout-s", 10], folder=tmp_path)
    lines = [each for each in done.stderr.splitlines() if each.startswith("loaders: ")]
    assert len(lines) == 2, done.stderr
    assert all("sample 3" in each for each in lines)
    assert done.returncode != 0
