"""What TraceML says of the trainings with planted causes, and of the healthy ones.

    python -m benchmarks.traceml [NAME...] --traceml traceml [--work build/traceml] [--unchanged]

TraceML (`pip install traceml-ai` into an environment of its own, with torch, h5py and pyarrow)
runs each training of `benchmarks.causes`, its cause switched on, on the same emulated mounts, and
its primary diagnosis is read from its `final_summary.json`; what was run already is kept in
`--work`. Its documentation asks for two lines in loops without a trainer, `traceml.init` and
`traceml.trace_step` around all that the loop does with a batch: a copy of the programs gets them.
Without them (`--unchanged`) it sees no steps.

A row says whether the diagnosis names the side of the loop on which the cause lies: input waits,
or the loop's own work ("residual"). "Among": its next step lists a place, among others, that
stands for an action which `benchmarks.causes` accepts of vanidl for the program. "Alone": it
lists this and nothing else. "First" is the primary diagnosis, which is all that TraceML prints;
"later", a further one in its file. A healthy training is accused where the primary diagnosis is a
warning or critical; "compute-bound" is neither.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.causes import ACTIONS, BIN, FIRST, RANKS

SIDES = {"INPUT": "input", "RESIDUAL": "residual", "COMPUTE": "compute"}
"""Of the first word of a diagnosis."""
IN_LOOP = ("checkpoint", "background_save", "fsync", "log_each_step", "validation",
           "augment_in_loop", "python_metrics", "tracking_service")  # fmt: skip
"""Programs whose cause is the loop's own work; of the others batches are waited for."""
IN_BOTH = ("gil_transform",)
"""Batches are waited for, and what makes them takes the interpreter from the steps."""
PLACES: dict[str, tuple[str, ...]] = {
    "increase workers": ("read_ahead", "decode"),
    "prefetch": ("read_ahead", "rare_stalls", "windows"),
    "storage throughput": ("storage_limit",),
    "input wait on": ("divide_reading",),  # one rank's
    "work outside traced phases": ("loop_work",),
    "logging": ("logging",),
    "checkpointing": ("checkpoints",),
    "validation": ("validation",),
    "cpu stalls": (), "unobserved transfers": (),
}  # fmt: skip
"""Places that its next steps list, and which actions they stand for."""
EQUAL = {"sleeping_service": ("read_ahead",)}
"""What removes a cause as well as the accepted actions: workers that sleep side by side."""


@dataclass(frozen=True)
class Verdict:
    """One of TraceML's diagnoses of a program; `status` is empty where it gives none."""

    name: str
    status: str
    severity: str
    why: str
    next_step: str
    steps: int = 0

    @property
    def is_alarm(self) -> bool:
        """Whether something is to be mended."""
        return self.severity in ("warn", "warning", "crit", "critical")

    @property
    def names_side(self) -> bool:
        """Whether it names where in the loop the planted cause lies."""
        side = SIDES.get(self.status.replace("-", " ").split(" ")[0])
        sides = {"residual" if self.name in IN_LOOP else "input"}
        sides |= {"residual"} if self.name in IN_BOTH else set()
        return self.is_alarm and side in sides

    @property
    def lists_cause(self) -> bool:
        """Whether a place that its next step lists stands for an action that is accepted."""
        accepted = {*ACTIONS[self.name], *EQUAL.get(self.name, ())}
        return self.is_alarm and any(accepted & set(PLACES[place]) for place in self.places)

    @property
    def names_cause(self) -> bool:
        """Whether that is the one place of its next step."""
        return self.lists_cause and len(self.places) == 1

    @property
    def places(self) -> list[str]:
        """Places that its next step lists."""
        return [place for place in PLACES if place in self.next_step.lower()]


class Marks(ast.NodeTransformer):
    """Puts the body of each loop over batches into TraceML's context of a step."""

    def visit_For(self, node: ast.For) -> ast.For:
        """A loop whose target is called `batch`."""
        self.generic_visit(node)
        if any(isinstance(part, ast.Name) and part.id == "batch" for part in ast.walk(node.target)):
            (step,) = ast.parse("with traceml.trace_step(net): pass").body
            assert isinstance(step, ast.With)
            step.body, node.body = node.body, [step]
        return node


