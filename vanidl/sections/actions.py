"""Actions: what to change and what that gains, and the findings folded into them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from vanidl.advice.finding import Diagnosis, Finding
from vanidl.advice.levers import WhatIf, beyond_ceiling
from vanidl.breakdown.step_bar import StepParts
from vanidl.formatting.terminal import WIDTH, aligned_table, paragraph
from vanidl.formatting.units import number, seconds
from vanidl.run import Run
from vanidl.schema import Kind, Partly, fields_of
from vanidl.sections.section import Json, Object, Section, values_of


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action as JSON has it: `gain_s` is at least and at most, of the observed window."""

    code: str
    title: str
    cause: str
    gain_s: tuple[float, float] | None
    gain_at_most_s: float | None
    gain_share: tuple[float, float] | None
    keeps: str
    change: str
    patch: str | None
    proof: str | None


def _collect_diagnoses(run: Run) -> list[Object]:
    return [_collect_diagnosis(diagnosis) for diagnosis in run.diagnoses]


def _collect_diagnosis(diagnosis: Diagnosis) -> Object:
    """Findings by their codes: `findings` has each whole."""
    values = values_of(diagnosis)
    values["findings"] = [finding.code for finding in diagnosis.findings]
    return values | {name: values[name] or None for name in _OR_NULL}


def _collect_actions(run: Run) -> list[Object]:
    return [values_of(_collect_action(diagnosis, run)) for diagnosis in run.diagnoses]


def _collect_action(diagnosis: Diagnosis, run: Run) -> ActionRow:
    gain_s, run_s = diagnosis.gain_s, run.trace.job.run_time_s
    share = None if gain_s is None or run_s <= 0 else (gain_s[0] / run_s, gain_s[1] / run_s)
    return ActionRow(
        code=diagnosis.code,
        title=diagnosis.title,
        cause=diagnosis.cause,
        gain_s=gain_s,
        gain_at_most_s=None if gain_s is None else gain_s[1],
        gain_share=share,
        keeps=diagnosis.keeps,
        change=diagnosis.remedies[0].code if diagnosis.remedies else diagnosis.findings[0].advice,
        patch=diagnosis.patch or None,
        proof=diagnosis.proof or None,
    )


def _collect_step_parts(run: Run) -> Object | None:
    return None if run.step_parts is None else values_of(run.step_parts)


_OR_NULL = ("basis", "change", "proof", "patch")
_DIAGNOSES_KIND = fields_of(Diagnosis) | {"findings": [str]} | dict.fromkeys(_OR_NULL, str | None)
DIAGNOSES = Section(
    "diagnoses",
    json={
        "actions": Json(_collect_actions, [ActionRow]),
        "diagnoses": Json(_collect_diagnoses, [_DIAGNOSES_KIND]),
        "step_parts": Json(_collect_step_parts, StepParts | None),
    },
)


# The numbers that findings rest on: which there are, and of what kind each is.

_NUMBER = int | float | None
_NUMBERS = (
    "arrays_that_misfit", "batches_copied_s", "blocked_s", "busy_s", "busy_s_a_rank", "busy_spread",
    "bytes_per_s", "bytes_read", "bytes_spread", "bytes_written", "checkpoints", "chunks_a_sample",
    "compute_s", "counter_s", "delivery_s", "different_bytes", "different_bytes_a_host",
    "empty_reads", "epoch_ends_s", "epochs", "excess_s", "excess_s_a_rank", "exit_status",
    "exposed_s", "files", "files_that_misfit", "fixed_part", "heads", "hidden_fraction",
    "in_waits_s", "input_wait_io_s", "input_wait_s", "input_wait_share", "jumps", "lists",
    "longest_s", "lost_to_input_s", "mean_bytes", "mean_of_the_others_s", "mean_request_s",
    "mean_s", "mean_step_s", "median_bytes", "median_s", "median_step_s", "meta_s",
    "metadata_at_most_s", "metadata_s", "not_aligned", "observed_io_s", "of_it_input_wait_s",
    "opens", "opens_per_file_and_process", "operations", "p99_s", "part_s", "posix_bytes",
    "processes_a_rank", "ranks_on_it", "read_s", "reads", "reads_at_8_mib", "reads_at_once",
    "requests_at_once", "reread_factor", "rest_at_least_s", "samples_a_chunk", "samples_or_reads",
    "share", "share_of_bytes", "share_of_io", "silent_ranks", "slow_reads", "smallest_share",
    "spent_s", "spread", "starting_s", "stats", "stdio_bytes", "steps_s", "stopped_s", "synced_s",
    "threads_at_work", "total_s", "traced_fraction", "uncertainty_s", "validation_s", "wait_s",
    "waiting_for_cores_s", "workers_side_by_side", "write_s", "writes", "written_s",
)  # fmt: skip
_TEXTS = (
    "array",
    "busiest",
    "busiest_file",
    "cause",
    "evidence",
    "file",
    "message",
    "method",
    "part",
    "reader",
)
_LISTS: dict[str, Kind] = {
    "chunk": [int],
    "first_steps": [int],
    "ranks": int | list[str],
    "rules": [str],
    "shape": [int],
    "slow_steps": [int],
    "warnings": [str],
}
_OBJECTS: dict[str, Kind] = {
    "at_most_s": {str: float},
    "longest_wait": {"rank": str, "seconds": float | None},
    "slowest": {"rank": str, "input_wait_s": float | None},
}
_PREDICTED = Partly({
    "loader": str,
    "at_buffer_of_different_bytes": {str: {
        "buffer_bytes_a_rank": int, "bytes_not_read": int, "share_of_all_reads": float}},
    "exchanged_fraction": float,
    "stored_bytes_a_rank": int,
    "exchanged_bytes_a_rank_and_epoch": int,
    "shared_storage_bytes_not_read": int,
    "bytes_a_rank_now": int,
    "bytes_a_rank_then": int,
    "bytes_read_now": int,
    "bytes_read_then": {str: int},
})  # fmt: skip

