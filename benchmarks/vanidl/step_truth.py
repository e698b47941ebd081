"""Recorded waits and steps against the times that the programs took themselves.

    python -m benchmarks.vanidl.step_truth [WORD...]

Runs every loop of benchmarks/programs/loops whose framework is installed (with WORDs: those with
one in their name) under `vanidl record`, which changes nothing in it, and compares each wait and
each step of the run. Limit: 1 ms or 1 %. A process that is stopped between two clocks is late in
one of them, so that on a busy machine some are not within it: `inside` is the share that is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import vanidl
from vanidl.errors import VanidlError
from vanidl.model.intervals import covered_within, union
from vanidl.model.trace import SpanKind
from vanidl.record import record

PROGRAMS = Path(__file__).parents[1] / "programs" / "loops"
LIMIT_NS, LIMIT_SHARE = 1_000_000, 0.01
INSIDE = 0.95

FIGURES = (np.median, np.max)

Int64Array = NDArray[np.int64]
Spans = Int64Array  # begin, end


@dataclass(frozen=True)
class Program:
    """One loop: what runs it, and the modules that it needs."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()  # --wait
    at_least: bool = False  # its times leave out what the framework takes: none may be shorter


def _torch(name: str, *needs: str) -> Program:
    script = str(PROGRAMS / "torch_loops.py")
    return Program(f"torch {name}", (sys.executable, script, "TRUTH", name), ("torch", *needs))


def _script(
    name: str, *needs: str, more: tuple[str, ...] = (), waits: tuple[str, ...] = ()
) -> Program:
    words = (sys.executable, str(PROGRAMS / f"{name}.py"), "TRUTH", *more)
    return Program(" ".join((name.replace("_", " "), *more)), words, needs, waits)


KERAS = ("torch", "jax")
GRAIN = ("map", "threads", "workers")
OWN = ("own_data:batches", "own_data:Counted")
EVERY = (
    *(_torch(name) for name in (
        "no-workers", "two-workers", "spawned", "forkserver", "persistent", "iterable",
        "iterable-workers", "two-optimizers", "validation", "accumulation", "grad-scaler",
        "inference", "break", "exception", "side-by-side",
    )),
    _torch("stateful", "torchdata"),
    _torch("webdataset", "webdataset"),
    _script("accelerate_loop", "torch", "accelerate"),
    _script("lightning_fit", "torch", "lightning"),
    _script("trainer_fit", "torch", "transformers", "accelerate"),
    *(_script("keras_fit", "keras", name, more=(name, "fit")) for name in KERAS),
    replace(_script("keras_fit", "keras", "tensorflow", more=("tensorflow", "fit")), at_least=True),
    _script("keras_fit", "keras", "tensorflow", more=("tensorflow", "own")),
    *(_script("jax_loops", "jax", "grain", more=(f"grain-{kind}",)) for kind in GRAIN),
    _script("jax_loops", "jax", more=("plain",), waits=("__main__:Batches",)),
    _script("jax_loops", "jax", more=("generated",), waits=OWN),
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """Recorded times against true ones."""

    expected: int
    found: int
    error_ns: Int64Array  # of each true one
    length_ns: Int64Array

    @property
    def inside(self) -> float:
        """Share of the true ones that are within the limit."""
        limit = np.maximum(LIMIT_NS, LIMIT_SHARE * self.length_ns)
        return float((self.error_ns <= limit).mean()) if len(limit) else 0.0

    def __str__(self) -> str:
        median, worst = (f(self.error_ns) / 1e6 if len(self.error_ns) else np.nan for f in FIGURES)
        return f"{self.found:5} of {self.expected:<5} {self.inside:6.1%} {median:7.3f} {worst:8.3f}"


def of_waits(truth: Spans, found: Spans, *, at_least: bool) -> Compared:
    """How much of each true wait was recorded as one; a framework may ask twice within one.

    What was recorded outside of all of them counts as an error of the last one before it, unless
    the true ones are known to be too short.
    """
    inside = covered_within(union(*found.T), *truth.T)
    edges = np.append(truth[:, 0], np.iinfo(np.int64).max)
    until_next = covered_within(union(*found.T), edges[:-1], edges[1:])
    length = truth[:, 1] - truth[:, 0]
    missing, more = length - inside, until_next - inside
    error = missing if at_least else np.maximum(missing, more)
    return Compared(len(truth), len(found), error, length)


def of_steps(truth: Spans, found: Spans) -> Compared:
    """Where each step begins and ends; there must be as many."""
    length = truth[:, 1] - truth[:, 0]
    if len(truth) != len(found):
        return Compared(len(truth), len(found), np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Compared(len(truth), len(found), np.abs(found - truth).max(axis=1), length)


def compared(program: Program, folder: Path) -> tuple[Compared, Compared]:
    """Waits and steps of all processes of a recorded run of it."""
    command = [str(folder / "truth") if word == "TRUTH" else word for word in program.command]
    record(command, folder / "RUN", tracer="none", waits=program.waits)
    trace = vanidl.open_run(folder / "RUN").trace
    pids = np.array([p.pid for p in trace.processes])[trace.spans.process]

    def spans(kind: SpanKind, pid: int) -> Spans:
        mine = (trace.spans.kind == kind) & (pids == pid)
        return np.stack([trace.spans.start[mine], trace.spans.end[mine]], axis=1)

    truths = list(_truths(folder))
    waits = [
        of_waits(
            _sorted([w[1:] for w in t["waits"]]),
            spans(SpanKind.INPUT_WAIT, t["pid"]),
            at_least=program.at_least,
        )
        for t in truths
    ]
    steps = [of_steps(_sorted(t["steps"]), spans(SpanKind.STEP, t["pid"])) for t in truths]
    return _joined(waits), _joined(steps)


def _joined(each: list[Compared]) -> Compared:
    return Compared(
        sum(one.expected for one in each),
        sum(one.found for one in each),
        np.concatenate([one.error_ns for one in each]),
        np.concatenate([one.length_ns for one in each]),
    )


def _truths(folder: Path) -> Iterator[dict]:
    paths = sorted(folder.glob("truth-*"))
    if not paths:
        raise RuntimeError("the program left no times")
    return (json.loads(path.read_text()) for path in paths)


def _sorted(spans: list) -> Spans:
    return np.array(sorted(map(tuple, spans)), np.int64).reshape(-1, 2)


def main(words: list[str]) -> int:
    """Prints a line a program; 1 where a limit is not kept."""
    failed = 0
    print(f"{'':28}{'waits':^35}{'steps':^35}")
    print(f"{'program':28}" + "   found       inside  median  worst ms" * 2)
    for program in EVERY:
        if words and not any(word in program.name for word in words):
            continue
        missing = [name for name in program.needs if find_spec(name) is None]
        if missing:
            print(f"{program.name:28}not installed: {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                waits, steps = compared(program, Path(folder))
            except (RuntimeError, VanidlError) as error:
                print(f"{program.name:28}{error}")
                failed = 1
                continue
        good = min(waits.inside, steps.inside) >= INSIDE
        print(f"{program.name:28}{waits} {steps}{'' if good else '  <--'}")
        failed |= not good
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
