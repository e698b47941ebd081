"""The five applications of the poster on I/O: what vanidl says of each, beside the poster.

    python -m benchmarks.papers.run applications
    python -m benchmarks.papers.applications frnn --keep DIR     # data and runs stay there

Each application of `vanidl_loaders.workloads.applications` trains on the emulated parallel file
system (1 ms a request, 200 MB/s), recorded by `vanidl record`; what is compared is `vanidl summary
--json`. Whether a figure points the poster's way is judged by the limit that stands beside it here.
Shares of time are not judged: they follow from the seconds that a step computes and from what else
the machine does; sizes, order and overlap are the application's own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.papers.study import Answer, Part, Row, record_program
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

COST = Cost(1e-3, total_bytes_per_s=200e6)
MODULE = "vanidl_loaders.workloads.applications"
SUMMARY_OPTIONS = {"imagenet": ("--record-size", "250000")}
"""Application -> what `vanidl summary` is told of it: a mean image, so that samples are counted."""
STEPS = {"imagenet": 64, "cosmictagger": 40, "ffn": 200, "cosmoflow": 64, "frnn": 60}


@dataclass(frozen=True)
class Figure:
    """One figure: what it is, what the poster has, how it is measured, and which values agree."""

    name: str
    poster: str
    measure: Callable[[Answer], float]
    agrees: Callable[[float], bool] | None = None  # None: of this machine alone, not to be judged
    form: str = "{:.0%}"


def size_share(nbytes: int) -> Callable[[Answer], float]:
    """Share of the dataset's bytes that came in requests of about this size."""

    def measured(answer: Answer) -> float:
        modes = answer["io"]["dataset"]["modes"]
        near = (m for m in modes if m["low"] <= 1.1 * nbytes and m["high"] >= 0.9 * nbytes)
        return float(sum(m["share_of_bytes"] for m in near))

    return measured


def step_reads(nbytes: int) -> Callable[[Answer], float]:
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
    """Time of making batches, reading and all, summed over workers, of that of the steps."""
    made_s = 0.0
    for loader in answer["fetches"]["loaders"]:
        made_s += loader["batches"] * (loader["samples_s"] + loader["collate_s"])
    return float(made_s / answer["overlap"]["mean"]["window_s"])


def pipeline_of_io(answer: Answer) -> float:
    """The pipeline's time, as fetches have it, in times that of the I/O, as operations have it."""
    return pipeline_share(answer) / io_share(answer)


def evenness(answer: Answer) -> float:
    """Samples read of the file of which fewest were read, of those of the most."""
    samples = answer["io"]["dataset"]["samples_per_file"]
    return float(samples["min"] / samples["max"]) if samples["max"] else 1.0


def read_whole(answer: Answer) -> float:
    """Share of the files, of those that were read, of which as much was read as of any."""
    read = [file["bytes_read"] for file in answer["io"]["dataset"]["files"] if file["bytes_read"]]
    return sum(nbytes > 0.95 * max(read) for nbytes in read) / len(read)


def of_all(nbytes: int) -> Callable[[Answer], float]:
    """Share of a data set of so many bytes that was read."""
    return lambda answer: float(answer["io"]["dataset"]["bytes_read"] / nbytes)


