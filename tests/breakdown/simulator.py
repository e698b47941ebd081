"""Training with loaders, event by event: an independent account of what a pipeline does.

Written against what PyTorch's DataLoader documents and does (index queues of workers, one result
queue, prefetching, order, iterators anew each epoch) with processes that sleep and wake in a heap
of events. It shares nothing with the machine that it tests: no recursion over batches, no
durations of waits, only processes, queues and a clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.rerun import Fetched

MS = 1_000_000
START_NS = 1_700_000_000_123_456_789
"""Of a run: recorded times are those of a day in 2023, not small numbers."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """What a run is made of; stages and steps are drawn once, in ns, by rank, epoch and batch."""

    ranks: int
    workers: int
    prefetch: int
    in_order: bool
    epochs: int
    batches: int  # of an epoch
    stages: Floats  # (ranks, epochs, batches, 2), in the order in which a fetch runs through them
    compute: Floats  # (ranks, epochs, batches)
    delivery: Floats  # from the worker to the training process
    hold: Floats  # of a wait, when the batch is there
    lag: Floats  # of a worker that is woken
    start: Floats  # (ranks, epochs): starting workers
    pause: Floats  # (ranks, epochs, batches): saves and the like, after the step
    evaluation: Case | None = None  # with a loader of its own, each rank by itself
    evaluated_after: int = 0  # the step of each epoch, of the ranks before `evaluating`
    evaluating: int = 0

    def less(self, stage: int) -> Case:
        """The same without one of the two stages."""
        stages = self.stages.copy()
        stages[..., stage] = 0
        evaluation = None if self.evaluation is None else self.evaluation.less(stage)
        return replace(self, stages=stages, evaluation=evaluation)


@dataclass
class _Batch:
    rank: int
    epoch: int
    number: int  # as they are asked for
    worker: int = -1
    asked: float = -1
    begin: float = -1
    end: float = -1
    ready: float = -1
    wait_begin: float = -1
    wait_end: float = -1
    met: float = -1
    peers: float = -1
    over: float = -1  # its step, and what follows at once


@dataclass
class Recorded:
    """What a run left: batches of each rank in the order in which they were taken, and its end."""

    taken: list[list[_Batch]] = field(default_factory=list)
    evaluated: list[list[_Batch]] = field(default_factory=list)
    end: float = 0.0


Process = Generator[object, None, None]


class _Signal:
    """Processes wait for it until it is raised."""

    def __init__(self) -> None:
        self.waiting: list[Process] = []


class _World:
    """A clock and a heap of processes to be woken: they yield how long they sleep, or a signal."""

    def __init__(self) -> None:
        self.now, self._count = 0.0, 0
        self._heap: list[tuple[float, int, Process]] = []

    def start(self, process: Process, at: float | None = None) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now if at is None else at, self._count, process))

    def wake(self, signal: _Signal) -> None:
        waiting, signal.waiting = signal.waiting, []
        for process in waiting:
            self.start(process)

    def run(self) -> None:
        while self._heap:
            self.now, _, process = heapq.heappop(self._heap)
            try:
                wish = next(process)
            except StopIteration:
                continue
            if isinstance(wish, _Signal):
                wish.waiting.append(process)
            else:
                self.start(process, self.now + float(wish))  # type: ignore[arg-type]


class _Barrier:
    def __init__(self, ranks: int) -> None:
        self.ranks, self.there, self.signal = ranks, 0, _Signal()


def simulate(case: Case) -> Recorded:
    """Runs the case."""
    ranks = range(case.ranks)
    world, recorded = _World(), Recorded([[] for _ in ranks], [[] for _ in ranks])
    barrier = _Barrier(case.ranks)
    for rank in ranks:
        world.start(_train(world, case, rank, barrier, recorded))
    world.run()
    return recorded


def _train(world: _World, case: Case, rank: int, barrier: _Barrier, recorded: Recorded) -> Process:
    """The training process of one rank."""
    for epoch in range(case.epochs):
        loader = _Loader(world, case, rank, epoch)
        yield from loader.start()
        for step in range(case.batches):
            batch = yield from loader.take(step)
            recorded.taken[rank].append(batch)
            yield case.compute[rank, epoch, step]
            arrived = world.now
            barrier.there += 1
            if barrier.there == case.ranks:
                barrier.there = 0
                world.wake(barrier.signal)
            else:
                yield barrier.signal
            batch.met, batch.peers = world.now, world.now - arrived
            yield case.pause[rank, epoch, step]
            batch.over = world.now
            if rank < case.evaluating and step == case.evaluated_after and case.evaluation:
                yield from _evaluate(world, case.evaluation, rank, epoch, recorded)
            recorded.end = max(recorded.end, world.now)


def _evaluate(world: _World, case: Case, rank: int, epoch: int, recorded: Recorded) -> Process:
    loader = _Loader(world, case, rank, epoch)
    yield from loader.start()
    for step in range(case.batches):
        batch = yield from loader.take(step)
        batch.peers = 0
        recorded.evaluated[rank].append(batch)
        yield case.compute[rank, epoch, step]
        batch.over = world.now


class _Loader:
    """An iterator: its workers, and what has arrived."""

    def __init__(self, world: _World, case: Case, rank: int, epoch: int) -> None:
        self.world, self.case, self.rank, self.epoch = world, case, rank, epoch
        self.queues: list[deque[_Batch]] = [deque() for _ in range(case.workers)]
        self.wakes = [_Signal() for _ in range(case.workers)]
        self.arrived = _Signal()
        self.there: deque[_Batch] = deque()
        self.sent, self.taken, self.cycle = 0, 0, 0
        self.outstanding = [0] * case.workers
        for worker in range(case.workers):
            world.start(self._work(worker))

    def start(self) -> Process:
        """Starts the workers, and asks them for their first batches."""
        if self.case.workers:
            yield self.case.start[self.rank, self.epoch]
            for _ in range(self.case.workers * self.case.prefetch):
                self._send()

    def take(self, step: int) -> Generator[object, None, _Batch]:
        """What `__next__` does."""
        begin, at = self.world.now, (self.rank, self.epoch)
        if self.case.workers:
            while (batch := self.next_there()) is None:
                yield self.arrived
            yield self.case.hold[(*at, batch.number)]
            self.ask(batch.worker)
        else:
            batch = _Batch(*at, step, asked=begin, begin=begin)
            yield float(self.case.stages[(*at, step)].sum())
            batch.end = batch.ready = self.world.now
            yield self.case.hold[(*at, step)]
        batch.wait_begin, batch.wait_end = begin, self.world.now
        return batch

    def ask(self, worker: int) -> None:
        """A batch of that worker was taken."""
        self.outstanding[worker] -= 1
        self._send()

    def _send(self) -> None:
        if self.sent == self.case.batches:
            return
        while True:
            worker, self.cycle = self.cycle, (self.cycle + 1) % self.case.workers
            if self.case.in_order or self.outstanding[worker] < self.case.prefetch:
                break
        self.outstanding[worker] += 1
        batch = _Batch(self.rank, self.epoch, self.sent, worker, asked=self.world.now)
        self.queues[worker].append(batch)
        self.sent += 1
        self.world.wake(self.wakes[worker])

    def next_there(self) -> _Batch | None:
        """The batch to be taken, if it has arrived."""
        for i, batch in enumerate(self.there):
            if not self.case.in_order or batch.number == self.taken:
                del self.there[i]
                self.taken += 1
                return batch
        return None

    def _work(self, worker: int) -> Process:
        done = 0
        while done < self.case.batches:
            while not self.queues[worker]:
                if self.sent == self.case.batches:
                    return
                yield self.wakes[worker]
            batch = self.queues[worker].popleft()
            place = self.rank, self.epoch, batch.number
            yield self.case.lag[place]
            batch.begin = self.world.now
            yield float(self.case.stages[place].sum())
            batch.end = self.world.now
            self.world.start(self._deliver(batch, float(self.case.delivery[place])))
            done += 1

    def _deliver(self, batch: _Batch, after: float) -> Process:
        yield after
        batch.ready = self.world.now
        self.there.append(batch)
        self.world.wake(self.arrived)


def _since(name: str) -> int:
    return 0 if name in ("worker", "epoch", "peers") else START_NS


def pipelines(case: Case, recorded: Recorded, *, knows_peers: bool = True) -> list[Fetched]:
    """The run as a recorder saw it: a loader of each rank, and those of evaluations."""
    found = []
    for own, taken, rank in _loaders(case, recorded):
        columns = {
            name: np.array([round(getattr(b, name)) for b in taken], np.int64) + _since(name)
            for name in ("worker", "asked", "begin", "end", "ready", "wait_begin", "wait_end",
                         "epoch", "met", "peers")
        }  # fmt: skip
        evaluates = own is not case
        found.append(
            Fetched(
                worker=columns["worker"],
                asked_ns=columns["asked"],
                begin_ns=columns["begin"],
                end_ns=columns["end"],
                ready_ns=columns["ready"],
                wait_begin_ns=columns["wait_begin"],
                wait_end_ns=columns["wait_end"],
                epoch=columns["epoch"],
                workers=own.workers,
                prefetch=own.prefetch,
                in_order=own.in_order,
                rank=rank,
                step=np.full(len(taken), -1) if evaluates else None,
                met_ns=columns["met"] if knows_peers and not evaluates else None,
                peers_ns=columns["peers"] if knows_peers else None,
                last_end_ns=round(taken[-1].over) + START_NS,
            )
        )
    return found


def _loaders(case: Case, recorded: Recorded) -> list[tuple[Case, list[_Batch], int]]:
    """Each loader with its batches and rank."""
    found = [(case, taken, rank) for rank, taken in enumerate(recorded.taken)]
    if case.evaluation is not None:
        mine = enumerate(recorded.evaluated[: case.evaluating])
        found += [(case.evaluation, taken, rank) for rank, taken in mine]
    return found


def stage_of(case: Case, recorded: Recorded, stage: int) -> list[Floats]:
    """What one stage took of each fetch, batch by batch as they were taken."""
    return [
        np.array([own.stages[b.rank, b.epoch, b.number, stage] for b in taken])
        for own, taken, _ in _loaders(case, recorded)
    ]


def draw(seed: int) -> Case:
    """A random case: 0 to 8 workers, two stages in either order, jitter, prefetch 1 to 8."""
    random = np.random.default_rng(seed)
    ranks, epochs = int(random.choice([1, 1, 1, 2, 3])), int(random.integers(1, 4))
    case = _draw_loader(random, ranks, epochs, int(random.integers(8, 60)))
    if random.random() < 0.7:
        return case
    evaluation = _draw_loader(random, ranks, epochs, int(random.integers(2, 12)))
    return replace(
        case,
        evaluation=evaluation,
        evaluated_after=int(random.integers(0, case.batches)),
        evaluating=int(random.choice([1, ranks])),
    )


def _draw_loader(random: np.random.Generator, ranks: int, epochs: int, batches: int) -> Case:
    workers = int(random.integers(0, 9))
    shape = ranks, epochs, batches
    step = random.uniform(1, 50) * MS
    load = step * max(workers, 1) * np.exp(random.uniform(-1.0, 1.5))
    share = random.uniform(0.05, 0.95)
    sigma = random.choice([0.0, 0.1, 0.5, 1.0])
    stages = np.array([share, 1 - share]) * load * np.exp(random.normal(0, sigma, (*shape, 2)))
    stages[random.random((*shape, 2)) < random.choice([0.0, 0.02])] *= 10  # slow ones
    stages *= np.exp(random.normal(0, random.choice([0.0, 0.3]), (ranks, 1, 1, 1)))
    small = random.choice([0.0, 0.01])
    pause = np.zeros(shape)
    if random.random() < 0.4:  # evaluations and saves, of one rank or of all
        who = slice(None) if random.random() < 0.5 else 0
        pause[who, :, :: int(random.integers(5, 20))] = step * random.uniform(1, 20)
    return Case(
        ranks=ranks,
        workers=workers,
        prefetch=int(random.integers(1, 9)),
        in_order=bool(random.random() < 0.8),
        epochs=epochs,
        batches=batches,
        stages=stages,
        compute=step * np.exp(random.normal(0, random.choice([0.0, 0.2]), shape)),
        delivery=step * small * random.random(shape),
        hold=step * small * random.random(shape),
        lag=step * small * random.random(shape),
        start=step * random.uniform(0, 3) * np.ones((ranks, epochs)),
        pause=pause,
    )


def without_stage_ns(case: Case, recorded: Recorded, stage: int) -> float:
    """What the run gains without a stage, from its first wait on."""

    def length(run: Recorded) -> float:
        return run.end - min(taken[0].wait_begin for taken in run.taken)

    return length(recorded) - length(simulate(case.less(stage)))
