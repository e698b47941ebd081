"""What a finding is, the rule that makes one, and the cause that findings are folded into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.advice.facts import Claim, Facts

Value = str | int | float | None | list[str] | list[int] | list[float] | Mapping[str, "Value"]

HIGH, MEDIUM, LOW = "high", "medium", "low"
SEVERITIES = (HIGH, MEDIUM, LOW)
_HIGH_SHARE, _MEDIUM_SHARE = 0.10, 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know or to change.

    `gain_at_most_s` bounds from above what a change can save, per rank, over the observed time,
    and `gain_s` from both sides; None: the trace sets no bound. Bounds of several findings
    overlap: they do not add up. `cause` is what the change takes away.
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
    gain_s: tuple[float, float] | None = None
    cause: str = ""
    keeps: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule found, before it is given code and severity.

    `weight` is the severity of a finding without a bound on its gain.
    """

    title: str
    detail: str
    advice: str
    evidence: Mapping[str, Value]
    claim: Claim | None = None
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


def rate_severity(gain_s: float | None, base_s: float, weight: str) -> str:
    """The severity of a bound on the gain over a time of `base_s` seconds."""
    if gain_s is None or base_s <= 0:
        return weight
    share = gain_s / base_s
    # A rule's own weight is the least: `SEVERITIES` begins with the highest.
    by_gain = HIGH if share >= _HIGH_SHARE else MEDIUM if share >= _MEDIUM_SHARE else LOW
    return min(by_gain, weight, key=SEVERITIES.index)


PREDICTED, AT_BEST = "predicted", "at best"
"""A step time that the what-if replays, or the mean step less the whole bound of a finding."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Text to copy; `explanation` says in a sentence what it does or is."""

    title: str
    code: str
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One of the worst steps; times in seconds since the start of the job."""

    step: int
    rank: str  # label
    position: int  # in Trace.ranks
    start_s: float
    end_s: float
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One cause with all findings that belong to it, most severe first.

    `step_s` is the mean step after the change, `step_at_most_s` that where it gains the least, and
    `basis` how they are known: "predicted" by replaying the run's batches under `change`, "at best"
    where all of the bound on the gain would be saved. None: no step time can be named.
    `saved_share` is of the mean step, or of the run time where the change shortens no step; None:
    the trace sets no bound.
    """

    code: str
    severity: str
    title: str  # what to do, in one line
    findings: tuple[Finding, ...]
    cause: str = ""
    gain_s: tuple[float, float] | None = None
    keeps: str = ""
    now_s: float | None = None
    step_s: float | None = None
    step_at_most_s: float | None = None
    basis: str = ""
    change: str = ""  # name of the row of the what-if
    saved_share: float | None = None
    remedies: tuple[Remedy, ...] = ()
    proof: str = ""  # the command that measures the change
    patch: str = ""  # of the run's own source, for git apply
    show: tuple[SlowStep, ...] = ()
