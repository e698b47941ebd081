"""Sections: a run in, its topics out as figures, text and JSON. No statistics, no files.

A topic has one module with everything that shows it, and a line in SECTIONS. Page, text and
JSON have orders of their own; what these do not name comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from vanidl.figures.figure import Figure
from vanidl.run import Run
from vanidl.schema import Kind, Maybe
from vanidl.sections import (
    access,
    balance,
    benchmark,
    breakdown,
    ceiling,
    clocks,
    coverage,
    data_shares,
    dataset,
    diagnoses,
    durations,
    each_step,
    fetches,
    files,
    findings,
    heatmap,
    job,
    kinds,
    layers,
    lines,
    memory,
    mounts,
    never_read,
    overlap,
    phases,
    placement,
    samples,
    sizes,
    steps,
    summary,
    throughput,
    timeline,
    transfer_modes,
    visits,
    what_if,
)
from vanidl.sections.cut_trace import marked_block, marked_figure
from vanidl.sections.section import Json, Object, Section
from vanidl.viewer.content import Slices
from vanidl.wording.data import traced_fraction

T = TypeVar("T")

SECTIONS: tuple[Section, ...] = (
    job.SECTION,
    breakdown.SECTION,
    diagnoses.SECTION,
    findings.SECTION,
    what_if.SECTION,
    benchmark.SECTION,
    timeline.SECTION,
    heatmap.SECTION,
    phases.SECTION,
    overlap.SECTION,
    ceiling.SECTION,
    steps.SECTION,
    each_step.SECTION,
    fetches.SECTION,
    lines.SECTION,
    memory.SECTION,
    placement.SECTION,
    throughput.SECTION,
    sizes.SECTION,
    access.SECTION,
    durations.SECTION,
    kinds.SECTION,
    mounts.SECTION,
    files.SECTION,
    dataset.SECTION,
    data_shares.SECTION,
    visits.SECTION,
    samples.SECTION,
    transfer_modes.SECTION,
    never_read.SECTION,
    balance.SECTION,
    summary.SECTION,
    layers.SECTION,
    coverage.SECTION,
    clocks.SECTION,
)
"""Every section, in the order of the page."""

TEXT_ORDER = (
    "coverage", "findings", "job", "breakdown", "summary", "sizes", "durations", "dataset",
    "phases", "steps", "each step", "overlap", "benchmark", "fetches", "lines", "memory",
    "ceiling", "what if", "placement", "kinds", "files",
)  # fmt: skip
"""Names of sections in the order of the text."""

JSON_ORDER = (
    "job", "coverage", "io", "io.sizes", "io.access", "io.durations", "io.files.count",
    "io.files.by_kind", "io.files.by_mount", "io.files.by_file_system", "io.files.stripes",
    "io.dataset", "io.balance", "io.timeline", "storage", "layers", "breakdown", "steps", "overlap",
    "fetches", "lines", "memory", "placement", "epochs", "phases", "throughput", "step_parts",
    "ceiling", "actions", "diagnoses", "findings", "what_if", "benchmarks",
)  # fmt: skip
"""Paths in the order of the JSON contract."""


def figures(run: Run, slices: Slices | None = None) -> tuple[Figure, ...]:
    """Every figure, in the order of the page; `slices` are kept for other pages of the run."""
    found = (
        (section, timeline.figure(run, slices=slices) if make is timeline.figure else make(run))
        for section in SECTIONS
        for make in section.figures
    )
    return tuple(
        marked_figure(figure, run) if section.traced else figure for section, figure in found
    )


def text_blocks(run: Run) -> list[str]:
    """The blocks of the text that have something to tell, in order."""
    known = {section.name: section for section in SECTIONS if section.text}
    found = ((s, s.text(run)) for s in _ordered(known, TEXT_ORDER).values() if s.text)
    return [marked_block(text, run) if s.traced else text for s, text in found if text is not None]


def json_object(run: Run) -> Object:
    """The values of every section at their paths in the contract."""
    return _placed({path: value.make(run) for path, value in _contract().items()})


def json_kind() -> dict[str, Kind]:
    """The kind of `json_object`: what `vanidl schema` describes."""
    return _placed({path: value.kind for path, value in _contract().items()})


def _contract() -> dict[str, Json]:
    """The values of all sections by their paths, in order."""
    values = {p: v for section in SECTIONS for p, v in section.json.items()}
    return _ordered(values | {"coverage.cut_trace": _CUT_TRACE}, JSON_ORDER)


def _cut_trace(run: Run) -> Object | None:
    """Which values rest on a trace that lacks operations; None where it lacks none."""
    layer = run.summary.layer
    share = traced_fraction(run.coverage, layer)
    if share is None:
        return None
    paths = [path for section in SECTIONS if section.traced for path in section.json]
    return {"layer": layer, "traced_fraction": share, "values": paths}


_CUT_TRACE = Json(
    _cut_trace, Maybe({"layer": str, "traced_fraction": float | None, "values": [str]})
)


def _placed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Each value where its path says; one below another becomes a field of it."""
    content: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        inner = content
        for step in above:
            inner = inner.setdefault(step, {})
        inner[name] = dict(value) if isinstance(value, dict) else value
    return content


def _ordered(found: Mapping[str, T], order: Sequence[str]) -> dict[str, T]:
    known = {name: found[name] for name in order if name in found}
    return known | dict(found)


__all__ = [
    "JSON_ORDER",
    "SECTIONS",
    "TEXT_ORDER",
    "Json",
    "Object",
    "Section",
    "figures",
    "json_kind",
    "json_object",
    "text_blocks",
]
