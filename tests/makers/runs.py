"""Runs of traces that tests make."""

from __future__ import annotations

from vanidl.analyses.results import analyse
from vanidl.model.trace import Trace
from vanidl.run import Run


def analysed(trace: Trace) -> Run:
    """The run of a trace, all of it looked at."""
    return Run(trace, analyse(trace))
