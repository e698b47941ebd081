"""Whether a run without a stage of its loading takes what `without` says: real DataLoaders.

    python -m benchmarks.vanidl.without_truth [--batches 30] [--epochs 2] [--repeat 1] [--only WORD]

A training of sleeps: each batch is read, then decoded, for as long as its number says (jitter
included), in 0 to 4 workers that are asked for 1 to 4 batches ahead; a step sleeps too, and ranks
end steps at a barrier. The program times its own fetches and waits. Once it runs with both stages,
once without each; of the first run alone it is worked out what the others gain. Printed are both
gains and how far they are apart, of the waits. Sleeps need no core, so what a busy machine does is
noise: a process is woken late. By how much the steps themselves differ for that is taken off.

Two programs are no sleeps. "busy": decoding and steps use the CPU, more of them than there are
cores, so that without decoding steps are faster too; run queues of the kernel say how long each
process was ready to run, and did not (`along_ns`, `beside_ns`). "saturated": reads of all workers
and a write of each step go through one lock, so that without reads the writes are faster too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, get_worker_info

from vanidl.breakdown.rerun import Fetched
from vanidl.breakdown.without import Share, bound_gain

STEP_S = 0.050
READ_S, DECODE_S = 0.045, 0.030  # of a batch, times the number of workers
JITTER = 0.3
STAGES = ("read", "decode")
WRITE_S = 0.010
SCALES = {"busy": 1.0, "saturated": 2.0}
OF_KIND = {"busy": ("decode",), "saturated": ("read",)}
"""Stages of which kinds of programs consist."""
WITHIN = 0.05
COLUMNS = ("worker", "begin", "read", "end", "read_queued", "decode_queued", "wait_begin",
           "wait_end", "met", "peers", "beside", "epoch")  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One training."""

    workers: int
    prefetch: int = 2
    in_order: bool = True
    ranks: int = 1
    kind: str = "asleep"  # "busy", "saturated"
    without: str = ""  # stage

    @property
    def name(self) -> str:
        """As it is printed."""
        words = [f"{self.workers} workers"]
        words += [f"{self.prefetch} ahead"] if self.workers else []
        words += [] if self.in_order else ["in any order"]
        words += [f"{self.ranks} ranks"] if self.ranks > 1 else []
        words += [self.kind] if self.kind != "asleep" else []
        return ", ".join(words)


Times = list[int]
STORAGE = multiprocessing.get_context("fork").Lock()
QUEUE = Path("/proc/thread-self/schedstat")  # its second number: ns in the run queue


def queued_ns() -> int:
    """How long this thread was ready to run and did not, so far; 0 where no kernel counts it."""
    return int(QUEUE.read_text().split()[1]) if QUEUE.exists() else 0


def spend(seconds: float, kind: str) -> None:
    """Sleeps, computes, or uses the storage, for so long by itself."""
    if kind == "busy":
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
    elif kind == "saturated":
        with STORAGE:
            time.sleep(seconds)
    else:
        time.sleep(seconds)


class Batches(Dataset[Times]):
    """Batches that say when they were made, and how long their stages waited for a core."""

    def __init__(self, program: Program, count: int, rank: int) -> None:
        random = np.random.default_rng(rank)
        scale = max(program.workers, 1) * (1 + 0.5 * rank)
        lengths = np.array([READ_S, DECODE_S]) * SCALES.get(program.kind, scale)
        self.kinds = (program.kind if program.kind == "saturated" else "asleep",
                      program.kind if program.kind == "busy" else "asleep")  # fmt: skip
        self.seconds = lengths * np.exp(random.normal(0, JITTER, (count, 2)))
        if program.without:
            self.seconds[:, STAGES.index(program.without)] = 0

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> Times:
        times, queued = [time.monotonic_ns()], [queued_ns()]
        for seconds, kind in zip(self.seconds[index], self.kinds, strict=True):
            if seconds:
                spend(seconds, kind)
            times.append(time.monotonic_ns())
            queued.append(queued_ns())
        info = get_worker_info()
        return [-1 if info is None else info.id, *times, *np.diff(queued).tolist()]


def train(
    program: Program, options: argparse.Namespace, rank: int, barrier: Barrier
) -> list[Times]:
    """A row a batch, with what is said in `COLUMNS`."""
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
            end, queued = time.monotonic_ns(), queued_ns()
            spend(STEP_S, "busy" if program.kind == "busy" else "asleep")
            written = time.monotonic_ns()
            if program.kind == "saturated":
                spend(WRITE_S, "saturated")
            arrived = time.monotonic_ns()
            barrier.wait()
            met = time.monotonic_ns()
            beside = arrived - written if program.kind == "saturated" else queued_ns() - queued
            rows.append([*batch, begin, end, met, met - arrived, beside, epoch])
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


