"""The notebooks run as they are, use public names only, and hold the outputs that a run gives."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from tests import ROOT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

FOLDER = ROOT / "notebooks"
NEEDS = {"choose_a_loader": "torch"}
OWN_TEST = {"cosmictagger"}  # needs data that are not here; tests/notebooks/test_cosmictagger.py
NOTEBOOKS = sorted(p for p in FOLDER.glob("*.ipynb") if p.stem not in OWN_TEST)


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("notebooks_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(cell) -> str:
    """What a cell prints, without pictures."""
    return "".join(
        out.get("text") or out.data.get("text/plain", "")
        for out in cell.get("outputs", [])
        if out.get("name") != "stderr"
    )


def source(path: Path) -> ast.Module:
    notebook = nbformat.read(path, as_version=4)
    return ast.parse("\n".join(c.source for c in notebook.cells if c.cell_type == "code"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_holds_what_it_prints(path, runner):
    pytest.importorskip(NEEDS.get(path.stem, "vanidl"), reason="needs the loaders' packages")
    stored = nbformat.read(path, as_version=4)
    printed = [text(cell) for cell in stored.cells]
    assert [text(cell) for cell in runner.executed(path).cells] == printed
    assert any(printed)


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