STUDIES: dict[str, list[Figure]] = {
    "imagenet": [
        Figure("bytes in requests of 256 KB", "all", size_share(256 << 10), lambda v: v > 0.9),
        Figure("requests in order within a file", "sequential", in_order, lambda v: v > 0.9),
        Figure("I/O hidden behind compute", "most", hidden, lambda v: v > 0.5),
        Figure("samples of a file, fewest / most", "not uniform", evenness, lambda v: v < 0.8),
        Figure("I/O, of the time", "14.3 %", io_share),
        Figure("pipeline, of the time", "28 %", pipeline_share),
        Figure("pipeline, times its I/O", "1.96", pipeline_of_io, lambda v: 1.1 < v < 4, "{:.2f}"),
    ],
    "cosmictagger": [
        Figure("bytes in requests of 6 KB", "one peak", size_share(6144), lambda v: v > 0.5),
        Figure("bytes in requests of 2 KB", "the other", size_share(2048), lambda v: v > 0.1),
        Figure("requests in order", "sequential", in_order, lambda v: v > 0.7),
        Figure("I/O hidden behind compute", "10 %", hidden, lambda v: v < 0.2),
        Figure("I/O, of the time", "22 %", io_share),
    ],
    "ffn": [
        Figure("bytes in requests of 62 KB", "one peak", size_share(62 << 10), lambda v: v > 0.9),
        Figure("reads of 100 B a step", "the other", step_reads(100), lambda v: v > 0.9, "{:.1f}"),
        Figure("requests that jump", "random", jumps, lambda v: v > 0.8),
        Figure("I/O hidden behind compute", "none", hidden, lambda v: v < 0.05),
        Figure("data set read", "33 %", of_all(600 * 63_488), lambda v: 0.3 < v < 0.37),
        Figure("I/O, of the time", "18.4 %", io_share),
    ],
    "cosmoflow": [
        Figure("bytes in requests of 256 KB", "all", size_share(256 << 10), lambda v: v > 0.9),
        Figure("files read whole, a sample each", "batches of one", read_whole, lambda v: v > 0.9),
        Figure("I/O hidden behind compute", "98 %", hidden, lambda v: v > 0.8),
        Figure("I/O, of the time", "12 %", io_share),
        Figure("pipeline, of the time", "23 %", pipeline_share),
        Figure("pipeline, times its I/O", "1.92", pipeline_of_io, lambda v: 1.1 < v < 4, "{:.2f}"),
    ],
    "frnn": [
        Figure("bytes in requests of 2 MB", "one peak", size_share(2 << 20), lambda v: v > 0.9),
        Figure("reads of some 100 B a step", "a lot", step_reads(256), lambda v: v > 2, "{:.1f}"),
        Figure("files without order", "random", shuffled, lambda v: v > 0.6),
        Figure("I/O hidden behind compute", "none", hidden, lambda v: v < 0.05),
        Figure("I/O, of the time", "42 %", io_share),
    ],
}  # fmt: skip
"""Application -> its figures."""


def compare_with_poster(name: str, answer: Answer) -> Iterator[Row]:
    """The figures of an application as vanidl's answer has them, each judged."""
    for figure in STUDIES[name]:
        value = figure.measure(answer)
        agrees = figure.agrees(value) if figure.agrees else None
        yield Row(name, figure.name, figure.poster, value, agrees, figure.form)


def record_application(name: str, scratch: Path, run: Path) -> Answer:
    """What vanidl says of a training of the application on emulated storage.

    Args:
        name: Of the application.
        scratch: Where its data set is made, and where it appears, slow, as `pfs/NAME`.
        run: Folder of the recorded run.
    """
    source, target = scratch / "source" / name, scratch / "pfs" / name
    making = [sys.executable, "-m", MODULE, name, "--data", str(source), "--make"]
    subprocess.run(making, check=True, timeout=300)
    target.mkdir(parents=True, exist_ok=True)
    with EmulatedStorage(source, target, cost=COST) as storage:
        training = ["-m", MODULE, name, "--data", str(storage.target), "--steps", str(STEPS[name])]
        return record_program(training, run, options=SUMMARY_OPTIONS.get(name, ()))


def measure_application(name: str, _small: bool, scratch: Path) -> Iterator[Row]:
    """The figures of one application, which has one size."""
    (scratch / "runs").mkdir(parents=True, exist_ok=True)
    answer = record_application(name, scratch, scratch / "runs" / name)
    yield from compare_with_poster(name, answer)


PARTS = {
    name: Part(f"{name}: what vanidl says of it, beside the poster on I/O",
               partial(measure_application, name))
    for name in STUDIES
}  # fmt: skip


def main() -> int:
    """Records applications, keeps their runs, prints their rows; 1 where one points elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and runs there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = (options.keep or Path(temporary)).absolute()
        elsewhere = 0
        for name in options.names or STUDIES:
            for row in measure_application(name, False, scratch):
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
                elsewhere += row.agrees is False
    return int(elsewhere > 0)


if __name__ == "__main__":
    sys.exit(main())
