"""Analyses: a trace in, small frozen results out.

A reduction is `partial(part, trace) -> P`, `combine(P, P) -> P` (associative, commutative,
integers) from `NOTHING`; `finish` turns P into a result. So one part or thousands, in any
order, here or elsewhere, give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vanidl.analyses import (
    access,
    balance,
    by_counters,
    coverage,
    dataset,
    files,
    filetimeline,
    heatmaps,
    operations,
    overlap,
    phases,
    sizes,
    steps,
    summary,
    timeline,
    undated_steps,
)
from vanidl.analyses.access import Access
from vanidl.analyses.balance import Balance
from vanidl.analyses.coverage import Coverage
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.files import FileTotals
from vanidl.analyses.filetimeline import FileTimeline
from vanidl.analyses.overlap import Overlap
from vanidl.analyses.phases import Phases
from vanidl.analyses.sizes import Sizes
from vanidl.analyses.steps import Steps
from vanidl.analyses.summary import Summary
from vanidl.analyses.timeline import Timeline
from vanidl.selection import Selection, select
from vanidl.trace import Part, Trace


class Reduction(Protocol):
    """A module that folds parts into one small value."""

    @property
    def NOTHING(self) -> Any:  # noqa: ANN401
        """The value of no part."""

    def partial(self, part: Part, trace: Trace) -> Any:  # noqa: ANN401
        """The value of one part."""

    def combine(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The value of both; associative and commutative."""


REDUCTIONS: dict[str, Reduction] = {
    "operations": operations,
    "sizes": sizes,
    "timeline": timeline,
    "access": access,
    "files": files,
    "dataset": dataset,
}


@dataclass(frozen=True, slots=True)
class Results:
    """All results of one run. None: the run holds nothing to compute it from."""

    coverage: Coverage
    summary: Summary
    sizes: Sizes
    timeline: Timeline | None
    access: Access | None
    files: FileTotals
    balance: Balance | None
    steps: Steps | None
    overlap: Overlap | None
    dataset: Dataset | None = None
    phases: Phases | None = None
    filetimeline: FileTimeline | None = None


def analyse(trace: Trace, selection: Selection | None = None) -> Results:
    """Every result of the trace, restricted to the selection.

    Coverage is always that of the whole trace.
    """
    selection = selection or Selection()
    seen = reduce_parts({"coverage": coverage}, trace.io, trace)["coverage"]
    chosen = select(trace, selection)
    reduced = reduce_parts(REDUCTIONS, chosen.io, chosen)
    reduced |= reduce_parts(second_reductions(reduced), chosen.io, chosen)
    return finish(reduced, seen, trace, chosen, selection.layer)


def second_reductions(reduced: dict[str, Any]) -> dict[str, Reduction]:
    """Reductions that build on the values of the first: they take another pass over the parts."""
    return {"filetimeline": filetimeline.of_busiest(reduced["files"])}


def reduce_parts(
    reductions: dict[str, Reduction], parts: Iterable[Part], trace: Trace
) -> dict[str, Any]:
    """Name -> the combined value of every reduction over all parts.

    Equal-sized halves are combined first (as in a binary counter), so the work stays
    linear times log where values grow with the parts.
    """
    stack: list[tuple[int, dict[str, Any]]] = []
    for part in parts:
        weight, values = 1, {name: r.partial(part, trace) for name, r in reductions.items()}
        while stack and stack[-1][0] <= weight:
            other, before = stack.pop()
            weight, values = weight + other, _combine(reductions, before, values)
        stack.append((weight, values))
    total = {name: r.NOTHING for name, r in reductions.items()}
    for _, values in reversed(stack):
        total = _combine(reductions, values, total)
    return total


def finish(
    reduced: dict[str, Any], seen: coverage.Traced, whole: Trace, chosen: Trace, layer: str
) -> Results:
    """Results from reduced values: the last, cheap part of `analyse`."""
    step_result = steps.finish(reduced["operations"], chosen) or undated_steps.finish(chosen)
    table = None if step_result is None else step_result.table
    data = dataset.finish(reduced["dataset"], chosen, layer)
    results = Results(
        coverage.finish(seen, whole),
        summary.finish(reduced["operations"], chosen, layer),
        sizes.finish(reduced["sizes"], chosen),
        timeline.finish(reduced["timeline"], chosen),
        access.finish(reduced["access"], chosen, layer),
        files.finish(reduced["files"], chosen, layer),
        balance.finish(reduced["operations"], chosen),
        step_result,
        overlap.finish(reduced["operations"], chosen, table),
        data,
        phases.finish(reduced["operations"], chosen, data),
        filetimeline.finish(reduced["filetimeline"], reduced["files"], chosen),
    )
    return results if reduced["operations"].totals else _untraced(results, chosen, layer)


def _untraced(results: Results, chosen: Trace, layer: str) -> Results:
    """What counters and heat maps say where no operation was traced."""
    return replace(
        results,
        sizes=by_counters.sizes(chosen, layer),
        timeline=heatmaps.finish(chosen, layer),
        access=by_counters.access(chosen, layer),
        balance=by_counters.balance(chosen, layer),
    )


def _combine(
    reductions: dict[str, Reduction], a: dict[str, Any], b: dict[str, Any]
) -> dict[str, Any]:
    return {name: r.combine(a[name], b[name]) for name, r in reductions.items()}


__all__ = ["REDUCTIONS", "Results", "analyse", "finish", "reduce_parts", "second_reductions"]
