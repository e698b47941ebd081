"""What a finding is, and what a rule is that makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vanidl.findings.facts import Facts

Value = str | int | float | None | list[str] | list[int] | list[float] | Mapping[str, "Value"]

HIGH, MEDIUM, LOW = "high", "medium", "low"
SEVERITIES = (HIGH, MEDIUM, LOW)
_HIGH_SHARE, _MEDIUM_SHARE = 0.10, 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know or to change.

    `gain_at_most_s` bounds from above what a change can save, per rank, over the observed time;
    None: the trace sets no bound. Bounds of several findings overlap: they do not add up.
    `severity`: "high" where the bound is 10 % of the observed time or more, "medium" from 2 % on
    and for what limits the numbers themselves, else "low".
    """

    code: str
    severity: str
    title: str
    detail: str
    advice: str
    evidence: Mapping[str, Value]
    gain_at_most_s: float | None = None


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule found, before it is given code and severity.

    `weight` is the severity of a finding without a bound on its gain.
    """

    title: str
    detail: str
    advice: str
    evidence: Mapping[str, Value]
    gain_at_most_s: float | None = None
    weight: str = LOW


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure function of the results, with what it means and why its threshold is where it is.

    `find` returns None where the evidence is missing or below the threshold.
    """

    code: str
    definition: str
    threshold: str
    reason: str
    find: Callable[[Facts], RuleResult | None]


def severity(gain_s: float | None, base_s: float, weight: str) -> str:
    """The severity of a bound on the gain over a time of `base_s` seconds."""
    if gain_s is None or base_s <= 0:
        return weight
    share = gain_s / base_s
    by_gain = HIGH if share >= _HIGH_SHARE else MEDIUM if share >= _MEDIUM_SHARE else LOW
    return min(by_gain, weight, key=SEVERITIES.index)
