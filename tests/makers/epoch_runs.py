"""Runs without a profile whose epochs are known by construction."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from tests.makers.records import JOB_START_NS, Io, darshan_log
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import Trace
from vanidl.readers.records import TracerLog

MS = 1_000_000
_MAIN = -1
_SIZE = 1000


@dataclass(frozen=True)
class EpochRun:
    """What a training reads. `split`: how ranks share the samples: "anew" in each epoch, "fixed",
    or "replacement", as samples drawn at random; `last` is the part of the last epoch that ran."""

    epochs: int = 3
    samples: int = 48
    shuffled: bool = True
    workers: int = 2
    persistent: bool = True
    ranks: int = 1
    split: str = "anew"
    last: float = 1.0
    dropped: float = 0.0  # of the samples of each epoch
    batch: int = 4
    validation: int = 0  # samples read after each epoch
    sanity: int = 0  # of these, read before training
    scan: bool = False  # headers of all files are read first
    one_file: bool = False
    pieces: int = 1  # reads of a sample
    offsets: bool = True
    pause: int = 50  # ms between epochs
    seed: int = 0


class _Recorder:
    """Writes down reads by (rank, worker or _MAIN, generation)."""

    def __init__(self, run: EpochRun) -> None:
        self.run, self.reads = run, defaultdict[tuple[int, int, int], list[Io]](list)

    def read(self, who: tuple[int, int, int], at: int, sample: int, length: int) -> int:
        run, each = self.run, length // self.run.pieces
        file, base = (1, sample * _SIZE) if run.one_file else (sample + 1, 0)
        for piece in range(run.pieces):
            offset = base + piece * _SIZE // run.pieces if run.offsets else -1
            self.reads[who].append(Io(at, at + each, offset, _SIZE // run.pieces, file))
            at += each
        return at

    def others(self, at: int, count: int) -> int:
        """Reads of a validation, by the training process."""
        for i in range(count):
            at = self.read((0, _MAIN, 0), at, self.run.samples + i, 5 * MS)
        return at


def epoch_run(run: EpochRun) -> tuple[list[float], Trace]:
    """When each epoch began, in seconds since the start of the job, and the trace."""
    chance, recorder, now = random.Random(run.seed), _Recorder(run), 1000 * MS
    if run.scan:
        for sample in range(run.samples):
            recorder.reads[0, _MAIN, 0].append(Io(now, now + MS, 0, 64, sample + 1))
            now += MS
    now = recorder.others(now + 200 * MS, run.sanity) + run.pause * MS
    starts, order = [], list(range(run.samples))
    for epoch in range(run.epochs):
        part = (1 - run.dropped) * (run.last if epoch == run.epochs - 1 else 1)
        first, ends = [], []
        for rank, share in enumerate(_shares(run, order, chance)):
            kept = share[: max(1, round(len(share) * part))]
            begin, end = _epoch(recorder, rank, epoch, kept, now, chance)
            first.append(begin)
            ends.append(end)
        starts.append(min(first) / 1e9)
        now = recorder.others(max(ends) + run.pause * MS, run.validation) + run.pause * MS
    return starts, assemble(Group(tuple(_logs(run, recorder, now)), ()), {})


def _shares(run: EpochRun, order: list[int], chance: random.Random) -> list[list[int]]:
    if run.split == "replacement":
        order = [chance.randrange(run.samples) for _ in order]
    elif run.split == "anew" and run.shuffled:
        chance.shuffle(order)
    shares = [order[rank :: run.ranks] for rank in range(run.ranks)]
    if run.split == "fixed" and run.shuffled:
        for share in shares:
            chance.shuffle(share)
    return shares


def _epoch(
    recorder: _Recorder, rank: int, epoch: int, share: list[int], now: int, chance: random.Random
) -> tuple[int, int]:
    run = recorder.run
    generation = 0 if run.persistent or not run.workers else epoch
    clocks = [now + chance.randint(0, 5) * MS for _ in range(max(run.workers, 1))]
    begin = min(clocks[: -(-len(share) // run.batch)])
    for i in range(0, len(share), run.batch):
        worker = i // run.batch % len(clocks)
        who = (rank, worker if run.workers else _MAIN, generation)
        for sample in share[i : i + run.batch]:
            length = chance.randint(4, 20) * MS
            clocks[worker] = recorder.read(who, clocks[worker], sample, length) + MS
    return begin, max(clocks)


def _logs(run: EpochRun, recorder: _Recorder, now: int) -> list[TracerLog]:
    logs = []
    for rank in range(run.ranks):
        main = recorder.reads.pop((rank, _MAIN, 0), [Io(1, 2, 0, 1, 9999)])
        logs.append(darshan_log(main, pid=100 * (rank + 1), length_ns=now))
    for (rank, worker, generation), reads in sorted(recorder.reads.items()):
        low, high = min(io.start for io in reads) - 2 * MS, max(io.end for io in reads) + 2 * MS
        own = [io._replace(start=io.start - low, end=io.end - low) for io in reads]
        pid = 100 * (rank + 1) + 1 + worker + 10 * generation
        logs.append(
            darshan_log(own, pid=pid, parent=100 * (rank + 1), start_ns=JOB_START_NS + low,
                        length_ns=high - low)
        )  # fmt: skip
    return logs
