"""Loops of plain PyTorch: torch_loops.py LOOP."""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timers import BATCHES, COMPUTE_S, EPOCHS, READ_S, SAVE_S, VALIDATIONS, Timers, compute
from torch.utils.data import DataLoader, Dataset, IterableDataset

Loader = Any


class Rows(Dataset[torch.Tensor]):
    """A row takes its time."""

    def __init__(self, rows: int = 2 * BATCHES) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """How many there are."""
        return self.rows

    def __getitem__(self, i: int) -> torch.Tensor:
        """Row i."""
        time.sleep(READ_S / 2)
        return torch.full((2,), float(i))


class Stream(IterableDataset[torch.Tensor]):
    """Rows one after another."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        rows = Rows()
        return (rows[i] for i in range(len(rows)))


def loader(rows: int = 2 * BATCHES, **options: Any) -> Loader:  # noqa: ANN401
    """Batches of two."""
    return DataLoader(Rows(rows), batch_size=2, **options)


class Trainer:
    """A model and its optimizer."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-9)

    def train(self, batch: torch.Tensor, seconds: float = COMPUTE_S) -> None:
        """One step."""
        compute(seconds)
        self.optimizer.zero_grad()
        self.net(batch).sum().backward()
        self.optimizer.step()
        self.timers.step()

    def validate(self, batches: Loader) -> None:
        """A pass without gradients."""
        with self.timers.time("validation"):
            self.net.eval()
            with torch.no_grad():
                for batch in batches:
                    self.net(batch)
                    compute(COMPUTE_S / 2)
            self.net.train()

    def save(self) -> None:
        """A checkpoint that takes its time."""
        with tempfile.NamedTemporaryFile() as file, self.timers.saving():
            torch.save({"net": self.net.state_dict(), "more": Slow()}, file.name)


class Slow:
    """Takes its time to be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(SAVE_S)
        return (int, ())


def plain(timers: Timers, make: Callable[[], Loader] | None = None, **options: Any) -> None:  # noqa: ANN401
    """One loader, validation and a checkpoint after each epoch."""
    trainer = Trainer(timers)
    kept = loader(**options)
    validation = loader(2 * VALIDATIONS)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(kept if make is None else make()):
            trainer.train(batch)
        trainer.validate(validation)
        trainer.save()


def anew(timers: Timers) -> None:
    """A new loader for each epoch, and for each validation."""
    trainer = Trainer(timers)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(loader(num_workers=2)):
            trainer.train(batch)
        trainer.validate(loader(2 * VALIDATIONS))


def amid(timers: Timers) -> None:
    """Validation after every fourth step, within one epoch."""
    trainer, validation = Trainer(timers), loader(2 * VALIDATIONS)
    timers.counts["epochs"] += 1
    for k, batch in enumerate(timers.batches(loader(4 * BATCHES))):
        trainer.train(batch)
        if k % 4 == 3:
            trainer.validate(validation)


def reads_before(timers: Timers) -> None:
    """Statistics of the data are computed by a pass over them, before one epoch."""
    trainer, batches = Trainer(timers), loader(num_workers=2)
    with timers.time("skipped"):
        sum(float(batch.mean()) for batch in batches)
    timers.counts["epochs"] += 1
    for batch in timers.batches(batches):
        trainer.train(batch)


def zipped(timers: Timers) -> None:
    """Two loaders give one step; one of them is a third as long and begun again in each epoch."""
    trainer, batches, other = Trainer(timers), loader(), loader(2 * BATCHES // 3)
    second = iter(other)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            with timers.time("wait"):
                try:
                    more = next(second)
                except StopIteration:
                    second = iter(other)
                    more = next(second)
            trainer.train(batch + more)


def zipped_evenly(timers: Timers) -> None:
    """Two loaders of one length, by zip."""
    trainer, batches, other = Trainer(timers), loader(), loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for one, more in timers.batches(zip(batches, other, strict=False)):
            trainer.train(one + more)


def cycled(timers: Timers) -> None:
    """Steps are counted, and the loader begun again whenever it is over."""

    def forever() -> Iterator[torch.Tensor]:
        while True:
            timers.counts["epochs"] += 1
            yield from batches

    trainer, batches = Trainer(timers), loader()
    for batch in itertools.islice(timers.batches(forever()), EPOCHS * BATCHES):
        trainer.train(batch)


def accumulated(timers: Timers) -> None:
    """Three batches a step."""
    trainer = Trainer(timers)
    batches = loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for k, batch in enumerate(timers.batches(batches)):
            compute()
            trainer.net(batch).sum().backward()
            if k % 3 == 2:
                trainer.optimizer.step()
                trainer.optimizer.zero_grad()
                timers.step()


def resumed(timers: Timers) -> None:
    """The first batches were trained on before: they are taken, and thrown away."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    batches = timers.batches(loader(8 * BATCHES))
    begin = time.perf_counter_ns()
    for _ in range(20):
        next(batches)
    timers.sums_ns["skipped"] += time.perf_counter_ns() - begin
    timers.sums_ns["wait"] = 0
    timers.counts["skipped"] = 20
    for batch in batches:
        trainer.train(batch)


