"""What limits the numbers themselves: lost records, clocks, reads that nothing saw."""

from __future__ import annotations

from vanidl.findings.facts import Facts
from vanidl.findings.finding import MEDIUM, Rule, RuleResult
from vanidl.formatting.units import percent, seconds
from vanidl.model.warnings import INCOMPLETE, UNREAD, UNSURE_CLOCK, WARNING

UNALIGNED = ("none", "not aligned")
HALF_A_STEP = 0.5


def _truncated(facts: Facts) -> RuleResult | None:
    found = [w for w in facts.results.coverage.warnings if w.code in INCOMPLETE - UNREAD]
    found = [w for w in found if w.severity == WARNING]
    if not found:
        return None
    fractions = [c.traced_fraction for c in facts.results.coverage.layers if c.traced_fraction]
    least = min(fractions, default=None)
    part = f": {percent(least)} of the operations are in it" if least and least < 1 else ""
    return RuleResult(
        f"The trace is not whole{part}",
        found[0].message,
        "Record again with more room: vanidl record sets the limits; by hand MAX_RECORDS, MODMEM "
        "and NAME_EXCLUDE in Darshan's configuration.",
        {"warnings": sorted({w.code for w in found}), "traced_fraction": least},
        weight=MEDIUM,
    )


def _clock(facts: Facts) -> RuleResult | None:
    steps = facts.results.steps
    warned = next((w for w in facts.results.coverage.warnings if w.code in UNSURE_CLOCK), None)
    if warned is None and (steps is None or not facts.results.summary.ops):
        return None
    clock = steps.clock if steps else None
    width = clock.uncertainty_s if clock else None
    vague = width is not None and steps is not None and width >= HALF_A_STEP * steps.median_s
    if warned is None and not vague and not (clock and clock.method in UNALIGNED):
        return None
    reason = warned.message if warned else f"known to {seconds(width)} only"
    return RuleResult(
        "Profiler and I/O are not on one verified clock",
        f"What happened during which step is not certain: {reason}",
        "Record both in one run (vanidl record); give --clock-offset SECONDS where the difference "
        "is known.",
        {
            "method": clock.method if clock else None,
            "uncertainty_s": width,
            "median_step_s": steps.median_s if steps else None,
        },
        weight=MEDIUM,
    )


def _not_seen(facts: Facts) -> RuleResult | None:
    found = [w for w in facts.results.coverage.warnings if w.code == "reads_not_seen"]
    if not found:
        return None
    return RuleResult(
        "Data files were opened and hardly a byte of them was seen",
        found[0].message,
        "Memory maps, np.load before Darshan 3.5, io_uring and descriptors opened before a fork "
        "escape the tracer. Open files in the worker, and read with read or pread to record them.",
        {"message": found[0].message},
        weight=MEDIUM,
    )


RULES = (
    Rule(
        "trace_truncated", "operations, records or logs that are missing by their own account",
        "any", "every time and share below is a lower bound then", _truncated,
    ),
    Rule(
        "clock_unverified", "how well profiler times are known on the clock of the I/O",
        "not put on it, or uncertain by half a median step",
        "beyond half a step I/O is told to the wrong neighbour", _clock,
    ),
    Rule(
        "reads_not_seen", "data files with an open and no read behind their header",
        "any", "the I/O that matters may be what is missing", _not_seen,
    ),
)  # fmt: skip
