"""A training whose lines take made time, for what is sampled of lines to be held against exactly.

usage: made_lines.py TRUTH PROGRAM: one of the programs below, whose times by line go to TRUTH as
JSON. A line that takes time sets the clocks on, and those are all that the sampler looks at: how
busy the machine is makes no difference. `benchmarks/vanidl/timed_lines.py` has real times.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

SAMPLES, BATCH = 160, 8
FACTORS = (2, 2, 1, 2, 1, 2, 2, 1, 2, 2)
MS = 1_000_000
POOL, ONE = ThreadPoolExecutor(2), Lock()


class Clock:
    """The wall clock and that of the main thread's processor time."""

    wall_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()

    def watch(self, sampler, *hooks):
        """Has the sampler, and the hooks that ask whether it is time to sample, look at these."""
        for module in (sampler, *hooks):
            module.perf_counter_ns = module.monotonic_ns = lambda: self.wall_ns
            module.time_ns = lambda: self.wall_ns
        sampler.thread_time_ns = lambda: self.cpu_ns


CLOCK = Clock()
SPENT = defaultdict(lambda: [0, 0])


def now():
    return CLOCK.wall_ns, CLOCK.cpu_ns


def spend(name, begin):
    """Adds wall and processor time since then."""
    SPENT[name] = [x + b - a for x, a, b in zip(SPENT[name], begin, now(), strict=True)]


class Samples:
    """A dataset; subclasses say what a sample takes."""

    def __len__(self):
        return SAMPLES


class Released(Samples):
    """Three lines: one waits, one does both, one works."""

    def __getitem__(self, i):
        begin = now()
        CLOCK.wall_ns += 2 * MS  # line: wait
        spend("wait", begin)
        begin = now()
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + 3 * MS, CLOCK.cpu_ns + MS  # line: both
        spend("both", begin)
        begin = now()
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + MS, CLOCK.cpu_ns + MS  # line: sort
        spend("sort", begin)
        return i


class Called(Samples):
    """The cost lies in a function that a method calls that the dataset calls."""

    def __getitem__(self, i):
        return self.load(i)

    def load(self, i):
        return decode(i)


def decode(i):
    begin = now()
    CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + 2 * MS, CLOCK.cpu_ns + 2 * MS  # line: hash
    spend("hash", begin)
    begin = now()
    CLOCK.wall_ns += MS  # line: wait
    spend("wait", begin)
    return i


class Uneven(Samples):
    """Some fetches take twice the processor time of others: whether one is sampled is chance."""

    def __getitem__(self, i):
        return self.load(i)

    def load(self, i):
        return self.decode(i, FACTORS[i // BATCH % len(FACTORS)])

    def decode(self, i, times):
        begin = now()
        took = 5 * MS * times
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + took, CLOCK.cpu_ns + took  # line: hash
        spend("hash", begin)
        return i


class Slowed(Samples):
    """Who looks makes it three times as slow, as a trace function does to Python that it sees."""

    def __getitem__(self, i):
        begin = now()
        took = 2 * MS if sys.gettrace() is None else 6 * MS
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + took, CLOCK.cpu_ns + took  # line: hash
        spend("hash", begin)
        return i


class Batched(Samples):
    """Samples are got together."""

    def __getitems__(self, places):
        begin = now()
        for _ in places:
            CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + MS, CLOCK.cpu_ns + MS  # line: sum
        spend("sum", begin)
        begin = now()
        CLOCK.wall_ns += 4 * MS  # line: wait
        spend("wait", begin)
        return list(places)


class Pooled(Samples):
    """What takes longest is done by other threads, whose processor time is not the fetch's."""

    def __getitem__(self, i):
        begin = now()
        list(POOL.map(work, [i] * 4))  # line: pool
        spend("pool", begin)
        begin = now()
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + MS, CLOCK.cpu_ns + MS  # line: squeeze
        spend("squeeze", begin)
        return i


def work(i):
    with ONE:
        CLOCK.wall_ns += MS
    return i


class Stream:
    """A dataset that is iterated over."""

    def __iter__(self):
        for i in range(SAMPLES):
            begin = now()
            CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + MS, CLOCK.cpu_ns + MS  # line: squeeze
            spend("squeeze", begin)
            begin = now()
            CLOCK.wall_ns += MS  # line: wait
            spend("wait", begin)
            yield i


def collate(samples):
    begin = now()
    CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + 5 * MS, CLOCK.cpu_ns + 4 * MS  # line: collate
    spend("collate", begin)
    return samples


def train(loader):
    for _batch in loader:
        begin = now()
        CLOCK.wall_ns += 3 * MS  # line: step
        spend("step", begin)
        begin = now()
        CLOCK.wall_ns, CLOCK.cpu_ns = CLOCK.wall_ns + 2 * MS, CLOCK.cpu_ns + 2 * MS  # line: log
        spend("log", begin)


PROGRAMS = {
    "released": Released,
    "called": Called,
    "batched": Batched,
    "stream": Stream,
    "pooled": Pooled,
}

COSTS = {"uneven": Uneven, "slowed": Slowed}

if __name__ == "__main__":
    from torch.utils.data import DataLoader

    CLOCK.watch(*(sys.modules[f"vanidl_steps.{name}"] for name in ("lines", "fetches", "waits")))
    dataset = (PROGRAMS | COSTS)[sys.argv[2]]()
    how = {"collate_fn": collate} if sys.argv[2] == "released" else {"collate_fn": list}
    train(DataLoader(dataset, batch_size=BATCH, **how))
    Path(sys.argv[1]).write_text(json.dumps(SPENT))
