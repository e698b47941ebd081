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
    job_counters,
    opens,
    recording_gaps,
    requests,
    step_times,
    storage_benchmarks,
    training_loop,
)
from vanidl.advice.facts import INPUT, MATTERS, Claim, Facts
from vanidl.advice.finding import SEVERITIES, Finding, Rule, rate_severity
from vanidl.analyses import Results
from vanidl.breakdown import Breakdown
from vanidl.breakdown.causes import STORAGE
from vanidl.breakdown.pipelines import Gains
from vanidl.model.trace import Trace
from vanidl.wording.cells import settle

LEAST = 0.01
"""Of the observed time: what cannot cost so much is not worth a change."""

RULES: tuple[Rule, ...] = (
    *input_waits.RULES,
    *storage_benchmarks.RULES,
    *step_times.RULES,
    *training_loop.RULES,
    *caching.RULES,
    *requests.RULES,
    *opens.RULES,
    *imbalance.RULES,
    *checkpoints.RULES,
    *job_counters.RULES,
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


def find_least_share(claim: Claim | None) -> float:
    """The share of the observed time from which a claim is worth a word.

    Other files, requests or layouts for a training have to shorten its waits by more than steps of
    two runs differ anyway.
    """
    of_reads = claim is not None and claim.window == INPUT and claim.cause.startswith(STORAGE)
    return MATTERS if of_reads else LEAST


def apply(rule: Rule, facts: Facts) -> Finding | None:
    """What one rule finds; None where it is silent."""
    found = rule.find(facts)
    if found is None:
        return None
    gain_s = None if found.claim is None else facts.bound(found.claim)
    if gain_s is None and found.claim is not None and found.claim.window != INPUT:
        return None  # what it would be a part of was not recorded
    if gain_s is not None and gain_s[1] < find_least_share(found.claim) * facts.base_s:
        return None
    most_s = None if gain_s is None else gain_s[1]
    return Finding(
        code=rule.code,
        severity=rate_severity(most_s, facts.base_s, found.weight),
        title=settle(found.title),
        detail=settle(found.detail),
        advice=settle(found.advice),
        evidence=found.evidence,
        gain_at_most_s=most_s,
        gain_s=gain_s,
        cause=found.claim.name if found.claim is not None else "",
        keeps=found.claim.keeps if found.claim is not None else "",
    )
