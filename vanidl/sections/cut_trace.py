"""The mark on what rests on single operations where some of them were not traced."""

from __future__ import annotations

from dataclasses import replace

from vanidl.figures.figure import Figure
from vanidl.run import Run
from vanidl.wording.data import traced_share, traced_words

OF_STEPS = "Input and compute"
"""The section about steps."""


def marked_block(block: str, run: Run) -> str:
    """A block of text with the mark behind its title; as it is where all was traced."""
    share = traced_share(run.coverage, run.summary.layer)
    if not share:
        return block
    title, _, rows = block.partition("\n")
    return f"{title} [{share}]\n{rows}"


def marked_figure(figure: Figure, run: Run) -> Figure:
    """A figure with a sentence in its caption; as it is where all was traced, or it is empty."""
    words = traced_words(run.coverage, run.summary.layer)
    if not words or words in figure.caption or (figure.spec is None and figure.table is None):
        return figure
    return replace(figure, caption=f"{figure.caption} {words}{_of_steps(figure, run)}.".strip())


def _of_steps(figure: Figure, run: Run) -> str:
    """What a zero in the steps is worth where none of their operations was traced."""
    mean = run.overlap.mean if run.overlap else None
    if figure.section != OF_STEPS or mean is None or mean.io_s is None:
        return ""
    none = mean.io_s == mean.unobserved_s
    return ", none of them in the profiled steps: 0 there is not known to be 0" if none else ""
