"""Sampled states -> those of the trace, on its clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vanidl.merge.fetches import loop_offset_ns
from vanidl.model.states import SampledThread, States
from vanidl.model.trace import Trace
from vanidl.readers.records import same_host


def states_on_clock(states: States, trace: Trace) -> States:
    """The states on the clock of the trace, where that moved what the same host recorded.

    Recorders and the loops that they record have one clock, that of their host.
    """
    if not len(states):
        return states
    offsets = [
        (trace.processes[rank].host, offset_ns)
        for rank in trace.ranks
        if (offset_ns := loop_offset_ns(rank, trace.profiles))
    ]
    moved = tuple(_moved(thread, offsets) for thread in states.threads)
    return replace(states, threads=moved)


def _moved(thread: SampledThread, offsets: list[tuple[str, int]]) -> SampledThread:
    by_ns = next((ns for host, ns in offsets if same_host(host, thread.host)), 0)
    if not by_ns:
        return thread
    shift = np.array([by_ns, 0, 0], np.int64)
    samples = replace(thread.samples, time=thread.samples.time + by_ns)
    return replace(thread, samples=samples, ticks=thread.ticks + shift, moved=thread.moved + shift)
