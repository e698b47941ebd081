"""Every number that rests on a trace is marked where the trace lacks operations.

The law: a run, and the same run with the first operations of its trace alone and the same
counters. Whatever differs between the two rests on the trace, and must say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vanidl.analyses.results import analyse
from vanidl.figures.figure import Figure
from vanidl.report.brief import brief, plain
from vanidl.report.html import render_html
from vanidl.run import Run
from vanidl.sections.registry import SECTIONS, figures, json_object, mark_block, text_blocks

DATA = Path(__file__).parents[1] / "data"
Both = tuple[Run, Run]


@pytest.fixture(scope="module", params=["torch_fetches", "torch_pfs_workers4"])
def both(request: pytest.FixtureRequest, opened: Callable[[Path], Run]) -> Both:
    """A run, and the same one with 30 % of its traced operations."""
    whole = opened(DATA / request.param)
    limit = np.quantile(np.concatenate([part.start for part in whole.trace.io]), 0.3)
    io = tuple(part.rows(part.start < limit) for part in whole.trace.io)
    trace = replace(whole.trace, io=io)
    return whole, Run(trace, analyse(trace), name=whole.name)


def as_json(value: object) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def shown(figure: Figure) -> str:
    return as_json((figure.spec, figure.table, figure.alt_text, figure.viewer, figure.levels))


def test_a_block_that_rests_on_the_trace_is_marked_at_its_title(both: Both) -> None:
    whole, cut = both
    blocks = text_blocks(cut)
    differing = 0
    for section in SECTIONS:
        text = section.text(cut) if section.text else None
        if section.text is None or text is None or section.name == "coverage":
            continue
        if text != section.text(whole):
            assert section.traced, section.name
        if section.traced:
            differing += 1
            assert mark_block(text, cut) in blocks
            assert "% of POSIX operations traced]" in mark_block(text, cut).partition("\n")[0]
        else:
            assert text in blocks
    assert differing > 6


def test_a_figure_that_rests_on_the_trace_is_marked_in_its_caption(both: Both) -> None:
    whole, cut = both
    for before, after in zip(figures(whole), figures(cut), strict=True):
        assert "operations were traced" not in before.caption
        if after.id == "coverage" or (after.spec is None and after.table is None):
            continue
        if shown(before) != shown(after):
            assert "of the POSIX operations were traced" in after.caption, after.id


def test_values_that_rest_on_the_trace_are_named_in_json(both: Both) -> None:
    whole, cut = both
    named = json_object(cut)["coverage"]["cut_trace"]
    assert json_object(whole)["coverage"]["cut_trace"] is None
    assert named["traced_fraction"] == pytest.approx(0.3, abs=0.02)
    for section in SECTIONS:
        for path, value in section.json.items():
            if as_json(value.make(whole)) != as_json(value.make(cut)) and path != "coverage":
                assert path in named["values"]


def test_the_first_screens_are_marked(both: Both) -> None:
    whole, cut = both
    text = plain(brief(cut))
    assert text.count("operations traced") == 2  # at the bar and in the last lines
    assert "of the POSIX operations were traced" in text
    assert "of POSIX operations traced" in render_html(cut)
    text = plain(brief(whole)) + render_html(whole)
    assert set(re.findall(r"([\d.]+ %) of POSIX operations traced", text)) == {"100 %"}
