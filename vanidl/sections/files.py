"""The files of the run, those that took longest first; by kind, and by mount point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vanidl.analyses.coverage import Coverage
from vanidl.analyses.files import FileRow, GroupRow
from vanidl.figures import palette
from vanidl.figures.bars import Stack, byte_bars
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import count, nbytes, plural, seconds
from vanidl.model.counter_tables import Stripes
from vanidl.model.trace import STORAGE_LAYERS
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import describe_traced

MOST_FILES = 1000
OSTS = 8
_FILES_CAPTION = (
    "Longest time first. Time is the sum of durations over all ranks, so operations side by "
    "side count twice."
)
_UNTIMED = "Most bytes first."
PATH_LIMIT = 120
_FILES_COLUMNS = (
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


def draw_files(run: Run) -> Figure:
    """At most 1,000 files with their traffic."""
    files = run.files.rows
    if not files:
        reason = "No file was read or written through this layer."
        return Figure("files", "Files", "Files", "", empty_reason=reason)
    # Opens and empty reads are known where operations are; they stay empty else.
    opens, found = _count_opens(run), run.results.latencies
    empty = found.empty_reads if found is not None else {}
    rows = tuple(
        _list_files(file, opens.get(file.path), _count_empty_reads(file, empty))
        for file in _sort_by_time(run)[:MOST_FILES]
    )
    # Without the ranks of a run of one rank, and the stripes of files that have none.
    dropped = {"ranks"} if len(run.trace.ranks) == 1 else set()
    if all(row[-1] is None for row in rows):
        dropped.add("Lustre stripes")
    kept = [i for i, column in enumerate(_FILES_COLUMNS) if column.title not in dropped]
    table = Table(
        tuple(_FILES_COLUMNS[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        n_of_m(len(rows), len(files), "files"),
    )
    # What the columns cannot say: paths that are cut, counters in place of operations.
    cut = describe_traced(run.coverage, run.summary.layer)
    note = ""
    if any(len(file.path) > PATH_LIMIT for file in files):
        note = f" Paths longer than {PATH_LIMIT} characters are cut in the middle."
    many = sum(file.truncated for file in files) if cut else 0
    if many:
        note += f" {cut}: numbers of {plural(many, 'file')} are those of the counters."
    timed = any(file.io_s is not None for file in files)
    words = (_FILES_CAPTION if timed else _UNTIMED) + table.not_recorded() + note
    return Figure("files", "Files", "Files", words, None, table.without_empty_columns())


def _sort_by_time(run: Run) -> list[FileRow]:
    """Those that took longest first; where times are not recorded, by traffic."""
    return sorted(run.files.rows, key=lambda file: -(file.io_s or 0.0))


def _count_opens(run: Run) -> dict[str, int]:
    """Path -> how often it was opened, over the storage layers, where that was counted."""
    paths = run.trace.files.path
    opens, known = np.zeros(len(paths), np.int64), np.zeros(len(paths), bool)
    for layer in STORAGE_LAYERS:
        table = run.trace.counters.get(layer)
        counts = table.counters.get(f"{layer}_OPENS") if table is not None else None
        if table is None or counts is None:
            continue
        # Darshan writes -1 where it did not count.
        monitored = counts >= 0
        np.add.at(opens, table.file[monitored], counts[monitored])
        known[table.file[monitored]] = True
    return {paths[file]: int(opens[file]) for file in np.flatnonzero(known).tolist()}


def _count_empty_reads(file: FileRow, counted: Mapping[str, int]) -> int | None:
    """Reads of 0 bytes: of a file that was not read none, of one traced in part not known."""
    if file.reads == 0:
        return 0
    return None if file.truncated else counted.get(file.path)


def _list_files(
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
        _describe_stripes(file),
    )


def _describe_stripes(file: FileRow) -> str | None:
    """`4 x 1 MiB on OSTs 0, 3, 5, 7` of each component of the layout; None off Lustre."""
    parts = [p for p in file.stripes if p.stripe_count > 0]
    if not parts:
        return None
    return "; ".join(
        f"{part.stripe_count} x {nbytes(part.stripe_nbytes)} on {_name_osts(part.osts)}"
        for part in parts
    )


def _name_osts(osts: tuple[int, ...]) -> str:
    shown = ", ".join(str(ost) for ost in osts[:OSTS])
    more = f" and {len(osts) - OSTS} more" if len(osts) > OSTS else ""
    name = "OST" if len(osts) == 1 else "OSTs"
    return f"{name} {shown}{more}" if osts else "OSTs that were not recorded"


_MOST_IN_TEXT = 8


def _write_files(run: Run) -> str | None:
    header = ("file", "kind", "read", "written", "in I/O")
    rows = [
        (_shorten(r.path), r.kind, nbytes(r.bytes_read), nbytes(r.bytes_written), seconds(r.io_s))
        for r in _sort_by_time(run)[:_MOST_IN_TEXT]
    ]
    return aligned_table("Busiest files", [header, *rows])


def _shorten(path: str, width: int = 46) -> str:
    return path if len(path) <= width else "..." + path[3 - width :]


def _count_files(run: Run) -> int:
    return sum(group.files for group in run.files.by_kind)


def _collect_stripes(run: Run) -> list[Object]:
    """One entry a file on Lustre and component of its layout."""
    return [
        {"path": row.path, **values_of(part, without=("file",))}
        for row in run.files.rows
        for part in row.stripes
    ]


FILES = Section(
    "files",
    (draw_files,),
    _write_files,
    {
        "io.files.count": Json(_count_files, int),
        "io.files.stripes": Json(
            _collect_stripes, [{"path": str} | fields_of(Stripes, without=("file",))]
        ),
    },
)


# Bytes by kind of file: dataset, checkpoint, code, log, system, other.

MOST_KINDS = 20
_KINDS_CAPTION = "Bytes read and written by what the files are for."
_MEANINGS = {
    "dataset": "Dataset files are read and never written.",
    "checkpoint": "Checkpoints hold the state of training.",
    "code": "Code is programs and what they import.",
}


def draw_kinds(run: Run) -> Figure:
    """Bytes read and written by kind of file, largest first."""
    groups = run.files.by_kind
    if not groups:
        reason = "No file was read or written through this layer."
        return Figure("kinds", "Files", "Files by kind", "", empty_reason=reason)
    rows = tuple(sorted(groups, key=lambda g: -(g.bytes_read + g.bytes_written)))[:MOST_KINDS]
    total = len(groups)
    columns = (
        Column("kind"),
        Column("files", "count"),
        Column("bytes read", "bytes"),
        Column("bytes written", "bytes"),
        Column("time in I/O", "s"),
    )
    cells = tuple(
        (elided(g.name, limit=80), g.files, g.bytes_read, g.bytes_written, g.busy_s) for g in rows
    )
    table = Table(columns, cells, n_of_m(len(rows), total, "kinds"))
    # Opens and look-ups alone: a table, and no bars of 0.
    if not any(g.bytes_read or g.bytes_written for g in rows):
        reason = "The files were touched, but no bytes were moved."
        return Figure("kinds", "Files", "Files by kind", "", None, table, reason)
    # Kinds are explained where they are shown.
    names = {row.name for row in rows}
    caption = " ".join(
        [_KINDS_CAPTION, *(words for kind, words in _MEANINGS.items() if kind in names)]
    )
    stacks = (
        Stack("read", palette.READ, "", [g.bytes_read for g in rows]),
        Stack("written", palette.WRITE, "/", [g.bytes_written for g in rows]),
    )
    largest = max(max(g.bytes_read, g.bytes_written) for g in rows)
    kinds = byte_bars([plotted(g.name) for g in rows], stacks, largest=largest, row_px=34)
    moved = ", ".join(f"{g.name} {nbytes(g.bytes_read + g.bytes_written)}" for g in groups[:3])
    return Figure(
        "kinds",
        "Files",
        "Files by kind",
        caption + table.not_recorded() + describe_untimed(run.coverage, run.summary.layer, groups),
        kinds,
        table.without_empty_columns(),
        alt_text=f"Bytes moved by kind of file, most first: {moved}.",
        half=True,
    )


def _write_kinds(run: Run) -> str | None:
    header = ("kind", "files", "read", "written", "busy per rank")
    rows = [
        (g.name, count(g.files), nbytes(g.bytes_read), nbytes(g.bytes_written), seconds(g.busy_s))
        for g in run.files.by_kind
    ]
    return aligned_table("By kind of file", [header, *rows])


def collect_groups(groups: tuple[GroupRow, ...]) -> Object:
    """Totals of each group of files by its name."""
    return {group.name: values_of(group, without=("name",)) for group in groups}


def _collect_by_kind(run: Run) -> Object:
    return collect_groups(run.files.by_kind)


GROUPS = {str: fields_of(GroupRow, without=("name",))}
"""The kind of what `collect_groups` gives."""
KINDS = Section(
    "kinds", (draw_kinds,), _write_kinds, {"io.files.by_kind": Json(_collect_by_kind, GROUPS)}
)


# Traffic by mount point, each with the type of its file system.

MOST_MOUNTS = 100
_MOUNTS_TITLE = "By mount point and file system"
_MOUNTS_CAPTION = "As mounted where the job ran."
_TIME = " Time is the mean over ranks during which the rank was in I/O on this mount."
_MOUNTS_COLUMNS = (
    Column("mount point"),
    Column("file system"),
    Column("files", "count"),
    Column("bytes read", "bytes"),
    Column("bytes written", "bytes"),
    Column("time in I/O", "s"),
)


def draw_mounts(run: Run) -> Figure:
    """A table of mount points, most traffic first."""
    groups = run.files.by_mount
    if not groups:
        reason = "No file was read or written through this layer."
        return Figure("mounts", "Files", _MOUNTS_TITLE, "", empty_reason=reason)
    rows = tuple(
        (
            elided(g.name, limit=80) or "not under a known mount point",
            g.file_system,
            g.files,
            g.bytes_read,
            g.bytes_written,
            g.busy_s,
        )
        for g in groups[:MOST_MOUNTS]
    )
    table = Table(_MOUNTS_COLUMNS, rows, n_of_m(len(rows), len(groups), "mount points"))
    # The caption explains times only where the table has them.
    timed = any(g.busy_s is not None for g in groups[:MOST_MOUNTS])
    caption = _MOUNTS_CAPTION + (_TIME if timed else "")
    caption += table.not_recorded() + describe_untimed(run.coverage, run.summary.layer, groups)
    return Figure(
        "mounts", "Files", _MOUNTS_TITLE, caption, None, table.without_empty_columns(), half=True
    )


def _collect_by_mount(run: Run) -> Object:
    return collect_groups(run.files.by_mount)


def _collect_by_file_system(run: Run) -> Object:
    return collect_groups(run.files.by_file_system)


MOUNTS = Section(
    "mounts",
    (draw_mounts,),
    json={
        "io.files.by_mount": Json(_collect_by_mount, GROUPS),
        "io.files.by_file_system": Json(_collect_by_file_system, GROUPS),
    },
)


def describe_untimed(coverage: Coverage, layer: str, groups: Sequence[GroupRow]) -> str:
    """What times in I/O of groups of files lack; "" where all operations were traced."""
    cut = describe_traced(coverage, layer)
    if not cut or not any(group.truncated for group in groups):
        return ""
    return f" {cut}: bytes are those of the counters, times of the traced operations alone."
