"""Diagnoses: findings folded into causes, and the mean step that they would shorten."""

from __future__ import annotations

from vanidl.advice.finding import Diagnosis
from vanidl.breakdown.step_bar import StepParts
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of


def _json(run: Run) -> list[Object]:
    return [_object(diagnosis) for diagnosis in run.diagnoses]


def _object(diagnosis: Diagnosis) -> Object:
    """Findings by their codes: `findings` has each whole."""
    values = values_of(diagnosis)
    values["findings"] = [finding.code for finding in diagnosis.findings]
    return values | {name: values[name] or None for name in _OR_NULL}


def _step_parts(run: Run) -> Object | None:
    return None if run.step_parts is None else values_of(run.step_parts)


_OR_NULL = ("basis", "change", "proof")
_KIND = fields_of(Diagnosis) | {"findings": [str]} | dict.fromkeys(_OR_NULL, str | None)
SECTION = Section(
    "diagnoses",
    json={
        "diagnoses": Json(_json, [_KIND]),
        "step_parts": Json(_step_parts, StepParts | None),
    },
)
