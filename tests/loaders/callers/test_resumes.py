"""States behind every batch, and trainings that are killed: no sample is lost, none comes twice."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from tests import ROOT
from tests.loaders.callers.test_callers import BATCH, EPOCHS, STEPS, Ids, exchanging, planned
from tests.loaders.launch import run
from vanidl_loaders.errors import UsageError
from vanidl_loaders.scheduled.dataset import BufferedItems, ScheduledBatchSampler, WeightedCollate
from vanidl_loaders.scheduled.plan import PlanSettings, make_plan

ALL = EPOCHS * STEPS


def stateful(workers):
    module = pytest.importorskip("torchdata.stateful_dataloader", reason="no torchdata")
    plan = make_plan(PlanSettings(23, 1, BATCH, EPOCHS, 9))
    items, sampler = BufferedItems(Ids(), plan, 0), ScheduledBatchSampler(plan, 0)
    return module.StatefulDataLoader(
        items, batch_sampler=sampler, collate_fn=WeightedCollate(), num_workers=workers
    )


OPENED = {
    "planned": planned,
    "stateful": stateful,
    "exchanging": lambda workers: exchanging(Ids(), workers),
}


def stream(loader, batches):
    """Ids of so many further batches, epoch after epoch, and the state behind each."""
    found, states = [], []
    while len(found) < batches:
        for batch in loader:
            found.append(batch["id"].tolist())
            states.append(loader.state_dict())
            if len(found) == batches:
                break
    return found, states


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "workers"),
    [("planned", 0), ("planned", 1), ("stateful", 0), ("stateful", 1),
     *(("exchanging", workers) for workers in range(5))],
)  # fmt: skip
def test_a_state_is_exact_behind_every_batch(kind, workers):
    """Whatever workers have made ahead by then."""
    whole, states = stream(OPENED[kind](workers), ALL)
    steps = range(ALL) if workers == 0 else range(workers, ALL, 7)
    for step in steps:
        again = OPENED[kind](workers if step % 2 else min(workers, 1))
        again.load_state_dict(states[step])
        more = min(BATCH, ALL - step - 1)
        assert stream(again, more)[0] == whole[step + 1 : step + 1 + more], step
        del again


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [2, 4])
def test_several_workers_are_refused_where_one_process_has_the_buffer(workers):
    with pytest.raises(UsageError, match="num_workers"):
        list(planned(workers))


def test_a_training_that_is_killed_loses_nothing():
    line = [sys.executable, "-m", "benchmarks.loaders.resumes", "--kills", 2, "--seed", 3]
    done = run([*line, "--only", "planned, 1 workers"], folder=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 with samples lost or twice" in done.stdout
