"""Sections: a run in, its topics out as figures, text and JSON. No statistics, no files.

A topic has one module with everything that shows it, and a line in SECTIONS. Page, text and
JSON have orders of their own; what these do not name comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from vanidl.figures.figure import Figure
from vanidl.run import Run
from vanidl.schema.schema import Kind, Maybe
from vanidl.sections import (
    actions,
    benchmark,
    breakdown,
    coverage,
    dataset,
    fetches,
    files,
    job,
    layers,
    memory,
    osts,
    overlap,
    phases,
    placement,
    ranks,
    requests,
    step_bar,
    steps,
    timeline,
)
from vanidl.sections.section import Json, Object, Section
from vanidl.viewer.content import Slices
from vanidl.wording.tracing import describe_traced, describe_traced_share, find_traced_fraction

# The mark on what rests on single operations where some of them were not traced.

OF_STEPS = "Input and compute"
"""The section about steps."""


def mark_block(block: str, run: Run) -> str:
    """A block of text with the mark behind its title; as it is where all was traced."""
    share = describe_traced_share(run.coverage, run.summary.layer)
    if not share:
        return block
    title, _, rows = block.partition("\n")
    return f"{title} [{share}]\n{rows}"


def mark_figure(figure: Figure, run: Run) -> Figure:
    """A figure with a sentence in its caption; as it is where all was traced, or it is empty."""
    words = describe_traced(run.coverage, run.summary.layer)
    if not words or words in figure.caption or (figure.spec is None and figure.table is None):
        return figure
    # What a zero in the steps is worth where all traced I/O lies outside of them.
    mean = run.overlap.mean if run.overlap and figure.section == OF_STEPS else None
    if mean is not None and mean.io_s is not None and mean.io_s == mean.unobserved_s:
        words += ", none of them in the profiled steps: 0 there is not known to be 0"
    return replace(figure, caption=f"{figure.caption} {words}.".strip())


T = TypeVar("T")

SECTIONS: tuple[Section, ...] = (
    job.JOB,
    breakdown.BREAKDOWN,
    step_bar.STEP_BAR,
    actions.DIAGNOSES,
    actions.FINDINGS,
    actions.WHAT_IF,
    benchmark.BENCHMARK,
    timeline.TIMELINE,
    timeline.HEATMAP,
    osts.OSTS,
    phases.PHASES,
    overlap.OVERLAP,
    overlap.CEILING,
    steps.STEPS,
    steps.EACH_STEP,
    fetches.FETCHES,
    fetches.LINES,
    memory.MEMORY,
    placement.PLACEMENT,
    dataset.THROUGHPUT,
    requests.SIZES,
    requests.ACCESS,
    requests.DURATIONS,
    files.KINDS,
    files.MOUNTS,
    files.FILES,
    dataset.DATASET_FILES,
    dataset.DATA_SHARES,
    dataset.VISITS,
    dataset.SAMPLES,
    dataset.TRANSFER_MODES,
    dataset.NEVER_READ,
    ranks.RANKS,
    job.TOTALS,
    layers.LAYERS,
    coverage.COVERAGE,
    coverage.CLOCKS,
)
"""Every section, in the order of the page."""

TEXT_ORDER = (
    "coverage", "findings", "job", "breakdown", "summary", "sizes", "durations", "dataset",
    "phases", "steps", "each step", "overlap", "benchmark", "fetches", "lines", "memory",
    "ceiling", "what if", "placement", "kinds", "files", "layers", "osts",
)  # fmt: skip
"""Names of sections in the order of the text."""

JSON_ORDER = (
    "job", "coverage", "io", "io.sizes", "io.access", "io.durations", "io.files.count",
    "io.files.by_kind", "io.files.by_mount", "io.files.by_file_system", "io.files.stripes",
    "io.osts", "io.dataset", "io.balance", "io.timeline", "storage", "layers", "layer_use",
    "breakdown", "steps", "overlap", "fetches", "lines", "memory", "placement", "epochs", "phases",
    "throughput", "step_parts", "ceiling", "actions", "diagnoses", "findings", "what_if",
    "benchmarks",
)  # fmt: skip
"""Paths in the order of the JSON contract."""


def figures(run: Run, slices: Slices | None = None) -> tuple[Figure, ...]:
    """Every figure, in the order of the page; `slices` are kept for other pages of the run."""
    drawn = (
        (
            section,
            timeline.draw_timeline(run, slices=slices)
            if make is timeline.draw_timeline
            else make(run),
        )
        for section in SECTIONS
        for make in section.figures
    )
    return tuple(
        mark_figure(figure, run) if section.traced else figure for section, figure in drawn
    )


def text_blocks(run: Run) -> list[str]:
    """The blocks of the text that have something to tell, in order."""
    known = {section.name: section for section in SECTIONS if section.text}
    blocks = ((s, s.text(run)) for s in _put_in_order(known, TEXT_ORDER).values() if s.text)
    return [mark_block(text, run) if s.traced else text for s, text in blocks if text is not None]


def json_object(run: Run) -> Object:
    """The values of every section at their paths in the contract."""
    return _place_values({path: value.make(run) for path, value in _collect_contract().items()})


def json_kind() -> dict[str, Kind]:
    """The kind of `json_object`: what `vanidl schema` describes."""
    return _place_values({path: value.kind for path, value in _collect_contract().items()})


def _collect_contract() -> dict[str, Json]:
    """The values of all sections by their paths, in order."""
    values = {p: v for section in SECTIONS for p, v in section.json.items()}
    return _put_in_order(values | {"coverage.cut_trace": _CUT_TRACE}, JSON_ORDER)


def _collect_cut_trace(run: Run) -> Object | None:
    """Which values rest on a trace that lacks operations; None where it lacks none."""
    layer = run.summary.layer
    share = find_traced_fraction(run.coverage, layer)
    if share is None:
        return None
    paths = [path for section in SECTIONS if section.traced for path in section.json]
    return {"layer": layer, "traced_fraction": share, "values": paths}


_CUT_TRACE = Json(
    _collect_cut_trace, Maybe({"layer": str, "traced_fraction": float | None, "values": [str]})
)


def _place_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Each value where its path says; one below another becomes a field of it."""
    content: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        inner = content
        for step in above:
            inner = inner.setdefault(step, {})
        inner[name] = dict(value) if isinstance(value, dict) else value
    return content


def _put_in_order(values: Mapping[str, T], order: Sequence[str]) -> dict[str, T]:
    known = {name: values[name] for name in order if name in values}
    return known | dict(values)
