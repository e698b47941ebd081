"""Actions: what to change and what that gains, and the findings folded into them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from vanidl.advice.changes import LoaderCall, Predicted, WhatIf, describe_limited
from vanidl.advice.finding import LOW, PREDICTED, Diagnosis, Finding, Remedy, SlowStep, Value
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import WIDTH, aligned_table, paragraph
from vanidl.formatting.units import (
    change,
    change_between,
    count,
    nbytes,
    number,
    percent,
    plural,
    seconds,
)
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import meaning_of
from vanidl.schema.schema import Kind, Maybe, Partly, fields_of
from vanidl.sections.section import CELL_KIND, Json, Object, Section, list_cells, values_of
from vanidl.wording.cells import cells_of, mark_cell, name_gain, settle


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action as JSON has it: `gain_s` is at least and at most, of the observed window."""

    code: str
    title: str
    cause: str
    gain_s: tuple[float, float] | None
    gain_at_most_s: float | None
    gain_cell: str | None
    gain_share: tuple[float, float] | None
    keeps: str
    change: str
    patch: str | None
    proof: str | None


def _collect_diagnoses(run: Run) -> list[Object]:
    """Their findings by code alone: `findings` has each whole."""
    rows = []
    for diagnosis in run.diagnoses:
        values = values_of(diagnosis)
        values["findings"] = [finding.code for finding in diagnosis.findings]
        values["gain_cell"] = _name_action_gain(diagnosis)
        rows.append(values | {name: values[name] or None for name in _OR_NULL})
    return rows


def _name_action_gain(diagnosis: Diagnosis) -> str | None:
    """The key of its gain; None where no bound is known."""
    return None if diagnosis.gain_s is None else name_gain("action", diagnosis.code)


def _collect_actions(run: Run) -> list[Object]:
    rows, run_s = [], run.trace.job.run_time_s
    for diagnosis in run.diagnoses:
        gain_s, remedies = diagnosis.gain_s, diagnosis.remedies
        row = ActionRow(
            code=diagnosis.code,
            title=diagnosis.title,
            cause=diagnosis.cause,
            gain_s=gain_s,
            gain_at_most_s=None if gain_s is None else gain_s[1],
            gain_cell=_name_action_gain(diagnosis),
            gain_share=(gain_s[0] / run_s, gain_s[1] / run_s) if gain_s and run_s > 0 else None,
            keeps=diagnosis.keeps,
            change=remedies[0].code if remedies else diagnosis.findings[0].advice,
            patch=diagnosis.patch or None,
            proof=diagnosis.proof or None,
        )
        rows.append(values_of(row))
    return rows


_OR_NULL = ("basis", "change", "proof", "patch")
_DIAGNOSES_KIND = (
    fields_of(Diagnosis)
    | {"findings": [str], "gain_cell": str | None}
    | dict.fromkeys(_OR_NULL, str | None)
)
DIAGNOSES = Section(
    "diagnoses",
    json={
        "actions": Json(_collect_actions, [ActionRow]),
        "diagnoses": Json(_collect_diagnoses, [_DIAGNOSES_KIND]),
    },
)


# The numbers that findings rest on: which there are, and of what kind each is.

_NUMBER = int | float | None
_NUMBERS = (
    "arrays_that_misfit", "batch_bytes", "batches_copied_s", "blocked_s", "busy_s", "busy_s_a_rank",
    "busy_spread",
    "bytes_per_s", "bytes_read", "bytes_spread", "bytes_written", "checkpoints", "chunks_a_sample",
    "compute_s", "copied_s", "counter_s", "delivery_s", "different_bytes", "different_bytes_a_host",
    "empty_reads", "epoch_ends_s", "epochs", "every_s", "excess_s", "excess_s_a_rank",
    "exit_status", "exposed_s", "files", "files_that_misfit", "first_bytes", "fixed_part", "heads",
    "hidden_at_most_s", "hidden_fraction", "in_waits_s", "input_wait_io_s", "input_wait_s",
    "input_wait_share", "jumps",
    "lists", "longest_s", "lost_to_input_s", "mean_bytes", "mean_of_the_others_s", "mean_request_s",
    "mean_s", "mean_step_s", "median_bytes", "median_s", "median_step_s", "meta_s",
    "metadata_at_most_s", "metadata_s", "not_aligned", "observed_io_s", "of_it_input_wait_s",
    "opens", "opens_per_file_and_process", "operations", "p99_s", "part_s",
    "pickled_bytes_a_worker", "posix_bytes", "processes_a_rank", "ranks_on_it", "read_s", "reads",
    "reads_at_8_mib", "reads_at_once", "requests_at_once", "reread_factor", "rest_at_least_s",
    "samples", "samples_a_chunk", "samples_or_reads", "share", "share_of_bytes", "share_of_fetches",
    "share_of_io", "silent_ranks", "slow_reads", "smallest_share", "spent_s", "spread",
    "starting_s", "stats", "stdio_bytes", "steps_s", "stopped_s", "synced_s", "threads_at_work",
    "times_the_usual_fetch", "total_s", "traced_fraction", "uncertainty_s",
    "used_share", "usual_bytes",
    "validation_s", "validations", "wait_s", "waited_s", "waiting_for_cores_s",
    "workers_side_by_side", "write_s", "writes", "written_s",
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
    | {"predicted": _PREDICTED, "leaves_passes": bool, "sends_objects": bool, "from_pageable": bool}
)
"""Each finding has some of them: which depends on its code."""


