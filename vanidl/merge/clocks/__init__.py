"""One axis of time: how each profile's clock is put on that of the logs, and how surely.

An offset is what is added to a profile's times. Each kind of evidence gives the offsets that
it leaves open; `align` intersects them, in the order of EVIDENCE.
"""

from __future__ import annotations

from vanidl.merge.clocks.align import EVIDENCE, Clock, align
from vanidl.merge.clocks.inputs import AlignmentInputs, alignment_inputs, traced_processes
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.clocks.logs import clocks_of_logs, coarse, laid_on_one_clock

__all__ = [
    "EVIDENCE",
    "AlignmentInputs",
    "Clock",
    "LogClock",
    "align",
    "alignment_inputs",
    "clocks_of_logs",
    "coarse",
    "laid_on_one_clock",
    "traced_processes",
]
