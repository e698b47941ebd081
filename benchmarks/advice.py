"""Whether following the first action gains what it says: its own patch, applied, in pairs.

    python -m benchmarks.advice [--work build/advice] [--pairs 3] [NAME...]

Programs are those of `benchmarks.causes`, each cut out of its file so that it stands alone; those
of `planted_again.py` are named `again/NAME`. A program is recorded once;
of its actions the first that has a patch is applied by `git apply`, and the program runs in turn as
it is and as patched, not recorded. Of the other actions with a patch each is tried once a pair too:
the best of all is named beside the first.

Prints one row a program: the range as it is printed and the gain as it was measured, both as shares
of the program's loop, with the 95 % interval of the pairs; whether they meet. An action without a
patch is listed as such and not counted. Limits: 80 % of the gains inside; the first action gains
80 % of the best in 18 of 20.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.causes import AGAIN, BIN, FIRST, PROGRAMS, RANKS, Programs
from vanidl.model.student_t import t_above

NAMES = (
    "slow_storage", "cold_then_warm", "too_few_workers", "native_decode", "python_transform",
    "workers_anew", "again/slow_storage", "again/python_transform", "again/native_decode",
    "again/workers_anew",
)  # fmt: skip
LISTS = ("CAUSES", "HEALTHY")
"""Of a file of programs: only the one that is cut out stays listed."""


@dataclass(frozen=True)
class Followed:
    """What following one action gained, in shares of the loop as it was."""

    code: str
    printed: tuple[float, float]
    gains: tuple[float, ...]  # of each pair

    @property
    def gain(self) -> float:
        """The mean of the pairs."""
        return statistics.mean(self.gains)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the mean lies by the pairs alone, 95 %."""
        count = len(self.gains)
        if count < 2:
            return self.gain, self.gain
        deviation = statistics.stdev(self.gains) / count**0.5
        reach = t_above(0.025, count - 1) * deviation
        return self.gain - reach, self.gain + reach

    @property
    def is_inside(self) -> bool:
        """Whether the interval of the pairs meets the printed range."""
        low, high = self.interval
        return low <= self.printed[1] and high >= self.printed[0]


def cut_out(programs: Programs, name: str) -> str:
    """The source of one program with what it needs, without the others of its file."""
    text = programs.file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    others = set(programs.causes) | set(programs.healthy)
    needed, todo = set[str](), [name]
    while todo:
        needed.add(each := todo.pop())
        used = {n.id for n in ast.walk(functions[each]) if isinstance(n, ast.Name)}
        todo += [other for other in used & set(functions) if other not in needed]
    lines = text.splitlines(keepends=True)
    for node in reversed(tree.body):
        is_other = isinstance(node, ast.FunctionDef) and node.name in others - needed
        if is_other:
            del lines[node.lineno - 1 : node.end_lineno]
        elif isinstance(node, ast.Assign) and (listed := ast.unparse(node.targets[0])) in LISTS:
            kept = f"({name},)" if listed == LISTS[0] else "()"
            lines[node.lineno - 1 : node.end_lineno] = [f"{listed} = {kept}\n"]
    return "".join(lines)


