"""Loops of two ranks over gloo, by torchrun: distributed_loops.py LOOP [slow].

With `slow` the second rank computes four times as long in each step: the first waits for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from timers import COMPUTE_S, EPOCHS, EVALUATION, VALIDATIONS, Timers, compute, tell
from torch.utils.data import DataLoader, DistributedSampler
from torch_loops import Rows, Trainer

RANK = int(os.environ.get("RANK", "0"))
SLOWER = 4


def seconds() -> float:
    """How long this rank computes in a step."""
    return COMPUTE_S * (SLOWER if "slow" in sys.argv and RANK else 1)


def loader(rows: int = 48, **options: int) -> DataLoader[torch.Tensor]:
    """Batches of two, another half of the rows for each rank."""
    data = Rows(rows)
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data), **options)


def train(timers: Timers, trainer: Trainer) -> None:
    """Three epochs, the loss of each averaged over ranks."""
    batches = loader(num_workers=1)
    for epoch in range(EPOCHS):
        timers.counts["epochs"] += 1
        batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for batch in timers.batches(batches, every=1):
            trainer.train(batch, seconds())
        mean = trainer.losses[-1].clone()
        dist.all_reduce(mean)
        trainer.losses.append(mean)
    trainer.tell()


def ddp(timers: Timers) -> None:
    """DistributedDataParallel."""
    trainer = Trainer(timers)
    trainer.net = torch.nn.parallel.DistributedDataParallel(trainer.net)
    train(timers, trainer)


def averaged(timers: Timers) -> None:
    """The program averages gradients itself, by a collective in each step."""

    class Averaging(Trainer):
        def backward(self, batch: torch.Tensor, seconds: float = COMPUTE_S) -> None:
            super().backward(batch, seconds)
            for parameter in self.net.parameters():
                dist.all_reduce(parameter.grad)

    train(timers, Averaging(timers))


def fsdp(timers: Timers) -> None:
    """Parameters in shards, by fully_shard."""
    from torch.distributed.fsdp import fully_shard

    trainer = Trainer(timers)
    trainer.net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    fully_shard(trainer.net)
    trainer.optimizers = [torch.optim.SGD(trainer.net.parameters(), 1e-3)]
    train(timers, trainer)


def accelerated(timers: Timers) -> None:
    """Accelerate prepares all of it; losses are gathered after each epoch."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(2, 1)
    plain = [DataLoader(Rows(rows), batch_size=2) for rows in (48, 4 * VALIDATIONS)]
    model, optimizer, batches, validation = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), 1e-3), *plain
    )
    losses = []
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            compute(seconds())
            loss = model(batch).sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            timers.step()
            losses.append(loss.detach())
        with timers.time("validation"), torch.no_grad():
            model.eval()
            losses += [model(batch).sum() for batch in timers.batches(validation, EVALUATION)]
            model.train()
        losses += accelerator.gather(losses[-1])
    tell(*losses)


LOOPS: dict[str, Callable[[Timers], None]] = {
    "ddp": ddp,
    "averaged": averaged,
    "fsdp": fsdp,
    "accelerate": accelerated,
}


if __name__ == "__main__":
    torch.manual_seed(RANK)
    torch.set_num_threads(1)
    if sys.argv[1] != "accelerate":
        dist.init_process_group("gloo")
    LOOPS[sys.argv[1]](Timers(sys.argv[1]))
    if dist.is_initialized():
        dist.barrier()  # gloo aborts where a peer is gone before
        dist.destroy_process_group()
