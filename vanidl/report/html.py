"""The report as one HTML file that opens from disk, without network, now and later."""

from __future__ import annotations

from pathlib import Path

from vanidl.analyses.coverage import Coverage
from vanidl.formatting.names import elided
from vanidl.report.advice import advice, replayed
from vanidl.report.page import Page, render_page, write_page
from vanidl.report.tiles import tiles
from vanidl.run import Run
from vanidl.sections import figures
from vanidl.sections.job import facts
from vanidl.wording.glossary import TERMS


def render_html(run: Run) -> str:
    """The whole page as text."""
    job = run.trace.job
    page = Page(
        title=f"I/O report: {elided(job.id or 'run', limit=80)}",
        kind="I/O report",
        headline=run.answer,
        facts=facts(run),
        tiles=tiles(run),
        warnings=tuple(_warnings(run.coverage)),
        warned_section="Coverage",
        figures=tuple(figure for figure in figures(run) if figure.applies),
        terms=TERMS,
        commands=(("the run", elided(job.command, limit=2000)),),
        findings=advice(run),
        what_if=replayed(run),
    )
    return render_page(page)


def write_html(run: Run, path: str | Path) -> None:
    """Write the page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    write_page(render_html(run), path)


def _warnings(coverage: Coverage) -> list[tuple[str, str, str]]:
    """(code, message, severity), what went wrong before what is worth knowing."""
    ordered = sorted(coverage.warnings, key=lambda w: w.severity == "info")
    return [(w.code, elided(w.message, limit=1000), w.severity) for w in ordered]
