from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import settings

from tests import SHARED

settings.register_profile("explore", deadline=None)  # a busy machine is no failure
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")  # what passes once passes again; `make fuzz` explores


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded runs and public logs beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"no test data: {SHARED.name}/ is not beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def wheel_logs() -> tuple[Path, ...]:
    """The logs that come with PyDarshan."""
    spec = importlib.util.find_spec("darshan")
    folders = spec.submodule_search_locations if spec else None
    logs = sorted(Path(folders[0]).rglob("*.darshan")) if folders else []
    if not logs:
        pytest.skip("PyDarshan is not installed with its example logs")
    return tuple(logs)
