"""Traffic by mount point, each with the type of its file system."""

from __future__ import annotations

from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.run import Run
from vanidl.sections.kinds import GROUPS, groups_json
from vanidl.sections.section import Json, Object, Section
from vanidl.wording.data import busy_words

LIMIT = 100
_TITLE = "By mount point and file system"
_CAPTION = "As mounted where the job ran."
_TIME = " Time is the mean over ranks during which the rank was in I/O on this mount."
_COLUMNS = (
    Column("mount point"),
    Column("file system"),
    Column("files", "count"),
    Column("bytes read", "bytes"),
    Column("bytes written", "bytes"),
    Column("time in I/O", "s"),
)


def figure(run: Run) -> Figure:
    """A table of mount points, most traffic first."""
    groups = run.files.by_mount
    if not groups:
        reason = "No file was read or written through this layer."
        return Figure("mounts", "Files", _TITLE, "", empty_reason=reason)
    rows = tuple(
        (
            elided(g.name, limit=80) or "not under a known mount point",
            g.file_system,
            g.files,
            g.bytes_read,
            g.bytes_written,
            g.busy_s,
        )
        for g in groups[:LIMIT]
    )
    table = Table(_COLUMNS, rows, n_of_m(len(rows), len(groups), "mount points"))
    timed = any(g.busy_s is not None for g in groups[:LIMIT])
    caption = _CAPTION + (_TIME if timed else "")
    caption += table.not_recorded() + busy_words(run.coverage, run.summary.layer, groups)
    return Figure(
        "mounts", "Files", _TITLE, caption, None, table.without_empty_columns(), half=True
    )


def _by_mount(run: Run) -> Object:
    return groups_json(run.files.by_mount)


def _by_file_system(run: Run) -> Object:
    return groups_json(run.files.by_file_system)


SECTION = Section(
    "mounts",
    (figure,),
    json={
        "io.files.by_mount": Json(_by_mount, GROUPS),
        "io.files.by_file_system": Json(_by_file_system, GROUPS),
    },
)
