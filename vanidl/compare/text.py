"""A comparison for a terminal: the answer, then one line a metric."""

from __future__ import annotations

from itertools import compress

from vanidl.breakdown import Cell
from vanidl.compare import Change, Comparison, Pairing, Side
from vanidl.compare.comparison import WINDOWS, compare_cells
from vanidl.compare.wording import (
    CONFIDENCE,
    count_runs,
    describe_from_nothing,
    format_interval,
    has_verdicts,
    list_differences,
    write_headline,
)
from vanidl.formatting.terminal import aligned_table, paragraph, printable
from vanidl.formatting.units import relative, shown
from vanidl.model.warnings import NOT_COMPARABLE, WARNING
from vanidl.sections.breakdown import range_words

_SHOWN = 0.02  # of its window: cells that cannot have had more are left out


def render_text(comparison: Comparison) -> str:
    """The headline, the sides and a table for each side that is compared with the first."""
    answer = write_headline(comparison)
    blocks = [
        *(paragraph(said) for said in (answer.ending, answer.title) if said),
        *(paragraph(sentence) for sentence in answer.support),
        "",
        *(f"  {side.letter}  {_name_side(side)}" for side in comparison.sides),
        *(f"  {name} differs: {text}" for name, text in list_differences(comparison)),
        *(f"  {name}: {value}" for name, value in comparison.conditions),
        "",
        *(line for side in comparison.sides for line in _list_missing(side)),
        *(table for pairing in comparison.pairings for table in _make_tables(pairing)),
    ]
    return printable("\n".join(blocks)).rstrip("\n") + "\n"


def _name_side(side: Side) -> str:
    many = f" ({len(side.samples)} runs)" if len(side.samples) > 1 else ""
    return f"{side.name}{many}"


def _list_missing(side: Side) -> list[str]:
    """What is missing in the runs of a side, a paragraph for each warning that says so."""
    said = dict.fromkeys(
        (warning.code, warning.message)
        for sample in side.samples
        if sample.results is not None
        for warning in sample.results.coverage.warnings
        if warning.code in NOT_COMPARABLE and warning.severity == WARNING
    )
    return [f"{paragraph(f'! {side.letter}: {code}: {message}')}\n" for code, message in said]


def _make_metric_table(pairing: Pairing) -> str:
    a, b = pairing.a.letter, pairing.b.letter
    header = (f"{count_runs(pairing)}", a, b, "change", f"{CONFIDENCE} interval", "verdict")
    rows = [header, *(_format_change(change) for change in pairing.changes)]
    kept = [True] * 4 + [any(map(format_interval, pairing.changes)), has_verdicts(pairing)]
    shown_rows = [tuple(compress(row, kept)) for row in rows]
    return aligned_table(f"{b} compared with {a}", shown_rows) or ""


def _make_tables(pairing: Pairing) -> tuple[str, ...]:
    """The metrics, and where the time of both sides went as far as it is known."""
    rows: list[tuple[str, ...]] = [("Cause", pairing.a.letter, pairing.b.letter)]
    window = ""
    for row in compare_cells(pairing.a, pairing.b):
        known = any(ends is not None and ends[0] > 0 for ends in (row.a, row.b))
        _, of, cause = row.key.split("/")
        if not known or row.share < _SHOWN:
            continue
        if of != window:
            window = of
            rows.append((WINDOWS[window], "", ""))
        rows.append(
            (f"  {cause.replace('_', ' ')}", *(_format_ends(ends) for ends in (row.a, row.b)))
        )
    accounts = aligned_table("Where the time went, mean over ranks", rows)
    return tuple(
        table for table in (_make_metric_table(pairing), accounts if rows[1:] else None) if table
    )


def _format_ends(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return "-"
    low_ns, high_ns = (round(end * 1e9) for end in ends)
    return range_words(Cell(low_ns, high_ns))


def _format_change(change: Change) -> tuple[str, ...]:
    unit = change.metric.unit
    return (
        change.metric.title,
        shown(change.a, unit),
        shown(change.b, unit),
        relative(change.ratio)
        if change.ratio is not None
        else describe_from_nothing(change) or "-",
        format_interval(change) or "-",
        change.verdict,
    )
