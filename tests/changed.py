"""`python -m tests.changed [BASE]` prints the tests of what changed since BASE (default: main).

Where `make coverage-map` has measured which functions each file of tests runs, those are picked
that run a function that changed, and of a change outside of functions those that run any of the
file's. Beside them stand the tests of the file's own name, and those of its room that are newer
than the map.

A file that the map does not know, and every file where there is no map, picks by its place: the
tests mirror the packages, `vanidl/X` is tested in `tests/X`, `loaders/X` in `tests/loaders/X`, a
module at a package's root by the tests beside those folders. What is changed under `tests` names
itself. Data serve too many tests to name any: `make test` runs them all.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from tests import ROOT
from tests.covered import WHOLE, Covered, functions_of, read_map

ALWAYS = "tests/test_repository.py"
PACKAGES = {"vanidl": PurePosixPath("tests"), "loaders": PurePosixPath("tests/loaders")}
OTHER = {
    "notebooks": "tests/notebooks",
    "reports": "tests/report/test_published_pages.py",
    "README.md": "tests/commands",
}
Changes = Mapping[str, set[str] | None]
"""Path -> names of its functions that changed; None: something else, which any may depend on."""


def targets(changes: Changes, covers: Mapping[str, Covered] | None = None) -> list[str]:
    """What pytest is to run for changed files; folders, files and nothing twice."""
    found = {ALWAYS}
    for path, functions in changes.items():
        by_map = _that_run(path, functions, covers or {})
        by_place = room_of(PurePosixPath(path))
        if by_map is None:
            found |= {by_place} if by_place else set()
        else:
            found |= by_map | _beside(PurePosixPath(path), by_place, covers or {})
    found = {test for test in found if (ROOT / test).exists()}
    return sorted(t for t in found if not any(str(p) in found for p in PurePosixPath(t).parents))


def _that_run(
    path: str, functions: set[str] | None, covers: Mapping[str, Covered]
) -> set[str] | None:
    """The files of tests that run any of these functions; None: the map does not know the file."""
    known = {test: set(one.runs[path]) for test, one in covers.items() if path in one.runs}
    if not known or PurePosixPath(path).name.startswith("test_"):
        return None
    return {
        test
        for test, ran in known.items()
        if functions is None or WHOLE in ran or not ran.isdisjoint(functions)
    }


def _beside(path: PurePosixPath, room: str | None, covers: Mapping[str, Covered]) -> set[str]:
    """The tests of a file's own name, and those of its room that the map does not know yet."""
    first, *folders = path.parts[:-1]
    mirrored = PACKAGES.get(first)
    own = {str(mirrored.joinpath(*folders, f"test_{path.stem}.py"))} if mirrored else set()
    inside = (ROOT / room).rglob("test_*.py") if room and (ROOT / room).is_dir() else ()
    return own | {test.relative_to(ROOT).as_posix() for test in inside} - covers.keys()


def changed_functions(before: str, after: str) -> set[str] | None:
    """Names of the functions of a module that are not what they were; None: more than those.

    What is only added at the top of a module is used by what changed beside it, or not yet.
    """
    old, new = (
        {name: ast.dump(node) for name, node in functions_of(source).items()}
        for source in (before, after)
    )
    was, now = (set(_outside(ast.parse(source))) for source in (before, after))
    imported = {one.name for one in now if one.kind == "import"}
    if any(one.kind != "import" or one.name in imported for one in was - now):
        return None
    # A class that has more than it had may act differently wherever it is used.
    classes = {one.name for one in was if one.kind == "class"}
    added = {one.name for one in now - was if one.kind == "statement"}
    added |= {name.rpartition(".")[0] for name in new.keys() - old.keys()}
    if added & classes:
        return None
    return {name for name, text in old.items() if new.get(name) != text}


class _Outside(NamedTuple):
    """A class, an import (by the name that it binds) or a statement (by the class it is in)."""

    kind: str
    name: str
    text: str


def _outside(node: ast.Module | ast.ClassDef, inside: str = "") -> Iterator[_Outside]:
    """What a module holds outside of its functions; docstrings are nothing."""
    for child in node.body[ast.get_docstring(node) is not None :]:
        if isinstance(child, ast.ClassDef):
            name = f"{inside}.{child.name}".lstrip(".")
            head = (*child.bases, *child.keywords, *child.decorator_list)
            yield _Outside("class", name, " ".join(map(ast.dump, head)))
            yield from _outside(child, name)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            origin = (getattr(child, "level", 0), getattr(child, "module", ""))
            for alias in child.names:
                bound = alias.asname or alias.name
                yield _Outside("import", bound, f"{origin} {alias.name}")
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _Outside("statement", inside, ast.dump(child))


def room_of(path: PurePosixPath) -> str | None:
    """What a file picks by its place; None: nothing in particular."""
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


def changes_since(base: str) -> dict[str, set[str] | None]:
    """What is not as where this branch left `base`, and in modules which functions."""
    since = _git("merge-base", base, "HEAD").strip()
    paths = _git("diff", "--name-only", since) + _git("ls-files", "-o", "--exclude-standard")
    modified = set(_git("diff", "--name-only", "--diff-filter=M", since).splitlines())
    return {
        path: changed_functions(_git("show", f"{since}:{path}"), (ROOT / path).read_text("utf-8"))
        if path in modified and path.endswith(".py")
        else None
        for path in paths.splitlines()
    }


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def main() -> None:
    """Prints what to run, and says on stderr what it was picked by."""
    covers = read_map()
    found = targets(changes_since(*sys.argv[1:2] or ["main"]), covers)
    how = "by what they run" if covers else "by folder, for want of a map (make coverage-map)"
    sys.stderr.write(f"tests are picked {how}: {len(found)} files and folders\n")
    sys.stdout.write("\n".join(found) + "\n")


if __name__ == "__main__":
    main()
