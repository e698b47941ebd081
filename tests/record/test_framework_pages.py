"""The pages of docs/frameworks: their programs and commands run as they are printed there.

A page shows a program, `train.py`, how it is recorded and read, and what changes it for the better:
lines with - are replaced by those with + behind them. The commands of a page whose framework is
not installed are not run.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from vanidl import cli

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"
NEEDS = {
    "pytorch": ("torch",),
    "lightning": ("torch", "lightning"),
    "hugging_face": ("torch", "transformers", "accelerate"),
    "fastai": ("torch", "ignite"),
    "keras": ("keras", "jax"),
    "jax": ("jax",),
    "grain": ("grain", "jax"),
    "tensorflow": ("tensorflow",),
    "other": (),
}
SECTIONS = ["Record it", "Read it", "Fix it"]


@dataclass(frozen=True)
class Page:
    """What a page has the reader do."""

    program: str
    fixed: str
    before: list[str]  # commands, of the program as it is
    after: list[str]


def read_page(name: str) -> Page:
    text = (PAGES / f"{name}.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles == SECTIONS
    begin, fix = text.split("\n## Fix it\n")
    shown = [block for block in blocks(begin) if block.startswith("# train.py\n")]
    assert len(shown) == 1
    changes = [block for block in blocks(fix) if block.startswith("-")]
    assert len(changes) == 1
    lines = changes[0].splitlines()
    old, new = (
        "\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in ("-", "+")
    )
    assert shown[0].count(old) == 1
    place = shown[0].index(old)
    indent = re.findall(r"[ ]*$", shown[0][:place])[0]
    return Page(
        shown[0],
        shown[0].replace(old, new.replace("\n", f"\n{indent}")),
        *([line for block in blocks(part) for line in commands(block)] for part in (begin, fix)),
    )


def blocks(text: str) -> list[str]:
    """The indented blocks, each without its indent."""
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", text, re.MULTILINE)
    parts = [re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") for block in found]
    # A change and the commands behind it are two.
    return [piece for part in parts for piece in re.split(r"\n\n(?=\S*\s*vanidl )", part)]


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if re.match(r"([A-Z_]+=\S+ )*vanidl ", line)]


@pytest.mark.parametrize("name", sorted(page.stem for page in PAGES.glob("*.md")))
def test_a_page_records_reads_and_fixes(name: str) -> None:
    page = read_page(name)
    for program in (page.program, page.fixed):
        ast.parse(program)
    for found in (page.before, page.after):
        assert sum(" record " in command for command in found) == 1
    assert any(" summary " in f" {command} " for command in page.before)
    assert any(" compare " in f" {command} " for command in page.after)


@pytest.mark.parametrize("name", list(NEEDS))
def test_commands_of_a_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [module for module in NEEDS[name] if find_spec(module) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    page = read_page(name)
    monkeypatch.chdir(tmp_path)
    for program, found in ((page.program, page.before), (page.fixed, page.after)):
        Path("train.py").write_text(program)
        for command in found:
            words = shlex.split(command)
            while "=" in words[0]:
                monkeypatch.setenv(*words.pop(0).split("=", 1))
            words = [sys.executable if word == "python" else word for word in words]
            assert words[0] == "vanidl"
            assert cli.main(words[1:]) == 0
            if words[1] == "summary":
                assert "for input" in " ".join(capsys.readouterr().out.split())