# Findings: what to know and to change.

_MARK = {"high": "!!", "medium": "! ", "low": "- "}


def _write_findings(run: Run) -> str | None:
    if not run.findings:
        return None
    lines = ["Findings (gains are upper bounds and do not add up)"]
    for finding in run.findings:
        title = f"{_MARK[finding.severity]} {finding.code}: {finding.title}"
        # Without a bound that the trace sets there is no gain to tell.
        if finding.gain_at_most_s is not None:
            title += f" (gains at most {seconds(finding.gain_at_most_s)} per rank)"
        # Detail and advice are indented below the title.
        below = " " * 5
        lines += [
            textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=below)
            for text, indent in (
                (title, "  "),
                (finding.detail, below),
                (f"Do: {finding.advice}", below),
            )
        ]
    return "\n".join([*lines, ""])


def _collect_findings(run: Run) -> list[Object]:
    rows = []
    for finding in run.findings:
        bounded = finding.gain_at_most_s is not None
        more = {
            "cells": list_cells(cells_of(finding.title, finding.detail, finding.advice)),
            "gain_cell": name_gain("finding", finding.code) if bounded else None,
        }
        rows.append(values_of(finding) | more)
    return rows


_FINDINGS_KIND = fields_of(Finding) | {
    "evidence": EVIDENCE, "cells": [CELL_KIND], "gain_cell": str | None,
}  # fmt: skip
FINDINGS = Section(
    "findings", text=_write_findings, json={"findings": Json(_collect_findings, [_FINDINGS_KIND])}
)


# Step times under the usual changes of the input.


def _write_what_if(run: Run) -> str | None:
    what_if = run.what_if
    if what_if is None:
        return None
    # A run that cannot be replayed says why.
    if what_if.refused or what_if.replayed_s is None:
        return f"What if\n{paragraph(what_if.refused + '.')}\n"
    header = ("if", "mean step", "of now", "gains at most")
    now = ("nothing changed, replayed", seconds(what_if.replayed_s),
           number(what_if.replayed_s / what_if.step_s), "")  # fmt: skip
    rows = [
        (r.name, seconds(r.step_s), number(r.ratio), seconds(r.gain_at_most_s))
        for r in what_if.rows
    ]
    table = aligned_table("What if (replayed with changed input)", [header, now, *rows])
    # What replaying promises beyond the measured ceiling is cut to it: these are named.
    beyond = describe_limited(what_if).strip()
    noted = f"{table}{paragraph(beyond)}\n" if beyond else table or ""
    # What makes each change, explained once, and the command in lines of its own, to copy.
    lines, known = list[str](), set[str]()
    for row in what_if.rows:
        if row.loader is not None:
            said = f"{row.name}: {row.loader.name} loader of vanidl_loaders."
            more = "" if row.loader.name in known else f" {row.loader.explanation}"
            known.add(row.loader.name)
            # Options of the loader get a line of their own: a whole command is too long for one.
            first, rest = row.loader.command.split(" --loader ")
            lines += [paragraph(said + more), f"  {first} \\", f"      --loader {rest}"]
    loaders = "".join(f"{line}\n" for line in lines)
    return noted + loaders


def _collect_what_if(run: Run) -> Object | None:
    what_if = run.what_if
    if what_if is None:
        return None
    rows = [values_of(row) | {"gain_cell": name_gain("what_if", row.name)} for row in what_if.rows]
    return values_of(what_if) | {"rows": rows}


_WHAT_IF_KIND = fields_of(WhatIf) | {"rows": [fields_of(Predicted) | {"gain_cell": str}]}
WHAT_IF = Section(
    "what if",
    text=_write_what_if,
    json={"what_if": Json(_collect_what_if, Maybe(_WHAT_IF_KIND))},
)


