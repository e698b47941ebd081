"""Findings: rules over results, each with code, severity, evidence, advice and a bound on its gain.

A rule is a small pure function of trace and results (`Facts`). Where what it needs was not
recorded it is silent. Analyses know nothing of findings.

Subjects whose evidence a run does not hold are not imported: no run pays for rules on others.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from vanidl.advice.facts import INPUT, MATTERS, Claim, Facts
from vanidl.advice.finding import SEVERITIES, Finding, Rule, rate_severity
from vanidl.analyses.results import Results
from vanidl.breakdown import Breakdown
from vanidl.breakdown.causes import STORAGE
from vanidl.model.trace import Trace
from vanidl.wording.cells import settle

if TYPE_CHECKING:
    from vanidl.breakdown.pipelines import Gains

LEAST = 0.01
"""Of the observed time: what cannot cost so much is not worth a change."""


class Needs(Enum):
    """The evidence without which every rule of a subject is silent."""

    RUN = "any run"
    LOOP = "steps of training, or fetches of its loaders"
    COUNTERS = "counters of a run without steps"
    BENCHMARK = "results of a benchmark of storage"


SUBJECTS: dict[str, Needs] = {
    "input_waits": Needs.LOOP,
    "storage_benchmarks": Needs.BENCHMARK,
    "step_times": Needs.LOOP,
    "training_loop": Needs.LOOP,
    "caching": Needs.RUN,
    "requests": Needs.RUN,
    "opens": Needs.RUN,
    "imbalance": Needs.RUN,
    "checkpoints": Needs.RUN,
    "job_counters": Needs.COUNTERS,
    "recording_gaps": Needs.RUN,
}
"""Modules of this folder, each with `RULES`; findings that cost the same keep this order."""


class Subject(Protocol):
    """What a module of rules offers."""

    RULES: tuple[Rule, ...]


def find(
    trace: Trace,
    results: Results,
    account: Breakdown | None = None,
    gains: Gains | None = None,
) -> tuple[Finding, ...]:
    """Every finding of the run, most severe first, then by the bound on the gain."""
    facts = Facts(trace, results, account, gains)
    subjects = (name for name, needs in SUBJECTS.items() if has_evidence(facts, needs))
    findings = [f for rule in list_rules(subjects) if (f := apply(rule, facts))]
    return tuple(
        sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -(f.gain_at_most_s or 0.0)))
    )


def list_rules(subjects: Iterable[str] = SUBJECTS) -> tuple[Rule, ...]:
    """The rules of some subjects, of all by default, in the order of the registry."""
    modules = (import_module(f"vanidl.advice.{name}") for name in subjects)
    return tuple(rule for module in modules for rule in cast(Subject, module).RULES)


def has_evidence(facts: Facts, needs: Needs) -> bool:
    """Whether a run holds what the rules of a subject look at."""
    trace, steps = facts.trace, facts.results.steps
    if needs is Needs.LOOP:
        return steps is not None or len(trace.spans) > 0 or len(trace.fetches) > 0
    # Rules by counters are for runs whose steps nobody recorded.
    if needs is Needs.COUNTERS:
        return steps is None and bool(trace.counters)
    return needs is Needs.RUN or bool(facts.results.benchmarks)


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
