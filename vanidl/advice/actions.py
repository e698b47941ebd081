"""The findings of a run folded into causes, ranked by what their changes would save.

One cause is one diagnosis. Each finding belongs to exactly one, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vanidl.advice.facts import Facts
from vanidl.advice.finding import (
    AT_BEST,
    LOW,
    PREDICTED,
    SEVERITIES,
    Diagnosis,
    Finding,
    SlowStep,
)
from vanidl.advice.input_waits import BOUND_SHARE
from vanidl.advice.levers import Predicted, WhatIf, least_ratio
from vanidl.advice.proof import ab_line
from vanidl.advice.remedies import Context, advice
from vanidl.analyses import Results
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import STEP
from vanidl.model.trace import Trace
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes

EQUAL = 0.05
"""Of the shortest step: changes that come this close to the best are told apart by effort."""
WORST = 3


def diagnose(
    trace: Trace,
    results: Results,
    findings: tuple[Finding, ...],
    what_if: WhatIf | None,
    account: Breakdown | None = None,
) -> tuple[Diagnosis, ...]:
    """The diagnoses of a run, what saves most first."""
    worst = worst_steps(trace, results)
    facts = Facts(trace, results, account)
    made = [_diagnosis(code, rows, facts, what_if) for code, rows in folded(findings).items()]
    return _ranked([replace(d, show=worst) if d.step_s is not None else d for d in made])


def _diagnosis(
    code: str, findings: tuple[Finding, ...], facts: Facts, what_if: WhatIf | None
) -> Diagnosis:
    cause = BY_CODE.get(code)
    limits = cause is not None and cause.limits
    best = _best(cause, what_if)
    said = advice(code, Context(facts, findings, best))
    plain = Diagnosis(
        code,
        min((f.severity for f in findings), key=SEVERITIES.index),
        said.title,
        findings,
        remedies=said.remedies,
        proof="" if limits else ab_line(facts.trace, best, said.remedies),
    )
    return _valued(plain, cause, best, facts)


def _valued(
    plain: Diagnosis, cause: Cause | None, best: Predicted | None, facts: Facts
) -> Diagnosis:
    """With the step time after the change, or the share of the run that it would save."""
    trace, steps = facts.trace, facts.results.steps
    mean_s = facts.account.length_ns(STEP) / 1e9
    gains = [f.gain_at_most_s for f in plain.findings if f.gain_at_most_s is not None]
    if best is not None and best.ratio > 0:
        now_s = mean_s or best.step_s / best.ratio
        return replace(
            plain, now_s=now_s, step_s=now_s * best.ratio, basis=PREDICTED, change=best.name,
            saved_share=1 - best.ratio,
        )  # fmt: skip
    if not gains:
        return plain
    if cause is not None and cause.of_steps and steps is not None and mean_s > 0:
        most_s = (1 - least_ratio(trace.ceiling)) * mean_s
        saved_s = min(max(gains) / steps.per_rank_max, most_s)
        return replace(
            plain, now_s=mean_s, step_s=mean_s - saved_s, basis=AT_BEST,
            saved_share=saved_s / mean_s,
        )  # fmt: skip
    run_s = trace.job.run_time_s
    return replace(plain, saved_share=min(max(gains) / run_s, 1.0)) if run_s > 0 else plain


def _best(cause: Cause | None, what_if: WhatIf | None) -> Predicted | None:
    """The change of the cause with the shortest step; None where none was replayed."""
    if cause is None or what_if is None:
        return None
    rows = [row for row in what_if.rows if row.lever in cause.levers and row.lever]
    return min(rows, key=lambda row: row.step_s, default=None)


def _ranked(found: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """By what is saved; of what cannot be told apart, the change of least effort first."""
    with_step = [d for d in found if d.step_s is not None]
    least = min((d.step_s for d in with_step if d.step_s is not None), default=0.0)

    def rank(d: Diagnosis) -> tuple[float, ...]:
        limits = d.code in BY_CODE and BY_CODE[d.code].limits
        if d.step_s is not None and d.now_s:
            equal = d.step_s <= least + EQUAL * d.now_s
            return (0.0, 0.0 if equal else d.step_s, float(effort(d.code)))
        share = -(d.saved_share or 0.0)
        group = 1.0 if limits else 2.0
        return (group, share, float(SEVERITIES.index(d.severity)), float(effort(d.code)))

    return tuple(sorted(found, key=rank))


def worst_steps(trace: Trace, results: Results) -> tuple[SlowStep, ...]:
    """The steps that waited longest for input, or took longest where waits are not known."""
    steps = results.steps
    if steps is None or steps.table.undated_s is not None or not len(steps.table.step):
        return ()
    table = steps.table
    waits = table.input_wait_s
    known = not np.isnan(waits).any()
    order = np.argsort(-(waits if known else table.duration_s), kind="stable")[:WORST]
    return tuple(
        SlowStep(
            int(table.step[row]),
            trace.processes[trace.ranks[int(table.rank[row])]].label,
            int(table.rank[row]),
            float(table.start_s[row]),
            float(table.end_s[row]),
            float(waits[row]) if known else None,
        )
        for row in order.tolist()
    )


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to change: codes of findings, what of the what-if shows its effect."""

    code: str
    findings: tuple[str, ...]
    levers: tuple[str, ...] = ()  # fields of whatif.Change
    of_steps: bool = True  # whether the change makes steps shorter, not only the run
    limits: bool = False  # it limits what the numbers say instead of costing time