def stateful(timers: Timers) -> None:
    """Torchdata's loader, resumed within an epoch."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made() -> Any:  # noqa: ANN401
        return StatefulDataLoader(Rows(), batch_size=2, num_workers=2)

    first = made()
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    state = first.state_dict()
    del iterator, first
    trainer, batches = Trainer(timers), made()
    batches.load_state_dict(state)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            trainer.train(batch)


def inference(timers: Timers) -> None:
    """Nothing is trained."""
    net = torch.nn.Linear(2, 1)
    with torch.inference_mode():
        for batch in timers.batches(loader(num_workers=2)):
            net(batch)
            compute()
            timers.counts["inference"] += 1


def replay(timers: Timers) -> None:
    """Batches are drawn from memory: no loader."""
    trainer = Trainer(timers)
    buffer = [torch.rand(2) for _ in range(100)]
    for _ in range(40):
        trainer.train(torch.stack(random.sample(buffer, 2)))


def gan(timers: Timers) -> None:
    """Two models, two optimizers, both in each step."""
    one, other = Trainer(timers), Trainer(Timers())
    batches = loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            other.train(batch, COMPUTE_S / 2)
            one.train(other.net(batch).detach(), COMPUTE_S / 2)


def distilled(timers: Timers) -> None:
    """A teacher that is not trained gives the targets."""
    trainer, batches = Trainer(timers), loader()
    teacher = torch.nn.Linear(2, 2).eval()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            with torch.no_grad():
                target = teacher(batch)
            trainer.train(batch + target)


def by_hand(timers: Timers) -> None:
    """No optimizer: the program changes its parameters itself."""
    net, batches = torch.nn.Linear(2, 1), loader()
    validation = loader(2 * VALIDATIONS)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            compute()
            net(batch).sum().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 1e-9 * parameter.grad
                    parameter.grad = None
            timers.step()
        with timers.time("validation"), torch.no_grad():
            for batch in validation:
                net(batch)


def threads(timers: Timers) -> None:
    """Two threads, each with a model and a loader of its own."""

    def run(epochs: int, own: Timers) -> None:
        trainer, batches = Trainer(own), loader()
        for _ in range(epochs):
            own.counts["epochs"] += 1
            for batch in own.batches(batches):
                trainer.train(batch)

    other = threading.Thread(target=run, args=(2, Timers()))
    other.start()
    run(EPOCHS, timers)
    other.join()


def compiled(timers: Timers) -> None:
    """torch.compile: the first step compiles."""
    trainer = Trainer(timers)
    trainer.net = torch.compile(trainer.net, backend="aot_eager")  # type: ignore[assignment]
    batches = loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            trainer.train(batch)


def webdataset(timers: Timers) -> None:
    """Shards, read by workers."""
    import io
    import tarfile

    import numpy as np
    import webdataset as wds

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{k}.tar" for k in range(2)]
        for path in paths:
            with tarfile.open(path, "w") as tar:
                for k in range(BATCHES):
                    content = io.BytesIO()
                    np.save(content, np.full(2, k, np.float32))
                    info = tarfile.TarInfo(f"{k:04}.npy")
                    info.size = content.tell()
                    content.seek(0)
                    tar.addfile(info, content)
        data = wds.WebDataset(paths, shardshuffle=False).decode().to_tuple("npy")
        batches = wds.WebLoader(data.batched(2), batch_size=None, num_workers=2)
        trainer = Trainer(timers)
        for _ in range(EPOCHS):
            timers.counts["epochs"] += 1
            for (batch,) in timers.batches(batches):
                trainer.train(torch.as_tensor(batch))


def arrow(timers: Timers) -> None:
    """Hugging Face's datasets."""
    import datasets

    data = datasets.Dataset.from_dict({"x": [[float(i)] * 2 for i in range(2 * BATCHES)]})
    trainer = Trainer(timers)
    batches: Loader = DataLoader(data.with_format("torch"), batch_size=2, num_workers=2)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            trainer.train(batch["x"])


LOOPS: dict[str, Callable[[Timers], None]] = {
    "plain": plain,
    "workers": lambda timers: plain(timers, num_workers=2),
    "iterable": lambda timers: plain(timers, lambda: DataLoader(Stream(), batch_size=2)),
    "anew": anew,
    "amid": amid,
    "reads-before": reads_before,
    "zipped": zipped,
    "zipped-evenly": zipped_evenly,
    "cycled": cycled,
    "accumulated": accumulated,
    "resumed": resumed,
    "stateful": stateful,
    "inference": inference,
    "replay": replay,
    "gan": gan,
    "distilled": distilled,
    "by-hand": by_hand,
    "threads": threads,
    "compiled": compiled,
    "webdataset": webdataset,
    "arrow": arrow,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS[sys.argv[1]](Timers())
