"""What each picture shows, as a sentence for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.access import AccessCounts
from vanidl.report.units import count, nbytes, percent, plural, seconds


def sentence(figure_id: str, results: Results) -> str:
    """The sentence of a figure by its id; "" for a figure that has none here."""
    say = _SENTENCES.get(figure_id)
    return say(results) if say else ""


def _overlap(results: Results) -> str:
    overlap = results.overlap
    if overlap is None:
        return ""
    mean = overlap.mean
    return (
        f"On average a rank spent {seconds(mean.io_s)} in I/O: {seconds(mean.in_wait_s)} in input "
        f"waits, {seconds(mean.hidden_s)} hidden, {seconds(mean.behind_communication_s)} behind "
        f"communication, {seconds(mean.other_s)} otherwise exposed, {seconds(mean.unobserved_s)} "
        f"unobserved."
    )


def _steps(results: Results) -> str:
    steps = results.steps
    if steps is None:
        return ""
    wait = steps.table.input_wait_s
    known = wait[~np.isnan(wait)]
    waited = (
        f"the longest input wait is {seconds(float(known.max()))}"
        if len(known)
        else "input waits were not recorded"
    )
    return (
        f"{plural(len(steps.table.step), 'step')} of {plural(steps.ranks, 'rank')}, "
        f"{seconds(steps.median_s)} in the median and {seconds(steps.p99_s)} at the 99th "
        f"percentile; {waited}."
    )


def _sizes(results: Results) -> str:
    bins = results.sizes.histogram or results.sizes.darshan_histogram
    if not bins:
        return ""
    top = max(bins, key=lambda b: b.reads + b.writes)
    total = sum(b.reads + b.writes for b in bins)
    upper = f" to {nbytes(top.high)}" if top.high is not None else " or more"
    share = (top.reads + top.writes) / total if total else None
    return f"Most operations move {nbytes(top.low)}{upper}: {percent(share)} of {count(total)}."


def _access(results: Results) -> str:
    access = results.access
    if access is None:
        return ""
    sides = (("reads", access.read), ("writes", access.write))
    return " ".join(_pattern(name, counts) for name, counts in sides if counts.ops)


def _pattern(name: str, counts: AccessCounts) -> str:
    shares = (
        f"{percent(getattr(counts, part) / counts.ops)} {part}"
        for part in ("first", "consecutive", "forward", "backward")
    )
    return f"Of {count(counts.ops)} {name}: {', '.join(shares)}."


def _kinds(results: Results) -> str:
    rows = results.files.by_kind[:3]
    moved = (f"{row.name} {nbytes(row.bytes_read + row.bytes_written)}" for row in rows)
    return f"Bytes moved by kind of file, most first: {', '.join(moved)}."


def _balance(results: Results) -> str:
    balance = results.balance
    if balance is None or not balance.rows:
        return ""
    busy = sorted(balance.rows, key=lambda row: row.busy_s)
    return (
        f"Time in I/O runs from {seconds(busy[0].busy_s)} ({busy[0].label}) to "
        f"{seconds(busy[-1].busy_s)} ({busy[-1].label}) over {plural(len(busy), 'rank')}."
    )


_SENTENCES: dict[str, Callable[[Results], str]] = {
    "overlap": _overlap,
    "steps": _steps,
    "sizes": _sizes,
    "access": _access,
    "kinds": _kinds,
    "balance": _balance,
}
