"""The dataset's files: how much of each was read, how often, by how many."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses import Results
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.dataset_records import DataFile
from vanidl.figures import palette
from vanidl.figures.cutting import n_of_m, rounded
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.units import byte_scale, factor, nbytes, percent, plural
from vanidl.model.trace import Trace
from vanidl.wording.alt_text import sentence
from vanidl.wording.data import order_words, within_words

LIMIT = 150
BARS = 24
NO_DATASET = (
    "No file of kind dataset was read through this layer. If the log is whole, name your data with "
    "--kind 'GLOB=dataset'."
)
_CAPTION = (
    "Different bytes are the length of the union of all byte ranges read; what was read again "
    "comes on top. A visit begins with a process's first read of a file and again each time it "
    "comes back to the lowest byte that it reads there."
)
_COLUMNS = (
    Column("path"),
    Column("bytes read", "bytes"),
    Column("different bytes", "bytes"),
    Column("re-read factor", "factor"),
    Column("visits", "count"),
    Column("opens", "count"),
    Column("reads", "count"),
    Column("ranks", "count"),
    Column("samples", "count"),
    Column("size on disk", "bytes"),
    Column("highest byte read", "bytes"),
    Column("first read", "s"),
    Column("last read", "s"),
)


def figure(trace: Trace, results: Results) -> Figure:
    """Different and repeated bytes of the largest files, and a table of up to 150 files."""
    del trace
    data = results.dataset
    if data is None:
        return Figure("dataset", "Dataset", "Dataset files", "", empty_reason=NO_DATASET)
    rows = tuple(_row(f) for f in data.files[:LIMIT])
    table = Table(_COLUMNS, rows, n_of_m(len(rows), len(data.files), "files"))
    caption = " ".join([_CAPTION, *_summary(data)])
    if data.unique_bytes is None:
        reason = "Which bytes were read is not recorded: it needs single operations with offsets."
        return Figure("dataset", "Dataset", "Dataset files", caption, None, table, reason)
    return Figure(
        "dataset",
        "Dataset",
        "Dataset files",
        caption,
        _spec(data.files[:BARS]),
        table,
        says=sentence("dataset", results),
    )


def _summary(data: Dataset) -> list[str]:
    words = [
        f"In all {plural(len(data.files), 'file')}: {nbytes(data.bytes_read)} read, "
        f"{nbytes(data.unique_bytes)} different, re-read factor {factor(data.reread_factor)}."
    ]
    orders = [o for o in (order_words(data.order), within_words(data.within)) if o]
    words += [f"{order[0].upper()}{order[1:]}." for order in orders]
    if data.size is None:
        words.append(
            "Logs hold no file sizes: the highest byte read stands in for them (--data PATH)."
        )
    if data.traced_share is not None and data.traced_share < 1:
        words.append(f"Only {percent(data.traced_share)} of the reads were traced: at least so.")
    shown = n_of_m(min(len(data.files), BARS), len(data.files), "files (most bytes)")
    return words + ([f"Shown: {shown}."] if shown else [])


def _spec(files: Sequence[DataFile]) -> Spec:
    unique = [f.unique_bytes or 0 for f in files]
    again = [f.bytes_read - u for f, u in zip(files, unique, strict=True)]
    divisor, unit = byte_scale(max(f.bytes_read for f in files))
    sides = (
        ("different bytes", palette.READ, "", unique),
        ("read again", palette.RAMP[1], "/", again),
    )
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": rounded(v / divisor for v in values),
            "y": list(range(len(files))),
            "customdata": [nbytes(v) for v in values],
            "marker": palette.fill(colour, shape),
            "hovertemplate": "%{customdata} " + name + "<extra></extra>",
        }
        for name, colour, shape, values in sides
    ]
    names = [plotted(f.path.rsplit("/", 1)[-1]) for f in files]
    layout = palette.layout(
        110 + 22 * len(files),
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis(unit, rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=list(range(len(files))),
            ticktext=names,
            autorange="reversed",
            showgrid=False,
            fixedrange=True,
        ),
    )
    return {"data": data, "layout": layout}


def _row(file: DataFile) -> tuple[str | int | float | None, ...]:
    return (
        elided(file.path, limit=100),
        file.bytes_read,
        file.unique_bytes,
        file.reread_factor,
        file.visits,
        file.opens,
        file.reads,
        file.ranks,
        file.samples,
        file.size,
        file.extent,
        file.first_s,
        file.last_s,
    )