# Findings and predictions as the page shows them: plain texts.

_MOST = 12
_LONG = 400


Numbers = tuple[tuple[str, str], ...]
"""Names and values of what a finding rests on."""

BY_KEY = {
    "at_buffer_of_different_bytes": "with buffers of {} of the unique bytes",
    "at_most_s": "at most, {}",
    "bytes_read_then": "bytes read then, {}",
}
"""What a key of a mapping is that has one value per rank, codec or size: its noun."""
_BY_UNIT: dict[str, Callable[[float], str]] = {"s": seconds, "bytes": nbytes}


@dataclass(frozen=True, slots=True)
class Replayed:
    """The table of predictions: rows are change, step time, of what it was, gain.

    `loaders` are changes, and the loader that makes each.
    """

    note: str
    rows: tuple[tuple[str, str, str, str], ...]
    assumptions: tuple[str, ...]
    loaders: tuple[tuple[str, LoaderCall], ...] = ()


def name_for_ranks(name: str, ranks: int) -> str:
    """A change of a single rank is of the run."""
    return name if ranks > 1 else name.removesuffix(" per rank")


def tabulate_predictions(run: Run) -> Replayed | None:
    """The predictions; None where the run cannot be replayed."""
    what_if = run.what_if
    if what_if is None:
        return None
    rows = tuple(
        (
            name_for_ranks(row.name, len(run.trace.ranks)),
            seconds(row.step_s),
            number(row.ratio),
            settle(mark_cell(name_gain("what_if", row.name), seconds(row.gain_at_most_s))),
        )
        for row in what_if.rows
    )
    calls = tuple(_explain_loaders_once(what_if))
    return Replayed(describe_replay(what_if), rows, what_if.assumptions, calls)


def _explain_loaders_once(what_if: WhatIf) -> Iterator[tuple[str, LoaderCall]]:
    known = set[str]()
    for row in what_if.rows:
        if row.loader is not None:
            first = row.loader.name not in known
            known.add(row.loader.name)
            yield row.name, row.loader if first else replace(row.loader, explanation="")


def describe_replay(what_if: WhatIf) -> str:
    """How well the model gives back what was measured."""
    if what_if.refused:
        return f"The mean step took {seconds(what_if.step_s)}. {what_if.refused}."
    return (
        f"The mean step took {seconds(what_if.step_s)}; the same batches replayed with nothing "
        f"changed give {seconds(what_if.replayed_s)}.{describe_limited(what_if)}"
    )


def list_numbers(evidence: Mapping[str, Value]) -> Numbers:
    """The values of a finding; of many the first, and how many more there are, and where."""
    numbers = tuple(_flatten("", "findings.evidence", evidence))
    if len(numbers) <= _MOST + 1:  # a line that says "1 more" has room for it
        return numbers
    more = f"{plural(len(numbers) - _MOST, 'value')}, in vanidl summary --json"
    return (*numbers[:_MOST], ("more", more))


