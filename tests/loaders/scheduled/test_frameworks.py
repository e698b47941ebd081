"""A plan in the loops of others: which ids a step has, epoch after epoch, and after a resume.

Each is the example for its framework. Skipped where the package is not installed.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from torch import nn
from torch.utils.data import TensorDataset

from vanidl_loaders.scheduled.dataset import (
    BufferedItems,
    ScheduledBatchSampler,
    WeightedCollate,
    buffered_loader,
)
from vanidl_loaders.scheduled.plan import PlanSettings, make_plan

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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stop", [6, 8])
def test_trainer_resumes_behind_an_epoch_and_in_the_middle_of_one(stop, tmp_path):
    """It tells a loader the epoch, and skips batches of the one in which it was stopped."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.seen = nn.Linear(1, 1), []

        def forward(self, ids, x, weight):
            self.seen.append(ids.tolist())
            return {"loss": self.net(x).square().mean() * weight}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            items = [{"ids": ids, "x": x} for ids, x in dataset()]
            return buffered_loader(items, SETTINGS)

    def trained(**how):
        options = transformers.TrainingArguments(
            tmp_path, num_train_epochs=EPOCHS, save_steps=2, save_total_limit=9, use_cpu=True,
            report_to=[], disable_tqdm=True, learning_rate=0.1,
        )  # fmt: skip
        model = Model()
        trainer = Trainer(model, options, train_dataset=dataset())
        assert len(trainer.get_train_dataloader()) == 6
        trainer.train(**how)
        return model

    whole = trained()
    assert whole.seen == planned()
    rest = trained(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert rest.seen == planned()[stop:]
    assert torch.equal(rest.net.weight, whole.net.weight)
