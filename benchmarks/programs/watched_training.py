"""A training with PyTorch that comes into a given state, and notes when it does.

    python benchmarks/programs/watched_training.py HOW NOTES

A step takes a tenth of a second. Each line of the file NOTES is a state and the monotonic clock at
which it began, in seconds; `benchmarks/vanidl/watch_states.py` compares what is said with it.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

STEP_S = 0.1
HOW, NOTES = sys.argv[1:3]
SLEEP_S = {"starts": 20.0, "validates": 22.0, "saves": 25.0, "sleeps": 30.0}


def note(state: str) -> None:
    """A state begins now."""
    with open(NOTES, "a") as file:  # noqa: PTH123 - a line at once, of whichever process
        file.write(f"{state} {time.monotonic():.3f} {os.getpid()}\n")


class Samples(Dataset[torch.Tensor]):
    """Samples of which one may take long."""

    def __len__(self) -> int:
        return 1200

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 400 and HOW in ("waits", "hangs"):
            time.sleep(13 if HOW == "waits" else 90)  # a worker that sleeps outlives all
        return torch.zeros(4)


class Slow(io.RawIOBase):
    """Storage that takes its time, once."""

    sleep_s = SLEEP_S["saves"]

    def write(self, data: object) -> int:
        """Takes everything."""
        time.sleep(self.sleep_s)
        self.sleep_s = 0.0
        return len(memoryview(data))  # type: ignore[call-overload]


def jump() -> None:
    """The time of day jumps back by an hour, for this program and its recorder."""
    real = time.time_ns
    for name, module in list(sys.modules.items()):
        if name.startswith("vanidl_steps") and hasattr(module, "time_ns"):
            module.time_ns = lambda: real() - 3_600_000_000_000


def train(barrier: object = None) -> None:
    """Steps, with something in their midst."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(Samples(), batch_size=4, num_workers=1)
    last = time.monotonic()
    for number, batch in enumerate(loader):
        if number == 1:
            note("training")
        if time.monotonic() - last > 5:  # the wait that has ended
            note("training")
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(STEP_S)
        if number == 80:
            if HOW == "jumps":
                jump()
            happens(model)
        if number == 97 and HOW in ("waits", "hangs"):
            note("waiting")  # two batches are fetched ahead; the 100th, of sample 400, is slow
        if number == 200 or (number == 100 and HOW in ("fails", "ends")):
            break
        if barrier is not None:
            barrier.wait()  # type: ignore[attr-defined]
        last = time.monotonic()


def happens(model: torch.nn.Module) -> None:
    """What the training is brought into."""
    if HOW == "validates":
        for number, _ in enumerate(DataLoader(torch.zeros(8, 4), batch_size=4)):  # type: ignore[arg-type]
            if not number:
                note("validating")
                time.sleep(SLEEP_S[HOW])
    elif HOW == "saves":
        note("saving")
        torch.save(model.state_dict(), Slow())
    elif HOW == "sleeps":
        note("stalling")
        time.sleep(SLEEP_S[HOW])
    if HOW in SLEEP_S:
        note("training")


def main() -> int:
    """Exit status 0, or 7 where it is to fail."""
    note("starting")
    torch.set_num_threads(1)
    if HOW == "starts":
        time.sleep(SLEEP_S[HOW])
    if HOW == "ranks":
        context = multiprocessing.get_context("spawn")
        barrier, ranks = context.Barrier(2), []
        for rank in range(2):
            os.environ["RANK"] = str(rank)
            ranks.append(context.Process(target=train, args=(barrier,)))
            ranks[-1].start()
        for each in ranks:
            each.join()
    else:
        train()
    return 7 if HOW == "fails" else 0


if __name__ == "__main__":
    sys.exit(main())
