"""A finding is one rule in one list: a synthetic one reaches every output."""

from __future__ import annotations

import json

from tests.makers.results import EXAMPLES
from vanidl.advice import registry
from vanidl.advice.facts import Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.advice.registry import RULES
from vanidl.report.html import render_html
from vanidl.report.summary import summary_json, summary_text


def longest_path(facts: Facts) -> RuleResult:
    path = max(facts.trace.files.path, key=len)
    return RuleResult(
        title="A path is long",
        detail="The longest path of the run.",
        advice="Shorten it.",
        evidence={"characters": len(path)},
    )


RULE = Rule("longest_path", "the longest path", "none", "a law of the registry", longest_path)


def test_a_new_rule_is_in_page_text_and_json(monkeypatch):
    monkeypatch.setattr(registry, "RULES", (*RULES, RULE))
    run = EXAMPLES["full"]().run
    found = [f for f in json.loads(summary_json(run))["findings"] if f["code"] == RULE.code]
    assert [f["evidence"] for f in found] == [
        {"characters": len(max(run.trace.files.path, key=len))}
    ]
    assert "longest_path: A path is long" in summary_text(run)
    assert "A path is long" in render_html(run)
    assert "longest_path" in [f.code for f in run.findings]


def test_codes_are_unique():
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
