"""Programs that use object storage, run under the recorder's hooks, and what these wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vanidl.readers.objects.operations import OperationsFile, read_operations
from vanidl.record import steps

SECRET = "CANARYsecretCANARY"
ACCESS_KEY = "AKIACANARYCANARY1234"

Recorded = Callable[..., OperationsFile]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Runs a program under the hooks; what its process recorded."""

    def run(program: str, *arguments: str, prints: str = "") -> OperationsFile:
        environment = os.environ | steps.make_environment(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", prints), done.stderr
        assert not list(tmp_path.rglob("*.steps-error"))
        (path,) = (tmp_path / steps.FOLDER).glob("*.objects")
        file = read_operations(path)
        assert file.losses == ()
        assert file.end_ns is not None
        return file

    return run
