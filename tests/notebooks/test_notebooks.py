"""The notebooks run as they are, use public names only, and hold the outputs that a run gives."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.makers.needed import needed

for package in ("nbformat", "nbclient", "ipykernel", "plotly"):
    needed(package, reason=f"{package} is not installed")

FOLDER = ROOT / "notebooks"
NEEDS = {"choose_a_loader": "torch"}
OWN_TEST = {"cosmictagger"}  # needs data that are not here; tests/notebooks/test_cosmictagger.py
NOTEBOOKS = sorted(p for p in FOLDER.glob("*.ipynb") if p.stem not in OWN_TEST)


@pytest.fixture(scope="module")
def books():
    """Every notebook as it is when it is run here; one kernel runs all that can run."""
    spec = importlib.util.spec_from_file_location("notebooks_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    paths = [path for path in NOTEBOOKS if importlib.util.find_spec(NEEDS.get(path.stem, "vanidl"))]
    return dict(zip(paths, module.executed(paths), strict=True))


def text(cell) -> str:
    """What a cell prints, and what stands for what it shows."""
    return "".join(
        out.get("text") or out.data.get("text/plain", "") for out in cell.get("outputs", [])
    )


def stored(path: Path):
    import nbformat

    return nbformat.read(path, as_version=4)


def source(path: Path) -> ast.Module:
    notebook = stored(path)
    return ast.parse("\n".join(c.source for c in notebook.cells if c.cell_type == "code"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_holds_what_it_prints(path, books):
    pytest.importorskip(NEEDS.get(path.stem, "vanidl"), reason="needs the loaders' packages")
    printed = [text(cell) for cell in stored(path).cells]
    assert [text(cell) for cell in books[path].cells] == printed
    assert any(printed)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_is_small_and_names_nothing_of_the_machine(path):
    """Figures are data: no page, no library, no path of who ran it, no clock of a progress bar."""
    content = path.read_text(encoding="utf-8")
    assert len(content) < 100_000
    assert not re.search(
        r"site-packages|/home/|/work/|/root/| at 0x|it/s\]|<iframe|<script", content
    )
    outputs = [o for c in stored(path).cells for o in c.get("outputs", [])]
    assert not [o for o in outputs if o.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_seconds_in_its_prose_are_those_it_prints(path):
    cells = stored(path).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    shown = [float(n) for cell in cells for n in re.findall(r"\d+\.\d+", text(cell))]
    shown += [float(n) / 1e3 for cell in cells for n in re.findall(r"(\d+) ms", text(cell))]
    for number in re.findall(r"(\d+\.\d+) s\b", prose):
        assert number in {f"{value:.{len(number.split('.')[1])}f}" for value in shown}, number


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_ends_with_the_reader_s_own_run(path):
    last = stored(path).cells[-1]
    assert last.source.startswith("## Now your own run")
    assert "vanidl record -o" in last.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_uses_public_names_only(path):
    tree = source(path)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not [name for name in used if name.startswith("_")]
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert not [name for name in imported if name.startswith("vanidl.")]


def test_they_are_there():
    assert len(NOTEBOOKS) >= 4
