"""Access pattern: does each operation follow the one before it?"""

from __future__ import annotations

from vanidl.analyses.access import Access, AccessCounts
from vanidl.figures import palette
from vanidl.figures.bars import Stack, share_bars
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import percent, plural
from vanidl.run import Run
from vanidl.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.tracing import record_operations

PARTS = (
    ("first", "first in the file", palette.FIRST, ""),
    ("consecutive", "consecutive", palette.CONSECUTIVE, ""),
    ("forward", "jump forward", palette.FORWARD, "/"),
    ("backward", "jump backward", palette.BACKWARD, "\\"),
)
COUNTED_PARTS = (
    ("consecutive", "consecutive", palette.CONSECUTIVE, ""),
    ("forward", "jump forward", palette.FORWARD, "/"),
    ("backward", "jump backward, or first at the start", palette.BACKWARD, "\\"),
)
_COUNTERS_CAPTION = (
    "From Darshan's counters, as no single operation was traced: reads and writes apart. "
    "Consecutive: begins right behind the last byte touched. Jump forward: further behind it. "
    "The rest begins before it, or is the first at the start of a file."
)
_CAPTION = (
    "Reads and writes apart, per process and file in order of their start. Consecutive: begins "
    "where the one before ended. Shuffled samples show as jumps in both directions; that is "
    "expected of training, and costs most where the storage is far away."
)


def figure(run: Run) -> Figure:
    """Share of first, consecutive, forward and backward operations."""
    access = run.access
    if access is not None and access.read.ops + access.write.ops == 0:
        reason = "No read or write was recorded, so there is no order to show."
        return Figure("access", "Operations", "Access pattern", "", empty_reason=reason)
    if access is None:
        reason = (
            "No single operation was traced and no counter tells their order. "
            f"{record_operations(run.trace)}."
        )
        return Figure("access", "Operations", "Access pattern", "", empty_reason=reason)
    table, alt_text = _table(access), _alt_text(access)
    if access.source == "counters":
        spec = _spec(access, COUNTED_PARTS)
        return _record(_COUNTERS_CAPTION, spec, table, alt_text)
    return _record(_CAPTION, _spec(access, PARTS), table, alt_text)


def _record(caption: str, spec: Spec, table: Table, alt_text: str) -> Figure:
    title = "Access pattern"
    return Figure("access", "Operations", title, caption, spec, table, alt_text=alt_text, half=True)


Part = tuple[str, str, str, str]


def _spec(access: Access, parts: tuple[Part, ...]) -> Spec:
    sides = [(n, c) for n, c in (("reads", access.read), ("writes", access.write)) if c.ops]
    stacks = [
        Stack(name, colour, pattern, [operations_in(counts, attribute) for _, counts in sides])
        for attribute, name, colour, pattern in parts
    ]
    rows = [(label, counts.ops) for label, counts in sides]
    height = 120 + 44 * len(sides)
    return share_bars(rows, stacks, height=height, hover="%{customdata} %{y}")


def operations_in(counts: AccessCounts, attribute: str) -> int:
    """Operations of one class, by Darshan's rule where only its counters are known."""
    own: int | None = getattr(counts, attribute)
    if own is not None:
        return own
    sequential, consecutive = counts.sequential_darshan or 0, counts.consecutive_darshan or 0
    by_rule = {
        "consecutive": consecutive,
        "forward": sequential - consecutive,
        "backward": counts.ops - sequential,
    }
    return max(by_rule[attribute], 0)


def _table(access: Access) -> Table:
    """A row for each order, reads beside writes: half a page has room for no more columns.

    Orders that are of neither side known have no row.
    """
    sides = (_orders(access, 0), _orders(access, 1))
    rows = tuple((name, reads, sides[1][name]) for name, reads in sides[0].items())
    known = tuple(row for row in rows if row[1:] != (None, None))
    return Table((Column("operations"), Column("reads", "count"), Column("writes", "count")), known)


def _orders(access: Access, side: int) -> dict[str, int | None]:
    """Operations of each order: what the picture shows, then what its counters are checked by."""
    counts = (access.read, access.write)[side]
    if access.source == "counters":
        shown = {name: operations_in(counts, part) for part, name, _, _ in COUNTED_PARTS}
        return {"all": counts.ops, **shown}
    shown = {name: getattr(counts, part) for part, name, _, _ in PARTS}
    return {
        "all": counts.ops,
        **shown,
        "sequential, by Darshan's rule": counts.sequential_darshan,
        "sequential, by its counter": access.counted_sequential[side],
        "consecutive, by Darshan's rule": counts.consecutive_darshan,
        "consecutive, by its counter": access.counted_consecutive[side],
    }


def _alt_text(access: Access) -> str:
    sides = (("read", access.read), ("write", access.write))
    return " ".join(_pattern(name, counts) for name, counts in sides if counts.ops)


def _pattern(name: str, counts: AccessCounts) -> str:
    parts = ("first", "consecutive", "forward", "backward", "sequential_darshan")
    known = [(part, getattr(counts, part)) for part in parts]
    shares = [f"{percent(n / counts.ops)} {part}" for part, n in known if n is not None][:4]
    words = ", ".join(shares).replace("sequential_darshan", "sequential by Darshan's rule")
    return f"Of {plural(counts.ops, name)}: {words}."


def text_rows(run: Run) -> list[tuple[str, str]]:
    """The order of reads, for the block about I/O; nothing without reads."""
    if run.access is None or not run.access.read.ops:
        return []
    read = run.access.read
    if run.access.source == "counters":
        return [("reads are", _by_darshans_rule(read))]
    parts = [
        f"{percent(getattr(read, name) / read.ops)} {name}"
        for name in ("consecutive", "forward", "backward", "first")
    ]
    return [("reads are", ", ".join(parts))]


def _by_darshans_rule(read: AccessCounts) -> str:
    sequential, consecutive = read.sequential_darshan, read.consecutive_darshan
    if sequential is None or consecutive is None:
        return "in an order that was not recorded"
    return (
        f"{percent(consecutive / read.ops)} consecutive, {percent(sequential / read.ops)} "
        "sequential (those included), by Darshan's counters"
    )


def _json(run: Run) -> Object | None:
    access = run.access
    if access is None:
        return None
    return {"read": _counts(access.read, access, 0), "write": _counts(access.write, access, 1)}


def _counts(counts: AccessCounts, access: Access, op: int) -> Object:
    return values_of(counts) | {
        "sequential_counted": access.counted_sequential[op],
        "consecutive_counted": access.counted_consecutive[op],
    }


_COUNTS = fields_of(AccessCounts) | {
    "sequential_counted": int | None,
    "consecutive_counted": int | None,
}
_KIND = Maybe({"read": _COUNTS, "write": _COUNTS})
SECTION = Section("access", (figure,), json={"io.access": Json(_json, _KIND)})
