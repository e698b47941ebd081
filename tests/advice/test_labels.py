"""The labels themselves: every run has one, every code is defined, no half is a shadow."""

from __future__ import annotations

from tests.advice.labeled import LABELS, RECIPES, RECORDED, held_back


def test_every_run_is_labelled_and_every_label_has_a_run():
    assert set(LABELS) == {*RECIPES, *RECORDED}
    assert len(LABELS) >= 40


def test_about_half_is_held_back():
    assert 0.35 < sum(map(held_back, LABELS)) / len(LABELS) < 0.65
