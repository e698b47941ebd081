"""What vanidl says of each loop, against the loop's own timers.

    python -m benchmarks.loops.run [WORD...] [--tracer NAME]

Runs the loops of this folder (with WORDs: those with one in their name) under `vanidl record`,
which changes nothing in them, and prints steps, epochs and milliseconds as vanidl says / as the
loop measured. Limit: counts exact, times within 2 % or 2 ms of what the loop measured. A loop whose
framework is not installed is named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import vanidl
from vanidl.errors import VanidlError
from vanidl.model.trace import INFERENCE, SpanKind

HERE = Path(__file__).parent
LIMIT_SHARE, LIMIT_MS = 0.02, 2.0
TIMES = ("wait", "validation", "save", "skipped")


@dataclass(frozen=True)
class Loop:
    """One loop: its script and its words, the modules that it needs, options of `record`."""

    script: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is printed."""
        return " ".join((self.script.removesuffix("_loops"), *self.words))


def _torch(*names: str, needs: tuple[str, ...] = ()) -> list[Loop]:
    return [Loop("torch_loops", (name,), ("torch", *needs)) for name in names]


def _jax(name: str, *waits: str, needs: tuple[str, ...] = ()) -> Loop:
    options = tuple(word for wait in waits for word in ("--wait", wait))
    return Loop("jax_loops", (name,), ("jax", *needs), options)


LOOPS = [
    *_torch("plain", "workers", "iterable", "anew", "amid", "reads-before", "zipped"),
    *_torch("zipped-evenly", "cycled", "accumulated", "resumed", "inference", "replay", "gan"),
    *_torch("distilled", "by-hand", "threads", "compiled"),
    *_torch("stateful", needs=("torchdata",)),
    *_torch("webdataset", needs=("webdataset",)),
    *_torch("arrow", needs=("datasets",)),
    _jax("kept", "__main__:Batches"),
    _jax("anew", "__main__:Batches"),
    _jax("apart", "__main__:Batches"),
    _jax("generator", "loop_data:batches"),
    _jax("own-generator", "__main__:generated"),
    _jax("torch-anew", needs=("torch",)),
    _jax("grain", needs=("grain",)),
    Loop("hf_loops", ("trainer-3",), ("torch", "transformers", "accelerate")),
    Loop("hf_loops", ("trainer-18",), ("torch", "transformers", "accelerate")),
    Loop("hf_loops", ("trainer-accumulated",), ("torch", "transformers", "accelerate")),
    Loop("hf_loops", ("accelerate",), ("torch", "accelerate")),
    Loop("hf_loops", ("accelerate-accumulated",), ("torch", "accelerate")),
    Loop("lightning_loops", ("1",), ("torch", "lightning")),
    Loop("lightning_loops", ("2",), ("torch", "lightning")),
    Loop("framework_loops", ("ignite",), ("torch", "ignite")),
    Loop("framework_loops", ("fastai",), ("torch", "fastai")),
    Loop("keras_loops", ("torch",), ("keras", "torch")),
    Loop("keras_loops", ("jax",), ("keras", "jax")),
    Loop("keras_loops", ("tensorflow",), ("keras", "tensorflow")),
    Loop("keras_loops", ("tensorflow", "own"), ("keras", "tensorflow")),
]


@dataclass(frozen=True)
class Said:
    """What vanidl says of a recorded loop."""

    counts: dict[str, int]
    times_ms: dict[str, float]
    headline: str


