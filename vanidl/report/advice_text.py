"""Findings on a terminal."""

from __future__ import annotations

import textwrap

from vanidl.findings import Finding
from vanidl.formatting.units import ratio, seconds
from vanidl.run import Run

_MARK = {"high": "!!", "medium": "! ", "low": "- "}


def findings_text(run: Run, width: int) -> str | None:
    """One block a finding, at most `width` columns wide; None without findings."""
    found = run.findings()
    if not found:
        return None
    head = "Findings (gains are upper bounds and do not add up)"
    return "\n".join([head, *(_block(finding, width) for finding in found), ""])


def _block(finding: Finding, width: int) -> str:
    title = f"{_MARK[finding.severity]} {finding.code}: {finding.title}{gain_words(finding)}"
    texts = [(title, "  ", "     "), *((t, " " * 5, " " * 5) for t in _rest(finding))]
    return "\n".join(
        textwrap.fill(text, width, initial_indent=first, subsequent_indent=then)
        for text, first, then in texts
    )


def _rest(finding: Finding) -> tuple[str, str]:
    return finding.detail, f"Do: {finding.advice}"


def gain_words(finding: Finding) -> str:
    """What the finding could gain, in words; "" where the trace sets no bound."""
    if finding.gain_at_most_s is None:
        return ""
    return f" (gains at most {seconds(finding.gain_at_most_s)} a rank)"


def what_if_rows(run: Run) -> list[tuple[str, ...]]:
    """A header and one row a change; the header alone where the run cannot be replayed."""
    header = ("if", "mean step", "of now", "gains at most")
    found = run.what_if()
    if found is None:
        return [header]
    now = ("nothing changed, replayed", seconds(found.replayed_s),
           ratio(found.replayed_s / found.step_s), "")  # fmt: skip
    rows = [
        (r.name, seconds(r.step_s), ratio(r.ratio), seconds(r.gain_at_most_s)) for r in found.rows
    ]
    return [header, now, *rows]
