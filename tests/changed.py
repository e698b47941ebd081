"""`python -m tests.changed [BASE]` prints the tests of what changed since BASE (default: main).

The tests mirror the packages: `vanidl/X` is tested in `tests/X`, `loaders/X` in `tests/loaders/X`,
a module at a package's root by the tests beside those folders. What is changed under `tests` names
itself. Makers, fixtures and data serve too many tests to name any: `make test` runs them all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import PurePosixPath

from tests import ROOT

ALWAYS = "tests/test_repository.py"
PACKAGES = {"vanidl": PurePosixPath("tests"), "loaders": PurePosixPath("tests/loaders")}
OTHER = {
    "notebooks": "tests/notebooks",
    "reports": "tests/report/test_published_pages.py",
    "README.md": "tests/commands",
}


def targets(paths: Iterable[str]) -> list[str]:
    """What pytest is to run for changed files; folders, files and nothing twice."""
    found = {ALWAYS, *filter(None, map(_target, map(PurePosixPath, paths)))}
    return sorted(t for t in found if not any(str(p) in found for p in PurePosixPath(t).parents))


def _target(path: PurePosixPath) -> str | None:
    first = path.parts[0]
    if first == "tests":
        return _own(path)
    if first in PACKAGES:
        return _mirror(path)
    return OTHER.get(first)


def _own(path: PurePosixPath) -> str | None:
    """The test itself, or the tests of the folder that it serves."""
    if path.parts[1] in ("data", "makers") or len(path.parts) == 2:
        return str(path) if path.name.startswith("test_") else None
    named = path if path.name.startswith("test_") and (ROOT / path).is_file() else path.parent
    return _existing(named)


def _mirror(path: PurePosixPath) -> str | None:
    """The folder of tests, or for a module at the root the test of its name."""
    tests, inside = PACKAGES[path.parts[0]], PurePosixPath(*path.parts[1:])
    if len(inside.parts) == 1:
        alone = tests / f"test_{inside.stem}.py"
        return str(alone) if (ROOT / alone).is_file() else None
    return _existing(tests / inside.parent)


def _existing(path: PurePosixPath) -> str | None:
    """The path, or the nearest folder above it that is there, but never all tests."""
    while not (ROOT / path).exists():
        path = path.parent
    return None if str(path) in ("tests", "tests/loaders") else str(path)


def _changed(base: str) -> list[str]:
    since = _git("merge-base", base, "HEAD")[0]
    return [*_git("diff", "--name-only", since), *_git("ls-files", "-o", "--exclude-standard")]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write("\n".join(targets(_changed(*sys.argv[1:2] or ["main"]))) + "\n")
