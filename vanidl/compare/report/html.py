"""A comparison as one HTML file that opens from disk, without network, now and later."""

from __future__ import annotations

from pathlib import Path

from vanidl.compare import Comparison, Sample, Side
from vanidl.compare.differences import differences
from vanidl.compare.figures import FIGURES
from vanidl.compare.report.terms import TERMS
from vanidl.compare.report.tiles import tiles
from vanidl.compare.wording import headline, runs
from vanidl.formatting.names import elided
from vanidl.report.page import Page, render_page, write_page


def render_comparison(comparison: Comparison) -> str:
    """The whole page as text."""
    names = " and ".join(elided(side.name, limit=40) for side in comparison.sides)
    page = Page(
        title=f"Comparison: {names}",
        kind="comparison",
        headline=headline(comparison),
        facts=_facts(comparison),
        tiles=tiles(comparison),
        warnings=_warnings(comparison),
        warned_section="Runs",
        figures=tuple(made for figure in FIGURES if (made := figure(comparison)).applies),
        terms=TERMS,
        commands=tuple((side.letter, _command(side)) for side in comparison.sides),
    )
    return render_page(page)


def write_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write the page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    write_page(render_comparison(comparison), path)


def _facts(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Who is who, and how the runs were made."""
    sides = tuple((side.letter, elided(side.name, limit=60)) for side in comparison.sides)
    what = tuple((f"{name} differs", elided(text, limit=200)) for name, text in
                 differences(comparison))  # fmt: skip
    return (*sides, *what, ("runs", runs(comparison.pairings[0])), *comparison.conditions[:1])


def _warnings(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Every warning of every run once, with the sides that have it.

    A warning begins with the file that it is about: of a run's own files their place in the run is
    named, and none where it is said of several.
    """
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for side in comparison.sides:
        for sample in side.samples:
            for code, message, severity in _of(sample):
                place, rest = _placed(sample, message)
                found.setdefault((code, rest, severity), []).append((side.letter, place))
    ordered = sorted(found.items(), key=lambda item: item[0][2] == "info")
    return tuple(
        (code, elided(f"{_who(said)}: {rest}", limit=1000), severity)
        for (code, rest, severity), said in ordered
    )


def _placed(sample: Sample, message: str) -> tuple[str, str]:
    """The file of the run that a warning begins with, "" where it names none, and the rest."""
    name, colon, rest = message.partition(": ")
    run = f"{sample.path.rstrip('/')}/"
    return (name.removeprefix(run), rest) if colon and name.startswith(run) else ("", message)


def _who(said: list[tuple[str, str]]) -> str:
    """The sides that have a warning, and the file of the only run that has it."""
    letters = ", ".join(dict.fromkeys(letter for letter, _ in said))
    place = said[0][1] if len(said) == 1 else ""
    return f"{letters}: {place}" if place else letters


def _of(sample: Sample) -> list[tuple[str, str, str]]:
    if sample.results is None:
        return [("not_read", sample.missing, "warning")]
    return [(w.code, w.message, w.severity) for w in sample.results.coverage.warnings]


def _command(side: Side) -> str:
    commands = dict.fromkeys(s.job.command for s in side.samples if s.job and s.job.command)
    return elided("; ".join(commands), limit=2000)
