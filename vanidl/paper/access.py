"""Access pattern: does each request follow the one before it?"""

from __future__ import annotations

from matplotlib.figure import FigureBase

from vanidl.paper.style import Series
from vanidl.run import Run
from vanidl.sections.access import COUNTED_PARTS, PARTS, operations_in

_HATCH = {"first": "", "consecutive": "", "forward": "////", "backward": "\\\\\\\\"}


def draw(figure: FigureBase, run: Run) -> None:
    """One bar of reads and one of writes, each 100 % in all."""
    access = run.access
    if access is None:
        raise ValueError("expected an access pattern, found none: nothing to draw")
    sides = [(n, c) for n, c in (("reads", access.read), ("writes", access.write)) if c.ops]
    axes = figure.subplots()
    left = [0.0] * len(sides)
    for attribute, name, colour, _ in COUNTED_PARTS if access.source == "counters" else PARTS:
        share = [100 * operations_in(counts, attribute) / counts.ops for _, counts in sides]
        axes.barh(
            range(len(sides)), share, 0.62, left, **Series(name, colour, _HATCH[attribute]).fill
        )
        left = [a + b for a, b in zip(left, share, strict=True)]
    axes.set_yticks(range(len(sides)), [f"{side}\n{counts.ops:,}" for side, counts in sides])
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the operations")
    axes.tick_params(axis="y", length=0)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.0
    )
