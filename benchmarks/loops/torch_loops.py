"""Loops of plain PyTorch as people write them: torch_loops.py LOOP [LOOP...].

Several run one after another, each in a forked process: PyTorch is imported once.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timers import (
    BATCHES,
    COMPUTE_S,
    EPOCHS,
    EVALUATION,
    READ_S,
    SAVE_S,
    SECOND,
    VALIDATIONS,
    Timers,
    compute,
    tell,
)
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

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
        worker, rows = get_worker_info(), Rows()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        return (rows[i] for i in range(first, len(rows), every))


def loader(rows: int = 2 * BATCHES, data: Any = None, **options: Any) -> Loader:  # noqa: ANN401
    """Batches of two."""
    return DataLoader(Rows(rows) if data is None else data, batch_size=2, **options)


class Trainer:
    """A model and its optimizers, all of which step after each batch."""

    def __init__(self, timers: Timers | None, optimizers: int = 1) -> None:
        self.timers, self.losses = timers, list[torch.Tensor]()
        self.net: Any = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
        self.optimizers = [torch.optim.SGD(self.net.parameters(), 1e-3) for _ in range(optimizers)]

    def backward(self, batch: torch.Tensor, seconds: float = COMPUTE_S) -> None:
        """Gradients of a batch."""
        compute(seconds)
        loss = self.net(batch).sum()
        loss.backward()
        self.losses.append(loss.detach())

    def step(self) -> None:
        """Every optimizer's."""
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if self.timers is not None:
            self.timers.step()

    def train(self, batch: torch.Tensor, seconds: float = COMPUTE_S) -> None:
        """One step of one batch."""
        self.backward(batch, seconds)
        self.step()

    def validate(self, batches: Loader) -> None:
        """A pass without gradients."""
        assert self.timers is not None
        with self.timers.time("validation"):
            self.net.eval()
            with torch.no_grad():
                for batch in self.timers.batches(batches, EVALUATION):
                    self.losses.append(self.net(batch).sum())
                    compute(COMPUTE_S / 2)
            self.net.train()

    def tell(self) -> None:
        """All that was computed."""
        tell(*self.losses)

    def save(self) -> None:
        """A checkpoint that takes its time."""
        assert self.timers is not None
        with tempfile.NamedTemporaryFile() as file:
            with self.timers.saving():
                torch.save({"net": self.net.state_dict(), "more": Slow()}, file.name)
            with self.timers.loading():
                torch.load(file.name, weights_only=False)


