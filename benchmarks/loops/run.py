"""What vanidl says of each loop, against the loop's own timers; and that nothing of it changes.

    python -m benchmarks.loops.run [WORD...] [--tracer NAME] [--keep FOLDER]

Runs the loops of this folder (with WORDs: those with one in their name) as they are and under
`vanidl record`. A loop whose framework is not installed is named. Printed are, as vanidl says / as
the loop measured: counts, which must be equal; milliseconds, within 2 % or 2 ms; how many single
waits and steps are off by more than 1 ms and 1 %. A process that is stopped between two clocks is
late in one of them: what is within a limit without the time that the kernel kept the program from
running (its run-queue delay) is `stopped`, marked by ~, any other is wrong. How spans lie, however
late a clock is read, is counted apart: a recorded wait lies in one of the program's. Printed text,
exit status and losses, to the last digit, must be those of the run without the recorder.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import vanidl
from benchmarks.loops.compared import (
    Process,
    Readings,
    compare_processes,
    join,
    order_spans,
    read_measured,
)
from vanidl import cli
from vanidl.errors import VanidlError
from vanidl.model.trace import INFERENCE, SpanKind

HERE = Path(__file__).parent
LIMIT_SHARE, LIMIT_MS = 0.02, 2.0
KILLED = (128 + 9, 128 + 15)  # what was recorded in the second before is lost, as the run says
COUNTS = ("steps", "inference", "epochs", "saves", "loads")
TIMES = ("wait", "validation", "save", "load", "skipped")
VARIES = re.compile(
    r"0x[0-9a-f]{6,}|\b\d+\.\d+(?=s\b|it/s)|(?<=pid )\d+|/tmp/\S+"
    r"|'\w+_(?:runtime|per_second)': '[^']*'|^[IWE]\d{4} [\d:.]+ +\d+|(?<=USDT:)[-\d]+ [\d: ]+"
)
"""Addresses, durations, processes, temporary files, and what logs begin with."""


@dataclass(frozen=True)
class Loop:
    """One loop: its script and its words, the modules that it needs, options of `record`."""

    script: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = (sys.executable,)
    has_borders: bool = True  # whether its single waits can be compared

    @property
    def name(self) -> str:
        """As it is printed."""
        ranks = next((word for word in self.launcher if word.startswith("--nproc")), "")
        return " ".join((self.script.removesuffix("_loops"), *self.words)) + (
            f" x{ranks.rpartition('=')[2]}" if ranks else ""
        )

    @property
    def missing(self) -> list[str]:
        """What it needs and is not installed."""
        return [name for name in self.needs if find_spec(name) is None]

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return [*self.launcher, str(HERE / f"{self.script}.py"), *self.words]


def _torch(*names: str, needs: tuple[str, ...] = (), has_borders: bool = True) -> list[Loop]:
    return [
        Loop("torch_loops", (name,), ("torch", *needs), has_borders=has_borders) for name in names
    ]


def _jax(name: str, *waits: str, needs: tuple[str, ...] = ()) -> Loop:
    options = tuple(word for wait in waits for word in ("--wait", wait))
    return Loop("jax_loops", (name,), ("jax", *needs), options)


def _hf(*names: str, needs: tuple[str, ...] = (), has_borders: bool = True) -> list[Loop]:
    needs = ("torch", "accelerate", *needs)
    return [Loop("hf_loops", (name,), needs, has_borders=has_borders) for name in names]


def _ranks(*words: str, needs: tuple[str, ...] = ()) -> list[Loop]:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    return [Loop("distributed_loops", words, ("torch", *needs), launcher=launcher)]


LOOPS = (
    *_torch("plain", "workers", "spawned", "forkserver", "persistent", "iterable"),
    *_torch("iterable-workers", "iterable-anew", "two-optimizers", "validated"),
    *_torch("validated-workers", "anew", "amid", "zipped", "side-by-side"),
    *_torch("cycled", "accumulated", "scaled", "broken-off", "failing", "inference"),
    *_torch("replay", "gan", "distilled", "by-hand", "compiled", "profiled"),
    *_torch("reads-before", "resumed", "zipped-evenly", "threads", has_borders=False),
    *_torch("stateful", needs=("torchdata",), has_borders=False),
    *_torch("webdataset", needs=("webdataset",)),
    *_torch("arrow", needs=("datasets",)),
    *_torch("raises", "raises-in-worker", "exits", "killed", "terminated"),
    _jax("kept", "__main__:Batches"),
    _jax("anew", "__main__:Batches"),
    _jax("apart", "__main__:Batches"),
    _jax("generator", "loop_data:batches"),
    _jax("own-generator", "__main__:generated"),
    _jax("torch-anew", needs=("torch",)),
    _jax("grain", needs=("grain",)),
    _jax("grain-threads", needs=("grain",)),
    _jax("grain-workers", needs=("grain",)),
    *_hf("trainer-3", "trainer-18", "trainer-accumulated", needs=("transformers",)),
    *_hf("accelerate", "accelerate-accumulated"),
    Loop("lightning_loops", ("1",), ("torch", "lightning"), has_borders=False),
    Loop("lightning_loops", ("2",), ("torch", "lightning"), has_borders=False),
    Loop("framework_loops", ("ignite",), ("torch", "ignite"), has_borders=False),
    Loop("framework_loops", ("fastai",), ("torch", "fastai"), has_borders=False),
    Loop("keras_loops", ("torch",), ("keras", "torch"), has_borders=False),
    Loop("keras_loops", ("jax",), ("keras", "jax"), has_borders=False),
    Loop("keras_loops", ("tensorflow",), ("keras", "tensorflow"), has_borders=False),
    Loop("keras_loops", ("tensorflow", "own"), ("keras", "tensorflow")),
    *_ranks("ddp"),
    *_ranks("ddp", "slow"),
    *_ranks("averaged", "slow"),
    *_ranks("fsdp"),
    *_ranks("accelerate", needs=("accelerate",)),
    *_ranks("accelerate", "slow", needs=("accelerate",)),
)


PIP_SAYS = {
    "fastai": "Would install ... fastai-2.8.12 ... torchvision-0.28.0 ...",
    "composer": "ERROR: Failed to build 'pyyaml' when getting requirements to build wheel",
}
"""Frameworks that do not install beside torch 2.13 without torchvision: what pip 26 says of
`pip install --dry-run torch==2.13.0 fastai` (`mosaicml` for composer), Python 3.11, 2026-11-28."""


@dataclass(frozen=True)
class Said:
    """What vanidl says of a recorded loop."""

    counts: dict[str, int]
    times_ms: dict[str, float]
    headline: str
    processes: list[Process] = field(default_factory=list)


@dataclass(frozen=True)
class Ran:
    """What a program printed, and how it ended."""

    stdout: str
    stderr: str
    status: int

    def differs_from(self, other: Ran, *, is_launched: bool) -> list[str]:
        """Which of the three differ; ranks print in any order."""
        differs = []
        for name in ("stdout", "stderr"):
            ours, theirs = (_comparable(getattr(one, name), is_launched) for one in (self, other))
            if ours != theirs:
                differs.append(name)
        return differs + (["status"] if self.status != other.status else [])


def _comparable(text: str, is_launched: bool) -> list[str]:
    lines = [VARIES.sub("", line) for line in text.splitlines() if not line.startswith("vanidl")]
    return sorted(lines) if is_launched else lines


def run_command(command: list[str], folder: Path) -> Ran:
    """Runs it; a signal that ended it as shells say it."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ, "LOOP_TIMES": str(folder / "own"), "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONHASHSEED": "0",
    }  # fmt: skip
    done = subprocess.run(command, capture_output=True, env=environment)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Ran(done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), status)


