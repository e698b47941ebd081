from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.makers.results import EXAMPLES
from vanidl.figures.figure import Column, Figure, Table
from vanidl.report.html import render_html
from vanidl.report.summary import summary_json, summary_object, summary_text
from vanidl.run import Run
from vanidl.sections import registry
from vanidl.sections.registry import JSON_ORDER, SECTIONS, TEXT_ORDER
from vanidl.sections.section import Json, Section


@dataclass(frozen=True)
class LongestName:
    """The result of a synthetic analysis."""

    path: str


def longest_name(run: Run) -> LongestName:
    return LongestName(max(run.trace.files.path, key=len))


def figure(run: Run) -> Figure:
    table = Table((Column("path"),), ((longest_name(run).path,),))
    return Figure("longest", "Files", "The longest name", "One path.", table=table)


LONGEST = Section(
    "longest",
    (figure,),
    lambda run: f"Longest name\n  {longest_name(run).path}\n",
    {
        "io.files.longest": Json(lambda run: longest_name(run).path, str),
        "longest": Json(lambda run: {}, {}),
    },
)


def test_a_new_section_is_in_page_text_and_json(monkeypatch):
    monkeypatch.setattr(registry, "SECTIONS", (*SECTIONS, LONGEST))
    run = EXAMPLES["full"]().run
    path = longest_name(run).path
    content = json.loads(summary_json(run))
    assert content["io"]["files"]["longest"] == path
    assert list(content)[-1] == "longest"
    assert f"\nLongest name\n  {path}\n" in summary_text(run)
    page = render_html(run)
    assert "The longest name" in page
    assert path in page


def test_names_and_places_are_unique_and_known():
    names = [section.name for section in SECTIONS]
    paths = [path for section in SECTIONS for path in section.json]
    assert len(names) == len(set(names))
    assert len(paths) == len(set(paths))
    assert {section.name for section in SECTIONS if section.text} == set(TEXT_ORDER)
    assert set(paths) == set(JSON_ORDER)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_value_of_the_contract_has_its_place(name):
    content = summary_object(EXAMPLES[name]().run)
    top = dict.fromkeys(path.split(".")[0] for path in JSON_ORDER)
    assert list(content) == ["schema", "headline", "headline_cells", "verdict", *top]
