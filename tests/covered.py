"""`python -m tests.covered [-n JOBS] [PATH ...]`: measures which functions each file of tests runs.

A file of tests runs in an interpreter of its own, under coverage with all that it starts. What
tests of one process share (fixtures of a session, caches of makers, imports) is else measured for
whichever of them comes first; `pytest-testmon` has that flaw, and sees no child interpreters: half
of what the command line does is run by those alone.

`build/coverage` then holds `map.json`, by which `tests.changed` picks, and what `--rooms` reports.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import ROOT

FOLDER = ROOT / "build" / "coverage"
MAP = FOLDER / "map.json"
WHOLE = ""
"""The name under which a module without functions is kept: it is run by whoever imports it."""

PACKAGES = ("vanidl", "loaders")
LEAST = 0.95  # of the lines of a room: less is named
_LONGEST_S = 1800
_SETTINGS = """
[run]
branch = true
parallel = true
sigterm = true
data_file = {folder}/data
source =
    {sources}
patch = subprocess, _exit, fork, execv
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, already-imported
[report]
exclude_also =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
"""


@dataclass(frozen=True)
class Covered:
    """What one file of tests runs: source file -> its functions, both by name."""

    passed: bool
    took_s: float
    runs: dict[str, list[str]]


def functions_of(source: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module by their qualified names, those inside of others included."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*names, child.name)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[".".join(inside)] = child
            walk(child, inside)

    walk(ast.parse(source), ())
    return found


def run_functions(source: str, lines: Iterable[int]) -> list[str]:
    """The functions that lines which were run are part of; importing runs none of their bodies."""
    functions, ran = functions_of(source), set(lines)
    if not functions:
        return [WHOLE] if ran else []
    return sorted(
        name
        for name, node in functions.items()
        if not ran.isdisjoint(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    )


def measure(test: str, root: Path = ROOT, folder: Path = FOLDER) -> Covered:
    """Runs a file of tests under coverage, with every interpreter that it starts.

    Its lines and branches are left in `folder`, in a file of coverage's own.
    """
    import coverage

    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        settings = Path(parts, "settings")
        sources = "\n    ".join(str(root / name) for name in (*PACKAGES, "tests"))
        settings.write_text(_SETTINGS.format(folder=parts, sources=sources))
        line = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
        line += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
        try:
            done = subprocess.run(
                line, cwd=root, timeout=_LONGEST_S, capture_output=True, text=True, check=False
            )
            passed = done.returncode in (0, 5)  # 5: all were skipped, or none was found
            said = done.stdout[-3000:] + done.stderr[-1000:]
        except subprocess.TimeoutExpired:
            passed, said = False, f"{test}: no end after {_LONGEST_S} s\n"
        if not passed:
            sys.stderr.write(said)
        data = coverage.CoverageData(str(folder / f"{test.replace('/', '.')}.data"))
        data.erase()
        for part in sorted(Path(parts).glob("data.*")):
            of_process = coverage.CoverageData(str(part))
            of_process.read()
            data.update(of_process)
    runs: dict[str, list[str]] = {}
    for path in data.measured_files():
        source = Path(path)
        if source.suffix == ".py" and source.is_file() and source.is_relative_to(root):
            found = run_functions(source.read_text("utf-8"), data.lines(path) or ())
            runs |= {source.relative_to(root).as_posix(): found} if found else {}
    return Covered(passed, time.monotonic() - began, runs)


def test_files(paths: Iterable[str]) -> list[str]:
    """All files of tests under some paths, those that take long first."""
    from tests.conftest import LONGEST

    found = {
        file.relative_to(ROOT).as_posix()
        for path in paths
        for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("test_*.py"))
    }
    rank = {f"tests/{name}": i for i, name in enumerate(LONGEST)}
    return sorted(found, key=lambda test: (rank.get(test, len(rank)), test))


def read_map(path: Path = MAP) -> dict[str, Covered]:
    """File of tests -> what it runs; empty where nothing was measured yet."""
    rows = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {test: Covered(**row) for test, row in rows.items()}


def measure_all(tests: Iterable[str], jobs: int) -> list[str]:
    """Measures files of tests, `jobs` at a time, into the map; those that failed."""
    tests, covers = list(tests), {t: c for t, c in read_map().items() if (ROOT / t).is_file()}
    failed: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(measure, test): test for test in tests}
        for number, done in enumerate(as_completed(waiting), 1):
            test, found = waiting[done], done.result()
            covers[test] = found
            failed += [] if found.passed else [test]
            rows = {name: asdict(one) for name, one in sorted(covers.items())}
            MAP.write_text(json.dumps(rows, separators=(",", ":")), "utf-8")
            said = "" if found.passed else "  FAILED"
            print(f"{number}/{len(tests)} {found.took_s:6.1f} s  {test}{said}", flush=True)
    return failed


@dataclass(frozen=True)
class Room:
    """Lines and branches of one room, and how many of them no test ran."""

    name: str
    lines: int
    lines_missing: int
    branches: int
    branches_missing: int

    @property
    def of_lines(self) -> float:
        """Share of the lines that tests ran."""
        return 1 - self.lines_missing / self.lines if self.lines else 1.0

    @property
    def of_branches(self) -> float:
        """Share of the branches that tests took."""
        return 1 - self.branches_missing / self.branches if self.branches else 1.0


def room_of(path: str) -> str:
    """`vanidl/model` of a file in that room; the package's own name of a module at its root."""
    first, *inside = path.split("/")
    return f"{first}/{inside[0]}" if len(inside) > 1 else first


