"""Which batch waited for what (reads, decoding, collating, delivery), and in which lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vanidl.analyses.batches import FetchedBatches, Fetching, LoaderFetches
from vanidl.analyses.lines import Lines, PartLines
from vanidl.analyses.summary import has_separate_objects
from vanidl.breakdown import Breakdown
from vanidl.breakdown import Cell as DurationCell
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.causes import (
    COMPUTE,
    DELIVERY,
    INPUT_CPU,
    METADATA,
    READ,
    STORAGE,
    TOO_FEW_CORES,
    WORKERS,
    WRITE,
)
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import Row, aligned_table, named_values
from vanidl.formatting.units import Cell, count, nbytes, percent, plural, seconds
from vanidl.model.trace import Trace
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes
from vanidl.run import Run
from vanidl.schema.schema import Maybe
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.account import (
    CHILD,
    LOCK,
    NETWORK,
    OPEN,
    SLEEP,
    WAIT_WORDS,
    describe_waits,
    divide_waits,
    is_storage_known,
)
from vanidl.wording.cells import settle
from vanidl.wording.results import describe_how, name_place

MOST_BATCHES = 40
SLOWEST = 20
_MOST_LOADERS = 8
_FETCHES_TITLE = "What batches waited for"
_COLOURS = {
    STORAGE: (palette.READ, ""),
    INPUT_CPU: (palette.IN_WAIT, ""),
    LOCK: (palette.OTHER, "/"),
    NETWORK: (palette.OTHER, "\\"),
    SLEEP: (palette.OTHER, "-"),
    CHILD: (palette.OTHER, "|"),
    TOO_FEW_CORES: (palette.OTHER, "+"),
    WORKERS: (palette.UNOBSERVED, "."),
    DELIVERY: (palette.HIDDEN, ""),
    COMPUTE: (palette.OTHER, "x"),
    OPEN: (palette.IN_WAIT, "/"),
}
_FETCHES_CAPTION = (
    "One bar per rank: its input waits, by what the process that fetched the late batch did since "
    "the batch was asked of it. What other workers read ahead meanwhile does not count. Where "
    "evidence leaves a cause open, the bar has what is its own for sure, and the rest is hatched. "
)
_NO_IO = "What was read within the fetches was not recorded: no tracer ran in these processes."
_IN_PART = "Not all I/O was recorded, or not in this layer: what is missing looks like other work."
_NOWHERE = (
    "Which batch waited for what was not recorded: vanidl record does that for the DataLoader "
    "of PyTorch."
)


def draw_fetches(run: Run) -> Figure:
    """The input waits of each rank by what the batch that they took was at."""
    fetching, account = run.fetching, run.breakdown
    if fetching is None or not account.length_ns(WAIT):
        return Figure("fetches", "Input and compute", _FETCHES_TITLE, "", None, None, _NOWHERE,
                      applies=False)  # fmt: skip
    ranks = [str(place) for place in np.flatnonzero(account.observed).tolist()]
    # The mean of one rank would repeat it.
    rows = ranks if len(ranks) == 1 else [MEAN, *ranks[:MOST_BATCHES]]
    cut = n_of_m(min(len(ranks), MOST_BATCHES), len(ranks), "ranks")
    words = [_FETCHES_CAPTION, *_list_remarks(run, fetching), f"Shown: {cut}." if cut else ""]
    table = slowest_batches(run.trace, fetching.batches, fetching.names)
    waited = seconds(account.length_ns(WAIT) / 1e9)
    return Figure(
        "fetches",
        "Input and compute",
        _FETCHES_TITLE,
        " ".join(word.strip() for word in words if word),
        _plot_fetches(run, rows),
        table,
        alt_text=f"Input waits of a rank: {waited}, on average; "
        f"{settle(describe_waits(account, whole=_is_whole(run)))}.",
    )


def _is_whole(run: Run) -> bool:
    """Whether all I/O was recorded that can lie in fetches."""
    lossy = LOWER_BOUNDS & serious_codes(run.coverage.warnings)
    sampled = is_storage_known(run.breakdown)
    return sampled or (not lossy and not has_separate_objects(run.summary))


def _list_remarks(run: Run, fetching: Fetching) -> Iterator[str]:
    if not fetching.io_recorded:
        yield _NO_IO
    elif not _is_whole(run):
        yield _IN_PART


def _plot_fetches(run: Run, ranks: Sequence[str]) -> Spec:
    account = run.breakdown
    labels = ["mean" if who == MEAN else account.labels[int(who)] for who in ranks]
    positions = list(range(len(ranks)))
    divided = [divide_waits(account, who) for who in ranks]
    data = []
    # A cause has one colour in all ranks, and no entry where no rank waited for it.
    for code, (colour, pattern) in _COLOURS.items():
        cells = [next((p.cell for p in parts if p.code == code), None) for parts in divided]
        ends = [
            _measure_shown_ns(account, who, code, cell)
            for who, cell in zip(ranks, cells, strict=True)
        ]
        if any(ends):
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": WAIT_WORDS[code],
                    "x": [spent / 1e9 for spent in ends],
                    "y": positions,
                    "customdata": [seconds(spent / 1e9) for spent in ends],
                    "marker": palette.fill(colour, pattern),
                    "hovertemplate": "%{customdata} " + WAIT_WORDS[code] + "<extra></extra>",
                }
            )
    # Bars get thinner where there are more than eight.
    layout = palette.layout(
        130 + max(34 if len(ranks) <= 8 else 20, 16) * len(ranks),
        barmode="stack",
        bargap=0.3,
        xaxis=palette.axis("seconds", rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=positions, ticktext=[plotted(label) for label in labels],
            range=[len(ranks) - 0.5, -0.5], showgrid=False, fixedrange=True,
        ),
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _measure_shown_ns(account: Breakdown, who: str, code: str, cell: DurationCell | None) -> float:
    """What of a part is drawn: what it has for sure, and of the open part all that others leave."""
    if cell is None:
        return 0.0
    if code != OPEN:
        return float(cell.low_ns)
    # The open part is drawn as long as it can be: so the bars add up to the wait.
    known = sum(part.cell.low_ns for part in divide_waits(account, who) if part.code != OPEN)
    return max(account.length_ns(WAIT, who) - known, 0.0)


_FETCHES_COLUMNS = (
    Column("loader"), Column("epoch", "count"), Column("batch", "count"), Column("rank"),
    Column("worker"), Column("waited", "s"), Column("fetch", "s"), Column("reads", "s"),
    Column("decoding", "s"), Column("collating", "s"), Column("longest read", "s"),
    Column("of bytes", "bytes"), Column("in file"),
)  # fmt: skip


def slowest_batches(trace: Trace, batches: FetchedBatches, names: tuple[str, ...]) -> Table:
    """The batches that training waited for longest, with the longest read of each."""
    rows = _find_slowest(batches)
    taken = int(np.count_nonzero(~np.isnan(batches.wait_s)))
    cells = tuple(_list_batch(trace, batches, names, int(row)) for row in rows)
    return Table(_FETCHES_COLUMNS, cells, n_of_m(len(rows), taken, "batches, longest waits first"))


def _find_slowest(batches: FetchedBatches) -> list[int]:
    taken = np.flatnonzero(~np.isnan(batches.wait_s))
    order = taken[np.lexsort((batches.start_s[taken], -batches.wait_s[taken]))]
    slowest: list[int] = order[:SLOWEST].tolist()
    return slowest


def _list_batch(
    trace: Trace, batches: FetchedBatches, names: tuple[str, ...], row: int
) -> tuple[Cell, ...]:
    # A table leaves a cell empty where plain numbers have nan.
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


def _write_fetches(run: Run) -> str | None:
    fetching = run.fetching
    if fetching is None:
        return None
    rows: list[Row] = [
        ("mean per batch", "batches", "workers", "samples", "of it reads", "decoding", "collate",
         "waited")
    ]  # fmt: skip
    for each in fetching.loaders[:_MOST_LOADERS]:
        spent = (each.samples_s, each.reads_s, each.decoding_s, each.collate_s, each.wait_s)
        times = ("not recorded" if value is None else seconds(value) for value in spent)
        rows.append((elided(each.name, limit=60), count(each.batches), count(each.workers), *times))
    table = aligned_table("Fetches, known per batch", rows) or "Fetches\n"
    words: list[tuple[str, str]] = []
    if run.breakdown.length_ns(WAIT):
        words.append(("waits", settle(describe_waits(run.breakdown, whole=_is_whole(run)))))
    words += [("I/O", remark) for remark in _list_remarks(run, fetching)]
    # The batch that was waited for longest, and its longest read where I/O was recorded.
    batches = fetching.batches
    if slowest := _find_slowest(batches):
        row = slowest[0]
        file = int(batches.longest_read_file[row])
        read = (
            f"; its longest read: {seconds(float(batches.longest_read_s[row]))} for "
            f"{nbytes(int(batches.longest_read_nbytes[row]))} of {run.trace.files.path[file]}"
            if file >= 0
            else ""
        )
        samples = plural(int(max(batches.samples[row], 0)), "sample")
        longest = (
            f"{seconds(float(batches.wait_s[row]))} for batch {batches.batch[row]} of "
            f"epoch {batches.epoch[row]} ({samples}){read}"
        )
        words.append(("longest", longest))
    return named_values(table.rstrip(), words)


def _collect_fetches(run: Run) -> Object | None:
    fetching = run.fetching
    if fetching is None:
        return None
    # The keys are the column titles of the page, with units where they are seconds.
    table = slowest_batches(run.trace, fetching.batches, fetching.names)
    keys = [column.title.replace(" ", "_") for column in table.columns]
    units = [f"{k}_s" if c.unit == "s" else k for k, c in zip(keys, table.columns, strict=True)]
    return {
        "basis": "known per batch",
        "io_recorded": fetching.io_recorded,
        "batches": len(fetching.batches),
        "loaders": [values_of(each) for each in fetching.loaders],
        "mean": _collect_waits(run.breakdown, MEAN),
        "per_rank": [
            {"label": run.breakdown.labels[place]} | _collect_waits(run.breakdown, str(place))
            for place in np.flatnonzero(run.breakdown.observed).tolist()
        ],
        "slowest": [dict(zip(units, row, strict=True)) for row in table.rows],
    }


_WAIT_CELLS = {
    "reads": f"{STORAGE}.{READ}",
    "writes": f"{STORAGE}.{WRITE}",
    "metadata": f"{STORAGE}.{METADATA}",
    "decoding": INPUT_CPU,
    "delivery": DELIVERY,
    "workers": WORKERS,
}
"""Names of parts of waits in JSON, and the cells that they are."""


def _collect_waits(account: Breakdown, who: str) -> Object:
    """The input waits of a rank: of each part what it has at least, and both ends."""
    values: Object = {"wait_s": account.length_ns(WAIT, who) / 1e9}
    for name, cause in _WAIT_CELLS.items():
        low, high = account.cell(f"{who}/{WAIT}/{cause}").range_s
        values |= {f"{name}_s": low, f"{name}_range_s": [low, high]}
    return values


_WAITS_KIND: Object = {"wait_s": float}
for _name in _WAIT_CELLS:
    _WAITS_KIND |= {f"{_name}_s": float, f"{_name}_range_s": tuple[float, float]}
_BATCH = (
    dict.fromkeys(("loader", "rank", "worker"), str)
    | dict.fromkeys(("epoch", "batch"), int)
    | dict.fromkeys(
        ("waited_s", "fetch_s", "reads_s", "decoding_s", "collating_s", "longest_read_s"),
        float | None,
    )
    | {"of_bytes": int | None, "in_file": str | None}
)
_FETCHES_KIND = Maybe({
    "basis": str,
    "io_recorded": bool,
    "batches": int,
    "loaders": [LoaderFetches],
    "mean": _WAITS_KIND,
    "per_rank": [{"label": str} | _WAITS_KIND],
    "slowest": [_BATCH],
})  # fmt: skip
FETCHES = Section(
    "fetches", (draw_fetches,), _write_fetches, {"fetches": Json(_collect_fetches, _FETCHES_KIND)}
)


# Which lines of the program fetches and steps spend their time in.

_LINES_TITLE = "Which lines take the time"
_MOST_TEXT = 6
_LINES_COLUMNS = (
    Column("of"), Column("line"), Column("in"), Column("source"), Column("share", "share"),
    Column("share of processor time", "share"), Column("share of blocked time", "share"),
    Column("wall", "s"), Column("processor", "s"), Column("runs", "count"),
)  # fmt: skip
_MEANING = (
    "Lines of functions of the program, with what they call in libraries. Of a line that calls "
    "a sampled function of the program only the rest is its own, so shares add up to 100 % at most."
)
_NONE = (
    "No lines were sampled: vanidl record does that with PyTorch's DataLoader, where no debugger, "
    "coverage or profiler looks at the program itself."
)


def draw_lines(run: Run) -> Figure:
    """A table of lines."""
    lines = run.lines
    if lines is None:
        return Figure(
            "lines", "Input and compute", _LINES_TITLE, "", empty_reason=_NONE, applies=False
        )
    rows: list[tuple[Cell, ...]] = [
        (
            of, name_place(line), elided(line.function, limit=60), elided(line.text, limit=100),
            line.share, line.cpu_share, line.blocked_share, line.wall_s, line.cpu_s, line.hits,
        )
        for of, part in _iterate_parts(lines)
        for line in part.lines
    ]  # fmt: skip
    # How many samples that rests on, for fetches and steps apart.
    said = "; ".join(f"{of}: {_describe_samples(of, part)}" for of, part in _iterate_parts(lines))
    caption = f"Sampled {said}. {_MEANING}"
    return Figure(
        "lines",
        "Input and compute",
        _LINES_TITLE,
        caption,
        table=Table(_LINES_COLUMNS, tuple(rows)),
    )


def _iterate_parts(lines: Lines) -> Iterator[tuple[str, PartLines]]:
    for of, part in (("fetches", lines.fetch), ("steps", lines.loop)):
        if part is not None:
            yield of, part


def _describe_samples(of: str, part: PartLines) -> str:
    one, many = ("fetch", "fetches") if of == "fetches" else ("step", "steps")
    return f"{plural(part.samples, one, many)} of {seconds(part.wall_s)} in all"


def _write_lines(run: Run) -> str | None:
    found = run.lines
    if found is None:
        return None
    blocks = []
    # Lines of fetches and of the loop are shares of different times: a table for each.
    for of, part in _iterate_parts(found):
        what = "in fetches" if of == "fetches" else "between batches"
        rows: list[Row] = [(f"Lines {what}", "share", "", "runs", "source")]
        rows += [
            (f"  {name_place(line)}", percent(line.share), describe_how(line), count(line.hits),
             elided(line.text, limit=60))
            for line in part.lines[:_MOST_TEXT]
        ]  # fmt: skip
        blocks.append(aligned_table(f"Sampled: {_describe_samples(of, part)}", rows) or "")
    return "\n".join(blocks)


def _collect_lines(run: Run) -> Object | None:
    lines = run.lines
    return None if lines is None else values_of(lines)


LINES = Section(
    "lines",
    (draw_lines,),
    _write_lines,
    {"lines": Json(_collect_lines, Lines | None)},
    traced=False,
)
