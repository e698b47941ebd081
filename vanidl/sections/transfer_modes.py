"""Where the sizes of dataset reads cluster, and why."""

from __future__ import annotations

from vanidl.analyses.datafiles import TransferMode
from vanidl.figures.figure import Column, Figure, Table
from vanidl.run import Run
from vanidl.sections.dataset import NO_DATASET
from vanidl.sections.section import Section
from vanidl.wording.data import size_range

_TITLE = "Sizes of dataset reads and their causes"
_CAPTION = (
    "Sizes, or groups of sizes, that hold 2 % of the reads or bytes. A cause is certain only "
    "where the files were opened (--inspect); else it says what such a size is typical of."
)
_COLUMNS = (
    Column("size"),
    Column("reads", "count"),
    Column("of the reads", "share"),
    Column("of the bytes", "share"),
    Column("cause"),
    Column("certain"),
    Column("evidence"),
)


def figure(run: Run) -> Figure:
    """A table of modes with cause and evidence, most bytes first."""
    data = run.dataset
    if data is None or not data.modes:
        reason = NO_DATASET if data is None else "Sizes of single reads were not recorded."
        return Figure("data-sizes", "Dataset", _TITLE, "", empty_reason=reason)
    rows = tuple(_row(mode) for mode in data.modes)
    return Figure("data-sizes", "Dataset", _TITLE, _CAPTION, None, Table(_COLUMNS, rows))


def _row(mode: TransferMode) -> tuple[str | int | float | None, ...]:
    return (
        size_range(mode),
        mode.reads,
        mode.share_of_reads,
        mode.share_of_bytes,
        mode.cause or "unknown",
        "yes" if mode.certain else "no",
        mode.evidence,
    )


SECTION = Section("transfer modes", (figure,))
