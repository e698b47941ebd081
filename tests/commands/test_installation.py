"""The package `vanidl` of PyPI, another project, in the folder of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vanidl
from vanidl import cli
from vanidl.cli import main

PACKAGE = Path(vanidl.__file__).parent
MODULES_OF_0_0_8 = ("analyzer", "configuraton", "constants", "error_code")


def test_alone_nothing_is_said() -> None:
    assert cli.mixed_up() == ""


def test_beside_the_other_package_one_line_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "configuraton.py").touch()
    note = cli.mixed_up(tmp_path)
    assert "another project" in note
    assert "pip uninstall vanidl" in note


@pytest.mark.parametrize("order", ["overwritten", "uninstalled"])
def test_the_command_says_it_in_one_line_and_works(tmp_path: Path, order: str) -> None:
    shutil.copytree(PACKAGE, tmp_path / "vanidl", ignore=shutil.ignore_patterns("__pycache__"))
    if order == "overwritten":
        for name in ("__init__", *MODULES_OF_0_0_8):
            (tmp_path / "vanidl" / f"{name}.py").write_text("")
    else:
        (tmp_path / "vanidl" / "__init__.py").unlink()
    code = "import sys; from vanidl.cli import main; sys.exit(main(['--help']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "summary" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "pip uninstall vanidl" in done.stderr


def test_demo_writes_a_report_of_the_run_that_comes_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["demo", "-o", str(page)]) == 0
    assert "</html>" in page.read_text()
    assert "vanidl record" in capsys.readouterr().out
