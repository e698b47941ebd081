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
    pause: Floats  # (ranks, epochs, batches): evaluations and saves, after the step

    def less(self, stage: int) -> Case:
        """The same without one of the two stages."""
        stages = self.stages.copy()
        stages[..., stage] = 0
        return replace(self, stages=stages)


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


@dataclass
class Recorded:
    """What a run left: batches of each rank in the order in which they were taken, and its end."""

    taken: list[list[_Batch]] = field(default_factory=list)
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
    world, recorded = _World(), Recorded([[] for _ in range(case.ranks)])
    barrier = _Barrier(case.ranks)
    for rank in range(case.ranks):
        world.start(_train(world, case, rank, barrier, recorded))
    world.run()
    return recorded


def _train(world: _World, case: Case, rank: int, barrier: _Barrier, recorded: Recorded) -> Process:
    """The training process of one rank."""
    for epoch in range(case.epochs):
        loader = _Loader(world, case, rank, epoch)
        if case.workers:
            yield case.start[rank, epoch]
            loader.prime()
        for step in range(case.batches):
            wait_begin = world.now
            if case.workers:
                while (batch := loader.next_there()) is None:
                    yield loader.arrived
                yield case.hold[rank, epoch, batch.number]
                loader.ask(batch.worker)
            else:
                batch = _Batch(rank, epoch, step, asked=world.now, begin=world.now)
                yield float(case.stages[rank, epoch, step].sum())
                batch.end = batch.ready = world.now
                yield case.hold[rank, epoch, step]
            batch.wait_begin, batch.wait_end = wait_begin, world.now
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
            recorded.end = max(recorded.end, world.now)


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

    def prime(self) -> None:
        for _ in range(self.case.workers * self.case.prefetch):
            self._send()

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
    """The run as a recorder saw it."""
    found = []
    for rank, taken in enumerate(recorded.taken):
        columns = {
            name: np.array([round(getattr(b, name)) for b in taken], np.int64) + _since(name)
            for name in ("worker", "asked", "begin", "end", "ready", "wait_begin", "wait_end",
                         "epoch", "met", "peers")
        }  # fmt: skip
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
                workers=case.workers,
                prefetch=case.prefetch,
                in_order=case.in_order,
                rank=rank,
                met_ns=columns["met"] if knows_peers else None,
                peers_ns=columns["peers"] if knows_peers else None,
                last_end_ns=round(recorded.end) + START_NS,
            )
        )
    return found


def stage_of(case: Case, recorded: Recorded, stage: int) -> list[Floats]:
    """What one stage took of each fetch, batch by batch as they were taken."""
    return [
        np.array([case.stages[b.rank, b.epoch, b.number, stage] for b in taken])
        for taken in recorded.taken
    ]


def draw(seed: int) -> Case:
    """A random case: 0 to 8 workers, two stages in either order, jitter, prefetch 1 to 8."""
    random = np.random.default_rng(seed)
    ranks = int(random.choice([1, 1, 1, 2, 3]))
    workers = int(random.integers(0, 9))
    epochs, batches = int(random.integers(1, 4)), int(random.integers(8, 60))
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
