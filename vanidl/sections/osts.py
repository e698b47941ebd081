"""Which of Lustre's targets moved how much, and when."""

from __future__ import annotations

from dataclasses import replace

from vanidl.analyses.osts import OstUse
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.terminal import aligned_table
from vanidl.formatting.units import count, nbytes, seconds
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.sections.timeline import compose_heat, leave_heat_empty
from vanidl.wording.tracing import advise_tracing

MOST_OSTS = 256
_MOST_IN_TEXT = 16
_NAMES = ("osts", "Lustre targets over time", "")
_CAPTION = (
    "One line per object storage target (OST), time since the start of the job to the right. A "
    "stronger colour means more bytes per second (reads and writes together). An operation that "
    "reaches into stripes of several targets counts on each of them, and its bytes on the one "
    "that holds them."
)
_NONE = "Only for files on Lustre whose stripes Darshan recorded and whose operations were traced."
_COLUMNS = (
    Column("target"),
    Column("reads", "count"),
    Column("writes", "count"),
    Column("bytes read", "bytes"),
    Column("bytes written", "bytes"),
    Column("reading", "s"),
    Column("writing", "s"),
)


def draw_osts(run: Run) -> Figure:
    """Bytes per second by target and time, with the use of each target in the table."""
    targets = run.results.osts
    if targets is None or not targets.bytes_moved.any():
        # Without known stripes the figure does not apply; with them it says what is missing.
        known = bool(run.trace.stripes)
        reason = f"{_NONE} {advise_tracing(run.trace)}." if known else _NONE
        return replace(leave_heat_empty(_NAMES, reason), applies=known)
    rows = targets.rows[:MOST_OSTS]
    cut = n_of_m(len(rows), len(targets.rows), "targets")
    labels = [_name_target(row) for row in rows]
    cells = tuple(
        (
            _name_target(row),
            row.reads,
            row.writes,
            row.bytes_read,
            row.bytes_written,
            row.read_s,
            row.write_s,
        )
        for row in rows
    )
    table = Table(_COLUMNS, cells, cut)
    caption = f"{_CAPTION} Operations are those of {targets.layer}."
    caption += f" Shown: {cut}." if cut else ""
    return compose_heat(
        _NAMES, caption, labels, (targets.edges_s, targets.bytes_moved[:MOST_OSTS]), table
    )


def _name_target(row: OstUse) -> str:
    return "metadata server" if row.ost is None else f"OST {row.ost}"


def _write_osts(run: Run) -> str | None:
    """The targets with most bytes, and how many there are."""
    targets = run.results.osts
    if targets is None:
        return None
    head = ("target", "reads", "read", "reading", "writes", "written", "writing")
    # Targets with most bytes first, as many as a terminal has lines for.
    busiest = sorted(targets.rows, key=lambda row: -(row.bytes_read + row.bytes_written))
    rows = [
        (
            _name_target(row),
            count(row.reads),
            nbytes(row.bytes_read),
            seconds(row.read_s),
            count(row.writes),
            nbytes(row.bytes_written),
            seconds(row.write_s),
        )
        for row in busiest[:_MOST_IN_TEXT]
    ]
    cut = n_of_m(len(rows), len(targets.rows), "targets")
    title = f"Lustre targets ({targets.layer}{f'; {cut}' if cut else ''})"
    return aligned_table(title, [head, *rows])


def _collect_osts(run: Run) -> list[Object]:
    """One object a target that traced operations touched."""
    return [values_of(row) for row in (run.results.osts.rows if run.results.osts else ())]


OSTS = Section(
    "osts",
    (draw_osts,),
    _write_osts,
    {"io.osts": Json(_collect_osts, [fields_of(OstUse)])},
)
