"""Bytes by kind of file: dataset, checkpoint, code, log, system, other."""

from __future__ import annotations

from vanidl.analyses.files import GroupRow
from vanidl.figures import palette
from vanidl.figures.bars import Stack, byte_bars
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided, plotted
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import count, nbytes, seconds
from vanidl.run import Run
from vanidl.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.data import busy_words

LIMIT = 20
_CAPTION = "Bytes read and written by what the files are for."
_MEANINGS = {
    "dataset": "Dataset files are read and never written.",
    "checkpoint": "Checkpoints hold the state of training.",
    "code": "Code is programs and what they import.",
}


def figure(run: Run) -> Figure:
    """Bytes read and written by kind of file, largest first."""
    groups = run.files.by_kind
    if not groups:
        reason = "No file was read or written through this layer."
        return Figure("kinds", "Files", "Files by kind", "", empty_reason=reason)
    rows = tuple(sorted(groups, key=lambda g: -(g.bytes_read + g.bytes_written)))[:LIMIT]
    table = _table(rows, len(groups))
    if not any(g.bytes_read or g.bytes_written for g in rows):
        reason = "The files were touched, but no bytes were moved."
        return Figure("kinds", "Files", "Files by kind", "", None, table, reason)
    return Figure(
        "kinds",
        "Files",
        "Files by kind",
        _caption(rows) + table.not_recorded() + busy_words(run.coverage, run.summary.layer, groups),
        _spec(rows),
        table.without_empty_columns(),
        alt_text=_alt_text(groups),
        half=True,
    )


def _caption(rows: tuple[GroupRow, ...]) -> str:
    names = {row.name for row in rows}
    return " ".join([_CAPTION, *(words for kind, words in _MEANINGS.items() if kind in names)])


def _spec(rows: tuple[GroupRow, ...]) -> Spec:
    stacks = (
        Stack("read", palette.READ, "", [g.bytes_read for g in rows]),
        Stack("written", palette.WRITE, "/", [g.bytes_written for g in rows]),
    )
    largest = max(max(g.bytes_read, g.bytes_written) for g in rows)
    return byte_bars([plotted(g.name) for g in rows], stacks, largest=largest, row_px=34)


def _table(rows: tuple[GroupRow, ...], total: int) -> Table:
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
    return Table(columns, cells, n_of_m(len(rows), total, "kinds"))


def _alt_text(groups: tuple[GroupRow, ...]) -> str:
    moved = (f"{row.name} {nbytes(row.bytes_read + row.bytes_written)}" for row in groups[:3])
    return f"Bytes moved by kind of file, most first: {', '.join(moved)}."


def _text(run: Run) -> str | None:
    header = ("kind", "files", "read", "written", "busy per rank")
    rows = [
        (g.name, count(g.files), nbytes(g.bytes_read), nbytes(g.bytes_written), seconds(g.busy_s))
        for g in run.files.by_kind
    ]
    return aligned_table("By kind of file", [header, *rows])


def groups_json(groups: tuple[GroupRow, ...]) -> Object:
    """Totals of each group of files by its name."""
    return {group.name: values_of(group, without=("name",)) for group in groups}


def _by_kind(run: Run) -> Object:
    return groups_json(run.files.by_kind)


GROUPS = {str: fields_of(GroupRow, without=("name",))}
"""The kind of `groups_json`."""
SECTION = Section("kinds", (figure,), _text, {"io.files.by_kind": Json(_by_kind, GROUPS)})
