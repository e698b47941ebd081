"""Results of a benchmark of storage: what was measured instead of storage, rules not kept."""

from __future__ import annotations

from vanidl.advice.facts import ANY, BENCHMARK, MATTERS, Claim, Facts
from vanidl.advice.finding import MEDIUM, Rule, RuleResult
from vanidl.analyses.benchmark import CAUSES
from vanidl.formatting.units import number, percent, seconds

_TEXTS = (
    "Faster storage raises the utilization: more clients, streams or read threads.",
    "Storage was not measured: use more data, at least 5 times the memory of all "
    "hosts, and drop caches before the run.",
    "Storage was not the limit: give the loader more threads or cores, or compute "
    "less per byte (pin processes, check the format's decoding).",
    "Record the run with Darshan or DFTracer and put the logs beside the result: they "
    "show whether reads were under way.",
    "Storage is uneven or a host is slow: compare the ranks' epochs in the table, and "
    "the paths, cores and network links of the slowest.",
    "Faster storage does not help. Look at the barrier itself (MPI over a slow "
    "network, more ranks than cores) and at what Python does between steps.",
    "Faster storage does not help: the emulated compute took longer than it was set to; "
    "check that every rank has a core.",
)
_ADVICE = dict(zip(CAUSES, _TEXTS, strict=True))


def _find_largest_wait(facts: Facts) -> RuleResult | None:
    """The largest wait of the result in which that is largest."""
    results = [result for result in facts.results.benchmarks if result.largest_wait]
    found = [
        (wait, result) for result in results if (wait := result.waits_s[result.largest_wait or ""])
    ]
    if not found:
        return None
    wait_s, result = max(found, key=lambda each: each[0])
    cause, total_s = result.largest_wait or "", result.total_s or 0.0
    if not total_s or wait_s < MATTERS * total_s:
        return None
    others = {name: wait for name, wait in result.waits_s.items() if wait is not None}
    return RuleResult(
        f"Accelerators lose {percent(wait_s / total_s)} of the time to: {cause}",
        f"{seconds(wait_s)} of {seconds(total_s)} of the mean rank; "
        + ", ".join(f"{name} {seconds(wait)}" for name, wait in others.items() if name != cause)
        + ".",
        _ADVICE[cause],
        {"cause": cause, "wait_s": wait_s, "total_s": total_s},
        Claim(ANY, BENCHMARK, within_s=wait_s),
    )


def _find_broken_rules(facts: Facts) -> RuleResult | None:
    rules = [rule for result in facts.results.benchmarks for rule in result.rules]
    # None is no breach: what the rule needs was not recorded.
    broken = [rule for rule in rules if rule.holds is False and not rule.exact]
    if not broken:
        return None
    words = "; ".join(
        f"{rule.name} {number(rule.found)} {rule.unit}, at least {number(rule.least)} asked for"
        for rule in broken
    )
    return RuleResult(
        "The result does not keep the rules of MLPerf Storage",
        f"{words}.",
        "Below 5 times the memory of the hosts the page cache is measured, and below 500 steps the "
        "start; below its utilization a result does not count for so many accelerators.",
        {"rules": [rule.name for rule in broken]},
        weight=MEDIUM,
    )


RULES = (
    Rule(
        "benchmark_wait", "largest wait of the mean rank / time that utilization divides by",
        "2 %", "what utilization does not say: which part of the system was measured",
        _find_largest_wait,
    ),
    Rule(
        "benchmark_rules", "rules of MLPerf Storage that the result does not keep",
        "utilization as configured, data 5 times the memory, 500 steps an epoch",
        "such a result says little about storage", _find_broken_rules,
    ),
)  # fmt: skip
