"""Trainings that are killed at random and go on from their last checkpoint: is a sample lost?

    python -m benchmarks.loaders.resumes [--kills 500] [--seed 0]

Each training goes through four epochs of small samples; behind each batch it writes a checkpoint,
whole: the loader's state and the ids so far. SIGKILL hits all of its processes (ranks, workers) at
a random time; another process loads the checkpoint, builds the loader anew and goes on, until the
training is through. Then every epoch must hold every sample once, and the batches those of a
training that nobody killed. Ranks go on from the last batch that all of them have behind them.

The goal is that no sample is lost or twice in 500 kills, spread over the loaders below. The seed
chooses when kills come; what a kill interrupts is up to the machine.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from vanidl_loaders import pls
from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.messages import open_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.dataset import buffered_loader
from vanidl_loaders.scheduled.plan import PlanSettings
from vanidl_loaders.workloads.making import make

N, BATCH, EPOCHS, STEP_S = 23, 4, 4, 0.002
LIFE_S = 0.05
"""A process lives so long at most behind its first batch: a training takes twice as long."""
START_S, EARLY = 1.0, 0.2
"""This share of the processes lives so long at most from the start: some come to no batch."""
HANGS_S = 60.0

Open = Callable[[World, Path, Path], Any]
"""(rank of how many, folder of samples, folder of the training) -> a loader."""


class Ids:
    """Samples that hold their id."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, sample: int) -> dict[str, torch.Tensor]:
        return {"sample": torch.tensor(sample)}


