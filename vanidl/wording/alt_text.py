"""What each picture shows, as a sentence for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.access import AccessCounts
from vanidl.formatting.units import count, nbytes, percent, plural, seconds


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
    parts = ("first", "consecutive", "forward", "backward", "sequential_darshan")
    known = [(part, getattr(counts, part)) for part in parts]
    shares = [f"{percent(n / counts.ops)} {part}" for part, n in known if n is not None][:4]
    return f"Of {count(counts.ops)} {name}: {', '.join(shares).replace('_', ' by ')}."


def _kinds(results: Results) -> str:
    rows = results.files.by_kind[:3]
    moved = (f"{row.name} {nbytes(row.bytes_read + row.bytes_written)}" for row in rows)
    return f"Bytes moved by kind of file, most first: {', '.join(moved)}."


def _balance(results: Results) -> str:
    balance = results.balance
    if balance is None or not balance.rows:
        return ""
    moved = sorted(balance.rows, key=lambda row: row.bytes_read + row.bytes_written)
    least, most = moved[0], moved[-1]
    return (
        f"Of {plural(len(moved), 'rank')}, {least.label} moved least, "
        f"{nbytes(least.bytes_read + least.bytes_written)}, and {most.label} most, "
        f"{nbytes(most.bytes_read + most.bytes_written)}."
    )


def _dataset(results: Results) -> str:
    data = results.dataset
    if data is None:
        return ""
    return (
        f"{plural(len(data.files), 'dataset file')}: {nbytes(data.bytes_read)} read, "
        f"{nbytes(data.unique_bytes)} of it different bytes."
    )


def _shares(results: Results) -> str:
    data = results.dataset
    shares = [r.share for r in data.ranks if r.share is not None] if data else []
    if data is None or not shares:
        return ""
    return (
        f"Each of {plural(len(data.ranks), 'rank')} read {percent(min(shares))} to "
        f"{percent(max(shares))} of the {data.share_of}."
    )


def _samples(results: Results) -> str:
    if results.dataset is None:
        return ""
    bins = results.dataset.samples.histogram
    return f"{count(sum(b.files for b in bins))} files in {plural(len(bins), 'class', 'classes')}."


def _visits(results: Results) -> str:
    grid = results.dataset.grid if results.dataset else None
    if grid is None:
        return ""
    first = seconds(float(grid.edges_s[int(np.flatnonzero(grid.nbytes.sum(axis=0))[0])]))
    return f"{count(grid.files)} files, the first of them read {first} after the start."


def _phases(results: Results) -> str:
    phases = results.phases
    if phases is None:
        return ""
    stages = (f"{p.name} from {seconds(p.start_s)} to {seconds(p.end_s)}" for p in phases.stages)
    return (
        f"{'; '.join(stages)}. {plural(len(phases.epochs), 'epoch')}, "
        f"{plural(len(phases.checkpoints), 'checkpoint')}."
    )


_SENTENCES: dict[str, Callable[[Results], str]] = {
    "overlap": _overlap,
    "steps": _steps,
    "sizes": _sizes,
    "access": _access,
    "kinds": _kinds,
    "balance": _balance,
    "dataset": _dataset,
    "data-shares": _shares,
    "samples": _samples,
    "visits": _visits,
    "phases": _phases,
}
