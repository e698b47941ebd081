"""Bytes over time of calls that were summed up: each sum is of one interval of the tracer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.dftracer.calls import LAYERS, READS, WRITES, is_call, is_layer
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.sums import moved
from vanidl.readers.records import HeatmapRecord

Int64Array = NDArray[np.int64]

_MOST_BINS = 100_000  # a day of seconds; whatever a file says, there are no more


def heatmaps(process: TracedProcess) -> Iterator[HeatmapRecord]:
    """A map a layer; none where the intervals are not known, or operations were traced as well.

    A call counts in the interval that it began in.
    """
    width = process.interval_ns
    if width is None or not len(process.summed):
        return
    begin = process.summed.columns["ts"]
    first, last = int(begin.min()), int(begin.max())
    if (last - first) // width >= _MOST_BINS or (begin % width).any():
        return
    place = (begin - first) // width
    bins = int(place.max()) + 1
    nbytes = np.maximum(moved(process.summed), 0)
    for layer in LAYERS:
        if is_layer(process.summed, layer).any() and not is_layer(process.events, layer).any():
            sides = [np.zeros(bins, np.int64) for _ in range(2)]
            for side, calls in zip(sides, (READS[layer], WRITES[layer]), strict=True):
                rows = is_call(process.summed, layer, calls)
                np.add.at(side, place[rows], nbytes[rows])
            read, written = sides
            yield HeatmapRecord(layer, 0, width, read, written, first - process.start_ns)
