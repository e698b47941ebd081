"""How evenly the I/O is spread over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vanidl.analyses.operations import Operations, Totals
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RankLoad:
    """The I/O of one rank's family: its trainer and workers."""

    label: str
    rank: int | None
    host: str
    processes: int
    ops: int
    bytes_read: int
    bytes_written: int
    busy_s: float | None  # None where no operation was traced
    counter_s: float | None = None  # reading + writing by counters, where nothing was traced


@dataclass(frozen=True, slots=True)
class Balance:
    """Load over ranks. A spread is max / mean: 1.0 where all are equal, None where all are 0.

    `source` "counters": rows hold the records of single ranks, `counter_spread` is that of
    `counter_s`, busy time is not known. Bytes of records that Darshan merged over all ranks,
    and of processes of no rank, are in `shared_bytes` only.
    """

    rows: tuple[RankLoad, ...]
    busy_spread: float | None
    bytes_spread: float | None
    silent_ranks: int  # ranks that did no I/O on this layer
    source: str = "trace"
    shared_bytes: int = 0
    counter_spread: float | None = None


def finish(reduced: Operations, trace: Trace) -> Balance | None:
    """One row per rank in the order of Trace.ranks; None where no operation was traced."""
    if not reduced.totals or not trace.ranks:
        return None
    sizes = Counter(trace.family.tolist())
    busy_ns = reduced.busy_ns(len(trace.ranks))
    rows = tuple(
        _make_row(position, reduced.totals.get(position, Totals()), busy, trace, sizes)
        for position, busy in enumerate(busy_ns)
    )
    return Balance(
        rows,
        spread([r.busy_s or 0.0 for r in rows]),
        spread([r.bytes_read + r.bytes_written for r in rows]),
        sum(r.ops == 0 for r in rows),
    )


def spread(values: Sequence[float]) -> float | None:
    """Max / mean; None where all values are 0."""
    total = sum(values)
    return max(values) * len(values) / total if total > 0 else None


def _make_row(
    position: int, totals: Totals, busy_ns: int, trace: Trace, sizes: Counter[int]
) -> RankLoad:
    process = trace.processes[trace.ranks[position]]
    return RankLoad(
        process.label,
        process.rank,
        process.host,
        sizes[position],
        totals.reads + totals.writes,
        totals.bytes_read,
        totals.bytes_written,
        busy_ns / 1e9,
    )
