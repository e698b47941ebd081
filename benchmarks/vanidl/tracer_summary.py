"""What `summary` takes of a run recorded by vanidl's tracer, and of the same run by DFTracer.

    python -m benchmarks.vanidl.tracer_summary [--opens N]

A program opens a file of 64 KiB N times, reads eight times 4 KiB of it and closes it: 10 calls. It
is recorded by each tracer; then the summaries are made in turn, each in an interpreter of its own.
Processor time, as others may use the machine meanwhile, and the largest memory: medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measure import Measured, in_child, interleaved

REPEATS = 3
TRACERS = ("vanidl", "dftracer")
PROGRAM = """
import os, sys
folder, opens = sys.argv[1], int(sys.argv[2])
paths = [f"{folder}/{i}.bin" for i in range(200)]
for path in paths:
    with open(path, "wb") as file:
        file.write(bytes(65536))
for i in range(opens):
    descriptor = os.open(paths[i % 200], os.O_RDONLY)
    for k in range(8):
        os.pread(descriptor, 4096, 4096 * k)
    os.close(descriptor)
"""
SUMMARY = """
import contextlib, io, sys
from vanidl.cli import main

def run():
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["summary", sys.argv[1]])
"""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--opens", type=int, default=100_000)
    opens = parser.parse_args().opens
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        runs = {tracer: recorded(folder, tracer, opens) for tracer in TRACERS}
        summaries = {t: partial(in_child, SUMMARY, run) for t, run in runs.items()}
        found = interleaved(summaries, REPEATS)
        print(f"{10 * opens:,} calls; summary, medians of {REPEATS} in turn")
        for tracer, measured in found.items():
            show(tracer, runs[tracer], measured, 10 * opens)


def recorded(folder: Path, tracer: str, opens: int) -> Path:
    """The run of the program under one tracer."""
    data, run = folder / f"data-{tracer}", folder / tracer
    data.mkdir()
    command = [sys.executable, "-m", "vanidl", "record", "--tracer", tracer, "--no-steps"]
    program = [sys.executable, "-c", PROGRAM, str(data), str(opens)]
    subprocess.run([*command, "-o", str(run), "--", *program], check=True, capture_output=True)
    return run


def show(tracer: str, run: Path, measured: list[Measured], calls: int) -> None:
    """Print one line."""
    nbytes = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    seconds = median(one.processor_s for one in measured)
    peak = median(one.peak_nbytes for one in measured)
    print(
        f"  {tracer:<9} {seconds:6.2f} s, {peak / 2**20:6,.0f} MiB; "
        f"{nbytes / calls:.1f} bytes of RUN a call"
    )


if __name__ == "__main__":
    main()