def planned(workers: int, world: World, _data: Path, _folder: Path) -> Any:  # noqa: ANN401
    """Any data set, buffered by a plan, in the user's own loop."""
    settings = PlanSettings(N, world.ranks, BATCH, EPOCHS, N // 2)
    return buffered_loader(Ids(), settings, rank=world.rank, options={"num_workers": workers})


def exchanging(workers: int, kept: str, world: World, _data: Path, folder: Path) -> Any:  # noqa: ANN401
    """Partial local shuffling around the user's DataLoader, in memory or in a folder."""
    local = folder / "local" if kept == "folder" else None
    dataset = pls.PartialLocalDataset(Ids(), world=world, folder=local, fingerprint="ids")
    sampler = pls.LocalSampler(dataset, BATCH)
    loader = DataLoader(dataset, BATCH, sampler=sampler, num_workers=workers)
    transport = open_transport(world, "gloo")
    return pls.Exchanging(pls.Scheduler(dataset, BATCH, 0.5, transport=transport), loader)


def registered(name: str, workers: int, world: World, data: Path, _folder: Path) -> Any:  # noqa: ANN401
    """A loader of the registry; those that do not count epochs are told."""
    settings = Settings(world=world, batch=BATCH, epochs=EPOCHS, workers=workers)
    return open_loader(name, open_samples(data), settings)


@dataclass(frozen=True)
class Kind:
    """A training: how its loader is made, and on how many ranks."""

    open: Open
    ranks: int = 1


KINDS: dict[str, Kind] = {
    **{f"planned, {n} workers": Kind(partial(planned, n)) for n in (0, 1)},
    **{f"exchanging, {n} workers": Kind(partial(exchanging, n, "memory")) for n in range(5)},
    **{f"exchanging, folder, {n} workers": Kind(partial(exchanging, n, "folder")) for n in (0, 2)},
    **{f"exchanging, 2 ranks, {n} workers": Kind(partial(exchanging, n, "memory"), 2)
       for n in (0, 2)},
    "planned, 2 ranks": Kind(partial(planned, 1), 2),
    **{f"baseline, {n} workers": Kind(partial(registered, "baseline", n)) for n in range(5)},
    **{f"{name}, {n} workers": Kind(partial(registered, name, n))
       for name in ("scheduled", "pls") for n in (0, 2)},
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One training: kills that it survived, and what is wrong with its batches ("": nothing)."""

    kills: int
    wrong: str


def train(kind: Kind, rank: int, data: Path, folder: Path) -> None:
    """One life of one rank: from the last checkpoint of all ranks to the end, or to its kill."""
    loader = kind.open(World(rank, kind.ranks), data, folder)
    batches, state = _checkpoint(folder, kind.ranks, rank)
    if state is not None:
        loader.load_state_dict(state)
    epoch = state["epoch"] if state else 0
    while epoch < EPOCHS:
        if not getattr(loader, "advances", True):
            loader.set_epoch(epoch)
        for batch in loader:
            batch, weight = batch if isinstance(batch, tuple) else (batch, batch.get("weight", 1))
            batches.append((epoch, batch["sample"].tolist() if weight else []))
            time.sleep(STEP_S)
            _save(folder, rank, batches, loader.state_dict())
        epoch += 1
    (folder / f"done-{rank}").touch()


def _save(folder: Path, rank: int, batches: list[Any], state: dict[str, Any]) -> None:
    part = folder / f"{rank}.part"
    part.write_bytes(pickle.dumps((batches, state)))
    part.replace(folder / f"{rank}-{len(batches):04d}.checkpoint")


def _checkpoint(folder: Path, ranks: int, rank: int) -> tuple[list[Any], dict[str, Any] | None]:
    """Batches and state behind the last step that all ranks have behind them."""
    last = [
        max((int(p.stem.split("-")[1]) for p in folder.glob(f"{r}-*.checkpoint")), default=0)
        for r in range(ranks)
    ]
    if not min(last):
        return [], None
    found: tuple[list[Any], dict[str, Any]] = pickle.loads(
        (folder / f"{rank}-{min(last):04d}.checkpoint").read_bytes()
    )
    return found


@dataclass(frozen=True)
class Life:
    """How long a process lives: from its start, or from its first batch."""

    seconds: float
    from_start: bool

    @classmethod
    def drawn(cls, draw: random.Random) -> Life:
        """One of `EARLY` from the start."""
        early = draw.random() < EARLY
        return cls(draw.uniform(0, START_S if early else LIFE_S), early)


def live(kind: Kind, data: Path, folder: Path, life: Life | None) -> bool:
    """Starts all ranks and kills them after a while; whether they were through before."""
    port, before = _free_port(), len(list(folder.glob("*.checkpoint")))
    for path in folder.glob("done-*"):
        path.unlink()
    leader = os.fork()
    if not leader:
        os.setpgid(0, 0)
        _lead(kind, data, folder, port)
    ends, counted = time.monotonic() + HANGS_S, life is None
    while time.monotonic() < ends:
        if os.waitpid(leader, os.WNOHANG) != (0, 0):
            break
        if life is not None and not counted:
            counted = life.from_start or len(list(folder.glob("*.checkpoint"))) > before
            ends = time.monotonic() + life.seconds if counted else ends
        time.sleep(0.001)
    else:
        with suppress(ProcessLookupError):  # of a leader that has not yet made its group
            os.killpg(leader, signal.SIGKILL)
        os.kill(leader, signal.SIGKILL)
        os.waitpid(leader, 0)
        if not counted or life is None:
            raise RuntimeError(f"expected a training through within {HANGS_S:g} s, found none")
        return False
    if len(list(folder.glob("done-*"))) < kind.ranks:
        said = "\n".join(path.read_text() for path in folder.glob("error-*"))
        raise RuntimeError(f"expected a training that ends well, found: {said}")
    return True


def _lead(kind: Kind, data: Path, folder: Path, port: int) -> None:
    """Runs the ranks, each in a process; does not return."""
    children = []
    for rank in range(kind.ranks):
        child = os.fork()
        if not child:
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(kind.ranks),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            try:
                train(kind, rank, data, folder)
            except BaseException:
                (folder / f"error-{rank}").write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def killed_training(kind: Kind, data: Path, folder: Path, draw: random.Random) -> Outcome:
    """A training that is killed until it is through, beside one that is not."""
    whole, torn = folder / "whole", folder / "torn"
    for each in (whole, torn):
        each.mkdir(parents=True)
    live(kind, data, whole, None)
    kills = 0
    while not live(kind, data, torn, Life.drawn(draw)):
        kills += 1
    wanted, found = (
        [_checkpoint(each, kind.ranks, rank)[0] for rank in range(kind.ranks)]
        for each in (whole, torn)
    )
    return Outcome(kills, _wrong(found) or ("" if found == wanted else "other batches"))


def _wrong(of_ranks: Sequence[Sequence[tuple[int, list[int]]]]) -> str:
    """Samples that an epoch lacks or has more often than padding explains; "" for none."""
    said = []
    for epoch in range(EPOCHS):
        ids = [i for batches in of_ranks for e, batch in batches if e == epoch for i in batch]
        seen = Counter(ids)
        lost = sorted(set(range(N)) - seen.keys())
        more = len(ids) - len(seen)
        if lost or more > -N % len(of_ranks):
            said.append(f"epoch {epoch} lacks {lost} and has {more} more than once")
    return "; ".join(said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints kills and losses of each kind; exit status 1 where there is a loss."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name holds this")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    draw, kills, wrong = random.Random(options.seed), Counter[str](), list[str]()
    kinds = {name: kind for name, kind in KINDS.items() if options.only in name}
    turns = draw.sample(list(kinds), len(kinds))  # each is killed first in some short run
    trainings = Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        data = make("ptycho", Path(scratch) / "data", samples=N, seed=1, size=8).folder
        while kills.total() < options.kills:
            name = min(turns, key=lambda each: kills[each] + trainings[each])
            outcome = killed_training(
                kinds[name], data, Path(scratch) / str(trainings.total()), draw
            )
            trainings[name] += 1
            kills[name] += outcome.kills
            if outcome.wrong:
                wrong.append(f"{name}: {outcome.wrong}")
    for name in kinds:
        sys.stdout.write(f"{kills[name]:5} kills  {name}\n")
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    sys.stdout.write(
        f"{kills.total()} kills in {trainings.total()} trainings, seed {options.seed}: "
        f"{len(wrong)} with samples lost or twice\n"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