def read_run(folder: Path) -> Said:
    """What vanidl says of the run in `folder/RUN`."""
    run = vanidl.open_run(folder / "RUN")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        cli.main(["summary", str(folder / "RUN"), "--json"])
    said = json.loads(printed.getvalue())
    mean: dict[str, Any] = (said["breakdown"] or {}).get("mean") or {}
    phases = {name: 1e3 * ends[0] for name, ends in mean.get("phases", {}).items()}
    spans = run.trace.spans
    epochs = len(run.phases.epochs) if run.phases is not None else 0
    steps = int((spans.kind == SpanKind.STEP).sum())
    is_inference = run.trace.purpose == INFERENCE
    loaders = said["steps"]["loaders"] if said["steps"] else []
    wait_s = [each["wait_s"] for each in loaders if is_inference or "training" in each["name"]]
    processes = compare_processes(run.trace, folder)
    behind_s = sum(one.behind_ns for one in processes) / 1e9

    # Counts and waits are those of one rank.
    ranks = max(len(np.unique(spans.process[spans.kind == SpanKind.STEP])), 1)
    steps //= ranks
    return Said(
        {
            "steps": 0 if is_inference else steps,
            "inference": steps if is_inference else 0,
            "epochs": epochs or int((spans.kind == SpanKind.EPOCH).sum()),
            "saves": len(run.phases.checkpoints) if run.phases is not None else 0,
            "loads": sum(call.is_load for call in run.trace.checkpoint_calls),
        },
        {
            "wait": 1e3 * (sum(wait_s) - behind_s) / ranks,
            "validation": phases.get("validation", 0.0),
            "save": phases.get("checkpoint", 0.0),
            "load": phases.get("load", 0.0),
            "skipped": phases.get("skipped", 0.0),
            "compile": phases.get("compile", 0.0),
        },
        said["headline"] if isinstance(said["headline"], str) else json.dumps(said["headline"]),
        processes,
    )


