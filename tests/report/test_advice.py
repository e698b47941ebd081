"""Findings and predictions as text, JSON and page show them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.advice.labeled import RECIPES, made
from tests.makers.results import EXAMPLES
from vanidl.formatting.terminal import WIDTH
from vanidl.report.html import render_html
from vanidl.report.overview import make_overview
from vanidl.report.summary import summary_json, summary_text
from vanidl.schema.meanings import meaning_of
from vanidl.sections.actions import BY_KEY, EVIDENCE, describe_effect, list_numbers


@pytest.fixture(scope="module")
def slow():
    return made("one_reader")


def test_every_output_names_the_same_findings(slow):
    codes = [finding.code for finding in slow.findings]
    assert len(codes) >= 3
    told = json.loads(summary_json(slow))["findings"]
    assert [finding["code"] for finding in told] == codes
    text, page = summary_text(slow), render_html(slow)
    assert all(f" {code}: " in text and f"<code>{code}</code>" in page for code in codes)
    assert max(map(len, text.splitlines())) <= WIDTH


def test_json_has_the_keys_of_the_contract(slow):
    told = json.loads(summary_json(slow))
    keys = {"code", "severity", "title", "detail", "advice", "evidence", "gain_at_most_s",
            "gain_s", "gain_cell", "cause", "keeps", "cells"}  # fmt: skip
    assert all(set(finding) == keys for finding in told["findings"])
    fields = {"step_s", "replayed_s", "rows", "assumptions", "refused", "beyond_ceiling"}
    assert set(told["what_if"]) == fields


def test_the_table_of_predictions_is_in_text_and_page(slow):
    assert "What if (replayed with changed input)" in summary_text(slow)
    assert "no input wait at all" in render_html(slow)


def test_a_healthy_run_has_no_findings_and_says_nothing():
    run = made("healthy")
    assert json.loads(summary_json(run))["findings"] == []
    assert "Findings" not in summary_text(run)


@pytest.mark.parametrize("name", EXAMPLES)
def test_findings_of_every_shape_of_run_are_plain_texts(name):
    for action in make_overview(EXAMPLES[name]().run).actions:
        for item in action.evidence:
            assert item.title
            assert item.advice
            assert all(isinstance(text, str) for pair in item.numbers for text in pair)


def test_numbers_of_findings_have_the_units_of_the_schema():
    """Whatever their names hold: bytes of "shared" storage are no share."""
    shown = {"s": "2.00 s", "bytes": "2 B", "count": "2"}
    for name in EVIDENCE.fields:
        meaning = meaning_of(f"findings.evidence.{name}")
        if meaning.unit in shown and isinstance(EVIDENCE.fields[name], type(int | float)):
            assert [text for _, text in list_numbers({name: 2})] == [shown[meaning.unit]], name
    predicted = {"shared_storage_bytes_not_read": 1 << 27, "exchanged_fraction": 0.1}
    assert [text for _, text in list_numbers({"predicted": predicted})] == ["128 MiB", "10 %"]


def test_the_last_value_is_not_left_out_for_a_line_that_says_so():
    many = {f"part {i}": i for i in range(14)}
    assert list_numbers(many)[-1] == ("more", "2 values, in vanidl summary --json")
    assert list_numbers(dict([*many.items()][:13]))[-1][0] == "part 12"


def test_values_by_key_say_what_the_key_is():
    kinds = [EVIDENCE.fields, EVIDENCE.fields["predicted"].fields]
    assert {n for kind in kinds for n, k in kind.items() if isinstance(k, dict) and str in k} == {
        *BY_KEY
    }
    rows = {"25%": {"bytes_not_read": 1024}}
    assert list_numbers({"predicted": {"at_buffer_of_different_bytes": rows}}) == (
        ("predicted: with buffers of 25 % of the unique bytes: bytes not read", "1 KiB"),
    )


@pytest.mark.parametrize("name", RECIPES)
def test_counts_of_findings_are_whole_unless_they_are_means(name):
    for finding in made(name).findings:
        for key, value in finding.evidence.items():
            meaning = meaning_of(f"findings.evidence.{key}")
            if meaning.unit == "count" and isinstance(value, float):
                assert value.is_integer() or "ean" in meaning.text or "average" in meaning.text


def test_names_from_logs_are_escaped_in_findings():
    page = render_html(EXAMPLES["hostile"]().run)
    assert "<img src=x" not in page


def test_findings_and_predictions_are_computed_once(slow):
    assert slow.findings is slow.findings
    assert slow.what_if is slow.what_if


@pytest.mark.parametrize(
    ("step_s", "most_s", "basis", "words"),
    [
        (0.0, 0.020, "at best", "at best all of 20.0 ms a step"),  # no steps of no time
        (0.001, 0.020, "at best", "20.0 to 1.00 ms a step, at best"),
        (0.010, 0.020, "predicted", "20.0 to 10.0 ms a step, predicted; at worst as now"),
        (0.010, 0.01994, "predicted", "20.0 to 10.0-19.9 ms a step, predicted"),
        (0.010, 0.0106, "at best", "20.0 to 10.0-10.6 ms a step"),
        (0.010, 0.01049, "predicted", "20.0 to 10.0 ms a step, predicted"),  # about the same
        (0.0005, 0.002, "predicted", "20.0 ms to 500 µs - 2.00 ms a step, predicted"),
    ],
)
def test_the_effect_of_an_action_has_both_ends_where_they_differ(step_s, most_s, basis, words):
    diagnosis = next(d for d in made("small_reads").diagnoses if d.step_s is not None)
    shown = replace(diagnosis, now_s=0.020, step_s=step_s, step_at_most_s=most_s, basis=basis)
    assert describe_effect(shown) == words
