"""`python -m tests.faults [-n JOBS] [--near] [WORD ...]`: plants each fault, says what survives.

A fault is planted in a copy of the working tree, and the tests run there that `make check` would
pick for it, nearest first: those of the file's room, then all others, the quick ones before the
slow. At the first that fails it is dead. With --near only those of its room are run, which finds
what lacks a law in a fraction of the time. Words choose faults by path or text.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from queue import SimpleQueue

from tests import ROOT, SHARED
from tests.changed import changed_functions, room_of, targets
from tests.covered import Covered, read_map
from tests.faults.planted import FAULTS, Fault

LEAST = 0.95
_LONGEST_S = 900  # a fault that hangs is dead, too
_AT_ONCE = 4  # files of tests: fewer start too often, more run on where the first would have told


def main() -> int:
    """0 where at least 95 % of the faults died, and each found its place."""
    options = argparse.ArgumentParser(prog="python -m tests.faults")
    options.add_argument("-n", type=int, default=2, metavar="JOBS")
    options.add_argument("--near", action="store_true", help="run the tests of the room alone")
    options.add_argument("words", nargs="*", help="only faults with one of these")
    asked = options.parse_args()
    chosen = [f for f in FAULTS if not asked.words or any(w in str(f) for w in asked.words)]
    lost = [
        fault for fault in chosen if (ROOT / fault.path).read_text("utf-8").count(fault.right) != 1
    ]
    for fault in lost:
        print(f"place gone: {fault}")
    covers = read_map()
    if not covers:
        print("there is no map of what tests run (make coverage-map): rooms alone are run")
    survivors = plant_all([f for f in chosen if f not in lost], covers, asked.n, near=asked.near)
    planted = len(chosen) - len(lost)
    share = 1 - len(survivors) / planted if planted else 0.0
    print(f"{planted - len(survivors)} of {planted} faults died ({share:.1%})")
    for fault in survivors:
        print(f"survived: {fault.path}: {fault.right!r} -> {fault.wrong!r}")
    return 0 if share >= LEAST and not lost else 1


def plant_all(
    faults: Sequence[Fault], covers: dict[str, Covered], jobs: int, *, near: bool
) -> list[Fault]:
    """Plants each fault, `jobs` at a time in as many copies of the tree; those that survive."""
    survivors = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            trees.put(_copy(Path(folder, str(number))))

        def plant(fault: Fault) -> str:
            tree = trees.get()
            try:
                return _killer(tree, fault, stages(fault, covers, near=near))
            finally:
                trees.put(tree)

        began = time.monotonic()
        for number, (fault, killer) in enumerate(
            zip(faults, pool.map(plant, faults), strict=True), 1
        ):
            survivors += [] if killer else [fault]
            print(
                f"{number}/{len(faults)} {time.monotonic() - began:5.0f} s  {fault.path}: "
                f"{fault.wrong!r}: {killer or 'SURVIVED'}",
                flush=True,
            )
    return survivors


def _copy(folder: Path) -> Path:
    """A copy of the working tree, beside what tests look for beside it."""
    tree = folder / "tree"
    listed = ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / "vanidl_loaders").symlink_to("loaders")  # found before the one that is installed
    if SHARED.is_dir():
        (folder / SHARED.name).symlink_to(SHARED)
    return tree


def stages(fault: Fault, covers: dict[str, Covered], *, near: bool) -> list[list[str]]:
    """The tests to run one lot after another, nearest and quickest first."""
    source = (ROOT / fault.path).read_text("utf-8")
    functions = changed_functions(source, source.replace(fault.right, fault.wrong))
    found = targets({fault.path: functions}, covers)
    files = [
        file.relative_to(ROOT).as_posix()
        for path in found
        for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("test_*.py"))
    ]
    room = room_of(PurePosixPath(fault.path)) or ""
    own = f"/test_{PurePosixPath(fault.path).stem}.py"

    def cost(test: str) -> tuple[bool, float]:
        return not test.endswith(own), covers[test].took_s if test in covers else 0.0

    inside = sorted((test for test in files if test.startswith(f"{room}/")), key=cost)
    others = sorted((test for test in files if test not in inside), key=cost)
    ordered = inside if near else inside + others
    return [ordered[i : i + _AT_ONCE] for i in range(0, len(ordered), _AT_ONCE)]


def _killer(tree: Path, fault: Fault, lots: Sequence[Sequence[str]]) -> str:
    """The first test that fails with the fault planted; "" where none does."""
    path = tree / fault.path
    right = path.read_text("utf-8")
    compiled = Path(importlib.util.cache_from_source(str(path)))
    try:
        path.write_text(right.replace(fault.right, fault.wrong), "utf-8")
        compiled.unlink(missing_ok=True)  # of the same second and size it would be taken
        return next(filter(None, (_failing(tree, lot) for lot in lots)), "")
    finally:
        path.write_text(right, "utf-8")
        compiled.unlink(missing_ok=True)


def _failing(tree: Path, tests: Sequence[str]) -> str:
    """The first test that fails, or what ended the tests; "" where all pass."""
    line = [sys.executable, "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            line, cwd=tree, env=environment, timeout=_LONGEST_S, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{tests[0]} and others: no end"
    if done.returncode in (0, 5):
        return ""
    failed = (row for row in done.stdout.splitlines() if row.startswith(("FAILED", "ERROR")))
    return next(failed, f"{tests[0]}: exit status {done.returncode}")[:120]


if __name__ == "__main__":
    sys.exit(main())
