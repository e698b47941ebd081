"""Analyses: a trace in, small frozen results out."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.analyses.access import Access
from vanidl.analyses.balance import Balance
from vanidl.analyses.coverage import Coverage
from vanidl.analyses.files import FileTotals
from vanidl.analyses.overlap import Overlap
from vanidl.analyses.sizes import Sizes
from vanidl.analyses.steps import Steps
from vanidl.analyses.summary import Summary
from vanidl.analyses.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Results:
    """All results of one run. None: the run holds nothing to compute it from."""

    coverage: Coverage
    summary: Summary
    sizes: Sizes
    timeline: Timeline | None
    access: Access | None
    files: FileTotals
    balance: Balance | None
    steps: Steps | None
    overlap: Overlap | None