@dataclass(frozen=True)
class Row:
    """A line of the table, and what is wrong in it."""

    text: str
    wrong: list[str]
    headline: str = ""


def compare_loop(loop: Loop, tracer: str, folder: Path) -> Row:
    """Runs a loop without the recorder and with it."""
    alone = run_command(loop.command, folder / "alone")
    words = ("record", "-o", str(folder / "RUN"), "--tracer", tracer, *loop.options, "--")
    recorded = run_command([sys.executable, "-m", "vanidl", *words, *loop.command], folder)
    differs = recorded.differs_from(alone, is_launched=loop.launcher != (sys.executable,))
    (folder / "alone.txt").write_text(alone.stdout + alone.stderr)
    (folder / "recorded.txt").write_text(recorded.stdout + recorded.stderr)
    measured = choose_threads(read_measured(folder))
    said = read_run(folder)
    cells, wrong = [f"{loop.name:28}"], list[str]()
    # Counts are those of one rank, times the mean of ranks, as vanidl says them.
    pids = {one["pid"] for one in measured if any(one["counts"].values())}
    for name in COUNTS:
        counts = [one["counts"][name] for one in measured]
        true = sum(counts) if name in ("saves", "loads") else sum(counts) // max(len(pids), 1)
        if name == "epochs" and not true:
            true = said.counts[name]
        cells.append(f"{said.counts[name]:4}/{true:<4}")
        if said.counts[name] != true and recorded.status not in KILLED:
            wrong.append(name)
    for name in TIMES:
        cell, is_wrong = _compare_time(name, measured, max(len(pids), 1), said.times_ms[name])
        cells.append(cell)
        wrong += [name] * is_wrong
    cells.append(f"{said.times_ms['compile']:6.0f}")
    if loop.has_borders and recorded.status not in KILLED:
        cell, is_wrong = _compare_borders(said.processes)
        cells.append(cell)
        wrong += is_wrong
    else:
        cells.append(f"{'':24}")
    cells.append("differs: " + ", ".join(differs) if differs else "same")
    return Row(" ".join(cells), wrong + differs, said.headline)