def _flatten(prefix: str, path: str, values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Names and texts of all values, those of inner mappings behind their name."""
    for name, value in values.items():
        if value is None:
            continue
        # The name of a value as a person reads it; its unit is beside the value.
        text = re.sub(r"_s(?=_|$)", "", name).replace("_a_", "_per_")
        readable = text.replace("different", "unique").replace("_mib", "_MiB").replace("_", " ")
        inner, here = f"{prefix}{readable}", f"{path}.{name}"
        # Keys that are values themselves, as sizes of buffers, are put into the label.
        if name in BY_KEY and isinstance(value, Mapping):
            for key, of_key in value.items():
                label = prefix + BY_KEY[name].format(key.replace("%", " %"))
                if isinstance(of_key, Mapping):
                    yield from _flatten(f"{label}: ", here, of_key)
                else:
                    yield _make_pair(label, here, of_key)
        elif isinstance(value, Mapping):
            yield from _flatten(f"{inner}: ", here, value)
        else:
            yield _make_pair(inner, here, value)


def _make_pair(label: str, path: str, value: Value) -> tuple[str, str]:
    """Label and value as texts that a table has room for."""
    if isinstance(value, list):
        more = f" and {count(len(value) - _MOST)} more" if len(value) > _MOST else ""
        text = ", ".join(str(v) for v in value[:_MOST]) + more
    elif isinstance(value, str) or value is None or isinstance(value, Mapping):
        text = "not recorded" if value is None else str(value)
    else:
        text = _write_number(path, value)
    return elided(label, limit=120), elided(text, limit=_LONG)


def _write_number(path: str, value: float) -> str:
    """A number by the unit that the schema gives its key; as it is where it knows none."""
    unit, meaning = "", ""
    with suppress(TypeError):  # a finding that the schema does not know
        known = meaning_of(path)
        unit, meaning = known.unit, known.text
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](value)
    if unit == "1" and re.search("share|fraction", f"{path} {meaning}".lower()):
        return percent(value)
    return count(value) if float(value).is_integer() else number(value)


@dataclass(frozen=True, slots=True)
class Link:
    """A text linked to its evidence; `doubtful` where it limits the answer."""

    text: str
    href: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """One folded finding."""

    code: str
    severity: str
    title: str
    detail: str
    advice: str
    gain: str
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Action:
    """One diagnosis as a card."""

    code: str
    severity: str
    title: str
    effect: str
    reason: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    proof: str
    show: tuple[Link, ...]


def make_action(diagnosis: Diagnosis) -> Action:
    """A diagnosis as a card of the overview."""
    first = diagnosis.findings[0]
    return Action(
        diagnosis.code,
        diagnosis.severity,
        elided(diagnosis.title, limit=_LONG),
        describe_effect(diagnosis),
        elided(first.title, limit=_LONG),
        tuple(_make_evidence(finding) for finding in diagnosis.findings),
        diagnosis.remedies,
        "\n".join(elided(line, limit=2000) for line in diagnosis.proof.splitlines()),
        tuple(_link_step(step) for step in diagnosis.show) if diagnosis.severity != LOW else (),
    )


_AS_ONE = 0.05  # of the gain: ends that differ by less are one number


def name_both_ends(diagnosis: Diagnosis) -> tuple[float, float] | None:
    """The step after the change at best and at worst, where an action says both.

    None where the least that is gained is nothing, or about as much as the most.
    """
    now_s, step_s, most_s = diagnosis.now_s, diagnosis.step_s, diagnosis.step_at_most_s
    if now_s is None or step_s is None or most_s is None or seconds(most_s) == seconds(now_s):
        return None
    return (step_s, most_s) if most_s - step_s > _AS_ONE * (now_s - step_s) else None


def describe_effect(diagnosis: Diagnosis) -> str:
    """`423 to 169-200 ms a step, predicted`; "" where no gain is known.

    With the key of the gain.
    """
    key = name_gain("action", diagnosis.code)
    now_s, step_s, most_s = diagnosis.now_s, diagnosis.step_s, diagnosis.step_at_most_s
    if now_s is not None and step_s is not None:
        is_predicted = diagnosis.basis == PREDICTED
        if not step_s:  # it may be all that there is
            return settle(f"at best all of {mark_cell(key, seconds(now_s))} a step")
        if (ends := name_both_ends(diagnosis)) is not None:
            steps = mark_cell(key, change_between(now_s, *ends))
            return settle(f"{steps} a step{', predicted' if is_predicted else ''}")
        steps = mark_cell(key, change(now_s, step_s))
        gains = most_s is None or seconds(most_s) != seconds(now_s)
        predicted = "predicted" if gains else "predicted; at worst as now"
        return settle(f"{steps} a step, {predicted if is_predicted else 'at best'}")
    if diagnosis.saved_share:
        return settle(f"at best {mark_cell(key, percent(diagnosis.saved_share))} of the run")
    return ""


def _make_evidence(finding: Finding) -> Evidence:
    gain_s, bound = finding.gain_at_most_s, ""
    if gain_s is not None:
        cell = mark_cell(name_gain("finding", finding.code), seconds(gain_s))
        bound = settle(f"gains at most {cell} per rank")
    return Evidence(
        finding.code,
        finding.severity,
        elided(finding.title, limit=_LONG),
        elided(finding.detail, limit=1000),
        finding.advice,
        bound,
        list_numbers(finding.evidence),
    )


def _link_step(step: SlowStep) -> Link:
    """A step in the timeline, with some of the time before and after it."""
    # A quarter of the step on each side shows what led to it.
    room = 0.25 * (step.end_s - step.start_s)
    low, high = max(step.start_s - room, 0.0), step.end_s + room
    waited, long_s = step.wait_s, step.end_s - step.start_s
    took = f"took {seconds(long_s)}" if waited is None else f"waited {seconds(waited)}"
    href = f"#t={low:.6f}-{high:.6f}&rank={step.position}"
    return Link(f"step {step.step} of {elided(step.rank, limit=40)} ({took})", href)
