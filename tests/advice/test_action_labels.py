"""Each labelled run shows its diagnosis first, and none that its label rules out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advice.labeled import RECIPES, made
from tests.advice.labeled_actions import CODES, LABELS, RECORDED
from vanidl.advice.diagnoses import CAUSES
from vanidl.advice.finding import Diagnosis

TESTS = Path(__file__).parents[1]


def check(name: str, found: tuple[Diagnosis, ...]) -> None:
    label, codes = LABELS[name], [d.code for d in found]
    if "first" in label:
        assert (codes[0] if codes else None) == label["first"], codes
    assert set(label.get("shown", ())) <= set(codes), codes
    assert not set(label.get("never", ())) & set(codes), codes


@pytest.mark.parametrize("name", [n for n in LABELS if n in RECIPES])
def test_synthetic_runs_show_what_their_labels_say(name):
    check(name, made(name).diagnoses)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs_show_what_their_labels_say(name, request, opened):
    if name.startswith("data/"):
        path = TESTS / name
    elif (TESTS / "data" / name.partition("/")[2]).exists():
        path = TESTS / "data" / name.partition("/")[2]
    else:
        path = request.getfixturevalue("shared") / "data" / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    check(name, opened(path).diagnoses)


def test_labels_name_every_cause_and_no_other():
    assert set(CODES) == {cause.code for cause in CAUSES}
    for label in LABELS.values():
        named = {label.get("first"), *label.get("shown", ()), *label.get("never", ())} - {None}
        assert named <= set(CODES)
        assert not {label.get("first"), *label.get("shown", ())} & set(label.get("never", ()))
