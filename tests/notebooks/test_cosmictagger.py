"""The notebook on CosmicTagger runs, prints what is stored in it, and uses public names only."""

from __future__ import annotations

import ast
import contextlib
import io
import json

import pytest

from tests import ROOT

FOLDER = ROOT / "notebooks"
CELLS = json.loads((FOLDER / "cosmictagger.ipynb").read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
MOST_LINES = 12


def source(cell: dict) -> str:
    return "".join(cell["source"])


def printed(cell: dict) -> str:
    return "".join(line for output in cell["outputs"] for line in output["text"])


def test_it_prints_what_is_stored_in_it(shared, monkeypatch):
    monkeypatch.chdir(FOLDER)
    names: dict[str, object] = {}
    for cell in CODE:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(source(cell), names)
        assert out.getvalue() == printed(cell)


def test_without_the_data_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="not part of the repository"):
        exec(source(CODE[0]), {})


@pytest.mark.parametrize("number", range(len(CODE)))
def test_cells_are_short_and_use_public_names(number):
    cell = CODE[number]
    assert 0 < len(printed(cell).splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(source(cell))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            )
            assert set(modules) <= {"vanidl", "pathlib"}
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
