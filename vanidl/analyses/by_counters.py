"""Sizes, access, balance and timeline where no operation was traced: by counters and heat maps.

Counters know neither exact sizes nor times of single operations: what only a trace can say
is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.access import Access, AccessCounts
from vanidl.analyses.balance import Balance, RankLoad, spread
from vanidl.analyses.sizes import DARSHAN_EDGES, SizeBin, Sizes
from vanidl.model.counter_tables import CounterTable, Heatmap
from vanidl.model.counter_totals import COUNTED, count_by_record, count_total, prefix_of
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.analyses.timeline import Timeline

_CLASSES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M",
            "100M_1G", "1G_PLUS")  # fmt: skip
_INFIXES = ("", "AGG_")  # layers of collective calls count sizes summed over dimensions


@dataclass(frozen=True, slots=True)
class CounterTime:
    """Time in I/O by Darshan's counters, in seconds: sums, not unions.

    Summed over files and processes; Darshan leaves overlap on one file of one process out,
    overlap between files counts twice. It is not busy time. None: not in the log.
    """

    read_s: float | None
    write_s: float | None
    meta_s: float | None  # None too where it exceeds what the processes have
    per_rank_mean_s: float | None  # (reading + writing) / ranks
    per_rank_max_s: float | None  # None where any of it is not recorded by rank


def count_sizes(trace: Trace, layer: str) -> Sizes:
    """Darshan's ten size classes; how many bytes each class moved is not known."""
    table, prefix = trace.counters.get(layer), prefix_of(layer)

    def count_classes(op: str) -> list[int] | None:
        if table is None:
            return None
        for infix in _INFIXES:
            values = [table.total(f"{prefix}_SIZE_{op}_{infix}{name}") for name in _CLASSES]
            if any(value is not None for value in values):
                return [value or 0 for value in values]
        return None  # the layer does not count them

    reads, writes = count_classes("READ"), count_classes("WRITE")
    if reads is None or writes is None:
        return Sizes(None, None, None, None, (), (), (), 0)
    bounds = pairwise([*DARSHAN_EDGES, None])
    bins = tuple(
        SizeBin(low or 0, high, r, w, None, None)
        for (low, high), r, w in zip(bounds, reads, writes, strict=True)
    )
    return Sizes(None, None, None, None, (), bins, (), 0)


def count_access(trace: Trace, layer: str) -> Access | None:
    """Sequential and consecutive operations by Darshan's rule; None where not counted."""
    table = trace.counters.get(layer)
    if table is None:
        return None
    sides = [_make_access_counts(table, op) for op in ("READS", "WRITES")]
    if all(side.sequential_darshan is None for side in sides):
        return None
    read, write = sides
    return Access(
        read,
        write,
        (read.sequential_darshan, write.sequential_darshan),
        (read.consecutive_darshan, write.consecutive_darshan),
        "counters",
    )


def count_load(trace: Trace, layer: str) -> Balance | None:
    """What each rank's own records hold; None where no rank has records of its own.

    Darshan merges the records of a file that all ranks opened: their bytes, and those of
    processes of no rank, are in `shared_bytes` and in no row.
    """
    table = trace.counters.get(layer)
    if table is None or not trace.ranks:
        return None
    position = _find_positions(table, trace)
    columns = np.stack([count_by_record(table, what) for what in COUNTED])
    seconds = _record_seconds(table)
    own = position >= 0
    if not own.any():
        return None
    ranks = len(trace.ranks)
    sums = np.stack([np.bincount(position[own], c[own], ranks) for c in columns]).astype(np.int64)
    times = np.bincount(position[own], seconds[own], ranks)
    families = Counter(trace.family.tolist())
    # Counters add up times of calls: when a rank was busy they do not say.
    rows = []
    for i, process in enumerate(trace.processes[rank] for rank in trace.ranks):
        reads, writes, bytes_read, bytes_written = sums[:, i].tolist()
        rows.append(
            RankLoad(
                process.label, process.rank, process.host, families[i], reads + writes,
                bytes_read, bytes_written, None, float(times[i]),
            )
        )  # fmt: skip
    return Balance(
        tuple(rows),
        None,
        spread([row.bytes_read + row.bytes_written for row in rows]),
        sum(row.ops == 0 for row in rows),
        "counters",
        int(columns[2:, ~own].sum()),
        spread([row.counter_s or 0.0 for row in rows]),
    )


