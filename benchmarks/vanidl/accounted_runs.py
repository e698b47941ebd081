"""What vanidl says of trainings that it once misjudged, beside what they measured of themselves.

    python -m benchmarks.vanidl.accounted_runs [--work build/accounted] [--only WORD]

Records `benchmarks/programs/accounted_training.py`, by our tracer, DFTracer, Darshan (that of
DARSHAN_LIB) or none, and prints a
line for each figure: what is said, [at least, at most] seconds or a count, and the truth. The exit
status is 1 where a truth lies outside by more than 2 % of it and 20 ms, and of short waits 30 us
each, which the recorder may take between two timers of the program. On a busy machine a process
is stopped between two timers: then figures are apart, and say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import vanidl
from benchmarks.measure import ROOT
from vanidl.breakdown.account import EPOCH_END, MEAN
from vanidl.run import Run

PROGRAM = ROOT / "benchmarks/programs/accounted_training.py"
SHARE, APART_S, HOOK_S = 0.02, 0.02, 30e-6
Truth = Mapping[str, float]
Ends = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """One number that is printed: as said, and as it was."""

    name: str
    said: Ends
    true: float
    waits: float = 0  # that were timed

    @property
    def holds(self) -> bool:
        """Whether the truth lies within, but for what clocks and busy cores leave open."""
        slack = SHARE * self.true + APART_S + HOOK_S * self.waits
        return self.said[0] - slack <= self.true <= self.said[1] + slack


@dataclass(frozen=True)
class Recorded:
    """A recording: the run, and what each rank measured."""

    run: Run
    truth: Sequence[Truth]
    without: Mapping[str, Truth]

    def cell(self, key: str, who: str = MEAN) -> Ends:
        """Both ends of a cell, s."""
        return self.run.breakdown.cell(f"{who}/{key}").range_s


@dataclass(frozen=True)
class Row:
    """A training, how it is recorded, and the figures that are asked of it."""

    name: str
    figures: Callable[[Recorded], list[Figure]]
    tracer: str = "vanidl"
    mount: tuple[str, ...] = ()
    ranks: int = 1
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Its name on disk."""
        return f"{self.name}-{self.tracer}"


def ask_stages(recorded: Recorded) -> list[Figure]:
    """Both stages are to blame, and taking either away gains nearly all waits.

    Half each, less what the worker waited for a core, which is no stage's.
    """
    (truth,), run = recorded.truth, recorded.run
    assert run.gains is not None
    figures = [
        Figure(f"input waits: {cause}", recorded.cell(f"input_wait/{cause}"), truth[f"{cause}_s"])
        for cause in ("storage", "input_cpu", "too_few_cores")
    ]
    for cause, stage in (("storage", "read"), ("input_cpu", "decode")):
        gain = run.gains.without(cause)
        saved_s = truth["wait_s"] - recorded.without[stage]["wait_s"]
        figures.append(
            Figure(f"gained without {cause}", (gain.low_ns / 1e9, gain.high_ns / 1e9), saved_s)
        )
    return figures


def ask_validation(recorded: Recorded) -> list[Figure]:
    """Training waits for its own batches; validation is a phase of its own; how many epochs."""
    (truth,), run = recorded.truth, recorded.run
    waited_s = run.breakdown.length_ns("input_wait") / 1e9
    epochs = len(run.phases.epochs) if run.phases is not None else 0
    marked = len(run.epochs) if run.epochs else epochs
    phase = run.breakdown.columns.get("phase/validation")
    assert phase is not None, "no phase of validation"
    return [
        Figure("input waits of training", (waited_s, waited_s), truth["wait_s"]),
        Figure("validation", (phase.mean_low / 1e9, phase.mean_high / 1e9), truth["validation_s"]),
        Figure("epochs", (marked, marked), truth["epochs"]),
    ]


def ask_epoch_ends(recorded: Recorded) -> list[Figure]:
    """Waits for batches, and the ends of epochs beside them."""
    (truth,), run = recorded.truth, recorded.run
    waits_s, ends_s = (run.breakdown.length_ns(w) / 1e9 for w in ("input_wait", EPOCH_END))
    return [
        Figure("input waits", (waits_s, waits_s), truth["wait_s"]),
        Figure("ends of epochs", (ends_s, ends_s), truth["epoch_end_s"]),
    ]


def ask_ranks(recorded: Recorded) -> list[Figure]:
    """The rank that others wait for, and how long they do."""
    fast, slow = sorted(recorded.truth, key=lambda each: each["wait_s"])
    peers = recorded.cell("step/waiting_for_peers", "0")
    steps = int(recorded.run.breakdown.steps[0])
    waits = [recorded.run.breakdown.length_ns("input_wait", who) / 1e9 for who in "01"]
    idle_s = slow["wait_s"] - fast["wait_s"]
    return [
        Figure("input waits of rank 0", (waits[0], waits[0]), fast["wait_s"]),
        Figure("input waits of rank 1", (waits[1], waits[1]), slow["wait_s"]),
        Figure("rank 0 waiting for rank 1", (peers[0] * steps, peers[1] * steps), idle_s),
    ]


