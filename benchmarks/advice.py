"""Whether following an action gains what it says: its own patch, applied, in pairs.

    python -m benchmarks.advice record [--work build/advice] [NAME...]
    python -m benchmarks.advice follow [--work build/advice] [--pairs 3] [NAME...]
    python -m benchmarks.advice table [--work build/advice] [--vanidl PATH] [NAME...]

Programs are those of `benchmarks.causes`, each cut out of its file so that it stands alone; those
of `planted_again.py` are named `again/NAME`, those of `others.py` `others/NAME`. Each reads where
its cause lies, on the emulated file system or on local disk; `mount/NAME` reads there and
`disk/NAME` here, whatever the cause. `NAME+CODE` is the program with the patch of that action in
it: what is said of it is the second action, asked where the first left 5 % of the loop or more.
`record` records a program once, and keeps that.
`follow` applies each patch among the actions of a recording by `git apply`, and the program runs in
turn as it is and as patched, not recorded; a patch that was followed is not followed again. `table`
asks the rules of today, or of another version's package, about the recordings, and holds the ranges
that they print against what was measured: rules can be changed without measuring again.

Prints one row a program: the range as it is printed and the gain as it was measured, both as shares
of the program's loop, with the 95 % interval of the pairs; whether they meet. An action without a
patch is listed as such and not counted. Limits: 80 % of the gains inside; the median width of the
ranges half of the measured gain; the first action gains 80 % of the best in 18 of 20.
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
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.causes import AGAIN, BIN, FIRST, OTHERS, PROGRAMS, RANKS, ROOT, Programs
from vanidl.model.student_t import t_above

NAMES = (
    "slow_storage", "slow_metadata", "cold_then_warm", "too_few_workers", "too_many_workers",
    "native_decode", "python_transform", "slow_sample", "workers_anew", "slow_rank", "checkpoint",
    "fsync", "reopened_archive", "shuffle_window", "object_reads", "tracking_service",
    "sleeping_service",
    "again/slow_storage", "again/slow_metadata", "again/python_transform", "again/native_decode",
    "again/workers_anew", "again/checkpoint", "again/fsync", "again/tracking_service",
    "again/sleeping_service",
    "others/packed_pictures", "others/read_each_epoch", "others/file_of_rows",
    "others/short_epochs", "others/noisy_batches",
)  # fmt: skip
SETS = {"again": AGAIN, "others": OTHERS}
MOUNT = ("--latency-ms", "4", "--bandwidth-mb", "200")
"""Of the emulated file system for a program whose cause is another."""
MOUNTED, LOCAL = "mount", "disk"
LEAST_LEFT = 0.05
"""Of the loop, as printed: with less of it left a second action is not followed."""
LISTS = ("CAUSES", "HEALTHY")
"""Of a file of programs: only the one that is cut out stays listed."""
PUT_OFF = "_atexit.register"
"""In a patch: what is left when the loop has ended is waited for, and counts."""


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
        base, _, self.followed = label.partition("+")
        *where, self.name = base.split("/")
        of_set = next((each for each in where if each in SETS), "")
        self.programs = SETS.get(of_set, FIRST)
        self.mount = self.programs.mounts.get(self.name)
        if LOCAL in where:
            self.mount = None
        elif MOUNTED in where and self.mount is None:
            self.mount = MOUNT
        self.data = work / f"data_{of_set}".rstrip("_")
        self.folder = work / label.replace("/", "_")
        self.folder.mkdir(parents=True, exist_ok=True)
        source, text = self.folder / "program.py", cut_out(self.programs, self.name)
        if self.followed:
            patched = work / base.replace("/", "_") / f"with_{self.followed}"
            text = (patched / "program.py").read_text(encoding="utf-8")
        if not source.exists() or source.read_text(encoding="utf-8") != text:
            source.write_text(text, encoding="utf-8")  # a patch is of the source as it was recorded
        if not (self.data / self.programs.made).exists():
            make = [str(BIN / "python"), str(self.programs.file), "make", "--data", str(self.data)]
            subprocess.run(make, check=True)

    def run(self, folder: Path, record: Path | None = None) -> tuple[float, float]:
        """Seconds of its loop by its own timer, recorded or not, and of its end after that."""
        data, before = self.data, list[str]()
        with tempfile.TemporaryDirectory(prefix="mount-") as mount:
            if self.mount is not None:
                data = Path(mount)
                before = [str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(self.data),
                          mount, *self.mount, "--"]  # fmt: skip
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
            with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [*before, *command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                stderr=errors, text=True,
            ) as process:  # fmt: skip
                assert process.stdout is not None
                said, at = "", 0.0
                for line in process.stdout:
                    if line.startswith('{"program"'):
                        said, at = line, time.monotonic()
                process.wait(timeout=900)
                ended_s = time.monotonic() - at
                errors.seek(0)
                if not said:
                    raise RuntimeError(f"{self.name}: no line of its own, {errors.read()[-800:]}")
        first, _ = json.JSONDecoder().raw_decode(said)  # ranks may share a line
        return float(first["loop_s"]), ended_s

    def patched(self, code: str, patch: str) -> Path:
        """A copy of its folder with a patch in it, by `git apply`."""
        folder = self.folder / f"with_{code}"
        folder.mkdir(exist_ok=True)
        shutil.copy2(self.folder / "program.py", folder)
        alone = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}  # of no repository
        apply = ["git", "apply", "-"]
        subprocess.run(apply, cwd=folder, input=patch, text=True, check=True, env=alone)
        return folder


def actions_of(run: Path, package: Path = ROOT) -> list[dict[str, Any]]:
    """The actions of a recording as JSON has them."""
    command = [str(BIN / "python"), "-m", "vanidl", "summary", "--json", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=package)
    return list(json.loads(done.stdout)["actions"])


@dataclass(frozen=True)
class Measurements:
    """What was measured, kept in a file: seconds of the loop as it is and as patched."""

    file: Path

    def add(self, label: str, patch: str, plain_s: float, patched_s: float) -> None:
        """One pair; of a recording, the loop recorded and nothing beside it."""
        row = {"program": label, "patch": patch, "plain_s": plain_s, "patched_s": patched_s}
        with self.file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")

    def pairs(self, label: str, patch: str) -> list[tuple[float, float]]:
        """The pairs of a program with a patch; with none its recordings."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        rows = [json.loads(line) for line in lines]
        mine = [r for r in rows if r["program"] == label and r["patch"] == patch]
        return [(r["plain_s"], r["patched_s"]) for r in mine]


