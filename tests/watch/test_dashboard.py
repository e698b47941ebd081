"""The sample dashboard asks for metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vanidl.watch.openmetrics import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())
METRICS = {family.sample for family in FAMILIES}
LABELS = {"run", "rank", "loader", "source", "state"}
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
LEGENDS = [target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def named(query: str) -> set[str]:
    return set(re.findall(r"\bvanidl_\w+", query))


@pytest.mark.parametrize("query", QUERIES)
def test_queries_name_metrics_that_exist(query: str) -> None:
    assert named(query)
    assert named(query) <= METRICS
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")
    counters = {name for name in named(query) if name.endswith("_total")}
    for name in counters & named(query):
        assert f"rate({name}" in query or "sum by (run)" in query


def test_every_metric_of_training_is_shown_somewhere() -> None:
    variables = [str(each["query"]) for each in DASHBOARD["templating"]["list"]]
    shown = {name for text in (*QUERIES, *variables) for name in named(text)}
    assert METRICS - shown == {"vanidl_input_waits_total"}


def test_labels_exist_and_panels_do_not_overlap() -> None:
    used = {label for legend in LEGENDS for label in re.findall(r"{{(\w+)}}", legend)}
    used |= {
        word
        for q in QUERIES
        for group in re.findall(r"by \(([^)]*)\)", q)
        for word in group.split(", ")
    }
    assert used <= LABELS
    places = [tuple(panel["gridPos"][axis] for axis in "xy") for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_the_page_names_every_metric() -> None:
    page = (DOCS / "watching.md").read_text()
    assert named(page) - {"vanidl_watch"} == METRICS