def ask_memory(recorded: Recorded) -> list[Figure]:
    """No worker, no delivery."""
    (truth,), run = recorded.truth, recorded.run
    waited_s = run.breakdown.length_ns("input_wait") / 1e9
    return [
        Figure("input waits", (waited_s, waited_s), truth["wait_s"], truth["steps"]),
        *(Figure(f"input waits: {cause}", recorded.cell(f"input_wait/{cause}"), 0.0)
          for cause in ("workers", "delivery")),
    ]  # fmt: skip


def ask_visits(recorded: Recorded) -> list[Figure]:
    """How often each file is read."""
    dataset = recorded.run.dataset
    assert dataset is not None
    files_read = [each for each in dataset.files if each.path.endswith(".bin")]
    # Without offsets of reads it is said how often files were opened.
    visits = [(each.opens if each.visits is None else each.visits) or 0 for each in files_read]
    files = len(visits)
    return [
        Figure("files", (files, files), 160),
        Figure("visits per file", (min(visits), max(visits)), recorded.truth[0]["epochs"]),
    ]


def ask_metadata(recorded: Recorded) -> list[Figure]:
    """Storage is storage, whether the tracer sees its calls or not, and no decoding."""
    (truth,) = recorded.truth
    return [
        Figure(f"input waits: {cause}", recorded.cell(f"input_wait/{cause}"), truth[f"{cause}_s"])
        for cause in ("storage", "input_cpu")
    ]


SLOW = ("--latency-ms", "5")
ROWS = (
    Row("two_stages", ask_stages, mount=("--latency-ms", "250"), without=("read", "decode")),
    Row("validation", ask_validation, mount=SLOW),
    Row("validation", ask_validation, "none", SLOW),
    Row("validation_on_same", ask_validation),
    Row("validation_on_same", ask_validation, "dftracer"),
    *(
        Row("metadata_heavy", ask_metadata, tracer, ("--metadata-ms", "2"))
        for tracer in ("vanidl", "darshan", "none")
    ),
    Row("slow_rank", ask_ranks, ranks=2),
    Row("slow_stop", ask_epoch_ends),
    Row("in_memory", ask_memory),
    Row("read_twice", ask_visits),
    Row("read_twice", ask_visits, "dftracer"),
)


def record(row: Row, work: Path) -> Recorded:
    """Runs a training under the recorder, and alone without each of its stages."""
    data, folder = work / "data", work / row.folder
    if not (data / "159.bin").exists():
        data.mkdir(parents=True, exist_ok=True)
        for i in range(160):
            (data / f"{i}.bin").write_bytes(os.urandom(1 << 14))
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for stage in ("", *row.without):
            run_once(row, data, folder, stage)
        (folder / "done").touch()
    truths = {
        stage: [
            json.loads(path.read_text()) for path in sorted((folder / f"truth{stage}").iterdir())
        ]
        for stage in ("", *row.without)
    }
    run = vanidl.open_run(folder / "run")
    return Recorded(run, truths[""], {stage: truths[stage][0] for stage in row.without})


def run_once(row: Row, data: Path, folder: Path, stage: str) -> None:
    """One training, recorded where nothing of it is left out."""
    truth, place = folder / f"truth{stage}", folder / "mount" if row.mount else data
    for each in (truth, place):
        each.mkdir(parents=True, exist_ok=True)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", row.ranks] * (row.ranks > 1)
    program = [sys.executable, *launch, PROGRAM, row.name, place]
    library = ["--darshan-lib", os.environ["DARSHAN_LIB"]] if row.tracer == "darshan" else []
    command: list[object] = [
        sys.executable, "-m", "vanidl", "record", "-o", folder / "run", "--tracer", row.tracer,
        *library, "--", *program,
    ] if not stage else [*program, "--without", stage]  # fmt: skip
    if row.mount:
        mount = [sys.executable, "-m", "vanidl_loaders", "mount", data, place, *row.mount]
        command = [*mount, "--", *command]
    done = subprocess.run(
        [*map(str, command)],
        env=os.environ | {"TRUTH": str(truth)},
        capture_output=True,
        timeout=300,
        cwd=folder,
    )
    if done.returncode:
        raise SystemExit(f"{row.folder}: {done.stderr.decode()[-2000:]}")


def main() -> int:
    """Records what is not there yet, and prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=ROOT / "build/accounted")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wrong = 0
    for row in ROWS:
        if options.only not in row.folder:
            continue
        if row.tracer == "darshan" and not os.environ.get("DARSHAN_LIB"):
            print(f"{row.folder}: not recorded, as DARSHAN_LIB names no library")
            continue
        recorded = record(row, options.work.resolve())
        print(f"{row.folder}: {recorded.run.headline}")
        for figure in row.figures(recorded):
            wrong += not figure.holds
            low, high = figure.said
            said = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
            print(f"    {figure.name}: {said}, true {figure.true:.3f}"
                  f"{'' if figure.holds else '   WRONG'}")  # fmt: skip
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
