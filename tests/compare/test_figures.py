from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests.makers.comparisons import EXAMPLE_COMPARISONS
from vanidl.compare import Comparison
from vanidl.compare.figures import changes
from vanidl.compare.figures.changes import draw_changes, draw_metrics, draw_repeats
from vanidl.compare.figures.operations import draw_access, draw_sizes
from vanidl.compare.figures.registry import FIGURES
from vanidl.compare.figures.steps import draw_overlap, draw_steps
from vanidl.compare.figures.timeline import draw_timeline
from vanidl.compare.text import describe_from_nothing, render_text


@cache
def example(name: str) -> Comparison:
    return EXAMPLE_COMPARISONS[name]()


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__name__)
def test_every_figure_of_every_comparison(figure, name):
    result = figure(example(name))
    assert result.title
    if result.spec is None:
        assert result.table or result.empty_reason
    else:
        graph_objects = pytest.importorskip("plotly.graph_objects")
        graph_objects.Figure(result.spec)
        assert result.caption
        assert not result.empty_reason
    json.dumps(result.spec, allow_nan=False)
    for row in result.table.rows if result.table else ():
        assert len(row) == len(result.table.columns)


def test_sections_hang_together():
    found = [figure(example("slower")) for figure in FIGURES]
    assert len({f.id for f in found}) == len(found)
    sections = [f.section for f in found]
    assert sum(a != b for a, b in pairwise(sections)) + 1 == len(set(sections))


def test_points_and_bars_are_the_changes():
    comparison = example("slower")
    points = draw_changes(comparison).spec["data"][0]
    drawn = [c for c in comparison.pairings[0].changes if c.ratio]
    assert points["x"] == [c.ratio for c in drawn]
    bars = points["error_x"]
    bounds = np.array(points["x"]) + np.array([-np.array(bars["arrayminus"]), bars["array"]])
    known = [c.low is not None for c in drawn]
    assert bounds[0][known] == pytest.approx([c.low for c in drawn if c.low is not None])
    assert bounds[1][known] == pytest.approx([c.high for c in drawn if c.high is not None])


def test_metrics_table_holds_every_side():
    table = draw_metrics(example("three")).table
    titles = [column.title for column in table.columns]
    assert titles == ["metric", "A", "B", "B against A", "98 % interval", "verdict",
                      "C", "C against A", "98 % interval", "verdict"]  # fmt: skip
    assert len(table.rows) == len(example("three").pairings[0].changes)


def test_one_run_each_has_no_column_without_a_word():
    """No interval and no verdict: a sentence says so once, not each of fourteen rows."""
    for table in (made.table for figure in FIGURES if (made := figure(example("one_each"))).table):
        for column, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True):
            assert set(cells) - {None, "no interval"}, column.title
    heads = render_text(example("one_each")).splitlines()
    assert not any("verdict" in line or "98 %" in line for line in heads)
    assert any("verdict" in line for line in render_text(example("slower")).splitlines())


def test_a_change_from_zero_is_not_called_unrecorded():
    change = example("one_each").pairings[0].change("hidden_io_s")
    rose, none = replace(change, a=0.0, b=1.5, ratio=None), replace(change, a=0.0, b=0, ratio=None)
    unknown = replace(change, a=None, ratio=None)
    assert [describe_from_nothing(c) for c in (rose, none, unknown)] == ["from 0 s", "equal", ""]
    assert changes._list_change(rose, verdicts=False)[1] == "from 0 s"


def test_step_histograms_hold_every_step():
    for series in draw_steps(example("slower")).spec["data"]:
        assert sum(series["y"]) == pytest.approx(100, rel=1e-3)


def test_overlap_bars_add_up():
    comparison = example("slower")
    data = draw_overlap(comparison).spec["data"]
    total = np.sum([s["x"] for s in data if s["type"] == "bar"], axis=0)
    for side, found in zip(comparison.sides, total, strict=True):
        io = [s.account.overlap.mean.io_s for s in side.samples]
        assert found == pytest.approx(np.mean(io))


def test_a_part_that_one_run_did_not_record_is_not_drawn_as_zero():
    found = draw_overlap(example("wait_not_recorded"))
    column = [c.title for c in found.table.columns].index("input wait")
    assert [row[column] is None for row in found.table.rows] == [False, True]


def test_access_shares_are_hundred_per_cent():
    data = draw_access(example("one_each")).spec["data"]
    assert np.sum([s["x"] for s in data], axis=0) == pytest.approx([100] * 4)


def test_sizes_hold_every_operation():
    comparison = example("one_each")
    upper = [s for s in draw_sizes(comparison).spec["data"] if s["yaxis"] == "y"]
    for side, series in zip(comparison.sides, upper, strict=True):
        histogram = side.samples[0].results.sizes.histogram
        assert sum(series["y"]) == sum(b.reads + b.writes for b in histogram)


@pytest.mark.parametrize("low", [1e-6, 0.01, 0.3, 0.5, 0.79])
@pytest.mark.parametrize("high", [1.26, 1.8, 3.9, 50, 1e5])
def test_every_range_of_factors_has_some_ticks_and_not_too_many(low, high):
    ticks = changes._choose_ticks(low, high)
    assert 3 <= len(ticks) <= 16
    assert any(t == pytest.approx(1) for t in ticks)
    assert all(low <= t * (1 + 1e-9) and t <= high * (1 + 1e-9) for t in ticks)
    labels = [changes._label_tick(tick) for tick in ticks]
    assert [float(label.replace(",", "")) for label in labels] == pytest.approx(ticks)
    assert len(set(labels)) == len(labels)
    if high > changes._NARROW * low:
        assert len(labels) <= changes._MOST_TICKS


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
def test_the_axis_of_runs_has_the_unit_of_its_metric(name):
    spec = draw_repeats(example(name)).spec
    if spec is not None:
        metric = example(name).pairings[0].change(example(name).primary).metric
        assert spec["layout"]["yaxis"]["title"]["text"] == f"{metric.title} in {metric.unit}"


@pytest.mark.parametrize(("name", "letters"), [("unlike", ["A", "B"]), ("three", [])])
def test_the_width_of_a_level_names_its_side_where_they_differ(name, letters):
    said = draw_timeline(example(name)).caption.partition("Each level is the mean over ")[2]
    assert re.findall(r"\d m?s \(([A-Z])\)", said) == letters
    assert re.match(r"[\d.]+ m?s", said)
