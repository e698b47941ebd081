"""What `import vanidl` offers, imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vanidl
from tests import ROOT


@pytest.mark.parametrize("name", vanidl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(vanidl, name) is not None
    assert name in dir(vanidl)


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vanidl.nothing  # noqa: B018


def test_the_package_alone_imports_nothing_large() -> None:
    code = "import sys, vanidl; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ANALYSES = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    package = importlib.import_module(f"vanidl.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"vanidl.{room}."):
        importlib.import_module(module.name)
print(*(name for name in sys.modules if name.startswith("vanidl.")))
"""


@pytest.mark.parametrize("room", ["model", "analyses", "breakdown"])
def test_what_computes_loads_no_reader(room: str) -> None:
    if not (ROOT / "vanidl" / room).is_dir():
        pytest.skip(f"there is no vanidl.{room}")
    command = [sys.executable, "-c", ANALYSES, room]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert f"vanidl.{room}" in loaded
    assert not [name for name in loaded if name.startswith(("vanidl.readers", "vanidl.merge"))]
