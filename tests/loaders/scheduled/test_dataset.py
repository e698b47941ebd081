"""The plan inside other people's DataLoaders."""

from __future__ import annotations

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader

from tests.loaders.data.stored import N, direct
from tests.loaders.scheduled.planned import scheduled
from vanidl_loaders.errors import UsageError
from vanidl_loaders.scheduled import PlanSettings, make_plan
from vanidl_loaders.scheduled.dataset import ScheduledBatchSampler, ScheduledDataset, collate
from vanidl_loaders.scheduled.stage import StageSettings


def in_dataloader(samples, workers, kind=DataLoader, rank=0, ranks=1, **options):
    plan = make_plan(PlanSettings(N, ranks=ranks, batch=4, epochs=3, buffer=60))
    sampler = ScheduledBatchSampler(plan, rank)
    dataset = ScheduledDataset(samples, plan, rank, StageSettings(gap=0))
    loader = kind(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        **options,
    )
    return loader, sampler, dataset


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dataloader_hands_out_the_same_batches(flat, workers, ranks):
    total = 0
    for rank in range(ranks):
        loader, sampler, dataset = in_dataloader(flat, workers, rank=rank, ranks=ranks)
        own = scheduled(flat, rank, ranks)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            own.set_epoch(epoch)
            for found, wanted in zip(loader, own, strict=True):
                assert found.keys() == wanted.keys()
                assert all(torch.equal(found[name], wanted[name]) for name in wanted)
            assert len(loader) == len(own)
        own.close()
        total += dataset.stats().loads
        assert dataset.reloads() == 0
        del loader
        dataset.close()
    assert total == N + 2 * (N - 60)


@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_advance_where_nobody_tells_them(flat, workers):
    """As under Lightning: the loader is iterated over again and again, and no more."""
    loader, _, dataset = in_dataloader(flat, workers)
    own = scheduled(flat, 0, 1)
    silent = scheduled(flat, 0, 1)
    for epoch in range(3):
        own.set_epoch(epoch)
        wanted = [batch["sample"].tolist() for batch in own]
        assert [batch["sample"].tolist() for batch in loader] == wanted
        assert [batch["sample"].tolist() for batch in silent] == wanted
    assert dataset.stats().loads == N + 2 * (N - 60)
    for each in (own, silent, dataset):
        each.close()
    del loader


def test_an_epoch_that_is_told_is_followed_and_one_that_is_left_is_begun_anew(flat):
    _, sampler, dataset = in_dataloader(flat, 0)
    first = list(sampler)
    sampler.sampler.set_epoch(0)  # where Lightning looks
    assert list(sampler) == first
    second = next(iter(sampler))
    assert second != first[0]
    assert next(iter(sampler)) == second
    state = sampler.state_dict()
    list(sampler)
    sampler.load_state_dict(state)
    assert next(iter(sampler)) != second
    assert sampler.state_dict()["epoch"] == 1
    dataset.close()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's call
@pytest.mark.parametrize("workers", [0, 1])
def test_torchdata_goes_on_in_mid_epoch(flat, workers):
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader
    loader, sampler, dataset = in_dataloader(flat, workers, stateful)
    sampler.set_epoch(1)
    ids, state = [], None
    for step, batch in enumerate(loader):
        ids.append(batch["sample"].tolist())
        if step == 6:
            state = loader.state_dict()
    dataset.close()
    again, sampler, dataset = in_dataloader(flat, workers, stateful)
    again.load_state_dict(state)
    assert [b["sample"].tolist() for b in again] == ids[7:]
    sampler.set_epoch(2)
    assert len(list(again)) == len(again)
    dataset.close()
    del loader, again


def test_a_dataset_says_how_it_is_to_be_used(flat):
    plan = make_plan(PlanSettings(N, batch=4, buffer=60))
    dataset = ScheduledDataset(flat, plan, 0)
    with pytest.raises(UsageError, match="ScheduledBatchSampler"):
        dataset.__getitems__([1, 2])
    np.testing.assert_array_equal(dataset[5]["x"][0], direct(flat)["x"][5])
    assert len(dataset) == N
    with pytest.raises(UsageError, match="rank"):
        ScheduledBatchSampler(plan, 1)
    loader = DataLoader(dataset, batch_sampler=ScheduledBatchSampler(plan, 0), num_workers=2)
    with pytest.raises(UsageError, match="num_workers"):
        list(loader)
