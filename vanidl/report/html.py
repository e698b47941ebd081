"""The report as one HTML file that opens from disk, without network, now and later."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from vanidl.analyses import Results
from vanidl.figures import FIGURES
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, seconds
from vanidl.model.trace import Trace
from vanidl.report.advice import advice, replayed
from vanidl.report.page import Page, render_page, write_page
from vanidl.report.tiles import tiles
from vanidl.run import Run
from vanidl.wording.glossary import TERMS


def render_html(run: Run) -> str:
    """The whole page as text."""
    trace, results = run.trace, run.results
    page = Page(
        title=f"I/O report: {elided(trace.job.id or 'run', limit=80)}",
        kind="I/O report",
        headline=run.answer,
        facts=_facts(trace),
        tiles=tiles(trace, results),
        warnings=tuple(_warnings(results)),
        warned_section="Coverage",
        figures=tuple(f for f in (figure(trace, results) for figure in FIGURES) if f.applies),
        terms=TERMS,
        commands=(("the run", elided(trace.job.command, limit=2000)),),
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


def _facts(trace: Trace) -> tuple[tuple[str, str], ...]:
    """What ran, in a line of small facts."""
    job = trace.job
    start = datetime.fromtimestamp(job.start_ns / 1e9, tz=timezone.utc)
    hosts = {p.host for p in trace.processes if p.host}
    return (
        ("job", elided(job.id or "not recorded", limit=80)),
        ("started", f"{start:%Y-%m-%d %H:%M:%S} UTC"),
        ("run time", seconds(job.run_time_s)),
        ("ranks", count(len(trace.ranks))),
        ("processes", count(len(trace.processes))),
        ("hosts", count(len(hosts)) if hosts else "not recorded"),
        ("tracer", job.tracer or "none"),
    )


def _warnings(results: Results) -> list[tuple[str, str, str]]:
    """(code, message, severity), what went wrong before what is worth knowing."""
    ordered = sorted(results.coverage.warnings, key=lambda w: w.severity == "info")
    return [(w.code, elided(w.message, limit=1000), w.severity) for w in ordered]
