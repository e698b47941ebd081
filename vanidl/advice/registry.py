"""Findings: rules over results, each with code, severity, evidence, advice and a bound on its gain.

A rule is a small pure function of trace and results (`Facts`). Where what it needs was not
recorded it is silent. Analyses know nothing of findings.
"""

from __future__ import annotations

from vanidl.advice import (
    caching,
    checkpoints,
    imbalance,
    input_waits,
    opens,
    recording_gaps,
    requests,
    step_times,
    storage_benchmarks,
)
from vanidl.advice.facts import Facts
from vanidl.advice.finding import SEVERITIES, Finding, Rule, severity
from vanidl.analyses import Results
from vanidl.breakdown import Breakdown
from vanidl.breakdown.pipelines import Gains
from vanidl.model.trace import Trace

RULES: tuple[Rule, ...] = (
    *input_waits.RULES,
    *storage_benchmarks.RULES,
    *step_times.RULES,
    *caching.RULES,
    *requests.RULES,
    *opens.RULES,
    *imbalance.RULES,
    *checkpoints.RULES,
    *recording_gaps.RULES,
)


def find(
    trace: Trace,
    results: Results,
    account: Breakdown | None = None,
    gains: Gains | None = None,
) -> tuple[Finding, ...]:
    """Every finding of the run, most severe first, then by the bound on the gain."""
    facts = Facts(trace, results, account, gains)
    found = [f for rule in RULES if (f := apply(rule, facts))]
    return tuple(
        sorted(found, key=lambda f: (SEVERITIES.index(f.severity), -(f.gain_at_most_s or 0.0)))
    )


def apply(rule: Rule, facts: Facts) -> Finding | None:
    """What one rule finds; None where it is silent."""
    found = rule.find(facts)
    if found is None:
        return None
    return Finding(
        code=rule.code,
        severity=severity(found.gain_at_most_s, facts.base_s, found.weight),
        title=found.title,
        detail=found.detail,
        advice=found.advice,
        evidence=found.evidence,
        gain_at_most_s=found.gain_at_most_s,
    )
