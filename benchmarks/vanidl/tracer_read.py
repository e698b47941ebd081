"""How fast the calls that vanidl's own tracer recorded become columns and totals.

    python -m benchmarks.vanidl.tracer_read [--events 20e6]

Compares, on files in the page cache, one core:
  columns   reading, checking every slot, operations of each layer and kinds of calls
            (vanidl.readers.tracer: read_calls and log)
  packed    the same of the compressed file, as a run that has ended holds it
  totals    columns, and counters of each file on top of them
  limit     NumPy alone: the file read into memory and the six numbers of each slot copied into
            columns, nothing checked

Two programs: one that does nothing but pread, and one that opens, stats, reads six times and closes
each of 100,000 files. Required: columns of the first at 20 million events a second or more.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import interleaved, medians
from tests.makers import calls_files as maker
from vanidl.readers.tracer.calls_file import read_calls
from vanidl.readers.tracer.reading import build_log, read_recorded
from vanidl.readers.tracer.slots import CHUNK_BYTES, SLOT_BYTES, SLOTS
from vanidl.record.tracer import compress

REPEATS = 5
LEAST_EVENTS_A_S = 20e6
FILES = 100_000
SAMPLE = (maker.OPEN, maker.STAT, *6 * (maker.PREAD,), maker.CLOSE)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--events", type=float, default=20e6)
    events = int(parser.parse_args().events)
    programs = {
        "pread alone": maker.read_loop(events),
        "files opened, read, closed": samples(events),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, slots in programs.items():
            path = Path(folder) / maker.Calls().name
            names = {i: b"/data/part-%d.h5" % i for i in range(1, int(slots["file"].max()) + 1)}
            path.write_bytes(maker.calls_file(maker.Calls({1: slots}, names)))
            copy = Path(folder) / "copy" / path.name
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
            compress(copy, copy.stat().st_size, copy.parent)
            report(name, events, measured(path, copy.with_name(f"{path.name}.gz")))


def samples(events: int) -> NDArray[np.void]:
    """Calls of a program that opens a file for each sample."""
    slots = maker.read_loop(events)
    place = np.arange(events)
    slots["call"] = np.array(SAMPLE, np.uint8)[place % len(SAMPLE)]
    slots["file"] = 1 + place // len(SAMPLE) % FILES
    slots["offset"] = place % len(SAMPLE) * 4096
    return slots


def measured(path: Path, packed: Path) -> dict[str, float]:
    """Medians of processor seconds."""
    runs: dict[str, Callable[[], object]] = {
        "columns": lambda: build_log(read_calls(path)),
        "packed": lambda: build_log(read_calls(packed)),
        "totals": lambda: read_recorded(path),
        "limit": lambda: copied(path),
    }
    return medians(interleaved({n: partial(processor_s, run) for n, run in runs.items()}, REPEATS))


def processor_s(run: Callable[[], object]) -> float:
    """Processor seconds of one call: others may use the machine meanwhile."""
    start = time.process_time()
    run()
    return time.process_time() - start


def copied(path: Path) -> list[NDArray[np.void]]:
    """The numbers of all slots as columns."""
    raw = np.fromfile(path, np.uint8).reshape(-1, CHUNK_BYTES)[1:, : SLOTS * SLOT_BYTES]
    slots = raw.reshape(len(raw), SLOTS, SLOT_BYTES).view(maker.SLOT)[:, :, 0]
    return [
        slots[name].ravel() for name in ("start", "offset", "result", "duration", "file", "call")
    ]


def report(name: str, events: int, seconds: dict[str, float]) -> None:
    """Print speeds, ratios and what is required."""
    print(f"{name}: {events:,} events; medians of {REPEATS} interleaved repeats, processor time")
    for what, median in seconds.items():
        print(f"  {what:<8} {median:7.3f} s {events / median / 1e6:8.1f} million events a second")
    print(f"  columns / limit: {seconds['columns'] / seconds['limit']:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  required: {LEAST_EVENTS_A_S / 1e6:.0f} million a second; peak of all {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
