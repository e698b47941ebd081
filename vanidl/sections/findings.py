"""Findings: what to know and to change."""

from __future__ import annotations

import textwrap

from vanidl.advice.finding import Finding
from vanidl.formatting.terminal import WIDTH
from vanidl.formatting.units import seconds
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.evidence import EVIDENCE
from vanidl.sections.section import Json, Object, Section, values_of

_MARK = {"high": "!!", "medium": "! ", "low": "- "}


def _text(run: Run) -> str | None:
    found = run.findings
    if not found:
        return None
    head = "Findings (gains are upper bounds and do not add up)"
    return "\n".join([head, *(_block(finding) for finding in found), ""])


def _block(finding: Finding) -> str:
    title = f"{_MARK[finding.severity]} {finding.code}: {finding.title}{_gain(finding)}"
    texts = [
        (title, "  ", "     "),
        (finding.detail, " " * 5, " " * 5),
        (f"Do: {finding.advice}", " " * 5, " " * 5),
    ]
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=then)
        for text, first, then in texts
    )


def _gain(finding: Finding) -> str:
    """What the finding could gain, in words; "" where the trace sets no bound."""
    if finding.gain_at_most_s is None:
        return ""
    return f" (gains at most {seconds(finding.gain_at_most_s)} per rank)"


def _json(run: Run) -> list[Object]:
    return [values_of(finding) for finding in run.findings]


_KIND = fields_of(Finding) | {"evidence": EVIDENCE}
SECTION = Section("findings", text=_text, json={"findings": Json(_json, [_KIND])})
