"""Actions: what to change and what that gains, and the findings folded into them."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.advice.finding import Diagnosis
from vanidl.breakdown.step_bar import StepParts
from vanidl.run import Run
from vanidl.schema import fields_of
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


def _json(run: Run) -> list[Object]:
    return [_object(diagnosis) for diagnosis in run.diagnoses]


def _object(diagnosis: Diagnosis) -> Object:
    """Findings by their codes: `findings` has each whole."""
    values = values_of(diagnosis)
    values["findings"] = [finding.code for finding in diagnosis.findings]
    return values | {name: values[name] or None for name in _OR_NULL}


def _actions(run: Run) -> list[Object]:
    return [values_of(_row(diagnosis, run)) for diagnosis in run.diagnoses]


def _row(diagnosis: Diagnosis, run: Run) -> ActionRow:
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


def _step_parts(run: Run) -> Object | None:
    return None if run.step_parts is None else values_of(run.step_parts)


_OR_NULL = ("basis", "change", "proof", "patch")
_KIND = fields_of(Diagnosis) | {"findings": [str]} | dict.fromkeys(_OR_NULL, str | None)
SECTION = Section(
    "diagnoses",
    json={
        "actions": Json(_actions, [ActionRow]),
        "diagnoses": Json(_json, [_KIND]),
        "step_parts": Json(_step_parts, StepParts | None),
    },
)
