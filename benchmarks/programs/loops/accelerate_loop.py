"""A loop of accelerate, on the loader that it prepares: accelerate_loop.py TRUTH.

Its loader asks for a batch before it gives the one before it, and says nothing of either: the
times are those of the batches that the program sees, so that a wait is for the batch after.
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from torch_loops import Model, Rows, loader
from truth import EVALUATION, Truth, busy


def main(path: str) -> None:
    """Two epochs with validation."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = Model()
    net, optimizer, batches, validation = accelerator.prepare(
        model.net, model.optimizers[0], loader(num_workers=2), loader(Rows(8))
    )
    truth = Truth()
    for _ in range(2):
        for batch in truth.batches(batches):
            busy(0.006)
            accelerator.backward(net(batch).sum())
            optimizer.step()
            optimizer.zero_grad()
        for batch in truth.batches(validation, EVALUATION):
            net(batch)
            busy(0.003)
    truth.save(path)


if __name__ == "__main__":
    main(sys.argv[1])
