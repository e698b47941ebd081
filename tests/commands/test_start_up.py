"""What a command imports: what it needs, and nothing of the other commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import DATA
from vanidl.commands import COMMANDS

RUN = DATA / "torch_pfs_workers0"
CODE = """
import sys
from vanidl.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
sys.stdout = sys.stderr
print(*sys.modules)
"""


def imported(*arguments: str) -> set[str]:
    """Names of the modules that are loaded once a command has run in a fresh interpreter."""
    code = CODE.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_needs_no_package_of_the_field(arguments):
    loaded = imported(*arguments)
    assert not loaded & {"numpy", "jinja2", "pandas", "scipy"}
    assert not loaded & {f"vanidl.commands.{name}" for name in COMMANDS}


def test_summary_imports_no_template_engine_no_statistics_and_no_comparison():
    loaded = imported("summary", str(RUN))
    assert "vanidl.commands.summary" in loaded
    for name in ("jinja2", "scipy", "pandas", "vanidl.compare", "vanidl.record", "vanidl.survey"):
        assert name not in loaded
