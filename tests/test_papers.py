"""docs/papers.md: each figure has a command that is there, a page, and a test or a reason."""

from __future__ import annotations

import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT
from vanidl_loaders.cli import main as loaders

TEXT = (ROOT / "docs" / "papers.md").read_text("utf-8")
SAME = ("yes", "no:", "scaled", "not judged:", "not shown:")
"""How the cell begins that says whether a figure points the document's way."""


@dataclass(frozen=True)
class Figure:
    """A row of a table."""

    section: str
    name: str
    command: str
    same: str
    tests: str

    @property
    def is_measured(self) -> bool:
        return self.same.startswith(("yes", "no:"))


def read_figures() -> list[Figure]:
    """All rows but those that name an application; "the same" is the command of the row before."""
    figures, command = [], ""
    for part in TEXT.split("\n## ")[1:]:
        for line in part.split("\n"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            heads = cells[0] == "figure" or cells[0].startswith(("---", "**"))
            if not line.startswith("|") or heads:
                continue
            name, _, _, cell, same, tests = cells
            if cell.startswith("the same"):
                cell = cell.replace("the same", command)
            elif cell:
                command = cell.removesuffix(r" \*")
            figures.append(Figure(part.split("\n", 1)[0], name, cell, same, tests))
    return figures


FIGURES = read_figures()


def by_name(figure: Figure) -> str:
    return f"{figure.section.split(' (')[0]}: {figure.name}"[:60]


def list_commands(cell: str) -> list[str]:
    """The commands of a cell, in full."""
    spelled = [
        re.sub(r"^papers\.run", "benchmarks.papers.run", c) for c in re.findall("`(.+?)`", cell)
    ]
    spelled = [re.sub(r"^loaders\.", "benchmarks.loaders.", each) for each in spelled]
    return [f"python -m {each}" if each.startswith("benchmarks") else each for each in spelled]


COMMANDS = sorted({each for figure in FIGURES for each in list_commands(figure.command)})


def test_every_document_has_its_figures():
    sections = [figure.section for figure in FIGURES]
    assert len(set(sections)) == 5
    assert all(sections.count(section) >= 8 for section in set(sections))


@pytest.mark.parametrize("figure", FIGURES, ids=by_name)
def test_a_figure_is_measured_and_tested_or_the_reason_is_said(figure):
    assert figure.same.startswith(SAME)
    if figure.is_measured:
        assert list_commands(figure.command)
    if ":" in (kind := next(each for each in SAME if figure.same.startswith(each))):
        assert len(figure.same) > len(kind) + 5  # a reason


@pytest.mark.parametrize("figure", FIGURES, ids=by_name)
def test_letters_stand_for_tests_that_are_there(figure):
    part = TEXT.partition(f"## {figure.section}")[2].partition("\n## ")[0]
    for letter in re.findall(r"\b[a-z]\b", figure.tests):
        ((path, names),) = re.findall(rf"^- {letter}: `(tests/[\w/]+\.py)::([\w:]+)`$", part, re.M)
        text = (ROOT / path).read_text("utf-8")
        *classes, test = names.split("::")
        assert re.search(rf"^ *def {test}\(", text, re.MULTILINE)
        assert all(re.search(rf"^class {name}\b", text, re.MULTILINE) for name in classes)
    if "exit" in figure.tests:  # the command ends with 1 where the direction is another one
        assert "benchmarks" in "".join(list_commands(figure.command))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_there_with_the_options_that_it_is_given(command, capsys):
    words = shlex.split(command)
    if words[0] == "vanidl":
        assert (ROOT / words[-1]).is_dir()
        return
    assert words[:2] == ["python", "-m"]
    if words[2] == "vanidl_loaders":
        with pytest.raises(SystemExit):
            loaders([words[3], "--help"])
        source = capsys.readouterr().out
    else:
        module = importlib.util.find_spec(words[2])
        assert module is not None
        assert module.origin is not None
        source = Path(module.origin).read_text("utf-8")
    assert [word for word in words if word.startswith("--") and word not in source] == []
    if words[2] == "benchmarks.papers.run":
        pytest.importorskip("torch", reason="PyTorch is not installed")
        pytest.importorskip("h5py", reason="h5py is not installed")
        from benchmarks.papers.run import select_parts

        names = [word for word in words[3:] if not word.startswith("--")]
        assert select_parts(names, small="--small" in words)


@pytest.mark.parametrize("page", sorted(set(re.findall(r"\((reports/\w+\.html)\)", TEXT))))
def test_a_page_is_there_and_has_its_command(page):
    assert (ROOT / page).stat().st_size > 100_000
    listed = (ROOT / "reports" / "README.md").read_text("utf-8")
    assert page.removeprefix("reports/") in listed


def test_every_study_has_a_row():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("h5py", reason="h5py is not installed")
    from benchmarks.papers.run import select_parts

    run = {word for command in COMMANDS for word in command.split()}
    asked = {name for name, _ in select_parts([], small=False)}
    assert {name for name in asked if name not in run and name.split(".")[0] not in run} == set()
