"""What titles of actions must be to be read on one screen."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from vanidl.advice import actions
from vanidl.report.brief import WIDTH

TITLES = [
    node.args[0].value
    for node in ast.walk(ast.parse(Path(actions.__file__).read_text()))
    if isinstance(node, ast.Call)
    and getattr(node.func, "id", "") == "Advice"
    and node.args
    and isinstance(node.args[0], ast.Constant)
]


def test_titles_are_there() -> None:
    assert len(TITLES) > 20


@pytest.mark.parametrize("title", TITLES)
def test_a_title_fits_into_a_line_behind_its_number(title: str) -> None:
    assert len(f"1. {title}") <= WIDTH
