"""No gain above the run without its cause, none below nothing, and the largest gain first."""

from __future__ import annotations

import pytest

from tests.advice.labeled import RECIPES, made
from vanidl.advice.actions import AS_MUCH, BY_CODE, FAILED
from vanidl.advice.claims import INPUT
from vanidl.advice.facts import Facts
from vanidl.advice.registry import LEAST, RULES, apply


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_rule_promises_more_than_the_run_gains_without_its_cause(name):
    run = made(name)
    facts = Facts(run.trace, run.results, run.breakdown, run.gains)
    for rule in RULES:
        result, finding = rule.find(facts), apply(rule, facts)
        if finding is None or finding.gain_s is None:
            continue
        low, high = finding.gain_s
        assert 0 <= low <= high == finding.gain_at_most_s
        assert high >= LEAST * facts.base_s
        if result.claim.window == INPUT and run.gains is not None and facts.lost_s is not None:
            gain = run.gains.without(result.claim.cause or "storage", result.claim.where)
            most = gain.high_ns if result.claim.cause else gain.touchable_ns
            assert high <= most / 1e9 + 1e-9
        if result.claim.within_s is not None:
            assert high <= result.claim.within_s


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_action_stands_above_one_with_a_larger_gain(name):
    actions = made(name).diagnoses
    gains = [d.gain_s[1] for d in actions if d.gain_s is not None and d.code != FAILED]
    assert all(gain >= (1 - AS_MUCH) * max(gains[k:]) for k, gain in enumerate(gains))
    limits = [d.code in BY_CODE and BY_CODE[d.code].limits for d in actions]
    assert limits == sorted(limits)  # what only limits the numbers stands last
    for d in actions:
        most = [f.gain_s[1] for f in d.findings if f.gain_s is not None]
        assert d.gain_s is None or d.gain_s[1] <= max(most) + 1e-9


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
