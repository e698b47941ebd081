"""The one account of time: windows of each rank's training thread, by cause, with intervals."""

from __future__ import annotations

from vanidl.breakdown.account import Breakdown, attribute_time, divide_rank, open_gains
from vanidl.breakdown.causes import CAUSES, Cell
from vanidl.breakdown.pipelines import Gains
from vanidl.breakdown.rank_cells import Windows
from vanidl.breakdown.without import Gain, Where

__all__ = [
    "CAUSES",
    "Breakdown",
    "Cell",
    "Gain",
    "Gains",
    "Where",
    "Windows",
    "attribute_time",
    "divide_rank",
    "open_gains",
]