def choose_threads(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each process the thread with most steps, whose numbers vanidl gives."""
    by_pid: dict[int, dict[str, Any]] = {}
    for one in measured:
        most = by_pid.setdefault(one["pid"], one)
        if one["counts"]["steps"] > most["counts"]["steps"]:
            by_pid[one["pid"]] = one
    return list(by_pid.values())


def _compare_time(
    name: str, measured: list[dict[str, Any]], ranks: int, said_ms: float
) -> tuple[str, bool]:
    """Milliseconds of one kind; ~ where what is off is time that the program was stopped."""
    names = (name, "second") if name == "wait" else (name,)
    true_ms = delay_ms = 0.0
    for one in measured:
        spans = order_spans([span for each in names for span in one["spans"][each]])
        if len(spans):
            true_ms += (spans[:, 1] - spans[:, 0]).sum() / 1e6 / ranks
            delay_ms += Readings.of(one["readings"]).delay_within(*spans.T).sum() / 1e6 / ranks
    if name == "wait" and not true_ms:
        return f"{said_ms:8.1f}/{'-':8} ", False
    off_ms, limit_ms = float(abs(said_ms - true_ms)), float(max(LIMIT_MS, LIMIT_SHARE * true_ms))
    is_stopped = limit_ms < off_ms <= limit_ms + delay_ms
    mark = "~" if is_stopped else " "
    return f"{said_ms:8.1f}/{true_ms:<8.1f}{mark}", bool(off_ms > limit_ms + delay_ms)


def _compare_borders(processes: list[Process]) -> tuple[str, list[str]]:
    """Waits and steps off, ~ those by stops, and how many waits lie where they cannot."""
    waits, steps = (join([getattr(one, name) for one in processes]) for name in ("waits", "steps"))
    out = sum(one.out_of_order for one in processes)
    wrong = ["single waits"] if waits.unexplained or out else []
    if steps.expected and not steps.agrees:
        wrong.append("single steps")
    worst_ms = np.max(waits.error_ns) / 1e6 if len(waits.error_ns) else np.nan
    return (
        f"{waits.unexplained:3}{'~' if waits.outside else ' '}/{waits.expected:<4}{out:3} out"
        f"{worst_ms:6.2f} {steps.unexplained:3}/{steps.expected:<4}",
        wrong,
    )


def main(argv: list[str]) -> int:
    """Prints a line a loop; 1 where a limit is not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--tracer", default="none")
    parser.add_argument("--keep", type=Path, help="a new folder for the RUNs")
    asked = parser.parse_args(argv)
    failed = 0
    counts = "".join(f"{name:>10}" for name in COUNTS)
    times = "".join(f"{name + ', ms':>19}" for name in TIMES)
    print(f"{'loop':24}{counts}{times} compile  single waits, steps    output")
    for loop in LOOPS:
        if asked.words and not any(word in loop.name for word in asked.words):
            continue
        if loop.missing:
            says = [f"; pip: {PIP_SAYS[name]}" for name in loop.missing if name in PIP_SAYS]
            print(f"{loop.name:28} not installed: {', '.join(loop.missing)}{''.join(says)}")
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = asked.keep / loop.name.replace(" ", "-") if asked.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                row = compare_loop(loop, asked.tracer, folder)
            except (RuntimeError, VanidlError) as error:
                print(f"{loop.name:28} {error}")
                failed = 1
                continue
        print(f"{row.text}{'  <-- ' + ', '.join(row.wrong) if row.wrong else ''}", flush=True)
        print(f"{'':10}{row.headline}")
        failed |= bool(row.wrong)
    if not asked.words:
        print(f"{'composer':28} not installed; pip: {PIP_SAYS['composer']}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
