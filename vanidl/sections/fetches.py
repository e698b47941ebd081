"""Which batch waited for what: reads, decoding, collating, or its way from the worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vanidl.analyses.fetching import FetchedBatches, Fetching, LoaderFetches, WaitParts
from vanidl.analyses.summary import objects_apart
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import Row, aligned_table, named_values
from vanidl.formatting.units import Cell, count, nbytes, plural, seconds
from vanidl.model.trace import Trace
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes
from vanidl.run import Run
from vanidl.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.waits import known_parts

LIMIT = 40
SLOWEST = 20
_MOST_LOADERS = 8
_TITLE = "What batches waited for"
_STACKS = (
    ("reads_s", "reads and writes", palette.READ, ""),
    ("metadata_s", "metadata calls", palette.WRITE, "/"),
    ("decoding_s", "decoding", palette.IN_WAIT, ""),
    ("samples_s", "getting samples, I/O included", palette.IN_WAIT, "x"),
    ("collating_s", "collating", palette.COMMUNICATION, "/"),
    ("collate_s", "collating, I/O included", palette.COMMUNICATION, "/"),
    ("delivery_s", "delivery", palette.HIDDEN, ""),
    ("not_begun_s", "not begun", palette.OTHER, "x"),
    ("rest_s", "starting workers, ends of epochs", palette.UNOBSERVED, "."),
)
_CAPTION = (
    "One bar per rank: its input waits, by what the process that fetched the batch did while "
    "training waited for that batch. Known per batch, as the recorder saw each fetch: what other "
    "workers read ahead meanwhile does not count. Decoding is __getitem__ without its I/O. "
)
_NO_IO = "What was read within the fetches was not recorded: no tracer ran in these processes."
_IN_PART = "Not all I/O was recorded, or not in this layer: what is missing is in decoding."
_NO_CALLS = "Metadata calls were not timed one by one and are in decoding."
_NOWHERE = (
    "Which batch waited for what was not recorded: vanidl record does that for the DataLoader "
    "of PyTorch."
)


def figure(run: Run) -> Figure:
    """The input waits of each rank by what the batch that they took was at."""
    found = run.fetching
    if found is None or found.mean is None:
        return Figure("fetches", "Input and compute", _TITLE, "", None, None, _NOWHERE,
                      applies=False)  # fmt: skip
    rows = found.per_rank if len(found.per_rank) == 1 else (found.mean, *found.per_rank[:LIMIT])
    cut = n_of_m(min(len(found.per_rank), LIMIT), len(found.per_rank), "ranks")
    words = [_CAPTION, *_remarks(run, found), f"Shown: {cut}." if cut else ""]
    table = slowest_batches(run.trace, found.batches, found.names)
    return Figure(
        "fetches",
        "Input and compute",
        _TITLE,
        " ".join(word.strip() for word in words if word),
        _spec(rows, traced=found.io_recorded),
        table,
        alt_text=f"Of {seconds(found.mean.wait_s)} of input wait, on average: "
        f"{known_parts(found.mean, whole=_is_whole(run))}.",
    )


def _is_whole(run: Run) -> bool:
    """Whether all I/O was recorded that can lie in fetches."""
    lossy = LOWER_BOUNDS & serious_codes(run.coverage.warnings)
    return not lossy and not objects_apart(run.summary)


def _remarks(run: Run, found: Fetching) -> Iterator[str]:
    if not found.io_recorded:
        yield _NO_IO
    elif not _is_whole(run):
        yield _IN_PART
    elif found.mean is not None and found.mean.metadata_s is None:
        yield _NO_CALLS


def _spec(rows: tuple[WaitParts, ...], *, traced: bool) -> Spec:
    positions, labels = list(range(len(rows))), [plotted(row.label) for row in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [getattr(row, field) for row in rows],
            "y": positions,
            "customdata": [seconds(getattr(row, field)) for row in rows],
            "marker": palette.fill(colour, pattern),
            "hovertemplate": "%{customdata} " + name + "<extra></extra>",
        }
        for field, name, colour, pattern in _shown(rows, traced=traced)
    ]
    layout = palette.layout(
        130 + max(34 if len(rows) <= 8 else 20, 16) * len(rows),
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis("seconds", rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=positions, ticktext=labels, range=[len(rows) - 0.5, -0.5],
            showgrid=False, fixedrange=True,
        ),
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _shown(rows: tuple[WaitParts, ...], *, traced: bool) -> Iterator[tuple[str, str, str, str]]:
    """The parts that are known; where I/O is not, getting samples and collating as a whole."""
    left_out = {"samples_s", "collate_s"} if traced else {"collating_s"}
    for stack in _STACKS:
        if stack[0] not in left_out and any(getattr(row, stack[0]) is not None for row in rows):
            yield stack


_COLUMNS = (
    Column("loader"), Column("epoch", "count"), Column("batch", "count"), Column("rank"),
    Column("worker"), Column("waited", "s"), Column("fetch", "s"), Column("reads", "s"),
    Column("decoding", "s"), Column("collating", "s"), Column("longest read", "s"),
    Column("of bytes", "bytes"), Column("in file"),
)  # fmt: skip


def slowest_batches(trace: Trace, batches: FetchedBatches, names: tuple[str, ...]) -> Table:
    """The batches that training waited for longest, with the longest read of each."""
    rows = _slowest(batches)
    taken = int(np.count_nonzero(~np.isnan(batches.wait_s)))
    cells = tuple(_batch(trace, batches, names, int(row)) for row in rows)
    return Table(_COLUMNS, cells, n_of_m(len(rows), taken, "batches, longest waits first"))


def _slowest(batches: FetchedBatches) -> list[int]:
    taken = np.flatnonzero(~np.isnan(batches.wait_s))
    order = taken[np.lexsort((batches.start_s[taken], -batches.wait_s[taken]))]
    found: list[int] = order[:SLOWEST].tolist()
    return found


def _batch(
    trace: Trace, batches: FetchedBatches, names: tuple[str, ...], row: int
) -> tuple[Cell, ...]:
    def of(name: str) -> float | None:
        value = float(getattr(batches, name)[row])
        return None if np.isnan(value) else value

    file, worker = int(batches.longest_read_file[row]), int(batches.worker[row])
    name = names[batches.name[row]] if batches.name[row] >= 0 else ""
    return (
        elided(name, limit=80), int(batches.epoch[row]), int(batches.batch[row]),
        elided(trace.processes[trace.ranks[int(batches.rank[row])]].label, limit=80),
        str(worker) if worker >= 0 else "none",
        of("wait_s"), (of("samples_s") or 0.0) + (of("collate_s") or 0.0), of("reads_s"),
        of("decoding_s"), of("collating_s"),
        of("longest_read_s") if file >= 0 else None,
        int(batches.longest_read_nbytes[row]) if file >= 0 else None,
        elided(trace.files.path[file], limit=200) if file >= 0 else None,
    )  # fmt: skip


def _text(run: Run) -> str | None:
    found = run.fetching
    if found is None:
        return None
    rows: list[Row] = [
        ("mean per batch", "batches", "workers", "samples", "of it reads", "decoding", "collate",
         "waited")
    ]  # fmt: skip
    rows += [_loader(each) for each in found.loaders[:_MOST_LOADERS]]
    table = aligned_table("Fetches, known per batch", rows) or "Fetches\n"
    words = []
    if found.mean is not None:
        words.append(("waits", known_parts(found.mean, whole=_is_whole(run))))
    words += [("I/O", remark) for remark in _remarks(run, found)]
    words += [("longest", each) for each in _longest(run.trace, found.batches)]
    return named_values(table.rstrip(), words)


def _loader(each: LoaderFetches) -> Row:
    times = (each.samples_s, each.reads_s, each.decoding_s, each.collate_s, each.wait_s)
    shown = ("not recorded" if value is None else seconds(value) for value in times)
    return (elided(each.name, limit=60), count(each.batches), count(each.workers), *shown)


def _longest(trace: Trace, batches: FetchedBatches) -> Iterator[str]:
    """The batch that was waited for longest, and its longest read."""
    slowest = _slowest(batches)
    if not slowest:
        return
    row = slowest[0]
    file = int(batches.longest_read_file[row])
    read = (
        f"; its longest read: {seconds(float(batches.longest_read_s[row]))} for "
        f"{nbytes(int(batches.longest_read_nbytes[row]))} of {trace.files.path[file]}"
        if file >= 0
        else ""
    )
    yield (
        f"{seconds(float(batches.wait_s[row]))} for batch {batches.batch[row]} of "
        f"epoch {batches.epoch[row]} ({plural(int(max(batches.samples[row], 0)), 'sample')}){read}"
    )


def _json(run: Run) -> Object | None:
    found = run.fetching
    if found is None:
        return None
    table = slowest_batches(run.trace, found.batches, found.names)
    keys = [column.title.replace(" ", "_") for column in table.columns]
    units = [f"{k}_s" if c.unit == "s" else k for k, c in zip(keys, table.columns, strict=True)]
    return {
        "basis": "known per batch",
        "io_recorded": found.io_recorded,
        "batches": len(found.batches),
        "loaders": [values_of(each) for each in found.loaders],
        "mean": None if found.mean is None else values_of(found.mean, without=("label",)),
        "per_rank": [values_of(row) for row in found.per_rank],
        "slowest": [dict(zip(units, row, strict=True)) for row in table.rows],
    }


_BATCH = (
    dict.fromkeys(("loader", "rank", "worker"), str)
    | dict.fromkeys(("epoch", "batch"), int)
    | dict.fromkeys(
        ("waited_s", "fetch_s", "reads_s", "decoding_s", "collating_s", "longest_read_s"),
        float | None,
    )
    | {"of_bytes": int | None, "in_file": str | None}
)
_KIND = Maybe({
    "basis": str,
    "io_recorded": bool,
    "batches": int,
    "loaders": [LoaderFetches],
    "mean": Maybe(fields_of(WaitParts, without=("label",))),
    "per_rank": [WaitParts],
    "slowest": [_BATCH],
})  # fmt: skip
SECTION = Section("fetches", (figure,), _text, {"fetches": Json(_json, _KIND)})
