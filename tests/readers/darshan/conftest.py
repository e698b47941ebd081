"""Real logs beside the repository that nobody damaged on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_logs(shared: Path) -> tuple[Path, ...]:
    """Every Darshan log that was recorded or published; `cases` are damaged ones."""
    folders = (shared / "data/recorded", shared / "data/public")
    found = [path for folder in folders for path in sorted(folder.rglob("*.darshan*"))]
    return tuple(path for path in found if "cases" not in path.parts)


@pytest.fixture(scope="session")
def finished_logs(real_logs: tuple[Path, ...]) -> tuple[Path, ...]:
    """Those that Darshan's own library opens."""
    return tuple(path for path in real_logs if path.suffix == ".darshan")
