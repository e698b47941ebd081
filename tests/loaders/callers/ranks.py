"""One rank of test_ranks.py: loaders in a framework's loop on two ranks; prints what was trained.

python -m tests.loaders.callers.ranks LOOP
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[3]))  # of a process that is forked elsewhere

from tests.loaders.callers.loops import LOOPS, Seen
from vanidl_loaders import pls
from vanidl_loaders.ranks.messages import open_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.dataset import (
    BufferedItems,
    ScheduledBatchSampler,
    WeightedCollate,
    buffered_loader,
)
from vanidl_loaders.scheduled.plan import PlanSettings, make_plan

N, BATCH, EPOCHS, RANKS = 47, 4, 2, 2


class Ids:
    def __len__(self):
        return N

    def __getitem__(self, sample):
        return {"id": torch.tensor(sample)}


def planned(world):
    return buffered_loader(Ids(), PlanSettings(N, RANKS, BATCH, EPOCHS, 9), rank=world.rank)


def planned_by_hand(world):
    plan = make_plan(PlanSettings(N, RANKS, BATCH, EPOCHS, 9))
    sampler = ScheduledBatchSampler(plan, world.rank)
    items = BufferedItems(Ids(), plan, world.rank)
    return DataLoader(items, batch_sampler=sampler, collate_fn=WeightedCollate())


def local(world):
    dataset = pls.PartialLocalDataset(Ids(), world=world)
    loader = DataLoader(dataset, BATCH, sampler=pls.LocalSampler(dataset, BATCH))
    return loader, pls.Scheduler(dataset, BATCH, 0.5, transport=open_transport(world, "gloo"))


def main(name):
    warnings.simplefilter("ignore")
    world, found = World.detect(), {}
    torch.distributed.init_process_group("gloo")
    options = {"use_distributed_sampler": False, "devices": RANKS} if name == "lightning" else {}

    def tried(what, loader):
        seen = Seen()
        try:
            LOOPS[name](loader, EPOCHS, seen, **options)
            found[what] = list(seen)
        except Exception as error:  # whatever the framework says
            found[what] = f"{type(error).__name__}: {error}"

    tried("planned", planned(world))
    tried("planned by hand", planned_by_hand(world))
    loader, scheduler = local(world)
    tried("exchanging", pls.Exchanging(scheduler, loader))
    if name == "lightning":
        del options["use_distributed_sampler"]
        tried("planned, sampler replaced", planned(world))
        tried("local part, sampler replaced", loader)
    if name == "accelerate":
        import accelerate

        loader = accelerate.Accelerator(cpu=True).prepare(loader)
        try:
            found["local part, prepared"] = [
                b["id"].tolist() for b in pls.exchanging(scheduler, loader)
            ]
        except Exception as error:
            found["local part, prepared"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps({"rank": world.rank} | found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
