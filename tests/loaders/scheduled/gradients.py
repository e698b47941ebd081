"""Run by torchrun: gradients of the baseline's and of the plan's batches through DDP, fp64.

python -m torch.distributed.run ... gradients.py DATA OUT
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.loader.loader import WEIGHT, Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.messages import process_group
from vanidl_loaders.ranks.world import World

EPOCHS = 3


def gradients(name, samples, world, options, *, weighted=True):
    """Gradient of every step, concatenated; the model never changes."""
    torch.manual_seed(0)
    size = samples.fields[0].shape[0] ** 2
    net = nn.Sequential(nn.Linear(size, 5), nn.Tanh(), nn.Linear(5, size)).double()
    model = DistributedDataParallel(net)
    loader = open_loader(name, samples, Settings(world, batch=4, epochs=EPOCHS), options)
    found, sizes = [], []
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            model.zero_grad()
            x, y = (batch[k].double().flatten(1) for k in ("diffraction", "phase"))
            loss = nn.functional.mse_loss(model(x), y)
            (loss * batch[WEIGHT] if weighted and WEIGHT in batch else loss).backward()
            found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
            sizes.append(len(x))
    loader.close()
    return torch.stack(found), sizes


def main():
    data, out = sys.argv[1:]
    world = World.detect()
    samples = open_samples(data)
    with process_group(world):
        options = {"buffer": 14}
        plain, _ = gradients("baseline", samples, world, {})
        planned, sizes = gradients("scheduled", samples, world, options)
        unweighted, _ = gradients("scheduled", samples, world, options, weighted=False)
    torch.save(
        {"plain": plain, "planned": planned, "unweighted": unweighted, "sizes": sizes},
        f"{out}/{world.rank}.pt",
    )


if __name__ == "__main__":
    main()
