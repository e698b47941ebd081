"""The findings of a run folded into causes, ranked by what their changes would save.

One cause is one diagnosis. Each finding belongs to exactly one, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from vanidl.advice.actions import Context, suggest_remedies
from vanidl.advice.caching import compute_spared_share
from vanidl.advice.changes import Predicted, WhatIf, compute_least_ratio
from vanidl.advice.facts import ANY, BOUND_SHARE, Claim, Facts
from vanidl.advice.finding import AT_BEST, LOW, PREDICTED, SEVERITIES, Diagnosis, Finding, SlowStep
from vanidl.advice.proof import format_ab_line
from vanidl.analyses.results import Results
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import EPOCH_END, MEAN, STEP
from vanidl.breakdown.causes import BLOCKED, COMPUTE, STORAGE
from vanidl.formatting.units import percent
from vanidl.model.trace import Trace
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes
from vanidl.schema.dataclass import dataclass

FAILED = "failed"
"""The code of what comes before every gain: that the program did not end well."""
HIDING = ("workers", "ahead")
"""Levers that hide fetches whole."""
WORST = 3
AS_MUCH = 0.1
"""Of what is gained at most: so much less is as much."""


def diagnose(
    trace: Trace,
    results: Results,
    findings: tuple[Finding, ...],
    what_if: WhatIf | None,
    account: Breakdown | None = None,
) -> tuple[Diagnosis, ...]:
    """The diagnoses of a run, what saves most first."""
    worst = find_slowest_steps(trace, results)
    facts = Facts(trace, results, account)
    made = [
        _make_diagnosis(code, rows, facts, what_if)
        for code, rows in group_by_cause(findings).items()
    ]
    return _sort_diagnoses([replace(d, show=worst) if d.step_s is not None else d for d in made])


def _make_diagnosis(
    code: str, findings: tuple[Finding, ...], facts: Facts, what_if: WhatIf | None
) -> Diagnosis:
    cause = BY_CODE.get(code)
    limits = cause is not None and cause.limits
    # A lock that all share has more workers wait longer.
    locked = any(f.cause == f"{BLOCKED}.lock" for f in findings)
    best = None if locked else _find_best_change(cause, what_if, facts)
    said = suggest_remedies(code, Context(facts, findings, best))
    patch = ""
    if said.edit:
        from vanidl.advice.patches import patch_program

        patch = patch_program(facts.trace, said.edit, said.arguments)
    plain = Diagnosis(
        code,
        min((f.severity for f in findings), key=SEVERITIES.index),
        said.title,
        findings,
        remedies=said.remedies,
        proof="" if limits else format_ab_line(facts.trace, best, said.remedies),
        patch=patch,
    )
    return _add_gain(plain, cause, best, facts)


def _add_gain(
    plain: Diagnosis, cause: Cause | None, best: Predicted | None, facts: Facts
) -> Diagnosis:
    """With the range of the gain, the step time after it, and its share of the observed time."""
    trace, steps = facts.trace, facts.results.steps
    bounds = [(f.gain_s, f) for f in plain.findings if f.gain_s is not None]
    if not bounds:
        return plain
    # The change takes away what the finding with the most to gain names; a replay knows more.
    (low_s, high_s), main = max(bounds, key=lambda each: (each[0][1], each[0][0]))
    # Ends of epochs lie outside of all input waits: a change of both gains both.
    ends = [gain_s for gain_s, finding in bounds if finding.cause == EPOCH_END]
    others = [gain_s for gain_s, finding in bounds if finding.cause != EPOCH_END]
    if ends and others:
        low_s = max(low for low, _ in others) + max(low for low, _ in ends)
        high_s = max(high for _, high in others) + max(high for _, high in ends)
    mean_s = facts.account.length_ns(STEP) / 1e9
    basis = AT_BEST
    # Of ranks that were recorded in part all steps of the run count: waits are summed over them.
    numbers = np.unique(steps.table.step) if steps is not None else ()
    count = max(steps.per_rank_max, len(numbers)) if steps is not None else 0
    if best is not None and best.ratio > 0 and count:
        now_s = mean_s or best.step_s / best.ratio
        predicted_s = now_s * (1 - best.ratio) * count
        least_s = now_s * (1 - best.ratio_at_least) * count
        # Who reads ahead hides all of a fetch, also what is not its cause: no more than all waits.
        # What takes a part of it away gains no more for sure than that part is.
        hides = best.lever in HIDING
        again = main.evidence.get("reread_factor")
        if best.lever == "kept" and isinstance(again, float):
            # The replay reads the first pass as it was, where a copy reads faster.
            share = compute_spared_share(facts, again, facts.passes)
            predicted_s += share * (facts.without_s(STORAGE) or 0.0)
        if hides:
            high_s = max((facts.bound(Claim(ANY)) or (0.0, 0.0))[1], high_s)
        basis, high_s = PREDICTED, min(high_s, predicted_s)
        low_s = min(max(least_s, 0.0) if hides else low_s, high_s)
    most_s = (1 - compute_least_ratio(trace.ceiling)) * mean_s * count
    if cause is not None and cause.of_steps and trace.ceiling is not None and count:
        high_s = min(high_s, most_s)
    low_s = min(low_s, high_s)
    valued = replace(
        plain,
        cause=main.cause,
        keeps=main.keeps,
        gain_s=(low_s, high_s),
        saved_share=min(high_s / facts.base_s, 1.0) if facts.base_s > 0 else None,
    )
    if cause is None or not cause.of_steps or not count or mean_s <= 0:
        return valued
    # What a step is known to have computed no change of its input takes away.
    computed_s = facts.account.cell(f"{MEAN}/{STEP}/{COMPUTE}").low_ns / 1e9
    saved_s = min(high_s / count, max(mean_s - computed_s, 0.0))
    change = best.name if best is not None and basis == PREDICTED else ""
    return replace(
        valued, now_s=mean_s, step_s=mean_s - saved_s,
        step_at_most_s=mean_s - min(low_s / count, saved_s), basis=basis, change=change,
        saved_share=saved_s / mean_s,
    )  # fmt: skip


def _find_best_change(
    cause: Cause | None, what_if: WhatIf | None, facts: Facts
) -> Predicted | None:
    """The change of the cause with the shortest step; None where none was replayed.

    Of those that gain as much, within a tenth, the least. Workers that compute are no more than
    there are cores.
    """
    if cause is None or what_if is None:
        return None
    rows = [row for row in what_if.rows if row.lever in cause.levers and row.lever]
    if cause.computes and (most := facts.computing_workers) is not None:
        rows = [row for row in rows if row.lever != "workers" or (row.amount or 0) <= most]
    # As good as the best: within a tenth of what that gains.
    shortest_s = min((row.middle_step_s for row in rows), default=0.0)
    enough_s = shortest_s + AS_MUCH * max(what_if.step_s - shortest_s, 0.0)
    enough = [row for row in rows if row.middle_step_s <= enough_s]
    return min(enough, key=lambda row: row.amount or 0.0, default=None)


def _sort_diagnoses(found: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """What failed first, then by the most that is gained; what only limits the numbers last.

    Of changes that may gain as much, within a tenth, those come first that take away a part of a
    cause by name, where others hide all of it.
    """

    def rank(d: Diagnosis) -> tuple[float, ...]:
        limits = d.code in BY_CODE and BY_CODE[d.code].limits
        low_s, high_s = d.gain_s or (0.0, 0.0)
        # Failures, gains that are known, those that are not, then limits of the numbers.
        group = 0 if d.code == FAILED else 3 if limits else 1 if d.gain_s is not None else 2
        severity = float(SEVERITIES.index(d.severity))
        return (float(group), -high_s, -low_s, severity, float(rank_effort(d.code)))

    def removes_work(d: Diagnosis) -> bool:
        return "." in d.cause or (d.code in BY_CODE and BY_CODE[d.code].removes)

    ordered = sorted(found, key=rank)
    # Those that gain, in groups that may gain as much as the first of each.
    equals: list[list[Diagnosis]] = []
    least_s = inf
    for diagnosis in (d for d in ordered if rank(d)[0] == 1):
        _, most_s = diagnosis.gain_s or (0.0, 0.0)
        if most_s >= least_s:
            equals[-1].append(diagnosis)
        else:
            equals.append([diagnosis])
            least_s = (1 - AS_MUCH) * most_s
    for group in equals:
        group.sort(key=lambda d: (not removes_work(d), *rank(d)))
    first = [d for d in ordered if rank(d)[0] < 1]
    last = [d for d in ordered if rank(d)[0] > 1]
    return (*first, *(d for group in equals for d in group), *last)


def find_slowest_steps(trace: Trace, results: Results) -> tuple[SlowStep, ...]:
    """The steps that waited longest for input, or took longest where waits are not known."""
    steps = results.steps
    if steps is None or steps.table.undated_s is not None or not len(steps.table.step):
        return ()
    table = steps.table
    waits = table.input_wait_s
    known = not np.isnan(waits).any()
    # A stable sort: of equal steps the first ones are named.
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
    levers: tuple[str, ...] = ()  # fields of `changes.Change`
    of_steps: bool = True  # whether the change makes steps shorter, not only the run
    limits: bool = False  # it limits what the numbers say instead of costing time
    removes: bool = False  # it takes work away that others only hide, or divide
    computes: bool = False  # its workers compute: more of them than cores only share these


CAUSES: tuple[Cause, ...] = (
    Cause(FAILED, ("program_failed",), of_steps=False),
    Cause("warm_start", ("slow_first_step", "input_bound_workers", "epoch_ends")),
    Cause(
        "read_ahead", ("input_bound_io", "input_bound", "io_not_overlapped"), ("workers", "ahead")
    ),
    Cause("unblock", ("input_bound_blocked",), ("workers",)),
    Cause("more_cores", ("input_bound_cores",)),
    Cause("decode", ("input_bound_decoding",), ("workers",), computes=True),
    Cause("storage_limit", ("storage_saturated", "storage_crowded")),
    Cause("hand_over", ("input_bound_delivery",)),
    Cause("loop_work", ("loop_work",)),
    Cause("services", ("loop_blocked",)),
    Cause("background_work", ("loop_locked",)),
    Cause("syncs", ("loop_syncs",)),
    Cause("device_copies", ("device_copies",)),
    Cause("logging", ("loop_writes",)),
    Cause("validation", ("long_validation",), of_steps=False),
    Cause("keep_data", ("reread_each_epoch", "shared_shuffle"), ("kept", "exchanged")),
    Cause("windows", ("buffer_fills",), removes=True),
    Cause("scan_once", ("read_twice_at_start",), of_steps=False),
    Cause("rare_stalls", ("slow_tail", "slow_operations")),
    Cause(
        "larger_requests",
        ("small_reads", "random_reads", "tfrecord_default_buffer", "hdf5_chunk_misfit",
         "misaligned", "object_requests_small"),
    ),
    Cause("chunks", ("chunks_read_again",), removes=True),
    Cause("read_less", ("read_unused",), removes=True),
    Cause(
        "fewer_files",
        ("waits_for_metadata", "tiny_files", "open_per_sample", "metadata_share",
         "file_read_again", "empty_reads", "object_asked_first", "reopened"),
        removes=True,
    ),
    Cause(
        "divide_reading",
        ("rank_imbalance", "one_reader", "ranks_read_the_same", "worker_imbalance",
         "waits_for_other_ranks", "uneven_input"),
        ("divided",),
    ),
    Cause(
        "job_requests",
        ("job_small_reads", "job_small_writes", "job_random_reads"),
        of_steps=False,
    ),
    Cause("job_alignment", ("job_misaligned",), of_steps=False),
    Cause("job_metadata", ("job_metadata",), of_steps=False),
    Cause("print_less", ("standard_streams",), of_steps=False),
    Cause("collective_io", ("job_independent", "job_sieving"), of_steps=False),
    Cause("read_once", ("job_redundant",), of_steps=False),
    Cause("hide_io", ("job_blocking",), of_steps=False),
    Cause("stragglers", ("job_stragglers", "job_one_rank"), of_steps=False),
    Cause("stripes", ("job_stripes",), of_steps=False),
    Cause("checkpoints", ("checkpoint_stall", "small_writes", "mostly_writes"), of_steps=False),
    Cause("buffered_io", ("stdio_share",), of_steps=False),
    Cause("imports", ("import_noise",), of_steps=False),
    Cause("storage_benchmark", ("benchmark_wait", "benchmark_rules"), of_steps=False),
    Cause(
        "record_more",
        ("trace_truncated", "clock_unverified", "reads_not_seen", "unclassified_io",
         "cores_taken"),
        of_steps=False,
        limits=True,
    ),
)  # fmt: skip
"""In order of effort."""

BY_CODE = {cause.code: cause for cause in CAUSES}
_OF_FINDING = {code: cause.code for cause in CAUSES for code in cause.findings}
_WAITS = ("read_ahead", "decode")


def group_by_cause(findings: Sequence[Finding]) -> Mapping[str, tuple[Finding, ...]]:
    """Every finding under its cause, exactly once; one of no cause is its own."""
    present = {finding.code for finding in findings}
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(_find_cause(finding.code, present), []).append(finding)
    return {code: tuple(rows) for code, rows in found.items()}


def _find_cause(code: str, present: set[str]) -> str:
    """The cause of a finding: what follows from another finding belongs to the cause of that."""
    waits = [_OF_FINDING[c] for c in present if _OF_FINDING.get(c) in _WAITS and "bound" in c]
    if code in ("io_not_overlapped", "waits_for_other_ranks") and waits:
        return min(waits, key=_WAITS.index)
    return _OF_FINDING.get(code, code)


def rank_effort(code: str) -> int:
    """Position among changes of equal effect."""
    codes = list(BY_CODE)
    return codes.index(code) if code in BY_CODE else len(codes)


_UNSURE = frozenset({"training_unsure", "loops_in_threads"})  # what trains is not known, or in part
NOTHING_TO_FIX = "nothing to fix"
LITTLE_TO_GAIN = "only small gains are left"


def decide_verdict(results: Results, account: Breakdown, diagnoses: Sequence[Diagnosis]) -> str:
    """The sentence; "" where something is to be fixed, or not enough was recorded to say so.

    It needs input waits that were recorded, are under a tenth of the time, no I/O missing, and that
    it is known what trains.
    """
    overlap = account.overlap
    share = overlap.input_wait_share if overlap is not None else None
    if share is None or share >= BOUND_SHARE:
        return ""
    if (LOWER_BOUNDS | _UNSURE) & serious_codes(results.coverage.warnings):
        return ""
    if any(d.severity != LOW for d in diagnoses):
        return ""
    left = LITTLE_TO_GAIN if diagnoses else NOTHING_TO_FIX
    return f"Input keeps up (waits of {percent(share)}): {left}."
