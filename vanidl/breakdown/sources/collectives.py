"""How much of its collectives a rank waited for others, where all ranks of one group are at hand.

A collective moves its bytes once its last rank has come: for that rank it lasts as long as the
transfer, and for each other one longer by what it waited. That needs no common clock. TraceLens
(NcclAnalyser) divides collectives alike, by the shortest duration of each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import SpanKind, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """When a rank was in collectives that another had not reached; of `unpaired` ones either."""

    waits: Intervals
    unpaired: Intervals


def find_waits_for_peers(trace: Trace) -> Mapping[int, PeerWaits]:
    """Process -> what its collectives were, where the profiles of all ranks name one group of them.

    Collectives are paired in each step by their order, where all ranks have the same ones in it.
    """
    trainers = [int(process) for process in trace.ranks]
    profiled = {profile.process for profile in trace.profiles if profile.group == len(trainers)}
    collective = trace.spans.kind == SpanKind.COMMUNICATION
    if len(trainers) < 2 or not collective.any() or not profiled.issuperset(trainers):
        return {}

    # The collectives of each rank by step, each in order of its start.
    by_step = [_group_by_step(trace, process) for process in trainers]
    start, end = trace.spans.start, trace.spans.end
    waited_ns = np.full(len(start), -1)
    for number in set(by_step[0]).intersection(*by_step[1:]):
        rows = [of_rank[number] for of_rank in by_step]
        names = [trace.spans.name[each].tolist() for each in rows]
        if all(each == names[0] for each in names):
            # The one that came last has the transfer alone; others have waited before.
            took_ns = np.stack([(end - start)[each] for each in rows])
            waited_ns[np.concatenate(rows)] = (took_ns - took_ns.min(axis=0)).ravel()

    found = {}
    for process in trainers:
        mine = collective & (trace.spans.process == process)
        paired, unpaired = mine & (waited_ns >= 0), mine & (waited_ns < 0)
        waits = intervals.union(start[paired], start[paired] + waited_ns[paired])
        found[process] = PeerWaits(waits, intervals.union(start[unpaired], end[unpaired]))
    return found


def _group_by_step(trace: Trace, process: int) -> dict[int, Int64Array]:
    """Number of each step -> rows of the collectives that begin in it, in order of their start."""
    spans = trace.spans
    mine = spans.process == process
    steps = np.flatnonzero(mine & (spans.kind == SpanKind.STEP))
    rows = np.flatnonzero(mine & (spans.kind == SpanKind.COMMUNICATION))
    if not len(steps) or not len(rows):
        return {}
    steps = steps[np.argsort(spans.start[steps], kind="stable")]
    last = np.searchsorted(spans.start[steps], spans.start[rows], side="right") - 1
    inside = (last >= 0) & (spans.start[rows] < spans.end[steps[np.maximum(last, 0)]])
    rows, number = rows[inside], spans.step[steps[last[inside]]]
    return {int(one): rows[number == one] for one in np.unique(number)}