def sum_times(trace: Trace, layer: str, *, meta_is_credible: bool) -> CounterTime | None:
    """Seconds of reading, writing and metadata; None where the layer has no such counters."""
    table = trace.counters.get(layer)
    if table is None:
        return None
    prefix = prefix_of(layer)
    read_s, write_s, meta_s = (
        table.total_s(f"{prefix}_F_{what}_TIME") for what in ("READ", "WRITE", "META")
    )
    known = [s for s in (read_s, write_s) if s is not None]
    if not known:
        return None
    ranks = len(trace.ranks)
    mean = sum(known) / ranks if ranks else None
    # The rank with most, where every record with time in it is of one rank.
    position, seconds = _find_positions(table, trace), _record_seconds(table)
    own = position >= 0
    longest_s = None
    if ranks and not seconds[~own].any():
        longest_s = float(np.bincount(position[own], seconds[own], ranks).max())
    return CounterTime(
        read_s,
        write_s,
        meta_s if meta_is_credible else None,
        mean,
        longest_s,
    )


def _make_access_counts(table: CounterTable, what: str) -> AccessCounts:
    prefix = prefix_of(table.layer)
    sequential, consecutive = (table.total(f"{prefix}_{k}_{what}") for k in ("SEQ", "CONSEC"))
    return AccessCounts(
        count_total(table, what) or 0, None, None, None, None, sequential, consecutive
    )


def _find_positions(table: CounterTable, trace: Trace) -> NDArray[np.int64]:
    """Position in Trace.ranks of each record, -1 for shared ones and those of no rank."""
    family = np.append(trace.family, -1)  # process -1 is the last
    return family[table.process].astype(np.int64)


def _record_seconds(table: CounterTable) -> NDArray[np.float64]:
    prefix = prefix_of(table.layer)
    total = np.zeros(len(table.file))
    for what in ("READ", "WRITE"):
        total += np.maximum(table.seconds.get(f"{prefix}_F_{what}_TIME", 0.0), 0.0)
    return total


Int64Array = NDArray[np.int64]


def bin_heatmaps(trace: Trace, layer: str) -> Timeline | None:
    """One row per rank or group of ranks; None where the layer has no heat map.

    A heat map holds the bytes that one process moved through one layer in each of its bins. Of
    one job all bins are alike and are taken as they are; where processes have starts or widths of
    their own, bytes are spread over bins of the widest width, in integers: sums stay exact.
    """
    maps = [h for h in trace.heatmaps if h.layer == layer]
    if not maps or not trace.ranks:
        return None
    from vanidl.analyses.timeline import Timeline, find_row, spread_bytes, stack_rows

    edges = compute_bin_edges(maps)
    rows: dict[int, Int64Array] = {}
    for heatmap in maps:
        position = int(trace.family[heatmap.process]) if heatmap.process >= 0 else -1
        row = find_row(position, len(trace.ranks))
        # The map's bytes in the bins between the edges, shape (2, bins): read, written.
        start = heatmap.start_ns + heatmap.bin_ns * np.arange(
            len(heatmap.bytes_read), dtype=np.int64
        )
        end = start + heatmap.bin_ns
        sides = (heatmap.bytes_read, heatmap.bytes_written)
        sums = np.stack([spread_bytes(start, end, side, edges) for side in sides])
        rows[row] = rows[row] + sums if row in rows else sums
    labels, (read, written) = stack_rows(rows, trace)
    since = trace.job.start_ns
    return Timeline(
        (edges - since) / 1e9, labels, len(trace.ranks), read, written, None, None, "heatmap"
    )


def bin_all_heatmaps(trace: Trace) -> dict[str, Timeline]:
    """The heat map of every layer that has one, in the order in which they were recorded."""
    layers = dict.fromkeys(heatmap.layer for heatmap in trace.heatmaps)
    found = ((layer, bin_heatmaps(trace, layer)) for layer in layers)
    return {layer: binned for layer, binned in found if binned is not None}


def compute_bin_edges(maps: Sequence[Heatmap]) -> Int64Array:
    """Bounds of equal bins as wide as the widest of the maps, from the first start on."""
    width = max(h.bin_ns for h in maps)
    start = min(h.start_ns for h in maps)
    end = max(h.start_ns + h.bin_ns * len(h.bytes_read) for h in maps)
    bins = -(-(end - start) // width)
    return start + width * np.arange(bins + 1, dtype=np.int64)
