"""A finding is one rule in one list: a synthetic one reaches every output."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from tests.advice import labeled
from tests.makers.results import EXAMPLES
from vanidl.advice.facts import Facts
from vanidl.advice.finding import Rule, RuleResult
from vanidl.advice.registry import SUBJECTS, Needs, has_evidence, list_rules
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
    monkeypatch.setitem(sys.modules, "vanidl.advice.long_names", SimpleNamespace(RULES=(RULE,)))
    monkeypatch.setitem(SUBJECTS, "long_names", Needs.RUN)
    run = EXAMPLES["full"]().run
    found = [f for f in json.loads(summary_json(run))["findings"] if f["code"] == RULE.code]
    assert [f["evidence"] for f in found] == [
        {"characters": len(max(run.trace.files.path, key=len))}
    ]
    assert "longest_path: A path is long" in summary_text(run)
    assert "A path is long" in render_html(run)
    assert "longest_path" in [f.code for f in run.findings]


def test_codes_are_unique():
    codes = [rule.code for rule in list_rules()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    "subject", [name for name, needs in SUBJECTS.items() if needs is not Needs.RUN]
)
def test_no_rule_finds_anything_in_a_run_without_the_evidence_that_its_subject_needs(subject):
    runs = [labeled.made(name) for name in labeled.RECIPES]
    runs += [make().run for make in EXAMPLES.values()]
    all_facts = [Facts(run.trace, run.results, run.breakdown, run.gains) for run in runs]
    without = [facts for facts in all_facts if not has_evidence(facts, SUBJECTS[subject])]
    assert 0 < len(without) < len(all_facts)
    rules = list_rules([subject])
    assert [rule.code for facts in without for rule in rules if rule.find(facts)] == []
    assert rules
