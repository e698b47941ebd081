"""The report as one HTML file that opens from disk, without network, now and later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vanidl.advice.finding import LOW
from vanidl.figures.figure import Figure
from vanidl.formatting.names import elided
from vanidl.report.overview import make_overview
from vanidl.report.page import TERMS, Page, render_page, write_page
from vanidl.run import Run
from vanidl.sections import timeline
from vanidl.sections.actions import tabulate_predictions
from vanidl.sections.registry import figures
from vanidl.viewer.content import Room, Slices

LIMIT_NBYTES = 4_000_000
"""Of a page, whatever the run."""

_FEWER = (30_000, 8_000, 2_000, 0)  # slices that the trace viewer holds where the rest is large


def render_html(run: Run) -> str:
    """The whole page as text, of at most `LIMIT_NBYTES`."""
    shown = Slices(run)
    page = page_of(run, shown)
    text = render_page(page)
    for slices in _FEWER:
        if len(text.encode("utf-8", "backslashreplace")) <= LIMIT_NBYTES:
            break
        text = render_page(page_with(page, run, Room(slices), shown))
    return text


_OF_STEPS = "Input and compute"  # this section rests on the profile, all others on a log of I/O
_NO_LOG = "No I/O was recorded beside the profile. Record the run with vanidl record."


def _give_one_reason(figure: Figure, run: Run) -> Figure:
    """One reason for all that a profile alone cannot show, not one for each picture."""
    alone = not run.trace.logs and not run.trace.counters and run.summary.ops is None
    if not alone or not figure.empty_reason or figure.section == _OF_STEPS:
        return figure
    return replace(figure, empty_reason=_NO_LOG, table=None)


def page_with(page: Page, run: Run, room: Room, slices: Slices | None = None) -> Page:
    """The page with as much of the run in its trace viewer as has room."""
    figures = [timeline.draw_timeline(run, room, slices) if f.viewer else f for f in page.figures]
    return replace(page, figures=tuple(figures), served=room.served)


def page_of(run: Run, slices: Slices | None = None) -> Page:
    """The content of the page."""
    job, screen = run.trace.job, make_overview(run)
    # What went wrong before what is worth knowing.
    warnings = sorted(run.coverage.warnings, key=lambda w: w.severity == "info")
    # Sections in which a diagnosis that is worth acting on shows.
    codes = [d.code for d in run.diagnoses if d.severity != LOW]
    marked = frozenset(name for code in codes for name in _SHOWN_IN.get(code, ()))
    return Page(
        title=f"{screen.name}: I/O report",
        kind="I/O report",
        headline=run.answer,
        facts=(),
        tiles=(),
        warnings=tuple((w.code, elided(w.message, limit=1000), w.severity) for w in warnings),
        warned_section="Coverage",
        figures=tuple(
            _give_one_reason(figure, run) for figure in figures(run, slices) if figure.applies
        ),
        terms=TERMS,
        commands=(("the run", elided(job.command, limit=2000)),),
        first_screen=screen,
        what_if=tabulate_predictions(run),
        marked=marked,
    )


def write_html(run: Run, path: str | Path) -> None:
    """Write the page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    write_page(render_html(run), path)


_SHOWN_IN = {
    "warm_start": ("Input and compute",),
    "read_ahead": ("Input and compute", "Over time"),
    "decode": ("Input and compute",),
    "unblock": ("Input and compute",),
    "more_cores": ("Input and compute",),
    "keep_data": ("Dataset",),
    "rare_stalls": ("Input and compute",),
    "larger_requests": ("Operations",),
    "fewer_files": ("Files",),
    "divide_reading": ("Ranks",),
    "checkpoints": ("Over time", "Files"),
    "buffered_io": ("Totals",),
    "imports": ("Files",),
    "record_more": ("Coverage",),
}
