"""Every profiled step in numbers: ordinary ones, and those that are not, apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.steps import StepTable
from vanidl.breakdown.step_records import CHECKPOINT, FIRST, ORDINARY, StepRecords, mean_by_kind
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import Cell, count, nbytes, plural, seconds
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.sections.section import Section

LIMIT, LIMIT_OF_MANY = 400, 50  # steps; of more than MANY_RANKS the page has enough to hold
MANY_RANKS = 16
_SECTION = "Input and compute"
_TITLE = "Each step"
_APART = "First steps of epochs and steps with a checkpoint"
_CAPTION = "What happened during each step, whichever step the data is for."
_PARTS = {"in wait": "in wait", "hidden": "hidden", "behind comm.": "behind communication",
          "other": "other"}  # fmt: skip
_OF_WAIT = (
    "Of it I/O: the part of the input wait in which the rank was in I/O; the rest is decoding and "
    "other work of the loader."
)
_APART_CAPTION = (
    "They may take longer for reasons of their own: the loader starts again, or the model is "
    "saved. "
    "A step counts where it has the largest part of a checkpoint, or is mostly filled by one; and "
    "where it has most of the time that a usual step takes from the start of an epoch. Same "
    "columns as above. "
)
_NOWHERE = (
    "No profiled step has a place in time, so nothing that happened during one is known. Profile "
    "with torch.profiler and call prof.step() after each batch."
)

_NO_IO = "Of the I/O during the steps nothing was recorded; the training steps hold all that was."


def figure(run: Run) -> Figure:
    """The ordinary steps, the slowest where there are too many."""
    each, steps = run.perstep, run.steps
    if each is None or steps is None:
        return Figure("each-step", _SECTION, _TITLE, "", empty_reason=_NOWHERE, applies=False)
    rows = np.flatnonzero(each.kind == ORDINARY)
    if not len(rows):
        reason = "Every step is the first of an epoch or has a checkpoint; they are shown below."
        return Figure("each-step", _SECTION, _TITLE, "", empty_reason=reason)
    if each.reads is None and np.isnan(each.busy_s).all():
        return Figure("each-step", _SECTION, _TITLE, "", empty_reason=_NO_IO)
    table = _table(run.trace, steps.table, each, rows)
    words = " ".join(_explained(table)) + _others(each) + _cut(table)
    return Figure("each-step", _SECTION, _TITLE, words, table=table)


def apart(run: Run) -> Figure:
    """First steps of epochs, and steps during which a checkpoint was written."""
    each, steps = run.perstep, run.steps
    rows = np.empty(0, np.intp) if each is None else np.flatnonzero(each.kind != ORDINARY)
    if each is None or steps is None or not len(rows):
        reason = "Nothing marks the start of an epoch or a checkpoint within the profiled steps."
        known = each is not None
        return Figure("steps-apart", _SECTION, _APART, "", empty_reason=reason, applies=known)
    table = _table(run.trace, steps.table, each, rows)
    words = _compared(steps.table, each)
    return Figure(
        "steps-apart", _SECTION, _APART, _APART_CAPTION + words + _cut(table), table=table
    )


def _explained(table: Table) -> Iterator[str]:
    """What the columns that the table has mean."""
    titles = {column.title for column in table.columns}
    yield _CAPTION
    if parts := [name for title, name in _PARTS.items() if title in titles]:
        yield f"Time in I/O = {' + '.join(parts)}."
    if "of it I/O" in titles:
        yield _OF_WAIT
    if any(None in row for row in table.rows):
        yield "A dash: not recorded."
    if _FILES[0] in titles:
        yield "Beside a file: the time in it."


def _others(each: StepRecords) -> str:
    """Where the steps are that the first table leaves to the second."""
    apart = int((each.kind != ORDINARY).sum())
    if not apart:
        return ""
    are = "is" if apart == 1 else "are"
    return (
        f" {plural(apart, 'step')} of {count(len(each.kind))}, first in an epoch or with a "
        f"checkpoint, {are} in the table below."
    )


def _cut(table: Table) -> str:
    return " Shown are the longest." if table.cut else ""


def _compared(table: StepTable, each: StepRecords) -> str:
    """Mean durations of each kind in a sentence."""
    found = []
    for kind, noun in ((FIRST, "first step"), (CHECKPOINT, "checkpoint step"), (ORDINARY, "other")):
        rows = each.kind == kind
        if rows.any():
            mean = seconds(float(table.duration_s[rows].mean()))
            several = " on average" if rows.sum() > 1 else ""
            found.append(f"{plural(int(rows.sum()), noun)} took {mean}{several}")
    return "; ".join(found) + "."


_NAME = 11  # letters of a file's name that leave the row in one line
_FILES = ("slowest file", "second slowest")


Rows = NDArray[np.intp]


def _columns(table: StepTable, each: StepRecords, rows: Rows) -> list[tuple[Column, list[Cell]]]:
    """Every column with its cells of these steps; those that would say nothing are left out."""
    found: list[tuple[Column, list[Cell]]] = [
        (Column("step", "count"), [int(k) for k in table.step[rows]]),
        (Column("kind"), [str(kind) or "ordinary" for kind in each.kind[rows]]),
        (Column("start", "instant"), _known(table.start_s[rows])),
        *((Column(title, "s"), _known(values[rows])) for title, values in _times(table, each)),
        (Column("operations", "count"), _sums(rows, each.reads, each.writes)),
        (Column("read", "bytes"), _sums(rows, each.bytes_read)),
        (Column("written", "bytes"), _sums(rows, each.bytes_written)),
    ]
    if each.reads is not None:
        files = [each.slowest[i] for i in rows.tolist()]
        found += [(Column(title), [_file(f, i) for f in files]) for i, title in enumerate(_FILES)]
    return [(column, cells) for column, cells in found if set(cells) != {None}]


def _times(table: StepTable, each: StepRecords) -> list[tuple[str, NDArray[np.float64]]]:
    columns = [
        ("duration", table.duration_s),
        ("input wait", table.input_wait_s),
        ("of it I/O", each.input_wait_io_s),
        ("time in I/O", each.busy_s),
        ("in wait", each.in_wait_s),
        ("hidden", each.hidden_s),
        ("behind comm.", each.behind_communication_s),
        ("other", each.other_s),
    ]
    silent = not np.nan_to_num(each.behind_communication_s).any()
    return [c for c in columns if c[0] != "behind comm." or not silent]


def _table(trace: Trace, table: StepTable, each: StepRecords, rows: Rows) -> Table:
    """The longest of the rows, in order of rank and start."""
    limit = LIMIT if len(trace.ranks) <= MANY_RANKS else LIMIT_OF_MANY
    kept = np.sort(rows[np.argsort(-table.duration_s[rows], kind="stable")[:limit]])
    columns = _columns(table, each, kept)
    if len(set(each.kind[rows])) == 1:
        columns = [c for c in columns if c[0].title != "kind"]
    if len(trace.ranks) > 1:
        names = [elided(trace.processes[i].label, limit=80) for i in trace.ranks]
        columns.insert(0, (Column("rank"), [names[position] for position in table.rank[kept]]))
    cells = tuple(zip(*(values for _, values in columns), strict=True))
    return Table(tuple(c for c, _ in columns), cells, n_of_m(len(kept), len(rows), "steps"))


def _known(values: NDArray[np.float64]) -> list[Cell]:
    """To the nanosecond: what is rounded twice would differ from the same in another table."""
    return [None if np.isnan(value) else round(float(value), 9) for value in values]


def _sums(rows: Rows, *amounts: NDArray[np.int64] | None) -> list[Cell]:
    """Sums of the amounts in each row; None where they were not recorded."""
    known = [values[rows] for values in amounts if values is not None]
    sums: list[Cell] = np.sum(known, axis=0).tolist() if known else [None] * len(rows)
    return sums


def _file(files: tuple[tuple[str, float], ...], place: int) -> str:
    """Name of a file and the time in it."""
    if place >= len(files):
        return ""
    path, spent = files[place]
    return f"{_short(path)} {seconds(spent)}"


def _short(path: str) -> str:
    """A file's name, or the end of it before the suffix: there are the numbers of files."""
    name = path.rsplit("/", 1)[-1]
    stem = name if len(name) <= _NAME else name.rsplit(".", 1)[0] or name
    return elided(stem if len(stem) <= _NAME else f"…{stem[1 - _NAME :]}", limit=_NAME)


def _text(run: Run) -> str | None:
    """First steps of epochs and checkpoint steps beside the others; None without such."""
    steps, each = run.steps, run.perstep
    kinds = () if steps is None or each is None else mean_by_kind(steps.table, each)
    if len(kinds) < 2:
        return None
    header = ("kind", "steps", "duration", "input wait", "of it I/O", "in I/O", "read", "written")
    rows = [
        (
            k.kind, count(k.steps), seconds(k.duration_s), seconds(k.input_wait_s),
            seconds(k.input_wait_io_s), seconds(k.busy_s), nbytes(k.bytes_read),
            nbytes(k.bytes_written),
        )
        for k in kinds
    ]  # fmt: skip
    return aligned_table("Steps by kind, means", [header, *rows])


SECTION = Section("each step", (figure, apart), _text)
