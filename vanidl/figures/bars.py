"""Stacked horizontal bars: bytes by row, and operations by row as shares of 100 %."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.figures import palette
from vanidl.figures.downsample import round_values
from vanidl.figures.figure import Spec
from vanidl.formatting.units import byte_scale, count, nbytes
from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Stack:
    """One colour of the bars: its name, how it is filled, and its number for each row."""

    name: str
    colour: str
    pattern: str
    values: Sequence[int]


def byte_bars(labels: Sequence[str], stacks: Sequence[Stack], *, largest: int, row_px: int) -> Spec:
    """Bytes of each row, in a unit that suits the largest of them."""
    divisor, unit = byte_scale(largest)
    rows = list(range(len(labels)))
    data = [
        _trace(stack, round_values(v / divisor for v in stack.values), rows)
        | {
            "customdata": [nbytes(v) for v in stack.values],
            "hovertemplate": "%{customdata} " + stack.name + "<extra></extra>",
        }
        for stack in stacks
    ]
    layout = palette.layout(
        110 + row_px * len(labels),
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis(unit, rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=rows, ticktext=list(labels), autorange="reversed",
            showgrid=False, fixedrange=True,
        ),
    )  # fmt: skip
    return {"data": data, "layout": layout}


def share_bars(
    rows: Sequence[tuple[str, int]], stacks: Sequence[Stack], *, height: int, hover: str
) -> Spec:
    """Operations of each (label, all of them) as shares; `hover` names row and number."""
    labels = [label for label, _ in rows]
    data = [
        _trace(stack, [100 * n / ops for n, (_, ops) in zip(stack.values, rows, strict=True)],
               labels)
        | {
            "customdata": [count(n) for n in stack.values],
            "hovertemplate": hover + " (%{x:.3g} %)<extra>" + stack.name + "</extra>",
        }
        for stack in stacks
    ]  # fmt: skip
    layout = palette.layout(
        height,
        barmode="stack",
        bargap=0.35,
        xaxis=palette.axis("% of the operations", range=[0, 100], fixedrange=True),
        yaxis=palette.axis(autorange="reversed", showgrid=False, fixedrange=True),
    )
    return {"data": data, "layout": layout}


def _trace(stack: Stack, x: Sequence[float | None], y: Sequence[int] | Sequence[str]) -> Spec:
    return {
        "type": "bar", "orientation": "h", "name": stack.name, "x": x, "y": y,
        "customdata": [], "marker": palette.fill(stack.colour, stack.pattern),
    }  # fmt: skip
