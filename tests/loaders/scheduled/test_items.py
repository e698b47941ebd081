"""Any map-style data set through a plan: items, buffers, training equal to the DataLoader's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from vanidl_loaders.errors import UsageError
from vanidl_loaders.scheduled.dataset import (
    BufferedItems,
    StepItems,
    WeightedCollate,
    buffered_loader,
)
from vanidl_loaders.scheduled.plan import PlanSettings, make_plan

N, EPOCHS = 37, 3


class Asked:
    """Items of any kind, and how often each was asked for."""

    def __init__(self, make):
        self._make, self.asked = make, []

    def __len__(self):
        return N

    def __getitem__(self, sample):
        self.asked.append(sample)
        return self._make(sample)


def picture(sample):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    return image.new("RGB", (2 + sample % 3, 4), (sample, 0, 0))


KINDS = {
    "tensor": (lambda i: torch.full((3,), float(i)), lambda item: int(item[0])),
    "tuple": (lambda i: (np.float32(i), f"name {i}"), lambda item: int(item[0])),
    "dict": (lambda i: {"x": torch.tensor(i), "name": str(i)}, lambda item: int(item["x"])),
    "picture": (picture, lambda item: item.getpixel((0, 0))[0]),
    "variable": (lambda i: torch.full((i + 1,), i), lambda item: int(item[0])),
}


def opened(dataset, buffer, *, ranks=1, rank=0, batch=4, **more):
    return buffered_loader(
        dataset, PlanSettings(N, ranks, batch, EPOCHS, buffer), rank=rank, **more
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ranks", "buffer"), [(1, 20), (2, 30), (3, 0), (1, 99)])
def test_any_item_is_asked_for_as_the_bound_has_it(kind, ranks, buffer):
    make, number = KINDS[kind]
    asked = np.zeros(EPOCHS, int)
    seen = [[] for _ in range(EPOCHS)]
    for rank in range(ranks):
        items = Asked(make)
        loader = opened(items, buffer, ranks=ranks, rank=rank, collate_fn=list)
        for epoch in range(EPOCHS):
            before = len(items.asked)
            for batch, weight in loader:
                assert batch  # an item of weight 0 where a rank has none
                seen[epoch] += [number(item) for item in batch if weight > 0]
            asked[epoch] += len(items.asked) - before
    padding = -N % ranks
    for epoch in range(EPOCHS):
        assert sorted(set(seen[epoch])) == list(range(N))
        assert len(seen[epoch]) == N + padding
    bound = N - min(buffer, N)
    assert all(bound <= each <= bound + padding for each in asked[1:].tolist())


def test_a_transform_is_called_after_the_buffer():
    items, drawn = Asked(lambda i: torch.tensor(i)), []
    transform = lambda item: (drawn.append(1), item + 100)[1]  # noqa: E731
    loader = opened(items, N, transform=transform)
    got = [sorted(i for batch, _ in loader for i in batch.tolist()) for _ in range(2)]
    assert got == [list(range(100, 100 + N))] * 2
    assert (len(items.asked), len(drawn)) == (N, 2 * N)


def data():
    torch.manual_seed(1)
    x = torch.randn(N, 5, dtype=torch.float64)
    return TensorDataset(x, x @ torch.randn(5, 1, dtype=torch.float64))


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def losses(loaders, set_epoch):
    """The whole set's loss after each step of SGD with gradients averaged over ranks."""
    net, everything, found = model(), data().tensors, []
    for epoch in range(EPOCHS):
        for loader in loaders:
            set_epoch(loader, epoch)
        for batches in zip(*loaders, strict=True):
            net.zero_grad()
            for (x, y), weight in batches:
                loss = nn.functional.mse_loss(net(x), y)
                (loss * weight / len(loaders)).backward()
            with torch.no_grad():
                for each in net.parameters():
                    each -= 0.1 * each.grad
                found.append(float(nn.functional.mse_loss(net(everything[0]), everything[1])))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_loss_curve_is_the_dataloaders(ranks):
    """Of the DataLoader with a DistributedSampler, ranks of unequal batches included."""
    plain = []
    for rank in range(ranks):
        sampler = DistributedSampler(data(), num_replicas=ranks, rank=rank, seed=0)
        plain.append(DataLoader(data(), 4, sampler=sampler, collate_fn=Unweighted()))
    wanted = losses(plain, lambda loader, epoch: loader.sampler.set_epoch(epoch))
    planned = [opened(data(), 25, ranks=ranks, rank=rank) for rank in range(ranks)]
    found = losses(planned, lambda loader, epoch: loader.batch_sampler.set_epoch(epoch))
    assert len(found) == len(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert found[-1] < found[0]


class Unweighted(WeightedCollate):
    """The DataLoader's own batches, all of weight 1."""

    def __call__(self, items):
        return super().__call__(StepItems(items, 1.0))


def test_a_resumed_sampler_gives_the_rest():
    def ids(loader):
        return [batch.tolist() for batch, _ in loader]

    whole = ids(opened(Asked(torch.tensor), 9))
    first, again = (opened(Asked(torch.tensor), 9) for _ in range(2))
    iteration = iter(first)
    for _ in range(3):
        next(iteration)
    again.batch_sampler.load_state_dict(first.batch_sampler.state_dict())
    assert ids(again) == whole[3:]


def test_one_worker_keeps_its_buffer():
    loader = opened(Asked(torch.tensor), N, batch=8, options={"num_workers": 1})
    for _ in range(2):
        assert sorted(i for batch, _ in loader for i in batch.tolist()) == list(range(N))
    stats = loader.dataset.stats()
    assert (stats.loads, stats.hits) == (N, N)


def test_what_makes_no_sense_is_refused():
    plan = make_plan(PlanSettings(samples=N + 1))
    with pytest.raises(UsageError, match="plan again"):
        BufferedItems(Asked(int), plan, 0)
    dataset = BufferedItems(Asked(int), make_plan(PlanSettings(samples=N)), 0)
    with pytest.raises(UsageError, match="ScheduledBatchSampler"):
        dataset.__getitems__([1, 2])
    assert dataset[3] == 3
