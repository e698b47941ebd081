"""The mark on what rests on single operations where some of them were not traced."""

from __future__ import annotations

from dataclasses import replace

from vanidl.figures.figure import Figure
from vanidl.run import Run
from vanidl.wording.data import traced_share, traced_words


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
    return replace(figure, caption=f"{figure.caption} {words}.".strip())
