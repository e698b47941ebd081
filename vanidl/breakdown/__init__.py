"""The one account of time: windows of each rank's training thread, by cause, with intervals."""

from __future__ import annotations

from vanidl.breakdown.account import Breakdown
from vanidl.breakdown.attribution import attribute_time, open_gains
from vanidl.breakdown.causes import CAUSES, Cell

__all__ = [
    "CAUSES",
    "Breakdown",
    "Cell",
    "attribute_time",
    "open_gains",
]
