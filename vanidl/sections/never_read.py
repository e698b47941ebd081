"""Data files that were opened and not read, or never opened."""

from __future__ import annotations

from vanidl.analyses.dataset import Dataset
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.run import Run
from vanidl.sections.dataset import NO_DATASET
from vanidl.sections.section import Section

LIMIT = 400
_TITLE = "Data that was never read"


def figure(run: Run) -> Figure:
    """Files that were opened and not read, and files on disk that were never opened."""
    data = run.dataset
    reason = _why_nothing(data)
    if data is None or reason:
        return Figure("never-read", "Dataset", _TITLE, "", empty_reason=reason)
    rows = [
        *((elided(p), "opened, no read seen") for p in data.never.opened or ()),
        *((elided(p), "never opened") for p in data.never.on_disk or ()),
    ]
    columns = (Column("path"), Column("what is known"))
    table = Table(columns, tuple(rows[:LIMIT]), n_of_m(min(len(rows), LIMIT), len(rows), "files"))
    caption = "Reads through memory maps (np.memmap, np.load of a plain array) are not seen."
    return Figure("never-read", "Dataset", _TITLE, caption, None, table)


def _why_nothing(data: Dataset | None) -> str:
    if data is None:
        return NO_DATASET
    never = data.never
    if never.reason:
        return f"Unknown. {never.reason}"
    if never.opened or never.on_disk:
        return ""
    if never.opened is None:
        return "Unknown: no counters were recorded."
    read = "Every data file that was opened was also read"
    if never.on_disk is None:
        return f"Files never opened are in no log: name the folder with --data PATH. {read}."
    return f"{read}, and every file of the folder was opened."


SECTION = Section("never read", (figure,), traced=False)
