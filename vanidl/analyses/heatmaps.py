"""Bytes over time where no operation was traced: from Darshan's heat maps.

A heat map holds the bytes that one process moved through one layer in each of its bins. Of
one job all bins are alike and are taken as they are; where processes have starts or widths of
their own, bytes are spread over bins of the widest width, in integers: sums stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.timebins import spread
from vanidl.analyses.timeline import Timeline, row_of, stacked
from vanidl.model.counter_tables import Heatmap
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]


def finish(trace: Trace, layer: str) -> Timeline | None:
    """One row per rank or group of ranks; None where the layer has no heat map."""
    maps = [h for h in trace.heatmaps if h.layer == layer]
    if not maps or not trace.ranks:
        return None
    edges = bin_edges(maps)
    rows: dict[int, Int64Array] = {}
    for heatmap in maps:
        position = int(trace.family[heatmap.process]) if heatmap.process >= 0 else -1
        row = row_of(position, len(trace.ranks))
        sums = _on(edges, heatmap)
        rows[row] = rows[row] + sums if row in rows else sums
    labels, (read, written) = stacked(rows, trace)
    since = trace.job.start_ns
    return Timeline(
        (edges - since) / 1e9, labels, len(trace.ranks), read, written, None, None, "heatmap"
    )


def bin_edges(maps: Sequence[Heatmap]) -> Int64Array:
    """Bounds of equal bins as wide as the widest of the maps, from the first start on."""
    width = max(h.bin_ns for h in maps)
    start = min(h.start_ns for h in maps)
    end = max(h.start_ns + h.bin_ns * len(h.bytes_read) for h in maps)
    bins = -(-(end - start) // width)
    return start + width * np.arange(bins + 1, dtype=np.int64)


def _on(edges: Int64Array, heatmap: Heatmap) -> Int64Array:
    """The map's bytes in the bins between the edges, shape (2, bins): read, written."""
    start = heatmap.start_ns + heatmap.bin_ns * np.arange(len(heatmap.bytes_read), dtype=np.int64)
    end = start + heatmap.bin_ns
    sides = (heatmap.bytes_read, heatmap.bytes_written)
    return np.stack([spread(start, end, side, edges) for side in sides])
