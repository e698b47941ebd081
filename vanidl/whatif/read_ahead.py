"""Whether a thread of the training process reads ahead, which no recorder says.

tf.data, grain and prefetch threads read while the model computes, in as many threads and as far
ahead as their own settings say. With workers of a DataLoader all of that is known: each is a
process, and hands over its batches in turn.
"""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.analyses.steps import RankSpans, rank_spans
from vanidl.formatting.units import percent
from vanidl.model import intervals
from vanidl.model.intervals import Intervals, intersect, subtract
from vanidl.model.trace import Trace
from vanidl.whatif.reads import Reads

SHARE = 0.1
"""Of the time of a rank's reads: less is what a loader reads outside its batches."""


def reason(trace: Trace, results: Results, read: Reads) -> str:
    """Why the steps of a rank cannot be replayed; "" where no rank is seen to read ahead."""
    working = {w.trainer for w in results.workers.rows} if results.workers else set()
    clock = results.steps.clock if results.steps else None
    slack_ns = round((clock.uncertainty_s or 0.0) * 1e9) if clock else 0
    for position, spans in rank_spans(trace).items():
        process = trace.ranks[position]
        if process in working:
            continue
        share = _outside_waits(spans, read.of_rank(position).busy, slack_ns)
        if share >= SHARE:
            return (
                f"{percent(share)} of the dataset reads of {trace.processes[process].label} ran "
                "outside its input waits, and it has no worker processes: a thread of the training "
                "process reads ahead (tf.data, grain, a prefetch thread). How many threads read, "
                "and how many batches ahead, is not recorded, so no step time is predicted; "
                "measure a change with vanidl ab"
            )
    return ""


def _outside_waits(spans: RankSpans, busy: Intervals, slack_ns: int) -> float:
    """Share of the reads in profiled steps, in time, that no wait covers, clocks being unsure."""
    low, high = spans.steps.start, spans.steps.end
    inside = intersect(busy, intervals.union(low, high))
    near = intervals.union(spans.waits.start - slack_ns, spans.waits.end + slack_ns)
    return subtract(inside, near).length / inside.length if inside.length else 0.0
