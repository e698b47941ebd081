"""The files of the run, those that took longest first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vanidl.analyses.files import FileRow
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import Cell, nbytes, plural, seconds
from vanidl.model.counter_tables import Stripes
from vanidl.model.trace import STORAGE_LAYERS
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.data import traced_words

LIMIT = 1000
OSTS = 8
_CAPTION = (
    "Longest time first. Time is the sum of durations over all ranks, so operations side by "
    "side count twice."
)
_UNTIMED = "Most bytes first."
PATH_LIMIT = 120
_COLUMNS = (
    Column("path"),
    Column("kind"),
    Column("bytes read", "bytes"),
    Column("bytes written", "bytes"),
    Column("reads", "count"),
    Column("writes", "count"),
    Column("time", "s"),
    Column("opens", "count"),
    Column("reads of 0 bytes", "count"),
    Column("ranks", "count"),
    Column("first", "instant"),
    Column("last", "instant"),
    Column("layers"),
    Column("mount"),
    Column("Lustre stripes"),
)


def figure(run: Run) -> Figure:
    """At most 1,000 files with their traffic."""
    files = run.files.rows
    if not files:
        reason = "No file was read or written through this layer."
        return Figure("files", "Files", "Files", "", empty_reason=reason)
    opens, found = _opens(run), run.results.latencies
    empty = found.empty_reads if found is not None else {}
    rows = tuple(
        _row(file, opens.get(file.path), _empty_reads(file, empty))
        for file in _by_time(run)[:LIMIT]
    )
    table = _informative(run, rows, n_of_m(len(rows), len(files), "files"))
    cut = traced_words(run.coverage, run.summary.layer)
    note = ""
    if any(len(file.path) > PATH_LIMIT for file in files):
        note = f" Paths longer than {PATH_LIMIT} characters are cut in the middle."
    many = sum(file.truncated for file in files) if cut else 0
    if many:
        note += f" {cut}: numbers of {plural(many, 'file')} are those of the counters."
    timed = any(file.io_s is not None for file in files)
    words = (_CAPTION if timed else _UNTIMED) + table.not_recorded() + note
    return Figure("files", "Files", "Files", words, None, table.without_empty_columns())


def _informative(run: Run, rows: tuple[tuple[Cell, ...], ...], cut: str) -> Table:
    """Without the ranks of a run of one rank, and the stripes of files that have none."""
    empty = {"ranks"} if len(run.trace.ranks) == 1 else set()
    if all(row[-1] is None for row in rows):
        empty.add("Lustre stripes")
    kept = [i for i, column in enumerate(_COLUMNS) if column.title not in empty]
    return Table(
        tuple(_COLUMNS[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows), cut
    )


def _by_time(run: Run) -> list[FileRow]:
    """Those that took longest first; where times are not recorded, by traffic."""
    return sorted(run.files.rows, key=lambda file: -(file.io_s or 0.0))


def _opens(run: Run) -> dict[str, int]:
    """Path -> how often it was opened, over the storage layers, where that was counted."""
    paths = run.trace.files.path
    opens, known = np.zeros(len(paths), np.int64), np.zeros(len(paths), bool)
    for layer in STORAGE_LAYERS:
        table = run.trace.counters.get(layer)
        counts = table.counters.get(f"{layer}_OPENS") if table is not None else None
        if table is None or counts is None:
            continue
        monitored = counts >= 0
        np.add.at(opens, table.file[monitored], counts[monitored])
        known[table.file[monitored]] = True
    return {paths[file]: int(opens[file]) for file in np.flatnonzero(known).tolist()}


def _empty_reads(file: FileRow, counted: Mapping[str, int]) -> int | None:
    """Reads of 0 bytes: of a file that was not read none, of one traced in part not known."""
    if file.reads == 0:
        return 0
    return None if file.truncated else counted.get(file.path)


def _row(
    file: FileRow, opens: int | None, empty_reads: int | None
) -> tuple[str | int | float | None, ...]:
    mount = f"{file.mount} ({file.file_system})" if file.file_system else file.mount
    return (
        elided(file.path, limit=PATH_LIMIT),
        elided(file.kind, limit=40),
        file.bytes_read,
        file.bytes_written,
        file.reads,
        file.writes,
        file.io_s,
        opens,
        empty_reads,
        file.ranks,
        file.first_s,
        file.last_s,
        ", ".join(file.layers),
        elided(mount, limit=80) or None,
        _stripes(file),
    )


def _stripes(file: FileRow) -> str | None:
    """`4 x 1 MiB on OSTs 0, 3, 5, 7` of each component of the layout; None off Lustre."""
    parts = [p for p in file.stripes if p.stripe_count > 0]
    if not parts:
        return None
    return "; ".join(
        f"{part.stripe_count} x {nbytes(part.stripe_nbytes)} on {_osts(part.osts)}"
        for part in parts
    )


def _osts(osts: tuple[int, ...]) -> str:
    shown = ", ".join(str(ost) for ost in osts[:OSTS])
    more = f" and {len(osts) - OSTS} more" if len(osts) > OSTS else ""
    name = "OST" if len(osts) == 1 else "OSTs"
    return f"{name} {shown}{more}" if osts else "OSTs that were not recorded"


_MOST_IN_TEXT = 8


def _text(run: Run) -> str | None:
    header = ("file", "kind", "read", "written", "in I/O")
    rows = [
        (_short(r.path), r.kind, nbytes(r.bytes_read), nbytes(r.bytes_written), seconds(r.io_s))
        for r in _by_time(run)[:_MOST_IN_TEXT]
    ]
    return aligned_table("Busiest files", [header, *rows])


def _short(path: str, width: int = 46) -> str:
    return path if len(path) <= width else "..." + path[3 - width :]


def _count(run: Run) -> int:
    return sum(group.files for group in run.files.by_kind)


def _stripes_json(run: Run) -> list[Object]:
    """One entry a file on Lustre and component of its layout."""
    return [
        {"path": row.path, **values_of(part, without=("file",))}
        for row in run.files.rows
        for part in row.stripes
    ]


SECTION = Section(
    "files",
    (figure,),
    _text,
    {
        "io.files.count": Json(_count, int),
        "io.files.stripes": Json(
            _stripes_json, [{"path": str} | fields_of(Stripes, without=("file",))]
        ),
    },
)
