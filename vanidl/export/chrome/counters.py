"""Bandwidth over time as counter events ("C"): of the job, and of each rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.timeline import Timeline
from vanidl.export.chrome.tracks import number_of
from vanidl.model.trace import Trace

NAME = "bandwidth (MB/s)"

_EVENT = f'{{"ph":"C","pid":%d,"tid":0,"name":"{NAME}","ts":%.3f,"args":{{"read":%s,"write":%s}}}}'


def counters(trace: Trace, timeline: Timeline | None, zero_ns: int) -> Iterator[str]:
    """Megabytes (10**6 bytes) a second, spread over bins as in `Timeline`; none without bins.

    An event where a value changes. Ranks have one each where every rank has a row of its own.
    """
    if timeline is None:
        return
    shift_us = (trace.job.start_ns - zero_ns) / 1000
    job = timeline.job
    yield from _row(0, job.edges_s, (job.bytes_read, job.bytes_written), shift_us)
    if timeline.ranks != len(timeline.row_labels) - ("no rank" in timeline.row_labels):
        return
    for row, process in enumerate(trace.ranks):
        moved = (timeline.bytes_read[row], timeline.bytes_written[row])
        yield from _row(number_of(process), timeline.edges_s, moved, shift_us)


def _row(
    pid: int,
    edges_s: NDArray[np.float64],
    moved: tuple[NDArray[np.int64], NDArray[np.int64]],
    shift_us: float,
) -> Iterator[str]:
    width_s = np.diff(edges_s)
    rates = np.stack([nbytes / width_s / 1e6 for nbytes in moved])
    rates = np.concatenate([rates, [[0.0], [0.0]]], axis=1)  # back to nothing at the end
    changed = np.flatnonzero((np.diff(rates, axis=1, prepend=-1.0) != 0).any(axis=0))
    times = (edges_s[changed] * 1e6 + shift_us).tolist()
    for at, read, write in zip(times, *rates[:, changed].tolist(), strict=True):
        yield _EVENT % (pid, at, repr(round(read, 6)), repr(round(write, 6)))