class Program:
    """One program in a folder of its own, and how it is run."""

    def __init__(self, label: str, work: Path) -> None:
        self.programs = AGAIN if label.startswith("again/") else FIRST
        self.name = label.rpartition("/")[2]
        self.data = work / ("data_again" if self.programs is AGAIN else "data")
        self.folder = work / label.replace("/", "_")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "program.py").write_text(cut_out(self.programs, self.name), encoding="utf-8")
        if not (self.data / self.programs.made).exists():
            make = [str(BIN / "python"), str(self.programs.file), "make", "--data", str(self.data)]
            subprocess.run(make, check=True)

    def run(self, folder: Path, record: Path | None = None) -> float:
        """Seconds of its loop by its own timer, recorded or not."""
        data, before = self.data, list[str]()
        with tempfile.TemporaryDirectory(prefix="mount-") as mount:
            if self.name in self.programs.mounts:
                data = Path(mount)
                before = [str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(self.data),
                          mount, *self.programs.mounts[self.name], "--"]  # fmt: skip
            command = [str(BIN / "python"), "program.py", self.name, "--data", str(data)]
            if self.name in RANKS:
                command[:1] = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node",
                               str(RANKS[self.name])]  # fmt: skip
            if record is not None:
                shutil.rmtree(record, ignore_errors=True)
                command = [str(BIN / "vanidl"), "record", "-o", str(record), "--", *command]
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")]),
                "HDF5_USE_FILE_LOCKING": "FALSE",
            }
            done = subprocess.run(
                [*before, *command], cwd=folder, env=environment, capture_output=True, text=True,
                timeout=900, check=False,
            )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"program"')]
        if not lines:
            raise RuntimeError(f"{self.name}: no line of its own, but {done.stderr[-800:]}")
        return float(json.loads(lines[-1])["loop_s"])

    def patched(self, code: str, patch: str) -> Path:
        """A copy of its folder with a patch in it, by `git apply`."""
        folder = self.folder / f"with_{code}"
        folder.mkdir(exist_ok=True)
        shutil.copy2(self.folder / "program.py", folder)
        apply = ["git", "apply", "-"]
        subprocess.run(apply, cwd=folder, input=patch, text=True, check=True)
        return folder


def actions_of(run: Path) -> list[dict[str, Any]]:
    """The actions of a recording as JSON has them."""
    command = [str(BIN / "python"), "-m", "vanidl", "summary", "--json", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["actions"])


def follow(label: str, work: Path, pairs: int) -> tuple[list[Followed], list[str]]:
    """What each action with a patch gained, in their order, and the codes of all."""
    program = Program(label, work)
    recorded_s = program.run(program.folder, program.folder / "run")
    actions = actions_of(program.folder / "run")
    applied = [action for action in actions if action["patch"] and action["gain_s"]]
    folders = [program.patched(action["code"], action["patch"]) for action in applied]
    gains: list[list[float]] = [[] for _ in applied]
    for _ in range(pairs if applied else 0):
        plain_s = program.run(program.folder)
        for own, folder in zip(gains, folders, strict=True):
            own.append((plain_s - program.run(folder)) / plain_s)
    found = [
        Followed(action["code"], (action["gain_s"][0] / recorded_s,
                                  action["gain_s"][1] / recorded_s), tuple(own))
        for action, own in zip(applied, gains, strict=True)
    ]  # fmt: skip
    return found, [action["code"] for action in actions]


def main() -> None:
    """Follows the actions of each program, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=Path, default=Path("build/advice"))
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_intermixed_args()
    work = options.work.resolve()
    inside = as_good = count = 0
    print("| program | action | printed | measured | inside | best of those tried |")
    print("|---|---|---|---|---|---|", flush=True)
    for label in options.names or NAMES:
        found, codes = follow(label, work, options.pairs)
        if not found:
            print(f"| {label} | {codes[:1]}: no patch | | | | |", flush=True)
            continue
        first, best = found[0], max(found, key=lambda each: each.gain)
        count += 1
        inside += first.is_inside
        as_good += first.gain >= 0.8 * best.gain
        low, high = first.interval
        place = "" if codes[0] == first.code else f" (no {codes.index(first.code) + 1})"
        print(
            f"| {label} | {first.code}{place} | {first.printed[0]:.0%} to {first.printed[1]:.0%}"
            f" | {first.gain:.0%} ({low:.0%} to {high:.0%}) | "
            f"{'yes' if first.is_inside else 'no'} | "
            f"{best.code} {best.gain:.0%} |",
            flush=True,
        )
    print(f"{inside} of {count} inside; as good as the best in {as_good}", flush=True)


if __name__ == "__main__":
    main()
