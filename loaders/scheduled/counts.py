"""Counters of what a rank reads, uses and is sent."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.pread import ReadTotals
from ..loader.stats import Counts


@dataclass(frozen=True)
class StageCounts:
    """Counters of a stage, shared with the process that shows them.

    Attributes:
        of_plan: Loads, hits, bytes and requests.
        beside_plan: Its loads are the reloads: reads of samples that the plan holds already.
    """

    of_plan: Counts
    beside_plan: Counts

    def planned(self, *, loads: int, reloads: int) -> None:
        """Counts samples whose reads were submitted."""
        self.of_plan.add(loads=loads)
        if reloads:
            self.beside_plan.add(loads=reloads)

    def hits(self, hits: int) -> None:
        """Counts uses that needed no read."""
        self.of_plan.add(hits=hits)

    def read(self, done: ReadTotals) -> None:
        """Counts a read that is done."""
        if done.requests:
            self.of_plan.add(nbytes=done.nbytes, requests=done.requests)