CAUSES: tuple[Cause, ...] = (
    Cause("warm_start", ("slow_first_step", "input_bound_workers")),
    Cause(
        "read_ahead", ("input_bound_io", "input_bound", "io_not_overlapped"), ("workers", "ahead")
    ),
    Cause("decode", ("input_bound_decoding",), ("workers", "decode")),
    Cause("unblock", ("input_bound_blocked",)),
    Cause("more_cores", ("input_bound_cores",)),
    Cause("keep_data", ("reread_each_epoch", "shared_shuffle"), ("kept", "exchanged")),
    Cause("rare_stalls", ("slow_tail", "slow_operations")),
    Cause(
        "larger_requests",
        ("small_reads", "random_reads", "tfrecord_default_buffer", "hdf5_chunk_misfit",
         "misaligned", "object_requests_small"),
        ("latency",),
    ),
    Cause(
        "fewer_files",
        ("tiny_files", "open_per_sample", "metadata_share", "file_read_again",
         "empty_reads", "object_asked_first"),
        ("latency",),
    ),
    Cause(
        "divide_reading",
        ("rank_imbalance", "one_reader", "ranks_read_the_same", "worker_imbalance",
         "waits_for_other_ranks"),
        ("divided",),
    ),
    Cause("checkpoints", ("checkpoint_stall", "small_writes", "mostly_writes"), of_steps=False),
    Cause("buffered_io", ("stdio_share",), of_steps=False),
    Cause("imports", ("import_noise",), of_steps=False),
    Cause("storage_benchmark", ("benchmark_wait", "benchmark_rules"), of_steps=False),
    Cause(
        "record_more",
        ("trace_truncated", "clock_unverified", "reads_not_seen", "unclassified_io"),
        of_steps=False,
        limits=True,
    ),
)  # fmt: skip
"""In order of effort."""

BY_CODE = {cause.code: cause for cause in CAUSES}
_OF_FINDING = {code: cause.code for cause in CAUSES for code in cause.findings}
_WAITS = ("read_ahead", "decode")


def folded(findings: Sequence[Finding]) -> Mapping[str, tuple[Finding, ...]]:
    """Every finding under its cause, exactly once; one of no cause is its own."""
    present = {finding.code for finding in findings}
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(_cause(finding.code, present), []).append(finding)
    return {code: tuple(rows) for code, rows in found.items()}


def _cause(code: str, present: set[str]) -> str:
    """The cause of a finding: what follows from another finding belongs to the cause of that."""
    waits = [_OF_FINDING[c] for c in present if _OF_FINDING.get(c) in _WAITS and "bound" in c]
    if code in ("io_not_overlapped", "waits_for_other_ranks") and waits:
        return min(waits, key=_WAITS.index)
    return _OF_FINDING.get(code, code)


def effort(code: str) -> int:
    """Position among changes of equal effect."""
    codes = list(BY_CODE)
    return codes.index(code) if code in BY_CODE else len(codes)


NOTHING_TO_FIX = "Input keeps up: nothing to fix."
LITTLE_TO_GAIN = "Input keeps up: only small gains are left."


def verdict(results: Results, account: Breakdown, diagnoses: Sequence[Diagnosis]) -> str:
    """The sentence; "" where something is to be fixed, or not enough was recorded to say so.

    It needs input waits that were recorded, are under a tenth of the time, and no I/O missing.
    """
    overlap = account.overlap
    share = overlap.input_wait_share if overlap is not None else None
    if share is None or share >= BOUND_SHARE:
        return ""
    if LOWER_BOUNDS & serious_codes(results.coverage.warnings):
        return ""
    if any(d.severity != LOW for d in diagnoses):
        return ""
    return LITTLE_TO_GAIN if diagnoses else NOTHING_TO_FIX
