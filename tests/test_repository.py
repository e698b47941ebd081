"""What the repository says of itself: packages that are installed, scripts, tests by folder."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys

import pytest

import vanidl
from tests import ROOT
from tests.changed import changed_functions, targets
from tests.covered import Covered

PACKAGES = ("vanidl", "loaders")
INSTALLED_AS = {"loaders": "vanidl_loaders"}
DOCS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES = ["README.md", "loaders/README.md", *DOCS]
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))


def test_every_package_is_installed() -> None:
    listed = re.search(r"\npackages = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert listed is not None
    names = re.findall(r'"([\w.]+)"', listed.group(1))
    found = {
        ".".join((INSTALLED_AS.get(folder, folder), *init.parent.relative_to(ROOT / folder).parts))
        for folder in PACKAGES
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert len(names) == len(set(names))
    assert set(names) == found


@pytest.mark.parametrize("page", ["CITATION.cff", "CHANGELOG.md"])
def test_the_version_is_the_package_s(page: str) -> None:
    found = re.search(r"^(?:version: |## )([\d.]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert found is not None
    assert found.group(1) == vanidl.__version__


def test_what_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:vanidl|loaders|tests|readers)/[\w./]*)`", text)
    assert named
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "vanidl" / path).exists() or "X" in path, path


def test_each_registry_that_contributing_names_is_tested_with_an_entry_of_its_own() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| [\w ]+ \| (.*) \| `(tests/[\w/]+\.py)` \|$", text, re.MULTILINE)
    registries = [(re.search(r"`([A-Z]{4,})`", how), test) for how, test in rows]
    assert len(registries) >= 4
    for registry, test in registries:
        name = registry[1] if registry else "RULES"
        source = (ROOT / test).read_text()
        assert re.search(rf"monkeypatch\.set\w+\([^)]*\b{name}\b", source), (name, test)


MOST_BODY_LINES = 70


def test_no_function_is_long() -> None:
    """In lines of its body, without signature and docstring."""
    assert {
        f"{module.relative_to(ROOT)}:{function.lineno} {function.name}": lines
        for module in MODULES
        for function in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := body_lines(function)) > MOST_BODY_LINES
    } == {}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None
    body = function.body[documented:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_long_functions_would_be_seen() -> None:
    text = 'def f(a,\n  b):\n  """Says\n  it."""\n' + "  a = 1\n" * 71
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert body_lines(function) == 71


def test_no_text_that_is_shown_has_markdown_in_it() -> None:
    """Terminals, pages and JSON show backticks as they are; docstrings may have them."""
    assert {
        f"{module.relative_to(ROOT)}: {text}"
        for module in (ROOT / "vanidl").rglob("*.py")
        if "`" in (source := module.read_text("utf-8"))
        for text in shown_texts(ast.parse(source))
        if "`" in text
    } == {"vanidl/anonymize/pseudonyms.py: " + r"""[^\s!"#$&'()*,:;<=>?\[\]^`{|}]+"""}


def shown_texts(tree: ast.Module) -> set[str]:
    """The strings of a module that are no docstrings."""
    nodes = list(ast.walk(tree))
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in documented
    }


@pytest.mark.parametrize("page", PAGES)
def test_benchmarks_that_are_named_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"benchmarks/[\w/]+\.py", text))
    named |= {m.replace(".", "/") + ".py" for m in re.findall(r"-m (benchmarks[\w.]+)", text)}
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_page_of_the_documentation_is_in_its_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert DOCS
    assert [page for page in DOCS if page.removeprefix("docs/") not in menu] == []


def test_the_readme_has_the_totals_of_the_table_of_hostile_commands() -> None:
    """Columns of SECURITY.md: answer, refused, traceback, refused in many lines, signal, hang."""
    security, readme = ((ROOT / name).read_text("utf-8") for name in ("SECURITY.md", "README.md"))
    row = re.search(r"^\| total of (\d+) \|(.*)\|$", security, re.MULTILINE)
    assert row is not None
    answer, refused, raised, long, signals, hung = (int(n) for n in row[2].split("|"))
    assert long == 0
    shown = [int(row[1]), answer, refused, raised, signals, hung]
    assert f"| {' | '.join(f'{n:,}' for n in shown)} |" in readme


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) < 10_000


MAKERS = ("tests.makers.", "tests.fuzz.")
"""Rooms of what makes inputs: ordinary and hostile ones."""


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmarks_share_makers_and_no_test(path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    tests = {name for name in modules if name.split(".")[0] == "tests"}
    assert all(f"{name}.".startswith(MAKERS) for name in tests)
    assert not [name for name in tests if ".test_" in name]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["vanidl/readers/darshan/log.py"], ["tests/readers/darshan"]),
        (["vanidl/merge/pipeline.py", "vanidl/merge/clocks/shared.py"], ["tests/merge"]),
        (["loaders/pls/exchange.py"], ["tests/loaders/pls"]),
        (["loaders/cli.py"], ["tests/loaders/test_cli.py"]),
        (["vanidl/errors.py", "LICENSE", "tests/conftest.py"], []),
        (["vanidl/report/templates/gone/x.js"], ["tests/report"]),
        (["tests/export/chrome_format.py"], ["tests/export"]),
        (["tests/export/test_chrome.py"], ["tests/export/test_chrome.py"]),
        (["notebooks/read_a_trace.ipynb"], ["tests/notebooks"]),
    ],
)
def test_without_a_map_changes_choose_the_tests_of_their_folders(
    changed: list[str], tests: list[str]
) -> None:
    assert targets(dict.fromkeys(changed)) == [*tests, "tests/test_repository.py"]


