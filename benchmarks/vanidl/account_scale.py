"""How long the account of time takes, and what memory, for many steps of many ranks.

    python -m benchmarks.vanidl.account_scale [--steps 10000] [--ranks 512] [--profile]

A made run: every rank marks its steps and input waits, and what it counted. Limits: 2 s and 300 MB
beside the run itself, for 10,000 steps of 512 ranks; so much again to be ready to bound gains.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import time
from dataclasses import replace

import numpy as np

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses import Results, analyse
from vanidl.breakdown import attribute_time, open_gains
from vanidl.model.trace import Process, Profile, SpanKind, Spans, Trace

STEP_NS, WAIT_NS = 50_000_000, 8_000_000


def made_run(ranks: int, steps: int) -> tuple[Trace, Results]:
    """A trace of so many ranks and steps, and the analyses of a small run like it."""
    small = trace_of(Recipe(workers=0, delivery_us=0))
    processes = tuple(
        Process(f"node{i // 8}", i, rank=i, trainer=i, log=f"{i}.darshan") for i in range(ranks)
    )
    profiles = tuple(Profile(f"{i}.steps", "vanidl-record", i, True, marks_loop=True)
                     for i in range(ranks))  # fmt: skip
    random, start = np.random.default_rng(0), small.job.start_ns
    begin = start + STEP_NS * np.arange(steps)
    waits = random.integers(WAIT_NS // 2, WAIT_NS, (ranks, steps))
    rows = 2 * steps
    columns = {name: np.empty(ranks * rows, dtype) for name, dtype in
               (("start", np.int64), ("end", np.int64), ("process", np.int32), ("step", np.int32),
                ("kind", np.uint8), ("source", np.int32))}  # fmt: skip
    for rank in range(ranks):
        mine = slice(rank * rows, (rank + 1) * rows)
        columns["process"][mine] = columns["source"][mine] = rank
        columns["start"][mine] = np.repeat(begin, 2)
        columns["end"][mine][0::2] = begin + STEP_NS
        columns["end"][mine][1::2] = begin + waits[rank]
        for place, (number, kind) in enumerate(
            ((np.arange(steps), SpanKind.STEP), (-1, SpanKind.INPUT_WAIT))
        ):
            columns["step"][mine][place::2], columns["kind"][mine][place::2] = number, kind
    nothing = np.broadcast_to(np.int32(-1), ranks * rows)
    spans = Spans(**columns, thread=nothing, name=nothing, names=())
    job = replace(small.job, end_ns=start + STEP_NS * steps, nprocs=ranks)
    trace = replace(small, job=job, processes=processes, profiles=profiles, spans=spans, io=[])
    results = analyse(replace(trace, spans=spans.pick(slice(0, 0))))
    return trace, results


def main() -> None:
    """Measures both, once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--profile", action="store_true", help="what takes the time")
    options = parser.parse_args()
    trace, results = made_run(options.ranks, options.steps)
    account = None
    for name in ("account", "gains"):
        profiler = cProfile.Profile()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin, cpu = time.perf_counter(), time.process_time()
        if options.profile:
            profiler.enable()
        if account is None:
            account = attribute_time(trace, results)
        else:
            gains = open_gains(trace, results, account)
        profiler.disable()
        spent, used = time.perf_counter() - begin, time.process_time() - cpu
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
        print(f"{name}: {spent:.2f} s ({used:.2f} s of processors), {grown:.0f} MB more")
        if options.profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
    assert gains is not None


if __name__ == "__main__":
    main()
