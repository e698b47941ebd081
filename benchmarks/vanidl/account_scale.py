"""How long the account of time takes, and what memory, for many steps of many ranks.

    python -m benchmarks.vanidl.account_scale [--steps 10000] [--ranks 512] [--profile]

A made run: every rank marks its steps and input waits, and what it counted. Limits: 2 s and 300 MB
beside the run itself, for 10,000 steps of 512 ranks; so much again to be ready to bound gains.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import pstats
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.profiled_steps import finish as finish_steps
from vanidl.analyses.results import Results, analyse
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
    # In order of start, as profiles are merged: step by step, rank by rank.
    random, start = np.random.default_rng(0), small.job.start_ns
    shape = (steps, ranks, 2)
    rows = steps * ranks * 2
    begin = start + STEP_NS * np.arange(steps)
    end = np.broadcast_to(begin[:, None, None] + STEP_NS, shape).copy()
    end[..., 1] -= random.integers(STEP_NS - WAIT_NS, STEP_NS - WAIT_NS // 2, (steps, ranks))
    number = np.full(shape, -1, np.int32)
    number[..., 0] = np.arange(steps)[:, None]
    kinds = np.array([SpanKind.STEP, SpanKind.INPUT_WAIT], np.uint8)
    rank = np.broadcast_to(np.arange(ranks, dtype=np.int32)[None, :, None], shape).ravel()
    columns = {
        "start": np.repeat(begin, 2 * ranks),
        "end": end.ravel(),
        "process": rank,
        "source": rank,
        "step": number.ravel(),
        "kind": np.broadcast_to(kinds, shape).ravel(),
    }
    nothing, first = (np.broadcast_to(np.int32(code), rows) for code in (-1, 0))
    spans = Spans(**columns, thread=nothing, name=first, names=("DataLoader 0",))
    job = replace(small.job, end_ns=start + STEP_NS * steps, nprocs=ranks)
    trace = replace(small, job=job, processes=processes, profiles=profiles, spans=spans, io=[])
    results = analyse(replace(trace, spans=spans.pick(slice(0, 0))))
    return trace, replace(results, steps=finish_steps(results.operations, trace))


def memory_kb(name: str) -> int:
    """What the kernel says of this process: VmRSS, or VmHWM, the most of it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def begin_peak_kb() -> int:
    """Forgets the most that there was, and returns what there is."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is not there to be taken again
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory_kb("VmRSS")


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
        before = begin_peak_kb()
        begin, cpu = time.perf_counter(), time.process_time()
        if options.profile:
            profiler.enable()
        if account is None:
            account = attribute_time(trace, results)
        else:
            gains = open_gains(trace, results, account)
        profiler.disable()
        spent, used = time.perf_counter() - begin, time.process_time() - cpu
        grown = (memory_kb("VmHWM") - before) * 1024 / 1e6
        print(f"{name}: {spent:.2f} s ({used:.2f} s of processors), {grown:.0f} MB more")
        if options.profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
    assert gains is not None


if __name__ == "__main__":
    main()
