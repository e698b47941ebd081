"""No gain above the run without its cause, none below nothing, and the largest gain first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.labeled import RECIPES, made
from tests.advice.labeled_actions import RECORDED
from tests.advice.laws import broken_laws
from tests.makers.runs import analysed
from tests.makers.training_jobs import trace_of

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_laws_of_advice_hold(name):
    assert list(broken_laws(made(name))) == []


UNMARKED = [name for name in sorted(RECIPES) if "hidden" in name or "uneven" in name]


@pytest.mark.parametrize("name", UNMARKED)
def test_no_change_takes_away_what_a_step_computes(name):
    """Where waits were not marked, too: all I/O of the workers may then lie in the steps."""
    recipe = replace(RECIPES[name], wait_spans=False)
    run = analysed(trace_of(recipe))
    assert list(broken_laws(run)) == []
    least_s = recipe.compute_us / 1e6
    assert all(d.step_s >= 0.999 * least_s for d in run.diagnoses if d.step_s is not None)


def test_changes_of_steps_without_marked_waits_are_looked_at():
    """Else it would be no wonder that none takes away too much."""
    runs = (analysed(trace_of(replace(RECIPES[name], wait_spans=False))) for name in UNMARKED[:6])
    assert sum(d.step_s is not None for run in runs for d in run.diagnoses) >= 3


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("data/")])
def test_the_laws_of_advice_hold_for_recorded_runs(name, opened):
    assert list(broken_laws(opened(TESTS / name))) == []


@pytest.mark.parametrize("name", ["opens_that_cost_nothing", "open_for_each_sample_slow"])
def test_opens_gain_no_more_than_metadata_calls_took(name):
    run = made(name)
    rows = [f for f in run.findings if f.code in ("open_per_sample", "tiny_files")]
    assert bool(rows) == (name == "open_for_each_sample_slow")
    bound_s = run.gains.without("storage.metadata").high_ns / 1e9
    assert all(f.gain_at_most_s <= bound_s + 1e-9 for f in rows)


@pytest.mark.parametrize("name", ["in_process_slow_storage", "decoding_in_process"])
def test_what_samples_say_of_the_waits_narrows_gains_and_moves_none(name):
    run = made(name)
    waited = run.breakdown.length_ns("input_wait")
    before = run.gains.without("input_cpu")
    known = run.gains.knowing({0: {"input_cpu": (0.2 * waited, 0.3 * waited)}})
    after = known.without("input_cpu")
    assert before.low_ns <= after.low_ns <= after.high_ns <= before.high_ns + 1
    if before.high_ns >= 0.3 * waited:
        assert after.low_ns == pytest.approx(0.2 * waited, rel=1e-3)
        assert after.high_ns == pytest.approx(0.3 * waited, rel=1e-3)
