"""What input waits consist of, in words: a view of the account of time."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.breakdown import Breakdown, Cell
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.causes import (
    BLOCKED,
    COMPUTE,
    COPY,
    DELIVERY,
    INPUT_CPU,
    METADATA,
    OBJECT,
    STORAGE,
    TOO_FEW_CORES,
    WORKERS,
)
from vanidl.formatting.units import seconds
from vanidl.model.states import SAMPLED

WIDE = 0.5
"""Share of the waits: where so much of them is open, what they consist of is not known."""

MOSTLY = 0.5
"""Share of the waits from which they are mostly of one cause."""

_WORTH = 0.02  # of the waits: shorter parts are not named
_LIKE = 0.02  # of the waits: ends of a cell that lie closer are said as one
OPEN = "open"
"""The code of what no record tells apart: decoding, locks, other work of the loader."""

LOCK, NETWORK, SLEEP, CHILD = (
    f"{BLOCKED}.{part}" for part in ("lock", "network", "sleep", "child")
)  # fmt: skip
BLOCKS = (LOCK, NETWORK, SLEEP, CHILD)
"""Codes of what a fetch waits for that is no storage."""

_OTHERS = (INPUT_CPU, BLOCKED, TOO_FEW_CORES, WORKERS, DELIVERY)
WAIT_WORDS = {
    STORAGE: "storage",
    INPUT_CPU: "decoding, augmenting or collating",
    LOCK: "waiting for a lock",
    NETWORK: "waiting for the network",
    SLEEP: "sleeping",
    CHILD: "waiting for a child process",
    TOO_FEW_CORES: "waiting for a free core",
    WORKERS: "starting workers",
    DELIVERY: "delivery from the workers",
    COMPUTE: "time in which the device computed",
    COPY: "time in which the device copied",
    OPEN: "decoding or other work of the loader",
}


@dataclass(frozen=True, slots=True)
class WaitPart:
    """One part of the input waits of a rank, and the key of its cell; "" for what is open."""

    code: str
    cell: Cell
    key: str


def wait_parts(account: Breakdown, who: str = MEAN) -> tuple[WaitPart, ...]:
    """The parts of the waits of a rank or the mean: each known cause, then what stays open."""
    length_ns = account.length_ns(WAIT, who)
    parts = []
    for code in (STORAGE, INPUT_CPU, *BLOCKS, TOO_FEW_CORES, WORKERS, DELIVERY, COMPUTE, COPY):
        key = f"{who}/{WAIT}/{code}"
        cell = account.cell(key)
        # Of most nothing may be known: then they are in what stays open.
        if cell.low_ns or (code == STORAGE and cell.high_ns):
            parts.append(WaitPart(code, cell, key))
    named = {part.code.partition(".")[0] for part in parts}
    rest = [account.cell(f"{who}/{WAIT}/{code}") for code in _OTHERS if code not in named]
    least = max(length_ns - sum(part.cell.high_ns for part in parts), 0)
    most = min(length_ns - sum(part.cell.low_ns for part in parts), sum(c.high_ns for c in rest))
    parts.append(WaitPart(OPEN, Cell(int(least), int(max(most, least))), ""))
    return tuple(parts)


def mostly(account: Breakdown) -> str:
    """The code of the part that half of the waits or more are for sure; "" where none is."""
    length_ns = account.length_ns(WAIT)
    for part in wait_parts(account):
        if length_ns and part.cell.low_ns >= MOSTLY * length_ns:
            return part.code
    return ""


def storage_is_known(account: Breakdown) -> bool:
    """Whether samples of what threads did say how much of the waits was storage."""
    cell = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    known = cell.high_ns - cell.low_ns <= WIDE * account.length_ns(WAIT)
    return known and SAMPLED in cell.evidence


def parts_words(account: Breakdown, *, whole: bool) -> str:
    """`10.9 s was storage and 4.97 s decoding or other work of the loader`, longest first.

    Args:
        account: of a run with input waits.
        whole: whether all I/O was recorded; what is missing of it looks like work of the loader.
    """
    length_ns = account.length_ns(WAIT)
    storage = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    busy_ns = sum(account.cell(f"{MEAN}/{WAIT}/{code}").low_ns for code in (COMPUTE, COPY))
    if storage.high_ns - storage.low_ns > WIDE * (length_ns - busy_ns):
        least = f", at least {seconds(storage.low_ns / 1e9)}" if storage.low_ns else ""
        return f"how much of that was storage is not known{least}"
    said = []
    for part in sorted(wait_parts(account), key=lambda part: -part.cell.middle_ns):
        if part.cell.high_ns < _WORTH * length_ns:
            continue
        words = WAIT_WORDS[part.code]
        if part.code == STORAGE and (calls := _mostly_metadata(account)):
            words += calls
        if part.code == OPEN and not whole:
            words += ", or I/O that was not recorded"
        said.append(f"{_amount(part.cell, length_ns)} {words}")
    if not storage.high_ns:
        said.append("none was storage")
    return f"of that {', '.join(said[:3])}"


def _mostly_metadata(account: Breakdown) -> str:
    """That storage was mostly metadata calls, or requests to object storage, where it was."""
    storage = account.cell(f"{MEAN}/{WAIT}/{STORAGE}")
    calls = account.cell(f"{MEAN}/{WAIT}/{STORAGE}.{METADATA}")
    objects = account.cell(f"{MEAN}/{WAIT}/{STORAGE}.{OBJECT}")
    if calls.low_ns >= MOSTLY * storage.high_ns > 0:
        return ", mostly metadata calls (open, stat, close)"
    return (
        ", mostly requests to object storage" if objects.low_ns > MOSTLY * storage.high_ns else ""
    )


def _amount(cell: Cell, length_ns: float) -> str:
    low, high = cell.range_s
    if cell.high_ns - cell.low_ns <= _LIKE * length_ns:
        return seconds((low + high) / 2)
    return f"{seconds(low)} to {seconds(high)}" if cell.low_ns else f"at most {seconds(high)}"
