"""The dataset's files: how much of each was read, how often, by how many."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses.datafiles import DataFile, NeverRead, SamplesPerFile
from vanidl.analyses.dataset import Dataset
from vanidl.figures import palette
from vanidl.figures.bars import Stack, byte_bars
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import count, factor, nbytes, percent, plural
from vanidl.model.file_kinds import DATASET
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections import throughput
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.data import mode_words, order_words, part_words, size_range, within_words

LIMIT = 150
BARS = 24
NO_DATASET = (
    "No file of kind dataset was read through this layer. If the log is whole, name your data with "
    "--kind 'GLOB=dataset'."
)
_UNIQUE = (
    "Unique bytes are the length of the union of all byte ranges read; what was read again "
    "comes on top."
)
_VISIT = (
    "A visit begins with a process's first read of a file and again each time it "
    "comes back to the lowest byte that it reads there."
)
_COLUMNS = (
    Column("path"),
    Column("bytes read", "bytes"),
    Column("unique bytes", "bytes"),
    Column("re-read factor", "factor"),
    Column("visits", "count"),
    Column("opens", "count"),
    Column("reads", "count"),
    Column("ranks", "count"),
    Column("samples", "count"),
    Column("size on disk", "bytes"),
    Column("highest byte read", "bytes"),
    Column("first read", "instant"),
    Column("last read", "instant"),
)


def figure(run: Run) -> Figure:
    """Different and repeated bytes of the largest files, and a table of up to 150 files."""
    data = run.dataset
    if data is None:
        return Figure("dataset", "Dataset", "Dataset files", "", empty_reason=NO_DATASET)
    rows = tuple(_row(f) for f in data.files[:LIMIT])
    table = Table(_COLUMNS, rows, n_of_m(len(rows), len(data.files), "files"))
    kind = run.trace.files.data_kind
    taken = "" if kind == DATASET else f"These are files of kind {kind}, the most that was read."
    unique = "" if data.unique_bytes is None else _UNIQUE
    visit = _VISIT if any(f.visits is not None for f in data.files) else ""
    caption = " ".join(filter(None, [taken, unique, visit, *_summary(data)]))
    caption += table.not_recorded(but=("size on disk",))  # for which the highest byte stands in
    table = table.without_empty_columns()
    if data.unique_bytes is None:
        reason = "Which bytes were read is not recorded: it needs single operations with offsets."
        return Figure("dataset", "Dataset", "Dataset files", caption, None, table, reason)
    if cut := n_of_m(min(len(data.files), BARS), len(data.files), "files (most bytes)"):
        caption += f" Shown: {cut}."
    return Figure(
        "dataset",
        "Dataset",
        "Dataset files",
        caption,
        _spec(data.files[:BARS]),
        table,
        alt_text=_alt_text(data),
        half=True,
    )


def _summary(data: Dataset) -> list[str]:
    words = [f"{plural(len(data.files), 'file')} in all: {_bytes_words(data)}."]
    orders = [o for o in (order_words(data.order), within_words(data.within)) if o]
    words += [f"{order[0].upper()}{order[1:]}." for order in orders]
    if data.size is None:
        words.append(
            "Logs hold no file sizes: the highest byte read stands in for them (--data PATH)."
        )
    if data.traced_share is not None and data.traced_share < 1:
        words.append(
            f"{part_words(data.traced_share)} of the reads were traced: lower bounds."
            if data.traced_share
            else "None of the reads was traced: these are totals by counters."
        )
    return words


def _bytes_words(data: Dataset) -> str:
    """`120 MiB read, 60 MiB of them unique, re-read factor 2.00x`, as far as it was recorded."""
    if data.unique_bytes is None:
        return f"{nbytes(data.bytes_read)} read"
    return (
        f"{nbytes(data.bytes_read)} read, {nbytes(data.unique_bytes)} unique, "
        f"re-read factor {factor(data.reread_factor)}"
    )


def _spec(files: Sequence[DataFile]) -> Spec:
    unique = [f.unique_bytes or 0 for f in files]
    again = [f.bytes_read - u for f, u in zip(files, unique, strict=True)]
    stacks = (
        Stack("unique bytes", palette.READ, "", unique),
        Stack("read again", palette.RAMP[1], "/", again),
    )
    names = [plotted(f.path.rsplit("/", 1)[-1]) for f in files]
    return byte_bars(names, stacks, largest=max(f.bytes_read for f in files), row_px=22)


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


def _alt_text(data: Dataset) -> str:
    return f"{plural(len(data.files), 'dataset file')}: {_bytes_words(data)}."


Pairs = list[tuple[str, str]]

_MOST_MODES = 4


def _text(run: Run) -> str | None:
    """What was read of the dataset, in which order, and in which sizes."""
    data = run.dataset
    if data is None:
        return None
    rows = [
        ("files read", plural(len(data.files), "file") + _visits(data)),
        ("bytes", _bytes_words(data)),
        *_within(data),
        *_sharing(data),
        *_samples(data),
        *((f"size {size_range(m)}", mode_words(m)) for m in data.modes[:_MOST_MODES]),
        *_never(data),
        *throughput.text_rows(run),
    ]  # fmt: skip
    return named_values("Dataset", rows)


def _visits(data: Dataset) -> str:
    visits = [f.visits for f in data.files if f.visits is not None]
    if not visits:
        return ""
    each = f"{min(visits)}" if min(visits) == max(visits) else f"{min(visits)} to {max(visits)}"
    words = order_words(data.order)
    return f", {each} visits per file" + (f", {words}" if words else "")


def _within(data: Dataset) -> Pairs:
    words = within_words(data.within)
    return [("reads", words)] if words else []


def _sharing(data: Dataset) -> Pairs:
    shares = [r.share for r in data.ranks if r.share is not None]
    if len(shares) < 2:
        return []
    low, high = percent(min(shares)), percent(max(shares))
    return [("of it per rank", f"{low} to {high} of the {data.share_of}")]


def _samples(data: Dataset) -> Pairs:
    samples = data.samples
    if samples.total is None:
        return []
    spread = (
        f"{count(samples.min)} in each file"
        if samples.min == samples.max
        else f"{count(samples.min)} to {count(samples.max)} per file, "
        f"median {count(samples.median)}"
    )
    return [("samples", f"{count(samples.total)}: {spread} ({samples.source})")]


def _never(data: Dataset) -> Pairs:
    never, rows = data.never, []
    if never.reason:
        rows.append(("never read", f"unknown. {never.reason}"))
    if never.opened:
        rows.append(("opened, not read", f"{plural(len(never.opened), 'data file')} (or mapped)"))
    if never.on_disk:
        rows.append(("never opened", f"{plural(len(never.on_disk), 'file')} of the folder given"))
    return rows


_MOST_FILES = 1000
_NO_SAMPLES = values_of(SamplesPerFile(None, None, "", 0, None, None, None, None, ()))


def _json(run: Run) -> Object:
    """All null or empty where no dataset file was read."""
    data = run.dataset
    if data is None:
        lists = dict.fromkeys(("files", "ranks", "modes"), ())
        return dict.fromkeys(_KIND) | lists | {"samples_per_file": _NO_SAMPLES, "files_read": 0}
    return {
        "bytes_read": data.bytes_read,
        "unique_bytes": data.unique_bytes,
        "reread_factor": data.reread_factor,
        "size": data.size,
        "traced_share": data.traced_share,
        "order": None if data.order is None else values_of(data.order),
        "within": None if data.within is None else values_of(data.within),
        "samples_per_file": values_of(data.samples),
        "modes": [values_of(mode) for mode in data.modes],
        "never_read": values_of(data.never),
        "share_of": data.share_of,
        "ranks": [values_of(rank) for rank in data.ranks],
        "empty_reads": data.empty_reads,
        "files_read": len(data.files),
        "files": [values_of(file) for file in data.files[:_MOST_FILES]],
    }


_KIND = fields_of(Dataset, without=("samples", "never", "grid", "visits")) | {
    "bytes_read": int | None,
    "samples_per_file": SamplesPerFile,
    "never_read": NeverRead | None,
    "share_of": str | None,
    "files_read": int,
}
SECTION = Section("dataset", (figure,), _text, {"io.dataset": Json(_json, _KIND)})