def mark_steps(source: str) -> str:
    """A program with the lines that TraceML asks for."""
    tree = Marks().visit(ast.parse(source))
    last = max(
        k for k, node in enumerate(tree.body) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    lines = 'import traceml_ai as traceml\ntraceml.init(mode="auto")'
    tree.body[last + 1 : last + 1] = ast.parse(lines).body
    return ast.unparse(ast.fix_missing_locations(tree))


def run_traceml(name: str, program: Path, traceml: str, work: Path) -> Path:
    """Runs one program under TraceML, unless that was done; the folder of its logs."""
    logs = work / "logs" / f"{program.stem}.{name}"
    if (logs / "final_summary.json").exists():
        return logs
    shutil.rmtree(logs, ignore_errors=True)
    data = mounted = work / "data"
    before: list[str] = []
    if name in FIRST.mounts:
        mounted = Path(tempfile.mkdtemp(prefix="mount-", dir=work))
        mount = [str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(data), str(mounted)]
        before = [*mount, *FIRST.mounts[name], "--"]
    command = [
        traceml, "run", str(program), "--logs-dir", str(logs.parent), "--run-name", logs.name,
        "--nproc-per-node", str(RANKS.get(name, 1)), "--args", name, "--data", str(mounted),
    ]  # fmt: skip
    done = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=280, cwd=work, check=False
    )
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "printed.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return logs


def read_verdicts(name: str, logs: Path) -> list[Verdict]:
    """Its primary diagnosis, then what else its summary says of steps; or what it printed last."""
    try:
        summary: Mapping[str, Any] = json.loads((logs / "final_summary.json").read_bytes())
    except FileNotFoundError:
        printed = (logs / "printed.txt").read_text(encoding="utf-8").splitlines()
        return [Verdict(name, "", "", " ".join(printed[-2:]), "")]
    first = summary["primary_diagnosis"]
    steps = int(first["evidence"].get("steps_analyzed") or 0)
    others = [issue for issue in summary["step_time"]["issues"] if issue["kind"] != first["kind"]]
    return [
        Verdict(name, one["status"], one["severity"], one["summary"], one["action"], steps)
        for one in (first, *others)
    ]


def planted(source: str) -> dict[str, str]:
    """What each program plants, in the words of its file."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: (ast.get_docstring(node) or "").split("\n")[0] for node in functions}


def print_table(said: Sequence[Sequence[Verdict]], words: Mapping[str, str]) -> None:
    """A row a program, then the counts."""
    counts = Counter[str]()
    print("| program | planted | TraceML | why | next | side | among | alone |")
    print("|---|---|---|---|---|---|---|---|")
    for verdicts in said:
        first = verdicts[0]
        status = ", ".join(filter(None, (first.status, first.severity))) or "no summary"
        row = f"| {first.name} | {words[first.name]} | {status} | {first.why} "
        row += f"({first.steps} steps) | {first.next_step} |"
        if first.name in FIRST.healthy:
            counts["healthy"] += 1
            counts["accused"] += first.is_alarm
            print(f"{row} {'accused' if first.is_alarm else 'fine'} | | |")
            continue
        counts["causes"] += 1
        for mark, names in (
            ("side", [each.names_side for each in verdicts]),
            ("among", [each.lists_cause for each in verdicts]),
            ("alone", [each.names_cause for each in verdicts]),
        ):
            place = "first" if names[0] else "later" if any(names) else "no"
            counts[f"{mark} {place}"] += 1
            row += f" {place} |"
        print(row)
    for mark in ("side", "among", "alone"):
        print(f"{mark}: {counts[f'{mark} first']} of {counts['causes']} first, "
              f"{counts[f'{mark} later']} later")  # fmt: skip
    print(f"accused: {counts['accused']} of {counts['healthy']} healthy")


def main() -> None:
    """Runs what was not run yet, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--traceml", default="traceml")
    parser.add_argument("--work", type=Path, default=Path("build/traceml"))
    parser.add_argument("--unchanged", action="store_true", help="without the lines it asks for")
    options = parser.parse_intermixed_args()
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "data" / FIRST.made).exists():
        make = [str(BIN / "python"), str(FIRST.file), "make", "--data", str(work / "data")]
        subprocess.run(make, check=True)

    source = FIRST.file.read_text(encoding="utf-8")
    program = work / ("unchanged.py" if options.unchanged else "marked.py")
    program.write_text(source if options.unchanged else mark_steps(source), encoding="utf-8")
    names = options.names or [*FIRST.causes, *FIRST.healthy]
    said = [
        read_verdicts(name, run_traceml(name, program, options.traceml, work)) for name in names
    ]
    print_table(said, planted(source))


if __name__ == "__main__":
    main()
