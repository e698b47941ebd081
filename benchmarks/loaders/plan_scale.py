"""What the plan of many samples and ranks costs: seconds, and memory at most and kept.

    python -m benchmarks.loaders.plan_scale --samples 100000000 --ranks 4096 --batch 16 [--pls]
    torchrun --nproc-per-node 4 -m benchmarks.loaders.plan_scale --samples 100000000

Each line is a step of its own: the plan, the steps of an epoch after the first (which the loader
makes while the epoch before is used), and what stays of them. PLS: what a rank holds first, and
what it gives and gets in an epoch. Under torchrun its processes are the ranks of one node of so
many, which share the plan; memory is that of the node: each process's own, and a part of what it
shares (PSS). Goal: 60 s, 4 GB per node.
"""

from __future__ import annotations

import argparse
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vanidl_loaders.pls.exchange_plan import Draw, deal_at, deal_to, plan_rank_exchange
from vanidl_loaders.ranks.messages import Transport, launched_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.node import share_plan
from vanidl_loaders.scheduled.plan import PlanSettings, make_plan
from vanidl_loaders.scheduled.steps import RankStep, rank_steps

T = TypeVar("T")


def main() -> None:
    """Prints a line per step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--fraction", type=float, default=0.85, help="C / N")
    parser.add_argument("--pls", action="store_true", help="partial local shuffling instead")
    options = parser.parse_args()
    settings = PlanSettings(
        samples=options.samples,
        ranks=options.ranks,
        batch=options.batch,
        epochs=2,
        buffer=round(options.fraction * options.samples),
    )
    transport = launched_transport(World.detect())
    if transport.world.ranks > 1:
        of_node(transport, settings)
        return
    print(f"{options.samples:,} samples, {options.ranks:,} ranks of {options.batch}")
    if options.pls:
        last, ranks = options.ranks - 1, options.ranks  # the last rank draws most
        own = timed("home", lambda: deal_to(last, options.samples, ranks))
        draw = Draw(options.samples, ranks, 0.3)
        drawn = timed("an exchange", lambda: plan_rank_exchange(draw, last, 1))
        timed(
            "held after 100 epochs",
            lambda: deal_at(draw.home(last, 100), options.samples, ranks),
        )
        parts = (own, drawn.slots, drawn.targets, drawn.sources)
        print(f"kept: {sum(each.nbytes for each in parts):,} bytes")
        return
    plan = timed("plan", lambda: make_plan(settings))
    steps = timed("steps of an epoch", lambda: rank_steps(plan, 0, epoch=1))
    print(f"kept: plan {plan.owner.nbytes:,} bytes, steps {sum(map(kept_nbytes, steps)):,} bytes")


def of_node(transport: Transport, settings: PlanSettings) -> None:
    """The plan, and the steps of an epoch, of the ranks of one node that share them."""
    rank, ranks = transport.world.rank, transport.world.ranks
    settings = replace(settings, node_ranks=ranks)
    processes = [int(pid) for pid in transport.gather(os.getpid())]
    before = sum(map(used_nbytes, processes))
    begin = time.perf_counter()
    with most_used(processes if rank == 0 else []) as most:
        made = share_plan(transport, ranks, lambda: make_plan(settings))
        planned = time.perf_counter()
        made.steps.of(rank, 1)
        transport.gather(None)
        ended = time.perf_counter()
    if rank == 0:
        print(
            f"{settings.samples:,} samples, {settings.ranks:,} ranks, {ranks} on this node: plan "
            f"{planned - begin:.1f} s, steps of an epoch {ended - planned:.1f} s; node at most "
            f"{most[0] / 1e9:.2f} GB, {before / 1e9:.2f} of them before"
        )


def used_nbytes(process: int) -> int:
    """Memory of a process, and its part of what it shares."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def most_used(processes: list[int]) -> Iterator[list[int]]:
    """Most memory of these processes together, looked at ten times a second."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while processes and not ended.wait(0.1):
            most[0] = max(most[0], sum(map(used_nbytes, processes)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        ended.set()
        looking.join()


def timed(name: str, work: Callable[[], T]) -> T:
    """What `work` gives; prints its seconds and the most memory of this process so far."""
    begin = time.perf_counter(), time.process_time()
    found = work()
    wall, used = time.perf_counter() - begin[0], time.process_time() - begin[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{name:<20}{wall:8.1f} s{used:8.1f} s of processor time{peak / 1e9:8.2f} GB at most")
    return found


def kept_nbytes(step: RankStep) -> int:
    """Bytes of the memory that a step holds on to."""
    bases = (each if each.base is None else each.base for each in (step.ids, step.load))
    return sum(base.nbytes for base in bases)


if __name__ == "__main__":
    main()
