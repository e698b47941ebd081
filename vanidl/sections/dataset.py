"""The dataset: how much of each file was read, how often, when and by whom, and its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.access import AccessCounts
from vanidl.analyses.datafiles import (
    DataFile,
    NeverRead,
    RankShare,
    SamplesPerFile,
)
from vanidl.analyses.dataset import Dataset, VisitOrder
from vanidl.analyses.sizes import TransferMode
from vanidl.figures import palette
from vanidl.figures.bars import Stack, byte_bars
from vanidl.figures.downsample import fold_bins, n_of_m, pick_spread, round_values
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import (
    byte_scale,
    count,
    factor,
    nbytes,
    number,
    percent,
    plural,
    seconds,
)
from vanidl.model.file_kinds import DATASET
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.phases import epoch_lines
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.sections.timeline import TABLE_FILES, tabulate_lines
from vanidl.wording.tracing import begin_part

MOST_DATA_FILES = 150
FILE_BARS = 24
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
_DATASET_COLUMNS = (
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


def draw_dataset(run: Run) -> Figure:
    """Different and repeated bytes of the largest files, and a table of up to 150 files."""
    data = run.dataset
    if data is None:
        return Figure("dataset", "Dataset", "Dataset files", "", empty_reason=NO_DATASET)
    rows = tuple(_list_data_file(f) for f in data.files[:MOST_DATA_FILES])
    table = Table(_DATASET_COLUMNS, rows, n_of_m(len(rows), len(data.files), "files"))
    # What of the dataset the numbers are, and what could not be seen of it.
    kind = run.trace.files.data_kind
    taken = "" if kind == DATASET else f"These are files of kind {kind}, the most that was read."
    unique = "" if data.unique_bytes is None else _UNIQUE
    visit = _VISIT if any(f.visits is not None for f in data.files) else ""
    words = [f"{plural(len(data.files), 'file')} in all: {_describe_bytes(data)}."]
    orders = [o for o in (describe_order(data.order), describe_within(data.within)) if o]
    words += [f"{order[0].upper()}{order[1:]}." for order in orders]
    if data.size is None:
        words.append(
            "Logs hold no file sizes: the highest byte read stands in for them (--data PATH)."
        )
    if data.traced_share is not None and data.traced_share < 1:
        words.append(
            f"{begin_part(data.traced_share)} of the reads were traced: lower bounds."
            if data.traced_share
            else "None of the reads was traced: these are totals by counters."
        )
    caption = " ".join(filter(None, [taken, unique, visit, *words]))
    caption += table.not_recorded(but=("size on disk",))  # for which the highest byte stands in
    table = table.without_empty_columns()
    # Which bytes were read needs operations with offsets: the table stands without bars.
    if data.unique_bytes is None:
        reason = "Which bytes were read is not recorded: it needs single operations with offsets."
        return Figure("dataset", "Dataset", "Dataset files", caption, None, table, reason)
    if cut := n_of_m(min(len(data.files), FILE_BARS), len(data.files), "files (most bytes)"):
        caption += f" Shown: {cut}."
    dataset = f"{plural(len(data.files), 'dataset file')}: {_describe_bytes(data)}."
    return Figure(
        "dataset",
        "Dataset",
        "Dataset files",
        caption,
        _plot_dataset(data.files[:FILE_BARS]),
        table,
        alt_text=dataset,
        half=True,
    )


def _describe_bytes(data: Dataset) -> str:
    """`120 MiB read, 60 MiB of them unique, re-read factor 2.00x`, as far as it was recorded."""
    if data.unique_bytes is None:
        return f"{nbytes(data.bytes_read)} read"
    return (
        f"{nbytes(data.bytes_read)} read, {nbytes(data.unique_bytes)} unique, "
        f"re-read factor {factor(data.reread_factor)}"
    )


def _plot_dataset(files: Sequence[DataFile]) -> Spec:
    unique = [f.unique_bytes or 0 for f in files]
    again = [f.bytes_read - u for f, u in zip(files, unique, strict=True)]
    stacks = (
        Stack("unique bytes", palette.READ, "", unique),
        Stack("read again", palette.RAMP[1], "/", again),
    )
    names = [plotted(f.path.rsplit("/", 1)[-1]) for f in files]
    return byte_bars(names, stacks, largest=max(f.bytes_read for f in files), row_px=22)


def _list_data_file(file: DataFile) -> tuple[str | int | float | None, ...]:
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


_MOST_MODES = 4


def _write_dataset(run: Run) -> str | None:
    """What was read of the dataset, in which order, and in which sizes."""
    data = run.dataset
    if data is None:
        return None
    # How often files were read; where offsets of reads are not known, how often opened.
    files = plural(len(data.files), "file")
    visits = [f.visits for f in data.files if f.visits is not None]
    opens = [f.opens for f in data.files if f.opens is not None and f.visits is None]
    if visits:
        files += f", {_name_range(min(visits), max(visits))} visits per file"
        order = describe_order(data.order)
        files += f", {order}" if order else ""
    elif opens:
        files += f", {_name_range(min(opens), max(opens))} opens per file"
    rows = [("files read", files), ("bytes", _describe_bytes(data))]
    if within := describe_within(data.within):
        rows.append(("reads", within))
    # How ranks share it, and how many samples files hold.
    shares = [r.share for r in data.ranks if r.share is not None]
    if len(shares) > 1:
        low, high = percent(min(shares)), percent(max(shares))
        rows.append(("of it per rank", f"{low} to {high} of the {data.share_of}"))
    samples = data.samples
    if samples.total is not None:
        spread = (
            f"{count(samples.min)} in each file"
            if samples.min == samples.max
            else f"{count(samples.min)} to {count(samples.max)} per file, "
            f"median {count(samples.median)}"
        )
        rows.append(("samples", f"{count(samples.total)}: {spread} ({samples.source})"))
    # Where sizes cluster.
    rows += [(f"size {name_size_range(m)}", describe_mode(m)) for m in data.modes[:_MOST_MODES]]
    # What was left unread. A mapped file is opened and read by page faults, which no tracer sees.
    never = data.never
    if never.reason:
        rows.append(("never read", f"unknown. {never.reason}"))
    if never.opened:
        rows.append(("opened, not read", f"{plural(len(never.opened), 'data file')} (or mapped)"))
    if never.on_disk:
        rows.append(("never opened", f"{plural(len(never.on_disk), 'file')} of the folder given"))
    return named_values("Dataset", [*rows, *list_throughput(run)])


_MOST_FILES = 1000
_NO_SAMPLES = values_of(SamplesPerFile(None, None, "", 0, None, None, None, None, ()))


def _collect_dataset(run: Run) -> Object:
    """All null or empty where no dataset file was read."""
    data = run.dataset
    # Readers of the JSON find the same keys in every run.
    if data is None:
        lists = dict.fromkeys(("files", "ranks", "modes"), ())
        return (
            dict.fromkeys(_DATASET_KIND)
            | lists
            | {"samples_per_file": _NO_SAMPLES, "files_read": 0}
        )
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


_DATASET_KIND = fields_of(Dataset, without=("samples", "never", "grid", "visits")) | {
    "bytes_read": int | None,
    "samples_per_file": SamplesPerFile,
    "never_read": NeverRead | None,
    "share_of": str | None,
    "files_read": int,
}
DATASET_FILES = Section(
    "dataset",
    (draw_dataset,),
    _write_dataset,
    {"io.dataset": Json(_collect_dataset, _DATASET_KIND)},
)


# Where the sizes of dataset reads cluster, and why.

_MODES_TITLE = "Sizes of dataset reads and their causes"
_MODES_CAPTION = (
    "Sizes, or groups of sizes, that hold 2 % of the reads or bytes. A cause is certain only "
    "where the files were opened (--inspect); else it says what such a size is typical of."
)
_MODES_COLUMNS = (
    Column("size"),
    Column("reads", "count"),
    Column("of the reads", "share"),
    Column("of the bytes", "share"),
    Column("cause"),
    Column("certain"),
    Column("evidence"),
)


def draw_modes(run: Run) -> Figure:
    """A table of modes with cause and evidence, most bytes first."""
    data = run.dataset
    if data is None or not data.modes:
        reason = NO_DATASET if data is None else "Sizes of single reads were not recorded."
        return Figure("data-sizes", "Dataset", _MODES_TITLE, "", empty_reason=reason)
    rows = tuple(
        (
            name_size_range(mode),
            mode.reads,
            mode.share_of_reads,
            mode.share_of_bytes,
            mode.cause or "unknown",
            "yes" if mode.certain else "no",
            mode.evidence,
        )
        for mode in data.modes
    )
    return Figure(
        "data-sizes", "Dataset", _MODES_TITLE, _MODES_CAPTION, None, Table(_MODES_COLUMNS, rows)
    )


TRANSFER_MODES = Section("transfer modes", (draw_modes,))


# Data files that were opened and not read, or never opened.

MOST_NEVER_READ = 400
_NEVER_READ_TITLE = "Data that was never read"


def draw_never_read(run: Run) -> Figure:
    """Files that were opened and not read, and files on disk that were never opened."""
    data = run.dataset
    reason = _explain_nothing(data)
    if data is None or reason:
        return Figure("never-read", "Dataset", _NEVER_READ_TITLE, "", empty_reason=reason)
    rows = [
        *((elided(p), "opened, no read seen") for p in data.never.opened or ()),
        *((elided(p), "never opened") for p in data.never.on_disk or ()),
    ]
    columns = (Column("path"), Column("what is known"))
    table = Table(
        columns,
        tuple(rows[:MOST_NEVER_READ]),
        n_of_m(min(len(rows), MOST_NEVER_READ), len(rows), "files"),
    )
    caption = "Reads through memory maps (np.memmap, np.load of a plain array) are not seen."
    return Figure("never-read", "Dataset", _NEVER_READ_TITLE, caption, None, table)


def _explain_nothing(data: Dataset | None) -> str:
    if data is None:
        return NO_DATASET
    never = data.never
    if never.reason:
        return f"Unknown. {never.reason}"
    if never.opened or never.on_disk:
        return ""
    if never.opened is None:
        return "Unknown: no counters were recorded."
    # Nothing to list: what was looked at for that.
    read = "Every data file that was opened was also read"
    if never.on_disk is None:
        return f"Files never opened are in no log: name the folder with --data PATH. {read}."
    return f"{read}, and every file of the folder was opened."


NEVER_READ = Section("never read", (draw_never_read,), traced=False)


# How many samples the dataset's files hold.

_SAMPLES_TITLE = "Samples per file"


def draw_samples(run: Run) -> Figure:
    """Histogram of samples per file; where samples are unknown, what would tell."""
    data = run.dataset
    if data is None:
        return Figure("samples", "Dataset", _SAMPLES_TITLE, "", empty_reason=NO_DATASET)
    samples = data.samples
    if samples.total is None:
        reason = f"Unknown: {samples.evidence}."
        return Figure("samples", "Dataset", _SAMPLES_TITLE, "", empty_reason=reason)
    table = Table(
        (Column("samples in a file"), Column("files", "count")),
        tuple((_name_range(b.low, b.high), b.files) for b in samples.histogram),
    )
    bins = samples.histogram
    files = plural(sum(b.files for b in bins), "file")
    return Figure(
        "samples",
        "Dataset",
        _SAMPLES_TITLE,
        _compose_samples(samples),
        # A histogram of one file is a single bar.
        _plot_samples(samples) if samples.files > 1 else None,
        table,
        alt_text=f"{files} in {plural(len(bins), 'class', 'classes')}.",
        half=True,
    )


def _compose_samples(samples: SamplesPerFile) -> str:
    size = f"{nbytes(samples.record_bytes)} each, " if samples.record_bytes else ""
    least, most, median = count(samples.min), count(samples.max), count(samples.median)
    # One file has no spread.
    spread = (
        f", {least} in each" if least == most else f", {least} to {most} in one, median {median}"
    )
    return (
        f"Samples in the part of each file that was read ({size}{samples.evidence}): "
        f"{count(samples.total)} in {plural(samples.files, 'file')}"
        f"{spread if samples.files > 1 else ''}."
    )


def _name_range(low: int, high: int) -> str:
    return count(low) if high - low == 1 else f"{count(low)} to {count(high - 1)}"


def _plot_samples(samples: SamplesPerFile) -> Spec:
    labels = [_name_range(b.low, b.high) for b in samples.histogram]
    # Bars at whole numbers, named by ticks: Plotly would read a name like 1 as a number.
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


SAMPLES = Section("samples", (draw_samples,))


# How much of the dataset each rank read.

RANK_BARS = 64
MOST_SHARES = 256
_SHARES_TITLE = "Share of the data that each rank read"
_SHARES_COLUMNS = (
    Column("rank"),
    Column("share", "share"),
    Column("unique bytes", "bytes"),
    Column("bytes read", "bytes"),
    Column("files", "count"),
)


def draw_shares(run: Run) -> Figure:
    """One bar per rank: its unique bytes over those of the dataset."""
    data = run.dataset
    if data is None or not data.ranks:
        reason = NO_DATASET if data is None else "It needs single operations with offsets."
        return Figure("data-shares", "Dataset", _SHARES_TITLE, "", empty_reason=reason)
    table = Table(
        _SHARES_COLUMNS,
        tuple(
            (elided(r.label, limit=80), r.share, r.unique_bytes, r.bytes_read, r.files)
            for r in data.ranks[:MOST_SHARES]
        ),
        n_of_m(min(len(data.ranks), MOST_SHARES), len(data.ranks), "ranks"),
    )
    caption = (
        f"Unique bytes of each rank / {data.share_of}. Where every rank shows 100 %, each reads "
        "all of the data; shares that add up to 100 % split it."
    )
    # One bar says no more than a sentence.
    if len(data.ranks) == 1:
        reason = f"The only rank read {percent(data.ranks[0].share)} of the {data.share_of}."
        known = data.size is not None  # else it is a share of what this very rank read
        return Figure(
            "data-shares", "Dataset", _SHARES_TITLE, "", None, table, reason, applies=known
        )
    picked = [data.ranks[i] for i in pick_spread(len(data.ranks), RANK_BARS).tolist()]
    cut = n_of_m(len(picked), len(data.ranks), "ranks")
    caption += f" Shown: {cut}." if cut else ""
    shares = [r.share for r in data.ranks if r.share is not None]
    alt_text = (
        f"Each of {plural(len(data.ranks), 'rank')} read {percent(min(shares))} to "
        f"{percent(max(shares))} of the {data.share_of}."
        if shares
        else ""
    )
    return Figure(
        "data-shares",
        "Dataset",
        _SHARES_TITLE,
        caption,
        _plot_shares(picked),
        table,
        alt_text=alt_text,
        half=True,
    )


def _plot_shares(ranks: list[RankShare]) -> Spec:
    shares = [100 * (r.share or 0) for r in ranks]
    bars = {
        "type": "bar",
        "x": list(range(len(ranks))),
        "y": round_values(shares),
        "customdata": [f"{plotted(r.label)}: {percent(r.share)}" for r in ranks],
        "marker": palette.fill(palette.READ),
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    # Names of some ranks only, where there are many.
    every = max(1, -(-len(ranks) // 16))
    layout = palette.layout(
        260,
        showlegend=False,
        xaxis=palette.axis(
            tickvals=list(range(0, len(ranks), every)),
            ticktext=[plotted(r.label, limit=16) for r in ranks[::every]],
            showgrid=False,
            fixedrange=True,
        ),
        yaxis=palette.axis("% of the data", rangemode="tozero", fixedrange=True),
    )
    return {"data": [bars], "layout": layout}


DATA_SHARES = Section("data shares", (draw_shares,))


# Which dataset file is read when.

CELLS = 64_000  # of a picture of visits: files times bins
MOST_BINS = 512
_VISITS_CAPTION = (
    "One row per file, by first visit from top to bottom, over seconds since the start of the job; "
    "a stronger colour is more bytes."
)
_MANY = (
    " A staircase is a dataset read in order, a cloud one read shuffled; the pattern repeats with "
    "each epoch."
)
_BORDERS = " Dashed lines: where epochs begin."


def draw_visits(run: Run) -> Figure:
    """Bytes read of each file over time, at most 1,000 files."""
    data = run.dataset
    if data is None:
        return _compose_visits("", reason=NO_DATASET)
    if data.grid is None or not data.grid.nbytes.any():
        reason = "When each file was read is not recorded: it needs single operations."
        return _compose_visits("", reason=reason)
    grid = data.grid
    bins = max(min(MOST_BINS, CELLS // max(len(grid.file), 1)), 64)
    edges, sums = fold_bins(grid.edges_s, grid.nbytes, bins)
    divisor, unit = byte_scale(float(sums.max(initial=0)))
    # Nothing is transparent, little beside much is seen.
    faintest, *rest = palette.scale(palette.RAMP, power=2)
    colours = [[0.0, "rgba(0,0,0,0)"], [1e-9, "rgba(0,0,0,0)"], [1e-9, faintest[1]], *rest]
    heat = {
        "type": "heatmap",
        "x": round_edges(edges),
        "y": list(range(len(grid.file))),
        "z": [round_values(row / divisor) for row in sums],
        "zmin": 0,
        "colorscale": colours,
        "colorbar": palette.colorbar(f" {unit}"),
        "hovertemplate": "%{y}, at %{x:.2f} s: %{z:.3g} " + unit + "<extra></extra>",
    }
    # 22 px a file, 90 to 620 px in all; 110 px lie around them.
    layout = palette.time_layout(110 + min(max(22 * len(grid.file), 90), 620))
    layout["margin"] = {**layout["margin"], "l": 72}
    layout["xaxis"] = palette.time_axis(range=[float(edges[0]), float(edges[-1])])
    paths = [data.files[i].path for i in grid.file.tolist()]
    names = [plotted(path.rsplit("/", 1)[-1], limit=20) for path in paths]
    layout["yaxis"] = palette.rank_axis(names)
    layout["shapes"] = epoch_lines(run.phases)
    caption = _VISITS_CAPTION + (_MANY if len(grid.file) > 1 else "")
    caption += _BORDERS if layout["shapes"] else ""
    cut = n_of_m(len(grid.file), grid.files, "files")
    caption += f" Shown: {cut}." if cut else ""
    drawn = _compose_visits(caption, spec={"data": [heat], "layout": layout})
    # The same in few spans of time, and in words.
    shown, amounts = tuple(paths[:TABLE_FILES]), grid.nbytes[:TABLE_FILES]
    table = tabulate_lines("file", shown, grid.edges_s, amounts, cut_from=grid.files)
    first = seconds(float(grid.edges_s[int(np.flatnonzero(grid.nbytes.sum(axis=0))[0])]))
    visits = f"{plural(grid.files, 'file')}, the first read {first} after the start."
    return replace(drawn, table=table, alt_text=visits)


def _compose_visits(caption: str, *, spec: Spec | None = None, reason: str = "") -> Figure:
    title = "Which file is read when"
    return Figure("visits", "Dataset", title, caption, spec, None, reason)


def round_edges(edges: NDArray[np.float64]) -> list[float]:
    """Edges of bins to the microsecond."""
    values: list[float] = np.round(edges, 6).tolist()
    return values


VISITS = Section("visits", (draw_visits,))


# Steps and samples per second.


def list_throughput(run: Run) -> list[tuple[str, str]]:
    """Samples per second, for the block about the dataset; nothing where they are unknown."""
    per_s = _collect_throughput(run)["samples_per_s"]
    return [("throughput", f"{number(per_s)} samples per second")] if per_s else []


def _collect_throughput(run: Run) -> Object:
    """Steps a second of one rank, and samples a second of all observed ranks together.

    Profiled steps over the time of the windows they lie in; samples need --samples-per-step.
    """
    steps, overlap = run.steps, run.overlap
    window_s = sum(row.window_s for row in overlap.per_rank) if overlap is not None else 0
    per_s = len(steps.table.step) / window_s if steps is not None and window_s > 0 else None
    batch = run.trace.user_data.samples_per_step
    known = per_s is not None and batch is not None and overlap is not None
    samples = per_s * batch * overlap.ranks_observed if known else None  # type: ignore[operator,union-attr]
    return {"steps_per_s": per_s, "samples_per_s": samples, "samples_per_step": batch}


_THROUGHPUT_KIND = dict.fromkeys(("steps_per_s", "samples_per_s"), float | None) | {
    "samples_per_step": int | None
}
THROUGHPUT = Section(
    "throughput", json={"throughput": Json(_collect_throughput, _THROUGHPUT_KIND)}, traced=False
)


def name_size_range(mode: TransferMode) -> str:
    """`256 KiB`, or `118 KiB to 118.2 KiB`."""
    low, high = nbytes(mode.low), nbytes(mode.high)
    return low if low == high else f"{low} to {high}"


def describe_mode(mode: TransferMode) -> str:
    """How many reads and bytes a mode has, and its cause."""
    cause = mode.cause or "cause unknown"
    return (
        f"{count(mode.reads)} reads ({percent(mode.share_of_reads)}), "
        f"{percent(mode.share_of_bytes)} of the bytes; {cause}"
    )


def describe_within(within: AccessCounts | None) -> str:
    """Where reads begin after the one before in the same file; "" where not recorded."""
    if within is None or within.ops == within.first:
        return ""
    parts = (
        (within.consecutive, "follow on"),
        (within.forward, "skip ahead"),
        (within.backward, "go back"),
    )
    shares = [f"{percent(n / within.ops)} {words}" for n, words in parts if n]
    return f"within files {', '.join(shares)}"


def describe_order(order: VisitOrder | None) -> str:
    """In which order files are visited; "" where there is no order to speak of."""
    if order is None or order.concordance is None or order.name in ("one file", "not clear"):
        return ""
    words = {
        "in order": "files in order of their names",
        "reversed": "files in reverse order of their names",
        "shuffled": "files in shuffled order",
    }[order.name]
    return f"{words} ({percent(order.concordance)} of the pairs ascend)"
