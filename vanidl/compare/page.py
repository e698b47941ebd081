"""A comparison as one HTML file that opens from disk, without network, now and later.

Its headline and figures are those of other outputs; the tiles under the headline and the terms at
its end are made here.
"""

from __future__ import annotations

from pathlib import Path

from vanidl.compare import Change, Comparison, Sample, Side
from vanidl.compare.comparison import (
    MIN_CHANGE,
    MIN_RUNS,
    NO_INTERVAL,
    NOT_COMPARABLE,
    NOT_RECORDED,
    TOO_FEW,
)
from vanidl.compare.figures.registry import FIGURES
from vanidl.compare.statistics import ALPHA
from vanidl.compare.text import (
    count_runs,
    format_interval,
    format_values,
    list_differences,
    write_headline,
)
from vanidl.formatting.names import elided
from vanidl.formatting.units import UNKNOWN, percent, relative, shown
from vanidl.report.page import TERMS as OF_A_RUN
from vanidl.report.page import Page, Tile, render_page, write_page


def render_comparison(comparison: Comparison) -> str:
    """The whole page as text."""
    names = " and ".join(elided(side.name, limit=40) for side in comparison.sides)
    # Who is who, and how the runs were made.
    sides = tuple((side.letter, elided(side.name, limit=60)) for side in comparison.sides)
    what = tuple((f"{name} differs", elided(text, limit=200)) for name, text in
                 list_differences(comparison))  # fmt: skip
    facts = (
        *sides,
        *what,
        ("runs", count_runs(comparison.pairings[0])),
        *comparison.conditions[:1],
    )
    page = Page(
        title=f"Comparison: {names}",
        kind="comparison",
        headline=write_headline(comparison),
        facts=facts,
        tiles=make_tiles(comparison),
        warnings=_merge_warnings(comparison),
        warned_section="Runs",
        figures=tuple(made for figure in FIGURES if (made := figure(comparison)).applies),
        terms=TERMS,
        commands=tuple((side.letter, _describe_command(side)) for side in comparison.sides),
    )
    return render_page(page)


def write_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write the page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    write_page(render_comparison(comparison), path)


def _merge_warnings(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Every warning of every run once, with the sides that have it.

    A warning begins with the file that it is about: of a run's own files their place in the run is
    named, and none where it is said of several.
    """
    places: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for side in comparison.sides:
        for sample in side.samples:
            warnings = [("not_read", sample.missing, "warning")]
            if sample.results is not None:
                noticed = sample.results.coverage.warnings
                warnings = [(w.code, w.message, w.severity) for w in noticed]
            for code, message, severity in warnings:
                place, rest = _split_place(sample, message)
                places.setdefault((code, rest, severity), []).append((side.letter, place))

    # What is to be acted on before what is to be known.
    ordered = sorted(places.items(), key=lambda item: item[0][2] == "info")
    return tuple(
        (code, elided(f"{_name_sides(said)}: {rest}", limit=1000), severity)
        for (code, rest, severity), said in ordered
    )


def _split_place(sample: Sample, message: str) -> tuple[str, str]:
    """The file of the run that a warning begins with, "" where it names none, and the rest."""
    name, colon, rest = message.partition(": ")
    run = f"{sample.path.rstrip('/')}/"
    return (name.removeprefix(run), rest) if colon and name.startswith(run) else ("", message)


def _name_sides(said: list[tuple[str, str]]) -> str:
    """The sides that have a warning, and the file of the only run that has it."""
    letters = ", ".join(dict.fromkeys(letter for letter, _ in said))
    place = said[0][1] if len(said) == 1 else ""
    return f"{letters}: {place}" if place else letters


def _describe_command(side: Side) -> str:
    commands = dict.fromkeys(s.job.command for s in side.samples if s.job and s.job.command)
    return elided("; ".join(commands), limit=2000)


_NAMES = ("throughput", "step_time_s", "input_wait_s", "exposed_io_s", "bytes_read")
_ALONE = ("wall_time_s", "run_time_s", "io_time_s", "requests")


def make_tiles(comparison: Comparison) -> tuple[Tile, ...]:
    """Five key changes of the first pairing: what was recorded before what was not."""
    pairing = comparison.pairings[0]
    changes = [pairing.comparable(name) for name in (*_NAMES, *_ALONE)]
    known = [c for c in changes if c is not None and c.verdict != NOT_RECORDED]
    unknown = [c for c in changes if c is not None and c.verdict == NOT_RECORDED]
    return tuple(_make_tile(change) for change in (known + unknown)[:5])


def _make_tile(change: Change) -> Tile:
    title = change.metric.title
    label = title[:1].upper() + title[1:]
    if change.verdict == NOT_RECORDED:
        return Tile(label, UNKNOWN, change.note)
    if change.verdict == NOT_COMPARABLE:
        return Tile(label, change.verdict, format_values(change))
    unit = change.metric.unit
    # Without a ratio, as from 0, the value itself.
    value = shown(change.b, unit) if change.ratio is None else relative(change.ratio)
    bounds = format_interval(change)
    # No word on the change where runs are too few for one.
    judged = "" if change.verdict in (NO_INTERVAL, TOO_FEW) else f"; {change.verdict}"
    if bounds and change.ratio is not None:
        judged += f" ({bounds})"
    return Tile(label, value, format_values(change) + judged)


TERMS: tuple[tuple[str, str], ...] = (
    (
        "Better, worse",
        "The metric changed in its good or bad direction, and by more than runs of the same "
        "thing differ. Bytes, requests and the like have no good direction: they are more or less.",
    ),
    (
        "No difference shown",
        "The runs differ by no more than repeats of the same thing do, or by less than "
        f"{percent(MIN_CHANGE)}. That does not prove that they are equal: the interval says how "
        "large a change may still hide.",
    ),
    (
        "No interval",
        "One run on each side gives no measure of how far the next run would be off. Repeat both, "
        "alternately: vanidl ab does it.",
    ),
    (
        "Not comparable",
        "Both sides recorded the quantity, but not alike; the notices under the headline say why.",
    ),
    (
        f"{percent(1 - ALPHA)} interval",
        "Of the ratio of B to A over repeats of the whole experiment, by Student's t on the "
        "logarithms of the pairs' ratios (Welch's t where runs are not paired). Steps of one run "
        "do not count as repeats.",
    ),
    (
        "Too few runs",
        f"With fewer than {MIN_RUNS} runs of each side even large changes go unproved, so no "
        "verdict is given: what was seen is shown, with its interval.",
    ),
    (
        "Throughput",
        "Steps per second over the observed window: the question that is asked, where it was "
        "recorded; else the wall time of the command. The median step is beside it: few long waits "
        "leave the median alone.",
    ),
    (
        "Corrected",
        "The first metric is the question that was asked. All other verdicts are corrected for "
        "their number (Holm): together they call a difference that is not there in "
        f'{percent(ALPHA)} of comparisons. So "no difference shown" may stand beside an interval '
        "that excludes 0 %.",
    ),
    *OF_A_RUN,
)
