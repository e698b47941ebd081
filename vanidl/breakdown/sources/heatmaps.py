"""What heat maps say of storage: bytes in bins of time, so when a rank can have been in it."""

from __future__ import annotations

import numpy as np

from vanidl.analyses.calls import Int64Array
from vanidl.model.trace import Trace

EVIDENCE = "heat maps"


def bound_by_bins(trace: Trace) -> Int64Array | None:
    """At most how long each rank was in storage, ns, shape (ranks,): its bins with bytes in them.

    None without heat maps. Metadata calls move no bytes, and are in no bin.
    """
    if not trace.heatmaps:
        return None
    most = np.zeros(len(trace.ranks), np.int64)
    for heatmap in trace.heatmaps:
        position = -1 if heatmap.process < 0 else int(trace.family[heatmap.process])
        if position >= 0:
            busy = np.count_nonzero((heatmap.bytes_read > 0) | (heatmap.bytes_written > 0))
            most[position] += int(busy) * heatmap.bin_ns
    return np.minimum(most, trace.job.end_ns - trace.job.start_ns)