INTERVALS, LAWS, FETCHES = (
    "vanidl/model/intervals.py",
    "tests/analyses/test_laws.py",
    "tests/record/test_fetches.py",
)


@pytest.mark.parametrize(
    ("path", "functions", "tests"),
    [
        (INTERVALS, {"union"}, [LAWS, "tests/model/test_intervals.py"]),
        (INTERVALS, {"merge"}, [LAWS, "tests/model/test_intervals.py", FETCHES]),
        (INTERVALS, None, [LAWS, "tests/model/test_intervals.py", FETCHES]),
        (INTERVALS, set(), ["tests/model/test_intervals.py"]),  # a comment
        ("vanidl/errors.py", None, [LAWS]),  # holds no function: run by who imports it
        ("vanidl/figures/palette.py", {"any"}, ["tests/figures"]),  # nothing known runs it
        (LAWS, None, [LAWS]),
    ],
)
def test_changes_choose_the_tests_that_run_them(path, functions, tests) -> None:
    rooms = (ROOT / "tests/model").rglob("test_*.py")
    runs = {test.relative_to(ROOT).as_posix(): {} for test in rooms}
    runs |= {
        LAWS: {INTERVALS: ["merge", "union"], "vanidl/errors.py": [""], LAWS: ["test_one"]},
        FETCHES: {INTERVALS: ["merge"], LAWS: ["helper"]},
    }
    covers = {test: Covered(passed=True, took_s=1.0, runs=ran) for test, ran in runs.items()}
    assert targets({path: functions}, covers) == [*tests, "tests/test_repository.py"]
    newer = {test: one for test, one in covers.items() if "test_parts" not in test}
    found = targets({path: functions}, newer)
    assert ("tests/model/test_parts.py" in found) == (path == INTERVALS)


BEFORE = """
'''Says what.'''
from a import b
LIMIT = 3
class Shape:
    '''Says what.'''
    sides: int = 3
    def area(self): return b(self)
def inner():
    def deep(): return 1
    return deep
"""


@pytest.mark.parametrize(
    ("old", "new", "functions"),
    [
        ("b(self)", "b(self) + 1", {"Shape.area"}),
        ("return 1", "return 2", {"inner", "inner.deep"}),
        ("(self): return b", "(self, more=1): return b", {"Shape.area"}),
        ("Says what", "Says it", set()),
        ("LIMIT", "# why\nLIMIT", set()),
        ("LIMIT = 3", "LIMIT = 3\nOTHER = 4\nfrom c import d\ndef more(): return 1", set()),
        ("def inner", "def outer", {"inner", "inner.deep"}),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("from a", "from c", None),
        ("sides: int = 3", "sides: int = 4", None),
        ("sides: int = 3", "sides: int = 3\n    edges: int = 4", None),
        ("class Shape", "@frozen\nclass Shape", None),
        ("def area", "def __eq__(self, other): return True\n    def area", None),
    ],
)
def test_the_functions_that_changed_are_named(old, new, functions) -> None:
    assert BEFORE.count(old) >= 1
    assert changed_functions(BEFORE, BEFORE.replace(old, new)) == functions


def test_changes_are_found() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    line = [sys.executable, "-m", "tests.changed", "HEAD"]
    done = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "tests/test_repository.py" in done.stdout.splitlines()


def test_pypi_shows_the_readme_without_links_that_lead_nowhere_there() -> None:
    spec = importlib.util.spec_from_file_location("setup_of_the_package", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = setup.description(readme)
    assert not re.search(r"\]\((?!https?:)", shown)
    assert setup.description("a ![x](https://h/p.png) [y](https://h/p) [z](p.md)") == (
        "a ![x](https://h/p.png) [y](https://h/p) z"
    )
    without_targets = re.sub(r"\]\([^)]*\)|[\[\]!]", "", readme)
    lost = set(re.findall(r"\w+", without_targets)) - set(re.findall(r"\w+", shown))
    assert len(lost) <= len(re.findall(r"\w+", re.findall(r"!\[(.*?)\]", readme)[0]))


def test_each_promise_about_security_names_tests_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    held = text.partition("## What holds")[2].partition("\n## ")[0]
    promises = re.split(r"^- ", held, flags=re.MULTILINE)[1:]
    named = [
        re.findall(r"^  - `(tests/[\w/]+\.py)((?:::\w+)+)`$", one, re.MULTILINE) for one in promises
    ]
    assert len(promises) > 5
    assert all(named)
    for path, place in (pair for pairs in named for pair in pairs):
        # A name that pytest takes as it stands: the class of a method is in it.
        *classes, test = place.removeprefix("::").split("::")
        text = (ROOT / path).read_text("utf-8")
        indent = " " * 4 * len(classes)
        assert re.search(rf"^{indent}def {test}\(", text, re.MULTILINE), (path, test)
        assert all(re.search(rf"^class {name}\b", text, re.MULTILINE) for name in classes)
