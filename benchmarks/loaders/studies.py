"""The five applications of the poster on I/O: what vanidl says of each, beside the poster.

    python -m benchmarks.loaders.studies [--only frnn] [--keep DIR]

Each application of `vanidl_loaders.workloads.applications` trains on the emulated parallel file
system (1 ms a request, 200 MB/s), recorded by `vanidl record`; what is compared is `vanidl summary
--json`. A row is: what the poster reports, what was measured here, and whether it points the same
way, by the limit that stands beside it in this file. Shares of time are not judged: they follow
from the seconds that a step computes and from what else the machine does; sizes, order and overlap
are the application's own. Exit status 1 where a row points elsewhere.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

COST = Cost(1e-3, total_bytes_per_s=200e6)
MODULE = "vanidl_loaders.workloads.applications"
STEPS = {"imagenet": 64, "cosmictagger": 40, "ffn": 200, "cosmoflow": 64, "frnn": 60}

Answer = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One figure: what it is, what the poster has, what was measured, and whether that agrees."""

    figure: str
    poster: str
    measured: Callable[[Answer], float]
    agrees: Callable[[float], bool] | None = None  # None: of this machine alone, not to be judged
    form: str = "{:.0%}"


def share_of_bytes(nbytes: int) -> Callable[[Answer], float]:
    """Share of the dataset's bytes that came in requests of about this size."""

    def measured(answer: Answer) -> float:
        modes = answer["io"]["dataset"]["modes"]
        near = (m for m in modes if m["low"] <= 1.1 * nbytes and m["high"] >= 0.9 * nbytes)
        return float(sum(m["share_of_bytes"] for m in near))

    return measured


def reads_a_step(nbytes: int) -> Callable[[Answer], float]:
    """Requests of about this size in a step."""

    def measured(answer: Answer) -> float:
        modes = answer["io"]["dataset"]["modes"]
        near = (m for m in modes if m["low"] <= 1.3 * nbytes and m["high"] >= 0.7 * nbytes)
        return float(sum(m["reads"] for m in near)) / answer["steps"]["per_rank"]["max"]

    return measured


def in_order(answer: Answer) -> float:
    """Share of the requests that go on where the one before in that file ended, or further on."""
    within = answer["io"]["dataset"]["within"]
    return float(within["sequential_darshan"] / max(within["ops"] - within["first"], 1))


def jumps(answer: Answer) -> float:
    """Share of the requests that begin elsewhere than the one before in that file ended."""
    within = answer["io"]["dataset"]["within"]
    return float((within["forward"] + within["backward"]) / max(within["ops"] - within["first"], 1))


def shuffled(answer: Answer) -> float:
    """How near the order of files is to no order: 1 is none, 0 that of names or its reverse."""
    return float(1 - 2 * abs(answer["io"]["dataset"]["order"]["concordance"] - 0.5))


def hidden(answer: Answer) -> float:
    """Share of the I/O in steps that overlapped with training."""
    return float(answer["overlap"]["hidden_fraction"])


def io_share(answer: Answer) -> float:
    """I/O in the steps, of their time."""
    mean = answer["overlap"]["mean"]
    return float((mean["io_s"] - (mean["unobserved_s"] or 0)) / mean["window_s"])


def pipeline_share(answer: Answer) -> float:
    """Time in which a worker made batches, reading and all, of that of the steps."""
    made_s, workers = 0.0, 1
    for loader in answer["fetches"]["loaders"]:
        made_s += loader["batches"] * (loader["samples_s"] + loader["collate_s"])
        workers = max(workers, loader["workers"])
    return float(made_s / workers / answer["overlap"]["mean"]["window_s"])


def spread_of_files(answer: Answer) -> float:
    """Bytes read of a file: (most - least) / most, over the files that were opened."""
    read = [file["bytes_read"] for file in answer["io"]["dataset"]["files"] if file["bytes_read"]]
    return float(1 - min(read) / max(read))


def of_all(nbytes: int) -> Callable[[Answer], float]:
    """Share of a data set of so many bytes that was read."""
    return lambda answer: float(answer["io"]["dataset"]["bytes_read"] / nbytes)