def rooms_of(files: Mapping[str, Mapping[str, int]]) -> Iterator[Room]:
    """The rooms of coverage's summaries by file."""
    names = ("num_statements", "missing_lines", "num_branches", "missing_branches")
    totals: dict[str, list[int]] = {}
    for path, summary in files.items():
        total = totals.setdefault(room_of(path), [0] * len(names))
        for i, name in enumerate(names):
            total[i] += summary[name]
    return (Room(name, *total) for name, total in sorted(totals.items()))


def summaries() -> dict[str, dict[str, int]]:
    """Coverage's summary of each source file, over all that was measured."""
    import coverage

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        settings, report = Path(folder, "settings"), Path(folder, "report.json")
        sources = "\n    ".join(str(ROOT / name) for name in PACKAGES)
        settings.write_text(_SETTINGS.format(folder=folder, sources=sources))
        whole = coverage.Coverage(config_file=str(settings), data_file=None)
        whole.combine([str(path) for path in sorted(FOLDER.glob("*.data"))], keep=True)
        whole.json_report(outfile=str(report), include=[f"{ROOT / name}/*" for name in PACKAGES])
        files = json.loads(report.read_text("utf-8"))["files"]
    return {
        Path(ROOT, path).relative_to(ROOT).as_posix(): one["summary"] for path, one in files.items()
    }


def table(rooms: Iterable[Room]) -> Iterator[str]:
    """The rooms as lines of text; those below LEAST named at the end."""
    rooms = list(rooms)
    yield f"{'room':<24}{'lines':>8}{'run':>9}{'branches':>10}{'taken':>9}"
    for room in rooms:
        yield (
            f"{room.name:<24}{room.lines:>8}{room.of_lines:>9.1%}"
            f"{room.branches:>10}{room.of_branches:>9.1%}"
        )
    below = [f"{room.name} ({room.of_lines:.1%})" for room in rooms if room.of_lines < LEAST]
    if below:
        yield f"below {LEAST:.0%} of lines: {', '.join(below)}"


def main() -> int:
    """Measures, or with --rooms reports; 1 where a file of tests failed."""
    options = argparse.ArgumentParser(prog="python -m tests.covered")
    options.add_argument("-n", type=int, default=2, metavar="JOBS")
    options.add_argument("--rooms", action="store_true", help="report what was measured")
    options.add_argument("paths", nargs="*", default=["tests"])
    chosen = options.parse_args()
    failed: list[str] = []
    if not chosen.rooms or not MAP.is_file():
        failed = measure_all(test_files(chosen.paths), chosen.n)
    if chosen.rooms:
        print("\n".join(table(rooms_of(summaries()))))
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
