"""What a diagnosis is: one cause, what to do about it, and the findings that speak for it."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.findings import Finding

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

    `step_s` is the mean step after the change and `basis` how that is known: "predicted" by
    replaying the run's batches under `change`, "at best" where all of the bound on the gain would
    be saved. None: no step time can be named. `saved_share` is of the mean step, or of the run
    time where the change shortens no step; None: the trace sets no bound.
    """

    code: str
    severity: str
    title: str  # what to do, in one line
    findings: tuple[Finding, ...]
    now_s: float | None = None
    step_s: float | None = None
    basis: str = ""
    change: str = ""  # name of the row of the what-if
    saved_share: float | None = None
    remedies: tuple[Remedy, ...] = ()
    proof: str = ""  # the command that measures the change
    show: tuple[SlowStep, ...] = ()