EVIDENCE = Partly(
    dict.fromkeys(_NUMBERS, _NUMBER)
    | dict.fromkeys(_TEXTS, str | None)
    | _LISTS
    | _OBJECTS
    | {"predicted": _PREDICTED}
)
"""Each finding has some of them: which depends on its code."""


# Findings: what to know and to change.

_MARK = {"high": "!!", "medium": "! ", "low": "- "}


def _write_findings(run: Run) -> str | None:
    found = run.findings
    if not found:
        return None
    head = "Findings (gains are upper bounds and do not add up)"
    return "\n".join([head, *(_write_finding(finding) for finding in found), ""])


def _write_finding(finding: Finding) -> str:
    title = f"{_MARK[finding.severity]} {finding.code}: {finding.title}{_write_gain(finding)}"
    texts = [
        (title, "  ", "     "),
        (finding.detail, " " * 5, " " * 5),
        (f"Do: {finding.advice}", " " * 5, " " * 5),
    ]
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=then)
        for text, first, then in texts
    )


def _write_gain(finding: Finding) -> str:
    """What the finding could gain, in words; "" where the trace sets no bound."""
    if finding.gain_at_most_s is None:
        return ""
    return f" (gains at most {seconds(finding.gain_at_most_s)} per rank)"


def _collect_findings(run: Run) -> list[Object]:
    return [values_of(finding) for finding in run.findings]


_FINDINGS_KIND = fields_of(Finding) | {"evidence": EVIDENCE}
FINDINGS = Section(
    "findings", text=_write_findings, json={"findings": Json(_collect_findings, [_FINDINGS_KIND])}
)


# Step times under the usual changes of the input.


def _write_what_if(run: Run) -> str | None:
    found = run.what_if
    if found is None:
        return None
    if found.refused or found.replayed_s is None:
        return f"What if\n{paragraph(found.refused + '.')}\n"
    header = ("if", "mean step", "of now", "gains at most")
    now = ("nothing changed, replayed", seconds(found.replayed_s),
           number(found.replayed_s / found.step_s), "")  # fmt: skip
    rows = [
        (r.name, seconds(r.step_s), number(r.ratio), seconds(r.gain_at_most_s)) for r in found.rows
    ]
    table = aligned_table("What if (replayed with changed input)", [header, now, *rows])
    beyond = beyond_ceiling(found).strip()
    noted = f"{table}{paragraph(beyond)}\n" if beyond else table or ""
    return noted + _write_loaders(found)


def _write_loaders(found: WhatIf) -> str:
    """What makes each change, explained once, and the command in lines of its own, to copy."""
    lines, known = list[str](), set[str]()
    for row in found.rows:
        if row.loader is not None:
            said = f"{row.name}: {row.loader.name} loader of vanidl_loaders."
            more = "" if row.loader.name in known else f" {row.loader.explanation}"
            known.add(row.loader.name)
            first, rest = row.loader.command.split(" --loader ")
            lines += [paragraph(said + more), f"  {first} \\", f"      --loader {rest}"]
    return "".join(f"{line}\n" for line in lines)


def _collect_what_if(run: Run) -> Object | None:
    found = run.what_if
    return None if found is None else values_of(found)


WHAT_IF = Section(
    "what if", text=_write_what_if, json={"what_if": Json(_collect_what_if, WhatIf | None)}
)
