"""The map of what tests run: children, what processes share, and lines by room."""

from __future__ import annotations

import pytest

from tests.covered import LEAST, Room, measure, rooms_of, run_functions, table

pytest.importorskip("coverage", reason="what tests run is measured with coverage")

SOURCE = """
def called(): return 1
LIMIT = called
def asked(
    value=LIMIT,
):
    def inside():
        return value
    return inside
class Shape:
    def area(self):
        return 2
"""


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([3, 4, 5, 10, 11], []),  # definitions, as an import runs them
        ([9], ["asked"]),
        ([8], ["asked", "asked.inside"]),
        ([12], ["Shape.area"]),
    ],
)
def test_a_function_is_run_where_a_line_of_its_body_is(lines, names):
    assert run_functions(SOURCE, lines) == names


def test_a_module_without_functions_is_run_by_whoever_imports_it():
    assert run_functions("LIMIT = 3\n", [1]) == [""]
    assert run_functions("", []) == []


def test_what_child_interpreters_run_counts_for_the_test_that_starts_them(tmp_path):
    (tmp_path / "vanidl").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "vanidl/__init__.py").write_text("")
    (tmp_path / "vanidl/work.py").write_text(
        "def here():\n    return 1\ndef forked():\n    return 2\n"
        "def started():\n    return 3\ndef never():\n    return 4\n"
    )
    (tmp_path / "tests/test_it.py").write_text(
        "import os, subprocess, sys\n"
        "from vanidl import work\n"
        "def test_it():\n"
        "    work.here()\n"
        "    line = 'from vanidl import work; work.started()'\n"
        "    subprocess.run([sys.executable, '-c', line], check=True)\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        work.forked()\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    found = measure("tests/test_it.py", root=tmp_path, folder=tmp_path / "build")
    assert found.passed
    assert found.runs["vanidl/work.py"] == ["forked", "here", "started"]
    assert (tmp_path / "build/tests.test_it.py.data").is_file()


def summary(lines: int, missing: int) -> dict[str, int]:
    return {
        "num_statements": lines,
        "missing_lines": missing,
        "num_branches": 10,
        "missing_branches": 4,
    }


@pytest.mark.parametrize(("missing", "named"), [(10, False), (11, True)])
def test_a_room_with_too_few_of_its_lines_run_is_named(missing, named):
    files = {
        "vanidl/model/a.py": summary(150, missing),
        "vanidl/model/deep/b.py": summary(50, 0),
        "vanidl/run.py": summary(10, 0),
    }
    rooms = list(rooms_of(files))
    assert rooms == [Room("vanidl", 10, 0, 10, 4), Room("vanidl/model", 200, missing, 20, 8)]
    assert rooms[1].of_branches == 0.6
    text = "\n".join(table(rooms))
    assert LEAST == 0.95
    assert (f"below 95% of lines: vanidl/model ({1 - missing / 200:.1%})" in text) == named
    assert ("below" in text) == named
