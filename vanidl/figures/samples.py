"""How many samples the dataset's files hold, and which data was never read."""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.samples import SamplesPerFile
from vanidl.figures import palette
from vanidl.figures.cutting import n_of_m
from vanidl.figures.datafiles import NO_DATASET
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, nbytes
from vanidl.model.trace import Trace
from vanidl.wording.alt_text import sentence

LIMIT = 400
_SAMPLES = "Samples per file"
_NEVER = "Data that was never read"


def per_file(trace: Trace, results: Results) -> Figure:
    """Histogram of samples per file; where samples are unknown, what would tell."""
    del trace
    data = results.dataset
    if data is None:
        return Figure("samples", "Dataset", _SAMPLES, "", empty_reason=NO_DATASET)
    samples = data.samples
    if samples.total is None:
        reason = f"Unknown: {samples.evidence}."
        return Figure("samples", "Dataset", _SAMPLES, "", empty_reason=reason)
    table = Table(
        (Column("samples in a file"), Column("files", "count")),
        tuple((_range(b.low, b.high), b.files) for b in samples.histogram),
    )
    caption = _caption(samples)
    return Figure(
        "samples",
        "Dataset",
        _SAMPLES,
        caption,
        _spec(samples),
        table,
        says=sentence("samples", results),
    )


def never_read(trace: Trace, results: Results) -> Figure:
    """Files that were opened and not read, and files on disk that were never opened."""
    del trace
    data = results.dataset
    reason = _why_nothing(data)
    if data is None or reason:
        return Figure("never-read", "Dataset", _NEVER, "", empty_reason=reason)
    rows = [
        *((elided(p), "opened, no read seen") for p in data.never.opened or ()),
        *((elided(p), "never opened") for p in data.never.on_disk or ()),
    ]
    columns = (Column("path"), Column("what is known"))
    table = Table(columns, tuple(rows[:LIMIT]), n_of_m(min(len(rows), LIMIT), len(rows), "files"))
    caption = "Reads through memory maps (np.memmap, np.load of a plain array) are not seen."
    return Figure("never-read", "Dataset", _NEVER, caption, None, table)


def _why_nothing(data: Dataset | None) -> str:
    if data is None:
        return NO_DATASET
    never = data.never
    if never.reason:
        return f"Unknown. {never.reason}"
    if never.opened or never.on_disk:
        return ""
    if never.opened is None:
        return "Unknown: no counters were recorded."
    words = "Every data file that was opened was also read."
    if never.on_disk is None:
        words += " Files never opened are in no log: name the folder with --data PATH."
    return words


def _caption(samples: SamplesPerFile) -> str:
    size = f"{nbytes(samples.record_bytes)} each, " if samples.record_bytes else ""
    return (
        f"Samples in the part of each file that was read ({size}{samples.evidence}): "
        f"{count(samples.total)} in {count(samples.files)} files, {count(samples.min)} to "
        f"{count(samples.max)} in one, median {count(samples.median)}."
    )


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
        yaxis=palette.axis("files", rangemode="tozero", fixedrange=True),
    )
    return {"data": [bars], "layout": layout}