def record(label: str, work: Path) -> None:
    """Records a program that was not recorded yet."""
    program, kept = Program(label, work), Measurements(work / "measured.jsonl")
    run = program.folder / "run"
    if not run.exists():
        recorded_s, _ = program.run(program.folder, run)
        kept.add(label, "", recorded_s, 0.0)
        print(f"{label}: recorded, {recorded_s:.2f} s", flush=True)


def follow(label: str, work: Path, pairs: int) -> None:
    """Measures what each action with a patch gains, up to so many pairs."""
    program, kept = Program(label, work), Measurements(work / "measured.jsonl")
    for action in actions_of(program.folder / "run"):
        patch = action["patch"]
        if not patch or not action["gain_s"]:
            continue
        recorded_s = kept.pairs(label, "")[-1][0]
        if program.followed and action["gain_s"][1] < LEAST_LEFT * recorded_s:
            continue
        folder = program.patched(action["code"], patch)
        for _ in range(pairs - len(kept.pairs(label, patch))):
            (plain_s, plain_end_s), (patched_s, end_s) = (
                program.run(each) for each in (program.folder, folder)
            )
            if PUT_OFF in patch:
                patched_s += end_s - plain_end_s
            kept.add(label, patch, plain_s, patched_s)
            print(f"{label} {action['code']}: {plain_s:.2f} s, {patched_s:.2f} s", flush=True)


def judge(label: str, work: Path, package: Path) -> tuple[list[Followed], list[str]]:
    """What is printed of each action that was followed and what it gained; the codes of all."""
    kept = Measurements(work / "measured.jsonl")
    run = work / label.replace("/", "_") / "run"
    recorded_s = kept.pairs(label, "")[-1][0]
    actions = actions_of(run, package)
    found = [
        Followed(
            action["code"],
            (action["gain_s"][0] / recorded_s, action["gain_s"][1] / recorded_s),
            tuple((plain_s - patched_s) / plain_s for plain_s, patched_s in pairs),
        )
        for action in actions
        if action["patch"] and action["gain_s"] and (pairs := kept.pairs(label, action["patch"]))
    ]
    return found, [action["code"] for action in actions]


def table(labels: Sequence[str], work: Path, package: Path) -> None:
    """Prints what was printed and measured of each program, and how often they meet."""
    firsts, as_good = list[Followed](), 0
    print("| program | action | printed | measured | inside | best of those tried |")
    print("|---|---|---|---|---|---|", flush=True)
    for label in labels:
        if not (work / label.replace("/", "_") / "run").exists():
            continue
        found, codes = judge(label, work, package)
        if not found:
            print(f"| {label} | {codes[:1]}: no patch | | | | |", flush=True)
            continue
        first, best = found[0], max(found, key=lambda each: each.gain)
        firsts.append(first)
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
    inside = sum(each.is_inside for each in firsts)
    widths = [(each.printed[1] - each.printed[0]) / max(each.gain, 0.01) for each in firsts]
    width = f"; median width / gain {statistics.median(widths):.2f}" if widths else ""
    print(f"{inside} of {len(firsts)} inside{width}; as good as the best in {as_good}", flush=True)


def main() -> None:
    """Records programs, follows their actions, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "follow", "table"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=Path, default=Path("build/advice"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--vanidl", type=Path, default=ROOT)
    options = parser.parse_intermixed_args()
    work = options.work.resolve()
    labels = options.names or NAMES
    if options.what == "table":
        table(labels, work, options.vanidl)
        return
    for label in labels:
        if options.what == "record":
            record(label, work)
        else:
            follow(label, work, options.pairs)


if __name__ == "__main__":
    main()