class Slow:
    """Takes its time to be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(SAVE_S)
        return (int, ())


def plain(
    timers: Timers,
    epochs: int = EPOCHS,
    make: Callable[[], Loader] | None = None,
    optimizers: int = 1,
    **options: Any,  # noqa: ANN401
) -> None:
    """Each batch is a step; the loader is made once, or by a function for each epoch."""
    trainer = Trainer(timers, optimizers)
    kept = loader(**options)
    for _ in range(epochs):
        timers.counts["epochs"] += 1
        for batch in timers.batches(kept if make is None else make(), every=1):
            trainer.train(batch)
    trainer.tell()


def validated(timers: Timers, **options: Any) -> None:  # noqa: ANN401
    """Validation and a checkpoint after each epoch."""
    trainer, batches, validation = Trainer(timers), loader(**options), loader(2 * VALIDATIONS)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            trainer.train(batch)
        trainer.validate(validation)
        trainer.save()
    trainer.tell()


def anew(timers: Timers) -> None:
    """A new loader for each epoch, and for each validation."""
    trainer = Trainer(timers)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(loader(num_workers=2), every=1):
            trainer.train(batch)
        trainer.validate(loader(2 * VALIDATIONS))
    trainer.tell()


def amid(timers: Timers) -> None:
    """Validation after every fourth step, within one epoch."""
    trainer, validation = Trainer(timers), loader(2 * VALIDATIONS)
    timers.counts["epochs"] += 1
    for k, batch in enumerate(timers.batches(loader(4 * BATCHES))):
        trainer.train(batch)
        if k % 4 == 3:
            trainer.validate(validation)
    trainer.tell()


def reads_before(timers: Timers) -> None:
    """Statistics of the data are computed by a pass over them, before one epoch."""
    trainer, batches = Trainer(timers), loader(num_workers=2)
    with timers.time("skipped"):
        mean = sum(float(batch.mean()) for batch in batches)
    timers.counts["epochs"] += 1
    for batch in timers.batches(batches, every=1):
        trainer.train(batch - mean)
    trainer.tell()


def zipped(timers: Timers) -> None:
    """Two loaders give one step; one of them is a third as long and begun again in each epoch."""
    trainer, batches, other = Trainer(timers), loader(), loader(2 * BATCHES // 3)
    second = timers.batches(other, SECOND)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            try:
                more = next(second)
            except StopIteration:
                second = timers.batches(other, SECOND)
                more = next(second)
            trainer.train(batch + more)
    trainer.tell()


def zipped_evenly(timers: Timers) -> None:
    """Two loaders of one length, by zip."""
    trainer, batches, other = Trainer(timers), loader(), loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for one, more in timers.batches(zip(batches, other, strict=False), every=1):
            trainer.train(one + more)
    trainer.tell()


def side_by_side(timers: Timers) -> None:
    """Two loaders give one step, in one epoch; the second begins after the first gave its batch."""
    trainer, other = Trainer(timers), loader()
    rest: Iterator[torch.Tensor] | None = None
    timers.counts["epochs"] += 1
    for batch in timers.batches(loader(), every=1):
        rest = timers.batches(other, SECOND) if rest is None else rest
        trainer.train(batch + next(rest))
    trainer.tell()


def cycled(timers: Timers) -> None:
    """Steps are counted, and the loader begun again whenever it is over."""

    def forever() -> Iterator[torch.Tensor]:
        while True:
            timers.counts["epochs"] += 1
            yield from batches

    trainer, batches = Trainer(timers), loader()
    for batch in itertools.islice(timers.batches(forever(), every=1), EPOCHS * BATCHES):
        trainer.train(batch)
    timers.end_step()  # nobody asks for another batch
    trainer.tell()


def accumulated(timers: Timers) -> None:
    """Five batches a step; what is left of an epoch is a step, too."""
    trainer, batches = Trainer(timers), loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for k, batch in enumerate(timers.batches(batches, every=5)):
            trainer.backward(batch)
            if k % 5 == 4 or k == BATCHES - 1:
                trainer.step()
    trainer.tell()


def scaled(timers: Timers) -> None:
    """Mixed precision: GradScaler skips the step of every batch that has no finite gradient."""
    trainer, scaler = Trainer(timers), torch.amp.GradScaler("cpu")
    timers.counts["epochs"] += 1
    for k, batch in enumerate(timers.batches(loader(), every=1)):
        compute()
        loss = trainer.net(batch).sum() * (float("inf") if k % 4 == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(trainer.optimizers[0])
        scaler.update()
        trainer.optimizers[0].zero_grad()
        trainer.losses.append(loss.detach())
        timers.step()
    trainer.tell()


def broken_off(timers: Timers) -> None:
    """Each pass is left after five batches."""
    trainer, batches = Trainer(timers), loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for k, batch in enumerate(timers.batches(batches, every=1)):
            trainer.train(batch)
            if k == 4:
                break
    timers.end_step()
    trainer.tell()


class Broken(Rows):
    """The last row cannot be read."""

    def __getitem__(self, i: int) -> torch.Tensor:
        """Row i."""
        if i == len(self) - 1:
            raise ValueError("as asked")
        return super().__getitem__(i)


def failing(timers: Timers) -> None:
    """A batch cannot be read: the loop goes on without it, and ends."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    try:
        for batch in timers.batches(loader(data=Broken()), every=1):
            trainer.train(batch)
    except ValueError:
        timers.end_step()
    trainer.tell()


