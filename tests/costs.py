"""`python -m tests.costs [ARGUMENT OF PYTEST ...]`: what each file of tests takes, longest first.

CPU seconds are of the processes that run tests and of all that these start and wait for: they
hardly depend on what else a machine does, seconds of the clock do. Files of 5 s and more belong
into `LONGEST` of `tests/conftest.py`, longest first.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT

NOTES = "VANIDL_TEST_COSTS"
"""The variable that names the file into which all workers write."""

_SHOWN = 60  # files, and tests


class Cost(NamedTuple):
    """Seconds of a test or of a file of tests."""

    own_cpu_s: float
    children_cpu_s: float
    clock_s: float

    @property
    def cpu_s(self) -> float:
        return self.own_cpu_s + self.children_cpu_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Notes what a test takes, those of its fixtures that it is the first to ask for included."""
    before = _spent()
    result = yield
    took = [round(now - then, 3) for then, now in zip(before, _spent(), strict=True)]
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(json.dumps([item.nodeid, took]) + "\n")
    return result


def _spent() -> Cost:
    own, children = (
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return Cost(own, children, time.monotonic())


def rank_files(tests: Iterable[tuple[str, Cost]]) -> list[tuple[str, Cost]]:
    """Files with the sums of their tests, most CPU seconds first."""
    files: dict[str, Cost] = {}
    for name, cost in tests:
        path = name.partition("::")[0]
        files[path] = Cost(*map(sum, zip(files.get(path, Cost(0, 0, 0)), cost, strict=True)))
    return rank_tests(files.items())


def rank_tests(tests: Iterable[tuple[str, Cost]]) -> list[tuple[str, Cost]]:
    """Most CPU seconds first."""
    return sorted(tests, key=lambda each: -each[1].cpu_s)


def main() -> int:
    """Runs pytest; its exit status."""
    with tempfile.TemporaryDirectory(prefix="costs-") as folder:
        notes = Path(folder, "notes")
        notes.touch()
        line = [sys.executable, "-m", "pytest", "-p", "tests.costs", *sys.argv[1:]]
        status = subprocess.run(line, cwd=ROOT, env=os.environ | {NOTES: str(notes)}).returncode
        tests = [(name, Cost(*took)) for name, took in map(json.loads, notes.open())]
    for title, ranked in (("file", rank_files(tests)), ("test", rank_tests(tests))):
        sys.stdout.write(f"\n  CPU s  of children  clock s  {title}\n")
        for name, cost in ranked[:_SHOWN]:
            sys.stdout.write(
                f"{cost.cpu_s:7.1f}  {cost.children_cpu_s:11.1f}  {cost.clock_s:7.1f}  {name}\n"
            )
    cpu_s = sum(cost.cpu_s for _, cost in tests)
    sys.stdout.write(f"\n{len(tests)} tests: {cpu_s:.0f} CPU s, without imports\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
