"""What `import vanidl` offers, imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vanidl


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