def resumed(timers: Timers) -> None:
    """The first batches were trained on before: they are taken, and thrown away."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    batches = timers.batches(loader(8 * BATCHES))
    with timers.time("skipped"):
        for _ in range(20):
            next(batches)
    timers.spans["wait"].clear()
    timers.counts["skipped"] = 20
    for batch in batches:
        trainer.train(batch)
    trainer.tell()


def stateful(timers: Timers) -> None:
    """Torchdata's loader, resumed within an epoch, its state saved within each."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made() -> Any:  # noqa: ANN401
        return StatefulDataLoader(Rows(), batch_size=2, num_workers=2)

    first = made()
    with timers.time("skipped"):
        iterator = iter(first)
        for _ in range(5):
            next(iterator)
        state = first.state_dict()
        del iterator, first
    trainer, batches = Trainer(timers), made()
    batches.load_state_dict(state)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for k, batch in enumerate(timers.batches(batches, every=1)):
            trainer.train(batch)
            if k == 4:
                batches.state_dict()
    trainer.tell()


def inference(timers: Timers) -> None:
    """Nothing is trained."""
    net = torch.nn.Linear(2, 1)
    losses = []
    with torch.inference_mode():
        for batch in timers.batches(loader(num_workers=2), every=1):
            losses.append(net(batch).sum())
            compute()
            timers.counts["inference"] += 1
    tell(*losses)


def replay(timers: Timers) -> None:
    """Batches are drawn from memory: no loader."""
    trainer = Trainer(timers)
    buffer = [torch.rand(2) for _ in range(100)]
    random.seed(0)
    for _ in range(40):
        trainer.train(torch.stack(random.sample(buffer, 2)))
    trainer.tell()


def gan(timers: Timers) -> None:
    """Two models, two optimizers, both in each step."""
    one, other, batches = Trainer(timers), Trainer(None), loader()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            other.train(batch, COMPUTE_S / 2)
            one.train(other.net(batch).detach(), COMPUTE_S / 2)
    one.tell()
    other.tell()


def distilled(timers: Timers) -> None:
    """A teacher that is not trained gives the targets."""
    trainer, batches = Trainer(timers), loader()
    teacher = torch.nn.Linear(2, 2).eval()
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            with torch.no_grad():
                target = teacher(batch)
            trainer.train(batch + target)
    trainer.tell()


def by_hand(timers: Timers) -> None:
    """No optimizer: the program changes its parameters itself."""
    net, batches, losses = torch.nn.Linear(2, 1), loader(), []
    validation = loader(2 * VALIDATIONS)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            compute()
            loss = net(batch).sum()
            loss.backward()
            losses.append(loss.detach())
            with torch.no_grad():
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter -= 1e-3 * parameter.grad
                    parameter.grad = None
            timers.step()
        with timers.time("validation"), torch.no_grad():
            losses += [net(batch).sum() for batch in timers.batches(validation, EVALUATION)]
    tell(*losses)


def threads(timers: Timers) -> None:
    """Two threads, each with a model and a loader of its own."""
    told: list[Trainer] = []

    def run(epochs: int, own: Timers | None = None) -> None:
        own = own or Timers(timers.loop)
        trainer, batches = Trainer(own), loader()
        told.append(trainer)
        for _ in range(epochs):
            own.counts["epochs"] += 1
            for batch in own.batches(batches, every=1):
                trainer.train(torch.ones_like(batch))

    other = threading.Thread(target=run, args=(2,))
    other.start()
    run(EPOCHS, timers)
    other.join()
    tell(*(len(trainer.losses) for trainer in sorted(told, key=lambda t: len(t.losses))))


def compiled(timers: Timers) -> None:
    """torch.compile: the first step compiles."""
    trainer, batches = Trainer(timers), loader()
    trainer.net = torch.compile(trainer.net, backend="aot_eager")
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            trainer.train(batch)
    trainer.tell()


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
            for (batch,) in timers.batches(batches, every=1):
                trainer.train(torch.as_tensor(batch))
    trainer.tell()


