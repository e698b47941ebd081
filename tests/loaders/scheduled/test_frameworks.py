"""A plan in the loops of others: which ids a step has, epoch after epoch, and after a resume.

Each is the example for its framework. Skipped where the package is not installed.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from torch import nn
from torch.utils.data import TensorDataset

from vanidl_loaders.scheduled.dataset import ScheduledBatchSampler
from vanidl_loaders.scheduled.items import BufferedItems, WeightedCollate, buffered_loader
from vanidl_loaders.scheduled.plan import make_plan
from vanidl_loaders.scheduled.plan_settings import PlanSettings

N, EPOCHS = 21, 3
SETTINGS = PlanSettings(N, batch=4, epochs=EPOCHS, buffer=9)


def dataset():
    return TensorDataset(torch.arange(N), torch.arange(N, dtype=torch.float32)[:, None] / N)


def planned():
    """The ids of each step of all epochs, from a plain loop."""
    loader = buffered_loader(dataset(), SETTINGS)
    return [ids.tolist() for _ in range(EPOCHS) for (ids, _), _ in loader]


@pytest.mark.filterwarnings("ignore")
def test_stateful_data_loader_resumes_in_the_middle_of_an_epoch():
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="no torchdata")

    def opened():
        plan = make_plan(SETTINGS)
        items, sampler = BufferedItems(dataset(), plan, 0), ScheduledBatchSampler(plan, 0)
        make = stateful.StatefulDataLoader
        return make(items, batch_sampler=sampler, collate_fn=WeightedCollate())

    first, wanted = opened(), planned()
    seen = [ids.tolist() for (ids, _), _ in first]  # the first epoch
    iteration = iter(first)
    seen += [next(iteration)[0][0].tolist() for _ in range(2)]
    again = opened()
    again.load_state_dict(first.state_dict())
    rest = [ids.tolist() for _ in range(2) for (ids, _), _ in again]
    assert seen + rest == wanted


@pytest.mark.filterwarnings("ignore")
def test_accelerate_prepares_model_and_optimizer():
    """The loader has its rank's batches already: `prepare` would deal them again."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader, seen = buffered_loader(dataset(), SETTINGS), []
    assert len(loader) == 6
    for epoch in range(EPOCHS):
        loader.batch_sampler.set_epoch(epoch)
        for (ids, x), weight in loader:
            seen.append(ids.tolist())
            optimizer.zero_grad()
            accelerator.backward(model(x).square().mean() * weight)
            optimizer.step()
    assert seen == planned()


@pytest.mark.filterwarnings("ignore")  # its own deprecations
def test_lightning_goes_on_with_the_next_epoch():
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.seen = nn.Linear(1, 1), []

        def training_step(self, batch):
            (ids, x), weight = batch
            self.seen.append(ids.tolist())
            return self.net(x).square().mean() * weight

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        use_distributed_sampler=False,
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(module, buffered_loader(dataset(), SETTINGS))
    assert module.seen == planned()
