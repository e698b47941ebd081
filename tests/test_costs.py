"""What files of tests take is what their tests took, and the longest are there to begin first."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import ROOT
from tests.conftest import LONG, LONGEST
from tests.costs import Cost, rank_files, rank_tests


def test_files_have_the_sums_of_their_tests_longest_first():
    tests = [
        ("a.py::one", Cost(1.0, 0.5, 9.0)),
        ("b.py::one", Cost(0.25, 4.0, 5.0)),
        ("a.py::two[x::y]", Cost(2.0, 0.0, 2.0)),
    ]
    assert rank_files(tests) == [("b.py", Cost(0.25, 4.0, 5.0)), ("a.py", Cost(3.0, 0.5, 11.0))]
    assert [name for name, _ in rank_tests(tests)] == ["b.py::one", "a.py::two[x::y]", "a.py::one"]


def test_each_test_that_ran_is_counted():
    """In a pytest of its own."""
    line = [sys.executable, "-m", "tests.costs", "-q", "-p", "no:cacheprovider"]
    line += ["tests/faults/test_planted.py::test_none_is_planted_twice"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/faults/test_planted.py\n" in done.stdout
    assert "tests/faults/test_planted.py::test_none_is_planted_twice\n" in done.stdout
    assert "\n1 tests: " in done.stdout


def test_files_that_begin_first_are_there():
    assert len(set(LONGEST)) == len(LONGEST)
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("begin", LONG)
def test_what_is_called_long_is_there_and_leaves_others_of_its_room(begin):
    path, _, name = begin.partition("::")
    file = ROOT / "tests" / path
    assert re.search(rf"^(def|class) {name.partition('[')[0]}", file.read_text(), re.MULTILINE)
    assert len(list(file.parent.glob("test_*.py"))) > 1 or "::" in begin