def arrow(timers: Timers) -> None:
    """Hugging Face's datasets."""
    import datasets

    data = datasets.Dataset.from_dict({"x": [[float(i)] * 2 for i in range(2 * BATCHES)]})
    trainer = Trainer(timers)
    batches: Loader = DataLoader(data.with_format("torch"), batch_size=2, num_workers=2)
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            trainer.train(batch["x"])
    trainer.tell()


def profiled(timers: Timers) -> None:
    """PyTorch's own profiler looks at eight steps in the middle."""
    trainer, batches = Trainer(timers), loader(num_workers=2)
    path = f"{os.environ.get('LOOP_TIMES', os.devnull)}.profile.pt.trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=2, warmup=2, active=8, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(path) if "LOOP_TIMES" in os.environ else 0,
    ) as profiler:
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches, every=1):
            trainer.train(batch)
            profiler.step()
    trainer.tell()


def raises(timers: Timers) -> None:
    """A row cannot be read, and nobody catches that."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    for batch in timers.batches(loader(data=Broken()), every=1):
        trainer.train(batch)
        trainer.tell()


def raises_in_worker(timers: Timers) -> None:
    """The same in a worker."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    for batch in timers.batches(loader(data=Broken(), num_workers=2), every=1):
        trainer.train(batch)
        trainer.tell()


def ends(timers: Timers, end: Callable[[], object]) -> None:
    """Amid the epoch the program ends; what it measured is written before."""
    trainer = Trainer(timers)
    timers.counts["epochs"] += 1
    for k, batch in enumerate(timers.batches(loader(400, num_workers=2))):
        trainer.train(batch)
        if k == 120:  # more than a second, after which what was recorded is in the file
            trainer.tell()
            timers.write()
            end()


LOOPS: dict[str, Callable[[Timers], None]] = {
    "plain": plain,
    "workers": lambda timers: plain(timers, num_workers=2),
    "spawned": lambda timers: plain(timers, 1, num_workers=2, multiprocessing_context="spawn"),
    "forkserver": lambda timers: plain(
        timers, 1, num_workers=2, multiprocessing_context="forkserver"
    ),
    "persistent": lambda timers: plain(timers, num_workers=2, persistent_workers=True),
    "iterable": lambda timers: plain(timers, data=Stream()),
    "iterable-workers": lambda timers: plain(timers, data=Stream(), num_workers=2),
    "iterable-anew": lambda timers: plain(timers, make=lambda: loader(data=Stream())),
    "two-optimizers": lambda timers: plain(timers, optimizers=2),
    "validated": validated,
    "validated-workers": lambda timers: validated(timers, num_workers=2),
    "anew": anew,
    "amid": amid,
    "reads-before": reads_before,
    "zipped": zipped,
    "zipped-evenly": zipped_evenly,
    "side-by-side": side_by_side,
    "cycled": cycled,
    "accumulated": accumulated,
    "scaled": scaled,
    "broken-off": broken_off,
    "failing": failing,
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
    "profiled": profiled,
    "raises": raises,
    "raises-in-worker": raises_in_worker,
    "exits": lambda timers: ends(timers, lambda: sys.exit(3)),
    "killed": lambda timers: ends(timers, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "terminated": lambda timers: ends(timers, lambda: os.kill(os.getpid(), signal.SIGTERM)),
}


def run(name: str) -> None:
    """One of the loops, from a known state of the random numbers."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS[name](Timers(name))


def run_each(names: list[str]) -> None:
    """Loops one after another, each in a forked process."""
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()  # imports more
    gc.freeze()  # of what it made, which no fork looks through at its end
    for name in names:
        child = os.fork()
        if not child:
            run(name)
            return
        os.waitpid(child, 0)


if __name__ == "__main__":
    run_each(sys.argv[1:]) if len(sys.argv) > 2 else run(sys.argv[1])