STUDIES: dict[str, list[Row]] = {
    "imagenet": [
        Row("bytes in requests of 256 KB", "all", share_of_bytes(256 << 10), lambda v: v > 0.9),
        Row("requests in order within a file", "sequential", in_order, lambda v: v > 0.9),
        Row("I/O hidden behind compute", "most", hidden, lambda v: v > 0.5),
        Row("bytes of the files differ by", "not uniform", spread_of_files, lambda v: v > 0.2),
        Row("I/O, of the time", "14.3 %", io_share),
        Row("pipeline, of the time", "28 %", pipeline_share),
    ],
    "cosmictagger": [
        Row("bytes in requests of 6 KB", "one peak", share_of_bytes(6144), lambda v: v > 0.5),
        Row("bytes in requests of 2 KB", "the other", share_of_bytes(2048), lambda v: v > 0.1),
        Row("requests in order", "sequential", in_order, lambda v: v > 0.7),
        Row("I/O hidden behind compute", "10 %", hidden, lambda v: v < 0.2),
        Row("I/O, of the time", "22 %", io_share),
    ],
    "ffn": [
        Row("bytes in requests of 62 KB", "one peak", share_of_bytes(62 << 10), lambda v: v > 0.9),
        Row("reads of 100 B a step", "the other", reads_a_step(100), lambda v: v > 0.9, "{:.1f}"),
        Row("requests that jump", "random", jumps, lambda v: v > 0.8),
        Row("I/O hidden behind compute", "none", hidden, lambda v: v < 0.05),
        Row("data set read", "33 %", of_all(600 * 63_488), lambda v: 0.3 < v < 0.37),
        Row("I/O, of the time", "18.4 %", io_share),
    ],
    "cosmoflow": [
        Row("bytes in requests of 256 KB", "all", share_of_bytes(256 << 10), lambda v: v > 0.9),
        Row("I/O hidden behind compute", "98 %", hidden, lambda v: v > 0.8),
        Row("I/O, of the time", "12 %", io_share),
        Row("pipeline, of the time", "23 %", pipeline_share),
    ],
    "frnn": [
        Row("bytes in requests of 2 MB", "one peak", share_of_bytes(2 << 20), lambda v: v > 0.9),
        Row("reads of some 100 B a step", "a lot", reads_a_step(256), lambda v: v > 2, "{:.1f}"),
        Row("files without order", "random", shuffled, lambda v: v > 0.6),
        Row("I/O hidden behind compute", "none", hidden, lambda v: v < 0.05),
        Row("I/O, of the time", "42 %", io_share),
    ],
}  # fmt: skip
"""Application -> its figures."""


def recorded(name: str, folder: Path, run: Path) -> Answer:
    """What vanidl says of a training of the application on emulated storage."""
    source, python = folder / name, [sys.executable, "-m", MODULE, name, "--data"]
    subprocess.run([*python, str(source), "--make"], check=True, timeout=300)
    vanidl = [sys.executable, "-m", "vanidl"]
    with EmulatedStorage(source, cost=COST) as storage:
        training = [*python, str(storage.target), "--steps", str(STEPS[name])]
        line = [*vanidl, "record", "--tracer", "vanidl", "-o", str(run), "--", *training]
        subprocess.run(line, check=True, timeout=600, capture_output=True)
    said = subprocess.run(
        [*vanidl, "summary", "--json", str(run)], check=True, timeout=300, capture_output=True
    )
    answer: Answer = json.loads(said.stdout)
    return answer


def main(arguments: list[str] | None = None) -> int:
    """Records, prints the rows; exit status 1 where one points elsewhere than the poster."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=STUDIES, help="one application")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the runs there")
    options = parser.parse_args(arguments)
    elsewhere = 0
    with tempfile.TemporaryDirectory() as scratch:
        runs = options.keep or Path(scratch) / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        for name in [options.only] if options.only else STUDIES:
            answer = recorded(name, Path(scratch), runs / name)
            for row in STUDIES[name]:
                value = row.measured(answer)
                agrees = row.agrees(value) if row.agrees else None
                elsewhere += agrees is False
                way = {True: "yes", False: "no", None: "not judged"}[agrees]
                cells = (name, row.figure, row.poster, row.form.format(value), way)
                sys.stdout.write(f"| {' | '.join(cells)} |\n")
                sys.stdout.flush()
    return int(elsewhere > 0)


if __name__ == "__main__":
    sys.exit(main())
