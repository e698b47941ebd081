"""The summary for a terminal: the same numbers and words as the report."""

from __future__ import annotations

from vanidl.formatting.terminal import paragraph, printable
from vanidl.run import Run
from vanidl.sections.registry import text_blocks


def summary_text(run: Run) -> str:
    """The headline, warnings, findings and tables of one run."""
    answer = run.answer
    said = [answer.ending, run.verdict, answer.title, *answer.support]
    head = [paragraph(sentence) for sentence in said if sentence]
    return printable("\n".join([*head, "", *text_blocks(run)])) + "\n"