def read_run(folder: Path) -> Said:
    """What vanidl says of a run."""
    run = vanidl.open_run(folder)
    words = [sys.executable, "-m", "vanidl", "summary", str(folder), "--json"]
    said = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    mean: dict[str, Any] = (said["breakdown"] or {}).get("mean") or {}
    phases = {name: 1e3 * ends[0] for name, ends in mean.get("phases", {}).items()}
    spans = run.trace.spans
    epochs = len(run.phases.epochs) if run.phases is not None else 0
    steps = int((spans.kind == SpanKind.STEP).sum())
    is_inference = run.trace.purpose == INFERENCE
    loaders = said["steps"]["loaders"] if said["steps"] else []
    wait_s = [each["wait_s"] for each in loaders if is_inference or "training" in each["name"]]
    return Said(
        {
            "steps": 0 if is_inference else steps,
            "inference": steps if is_inference else 0,
            "epochs": epochs or int((spans.kind == SpanKind.EPOCH).sum()),
            "saves": len(run.phases.checkpoints) if run.phases is not None else 0,
        },
        {
            "wait": 1e3 * sum(wait_s),
            "validation": phases.get("validation", 0.0),
            "save": phases.get("checkpoint", 0.0),
            "skipped": phases.get("skipped", 0.0),
            "compile": phases.get("compile", 0.0),
        },
        said["headline"] if isinstance(said["headline"], str) else json.dumps(said["headline"]),
    )


def run_loop(loop: Loop, tracer: str, folder: Path) -> tuple[dict[str, Any], Said]:
    """Records a loop; what it measured, and what vanidl says."""
    own = folder / "own"
    command = [*loop.launcher, sys.executable, str(HERE / f"{loop.script}.py"), *loop.words]
    words = [
        *(sys.executable, "-m", "vanidl", "record", "-o", str(folder / "RUN")),
        *("--tracer", tracer, *loop.options, "--", *command),
    ]
    environment = {**os.environ, "LOOP_TIMES": str(own), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(words, capture_output=True, env=environment)
    if done.returncode:
        raise RuntimeError(*done.stderr.decode(errors="replace").strip().splitlines()[-2:])
    measured = [json.loads(path.read_text()) for path in sorted(folder.glob("own-*"))]
    trained = max(measured, key=lambda each: sum(each["counts"].values()))
    return trained, read_run(folder / "RUN")


def row(loop: Loop, measured: dict[str, Any], said: Said) -> tuple[str, list[str]]:
    """A line of the table, and what is wrong in it."""
    cells, wrong = [f"{loop.name:30}"], []
    counts = measured["counts"]
    if counts["inference"]:
        counts = {**counts, "epochs": said.counts["epochs"]}
    for name in ("steps", "inference", "epochs", "saves"):
        if name == "epochs" and not counts["epochs"]:
            counts = {**counts, "epochs": said.counts["epochs"]}
        cells.append(f"{said.counts[name]:4}/{counts[name]:<4}")
        if said.counts[name] != counts[name]:
            wrong.append(name)
    for name in TIMES:
        true, found = measured["sums_ns"][name] / 1e6, said.times_ms[name]
        known = not (name == "wait" and not true)
        cells.append(f"{found:8.1f}/{true:<8.1f}" if known else f"{found:8.1f}/{'-':8}")
        if known and abs(found - true) > max(LIMIT_MS, LIMIT_SHARE * true):
            wrong.append(name)
    cells.append(f"{said.times_ms['compile']:7.0f}")
    return " ".join(cells), wrong


def main(argv: list[str]) -> int:
    """Prints a line a loop; 1 where a limit is not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--tracer", default="none")
    parser.add_argument("--keep", type=Path, help="a new folder for the RUNs")
    asked = parser.parse_args(argv)
    failed = 0
    print(f"{'loop':30}   steps infer.  epochs    saves       wait, ms      validation, ms"
          "         saves, ms       skipped, ms compile")  # fmt: skip
    for loop in LOOPS:
        if asked.words and not any(word in loop.name for word in asked.words):
            continue
        missing = [name for name in loop.needs if find_spec(name) is None]
        if missing:
            print(f"{loop.name:30} not installed: {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = asked.keep / loop.name.replace(" ", "-") if asked.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                measured, said = run_loop(loop, asked.tracer, folder)
            except (RuntimeError, VanidlError) as error:
                print(f"{loop.name:30} {error}")
                failed = 1
                continue
        line, wrong = row(loop, measured, said)
        print(f"{line}{'  <-- ' + ', '.join(wrong) if wrong else ''}", flush=True)
        print(f"{'':10}{said.headline}")
        failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
