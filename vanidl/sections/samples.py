"""How many samples the dataset's files hold."""

from __future__ import annotations

from vanidl.analyses.datafiles import SamplesPerFile
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import count, nbytes, plural
from vanidl.run import Run
from vanidl.sections.dataset import NO_DATASET
from vanidl.sections.section import Section

_TITLE = "Samples per file"


def figure(run: Run) -> Figure:
    """Histogram of samples per file; where samples are unknown, what would tell."""
    data = run.dataset
    if data is None:
        return Figure("samples", "Dataset", _TITLE, "", empty_reason=NO_DATASET)
    samples = data.samples
    if samples.total is None:
        reason = f"Unknown: {samples.evidence}."
        return Figure("samples", "Dataset", _TITLE, "", empty_reason=reason)
    table = Table(
        (Column("samples in a file"), Column("files", "count")),
        tuple((_range(b.low, b.high), b.files) for b in samples.histogram),
    )
    caption = _caption(samples)
    return Figure(
        "samples",
        "Dataset",
        _TITLE,
        caption,
        _spec(samples) if samples.files > 1 else None,
        table,
        alt_text=_alt_text(samples),
        half=True,
    )


def _caption(samples: SamplesPerFile) -> str:
    size = f"{nbytes(samples.record_bytes)} each, " if samples.record_bytes else ""
    return (
        f"Samples in the part of each file that was read ({size}{samples.evidence}): "
        f"{count(samples.total)} in {plural(samples.files, 'file')}{_spread(samples)}."
    )


def _spread(samples: SamplesPerFile) -> str:
    if samples.files <= 1:
        return ""
    if samples.min == samples.max:
        return f", {count(samples.min)} in each"
    return f", {count(samples.min)} to {count(samples.max)} in one, median {count(samples.median)}"


def _range(low: int, high: int) -> str:
    return count(low) if high - low == 1 else f"{count(low)} to {count(high - 1)}"


def _spec(samples: SamplesPerFile) -> Spec:
    labels = [_range(b.low, b.high) for b in samples.histogram]
    bars = {
        "type": "bar",
        "x": list(range(len(labels))),
        "y": [b.files for b in samples.histogram],
        "customdata": labels,
        "marker": palette.fill(palette.READ),
        "hovertemplate": "%{y} files with %{customdata} samples<extra></extra>",
    }
    layout = palette.layout(
        240,
        showlegend=False,
        xaxis=palette.axis(
            "samples in a file",
            tickvals=list(range(len(labels))),
            ticktext=labels,
            showgrid=False,
            fixedrange=True,
        ),
        yaxis=palette.counts(
            "files", max(b.files for b in samples.histogram), rangemode="tozero", fixedrange=True
        ),
    )
    return {"data": [bars], "layout": layout}


def _alt_text(samples: SamplesPerFile) -> str:
    bins = samples.histogram
    files = plural(sum(b.files for b in bins), "file")
    return f"{files} in {plural(len(bins), 'class', 'classes')}."


SECTION = Section("samples", (figure,))