Columns = dict[str, NDArray[np.int64]]


def recorded(program: Program, rows: list[list[Times]]) -> tuple[list[Fetched], list[Columns]]:
    """The pipelines as a recorder would know them, and all columns of each."""
    pipelines, found = [], []
    for rank, of_rank in enumerate(rows):
        c = dict(zip(COLUMNS, np.array(of_rank).T, strict=True))
        unknown = np.full(len(of_rank), -1)
        pipelines.append(
            Fetched(
                worker=c["worker"],
                asked_ns=unknown,
                begin_ns=c["begin"],
                end_ns=c["end"],
                ready_ns=unknown,
                wait_begin_ns=c["wait_begin"],
                wait_end_ns=c["wait_end"],
                epoch=c["epoch"],
                workers=program.workers,
                prefetch=program.prefetch,
                in_order=program.in_order,
                rank=rank,
                met_ns=c["met"],
                peers_ns=c["peers"],
                last_end_ns=int(c["met"][-1]),
            )
        )
        found.append(c)
    return pipelines, found


def share(program: Program, stage: str, c: Columns) -> Share:
    """What a stage took of each fetch, and what may go with it."""
    taken = c["read"] - c["begin"] if stage == "read" else c["end"] - c["read"]
    if program.kind == "busy" and stage == "decode":
        return Share(taken, taken, along_ns=c["read_queued"], beside_ns=c["beside"])
    if program.kind == "saturated" and stage == "read":
        return Share(taken, taken, beside_ns=c["beside"])
    return Share(taken, taken)


def length_ns(program: Program, columns: list[Columns]) -> float:
    """From the first wait to the last step's end, less what the steps slept."""
    begin, end = min(int(c["wait_begin"][0]) for c in columns), int(columns[0]["met"][-1])
    if program.kind == "busy":
        return end - begin
    slept = [c["met"] - c["wait_end"] - c["peers"] for c in columns]
    if program.kind == "saturated":
        slept = [step - c["beside"] for step, c in zip(slept, columns, strict=True)]
    return end - begin - statistics.mean(int(step.sum()) for step in slept)


def programs() -> list[Program]:
    """All that is run."""
    with_workers = [Program(n, ahead) for n in (1, 2, 4) for ahead in (1, 2, 4)]
    others = [Program(2, 2, in_order=False), Program(0, ranks=2), Program(2, 2, ranks=2)]
    kinds = [Program(n, kind=kind) for kind in ("busy", "saturated") for n in (0, 2, 4)]
    return [Program(0), *with_workers, *others, *kinds]


def main() -> int:
    """Prints one line a stage of each program; 1 where the median error is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", default="", metavar="WORD", help="programs with it in their name")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; gains and waits in s")
    print(f"{'program':34} {'without':8} {'waits':>6} {'measured':>8} {'at least':>8} "
          f"{'at most':>8} {'off':>7} {'missed':>7}")  # fmt: skip
    errors = []
    for _ in range(options.repeat):
        for program in (p for p in programs() if options.only in p.name):
            errors += compare(program, options)
    print(f"median {statistics.median(errors):.1%} of the waits, worst {max(errors):.1%}")
    return int(statistics.median(errors) > WITHIN)


def compare(program: Program, options: argparse.Namespace) -> list[float]:
    """How far the gains of each stage are off, of the waits."""
    pipelines, columns = recorded(program, run(program, options))
    wait_ns = sum(float((p.wait_end_ns - p.wait_begin_ns).sum()) for p in pipelines)
    wait_ns /= len(pipelines)
    errors = []
    for stage in OF_KIND.get(program.kind, STAGES):
        causes = [{stage: share(program, stage, each)} for each in columns]
        gain = bound_gain(pipelines, causes, stage)
        other = replace(program, without=stage)
        _, without = recorded(other, run(other, options))
        measured_ns = length_ns(program, columns) - length_ns(program, without)
        off_ns = max(gain.low_ns - measured_ns, measured_ns - gain.high_ns, 0.0)
        errors.append(off_ns / wait_ns)
        print(f"{program.name:34} {stage:8} {wait_ns / 1e9:6.2f} {measured_ns / 1e9:8.3f} "
              f"{gain.low_ns / 1e9:8.3f} {gain.high_ns / 1e9:8.3f} {errors[-1]:7.1%} "
              f"{gain.missed_ns / wait_ns:7.2%}", flush=True)  # fmt: skip
    return errors


if __name__ == "__main__":
    raise SystemExit(main())
