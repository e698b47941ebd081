"""Whether a run without a stage of its loading takes what `without` says: real DataLoaders.

    python -m benchmarks.vanidl.without_truth [--batches 30] [--epochs 2] [--repeat 1]

A training of sleeps: each batch is read, then decoded, for as long as its number says (jitter
included), in 0 to 4 workers that are asked for 1 to 4 batches ahead; a step sleeps too, and ranks
end steps at a barrier. The program times its own fetches and waits. Once it runs with both stages,
once without each; of the first run alone it is worked out what the others gain. Printed are both
gains and how far they are apart, of the waits. Sleeps need no core, so what a busy machine does is
noise: a process is woken late. By how much the steps themselves differ for that is taken off.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info

from vanidl.breakdown.rerun import Fetched
from vanidl.breakdown.without import Share, bound_gain

STEP_S = 0.050
READ_S, DECODE_S = 0.045, 0.030  # of a batch, times the number of workers
JITTER = 0.3
STAGES = ("read", "decode")
WITHIN = 0.05


@dataclass(frozen=True)
class Program:
    """One training."""

    workers: int
    prefetch: int = 2
    in_order: bool = True
    ranks: int = 1
    without: str = ""  # stage

    @property
    def name(self) -> str:
        """As it is printed."""
        words = [f"{self.workers} workers"]
        words += [f"{self.prefetch} ahead"] if self.workers else []
        words += [] if self.in_order else ["in any order"]
        words += [f"{self.ranks} ranks"] if self.ranks > 1 else []
        return ", ".join(words)


Times = list[int]


class Batches(Dataset[Times]):
    """Batches that say when they were made."""

    def __init__(self, program: Program, count: int, rank: int) -> None:
        random = np.random.default_rng(rank)
        scale = max(program.workers, 1) * (1 + 0.5 * rank)
        lengths = np.array([READ_S, DECODE_S]) * scale
        self.seconds = lengths * np.exp(random.normal(0, JITTER, (count, 2)))
        if program.without:
            self.seconds[:, STAGES.index(program.without)] = 0

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> Times:
        times = [time.monotonic_ns()]
        for seconds in self.seconds[index]:
            if seconds:
                time.sleep(seconds)
            times.append(time.monotonic_ns())
        info = get_worker_info()
        return [-1 if info is None else info.id, *times]


def train(
    program: Program, options: argparse.Namespace, rank: int, barrier: Barrier
) -> list[Times]:
    """A row a batch: worker, begin, read, decoded, wait begins and ends, meets, waited, epoch."""
    warnings.simplefilter("ignore")  # more workers than cores: they sleep
    loader = DataLoader(
        Batches(program, options.batches, rank),
        batch_size=None,
        num_workers=program.workers,
        prefetch_factor=program.prefetch if program.workers else None,
        **({} if program.in_order else {"in_order": False}),
    )
    rows = []
    for epoch in range(options.epochs):
        batches: Iterator[Times] = iter(loader)
        for _ in range(options.batches):
            begin = time.monotonic_ns()
            batch = next(batches)
            end = time.monotonic_ns()
            time.sleep(STEP_S)
            arrived = time.monotonic_ns()
            barrier.wait()
            met = time.monotonic_ns()
            rows.append([*batch, begin, end, met, met - arrived, epoch])
    return rows


def run(program: Program, options: argparse.Namespace) -> list[list[Times]]:
    """The rows of each rank."""
    context = multiprocessing.get_context("fork")
    barrier, pipes = context.Barrier(program.ranks), []
    for rank in range(program.ranks):
        mine, other = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(other, program, options, rank, barrier))
        process.start()
        pipes.append((mine, process))
    found = [mine.recv() for mine, _ in pipes]
    for _, process in pipes:
        process.join()
    return found


def _send(
    pipe: Connection,
    program: Program,
    options: argparse.Namespace,
    rank: int,
    barrier: Barrier,
) -> None:
    pipe.send(train(program, options, rank, barrier))
    pipe.close()


def recorded(program: Program, rows: list[list[Times]]) -> tuple[list[Fetched], list[np.ndarray]]:
    """The pipelines as a recorder would know them, and when reading ended."""
    pipelines, read = [], []
    for rank, of_rank in enumerate(rows):
        worker, begin, read_end, end, wait_begin, wait_end, met, peers, epoch = np.array(of_rank).T
        unknown = np.full(len(worker), -1)
        pipelines.append(
            Fetched(
                worker=worker,
                asked_ns=unknown,
                begin_ns=begin,
                end_ns=end,
                ready_ns=unknown,
                wait_begin_ns=wait_begin,
                wait_end_ns=wait_end,
                epoch=epoch,
                workers=program.workers,
                prefetch=program.prefetch,
                in_order=program.in_order,
                rank=rank,
                met_ns=met,
                peers_ns=peers,
                last_end_ns=int(met[-1]),
            )
        )
        read.append(read_end)
    return pipelines, read


def length_ns(pipelines: list[Fetched]) -> float:
    """From the first wait to the last step's end, less what the steps themselves took."""
    begin, end = min(int(p.wait_begin_ns[0]) for p in pipelines), pipelines[0].last_end_ns
    own = [int((p.met_ns - p.wait_end_ns - p.peers_ns).sum()) for p in pipelines]  # type: ignore[operator]
    return end - begin - statistics.mean(own)


def programs() -> list[Program]:
    """All that is run."""
    with_workers = [Program(n, ahead) for n in (1, 2, 4) for ahead in (1, 2, 4)]
    others = [Program(2, 2, in_order=False), Program(0, ranks=2), Program(2, 2, ranks=2)]
    return [Program(0), *with_workers, *others]


def main() -> int:
    """Prints one line a stage of each program; 1 where the median error is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; gains and waits in s")
    print(f"{'program':34} {'without':8} {'waits':>6} {'measured':>8} {'at least':>8} "
          f"{'at most':>8} {'off':>7} {'missed':>7}")  # fmt: skip
    errors = []
    for _ in range(options.repeat):
        for program in programs():
            errors += compare(program, options)
    print(f"median {statistics.median(errors):.1%} of the waits, worst {max(errors):.1%}")
    return int(statistics.median(errors) > WITHIN)


def compare(program: Program, options: argparse.Namespace) -> list[float]:
    """How far the gains of each stage are off, of the waits."""
    pipelines, read = recorded(program, run(program, options))
    wait_ns = sum(float((p.wait_end_ns - p.wait_begin_ns).sum()) for p in pipelines)
    wait_ns /= len(pipelines)
    errors = []
    for stage in STAGES:
        taken = [
            (end - p.begin_ns if stage == "read" else p.end_ns - end).astype(float)
            for p, end in zip(pipelines, read, strict=True)
        ]
        gain = bound_gain(pipelines, [{stage: Share(each, each)} for each in taken], stage)
        other = Program(program.workers, program.prefetch, program.in_order, program.ranks, stage)
        measured_ns = length_ns(pipelines) - length_ns(recorded(other, run(other, options))[0])
        off_ns = max(gain.low_ns - measured_ns, measured_ns - gain.high_ns, 0.0)
        errors.append(off_ns / wait_ns)
        print(f"{program.name:34} {stage:8} {wait_ns / 1e9:6.2f} {measured_ns / 1e9:8.3f} "
              f"{gain.low_ns / 1e9:8.3f} {gain.high_ns / 1e9:8.3f} {errors[-1]:7.1%} "
              f"{gain.missed_ns / wait_ns:7.2%}", flush=True)  # fmt: skip
    return errors


if __name__ == "__main__":
    raise SystemExit(main())
