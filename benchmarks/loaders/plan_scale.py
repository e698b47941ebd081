"""What the plan of many samples and ranks costs one rank: seconds, and memory at most and kept.

    python -m benchmarks.loaders.plan_scale --samples 10000000 --ranks 4096 --batch 16

Each line is a step of its own: the plan, the steps of an epoch after the first (which the loader
makes while the epoch before is used), and what stays of them. PLS: the table of who holds what,
and one exchange. Goal: 60 s, 4 GB per node; what is kept per rank should shrink with the ranks.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

from vanidl_loaders.pls.ownership import Ownership, deal
from vanidl_loaders.scheduled.plan import make_plan
from vanidl_loaders.scheduled.plan_settings import PlanSettings
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
    print(f"{options.samples:,} samples, {options.ranks:,} ranks of {options.batch}")
    if options.pls:
        homes = timed("homes", lambda: deal(options.samples, options.ranks))
        timed("an exchange", lambda: Ownership(homes, 0.3).held(1))
        return
    settings = PlanSettings(
        samples=options.samples,
        ranks=options.ranks,
        batch=options.batch,
        epochs=2,
        buffer=round(options.fraction * options.samples),
    )
    plan = timed("plan", lambda: make_plan(settings))
    steps = timed("steps of an epoch", lambda: rank_steps(plan, 0, epoch=1))
    print(f"kept: plan {plan.owner.nbytes:,} bytes, steps {sum(map(kept_nbytes, steps)):,} bytes")


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
