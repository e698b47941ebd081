"""Access pattern of all sides, one bar below the other."""

from __future__ import annotations

from vanidl.analyses.access import AccessCounts
from vanidl.compare import Comparison
from vanidl.compare.figures.sides import first_read, shown_runs
from vanidl.figures.bars import Stack, share_bars
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.sections.access import PARTS

_CAPTION = (
    "Per process and file in order of their start. Consecutive: begins where the one before "
    "ended. A loader that reads in order, or joins neighbouring samples, moves bars towards "
    "consecutive."
)
Row = tuple[str, AccessCounts]


def figure(comparison: Comparison) -> Figure:
    """Share of first, consecutive, forward and backward operations for each side."""
    rows, missing = _rows(comparison)
    if not rows:
        reason = "No side recorded operations one by one, so their order is not known."
        return _record("", reason=reason)
    words = [_CAPTION, shown_runs(comparison)]
    words.append(f"Not recorded one by one: {', '.join(missing)}." if missing else "")
    table = Table(
        (Column("operations"), Column("all", "count"),
         *(Column(attribute, "count") for attribute, _, _, _ in PARTS)),
        tuple((name, c.ops, *(getattr(c, a) for a, _, _, _ in PARTS)) for name, c in rows),
    )  # fmt: skip
    return _record(" ".join(word for word in words if word), spec=_spec(rows), table=table)


def _record(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("access", "Operations", "Access pattern", caption, spec, table, reason)


def _rows(comparison: Comparison) -> tuple[list[Row], list[str]]:
    """Reads of every side, then writes; and the sides that recorded no order."""
    found = []
    missing = []
    for side in comparison.sides:
        sample = first_read(side)
        access = None if sample is None or sample.results is None else sample.results.access
        if access is None or access.source == "counters":  # another rule: not side by side
            missing.append(side.letter)
        else:
            found.append((side.letter, access))
    reads = [(f"{letter}: reads", access.read) for letter, access in found]
    writes = [(f"{letter}: writes", access.write) for letter, access in found]
    return [row for row in (*reads, *writes) if row[1].ops], missing


def _spec(rows: list[Row]) -> Spec:
    stacks = [
        Stack(name, colour, pattern, [getattr(counts, attribute) for _, counts in rows])
        for attribute, name, colour, pattern in PARTS
    ]
    ops = [(label, counts.ops) for label, counts in rows]
    return share_bars(ops, stacks, height=110 + 36 * len(rows), hover="%{y}: %{customdata}")
