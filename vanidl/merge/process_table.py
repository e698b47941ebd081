"""All processes of a run, and which of them each log and profile is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from vanidl.model.trace import Process
from vanidl.model.warnings import Notice
from vanidl.readers.records import ProfileTrace, TracerLog


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The processes of a run, ranks first in order, and where the rows of each file belong."""

    rows: tuple[Process, ...]
    of_log: Mapping[tuple[int, int], int]  # (log, rank in the log) -> row
    of_profile: tuple[int, ...]  # profile -> row
    notices: tuple[Notice, ...]
    threads: Mapping[int, AbstractSet[int]] = field(default_factory=dict)
    """Row -> numbers of the thread that trains, where its logs know one of them."""

    def of_record(self, number: int, log: TracerLog, rank: int) -> int:
        """Row of the process that a record of a log is about, -1 for one that ranks share.

        Args:
            number: which log of the run it is.
            log: that log.
            rank: as the record says; only a log of several ranks tells them apart.
        """
        return self.of_log.get((number, rank if log.nprocs > 1 else 0), -1)


def training_threads(
    logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace], table: ProcessTable
) -> dict[int, frozenset[int]]:
    """`ProcessTable.threads`: the numbers that recorded loops know, of processes whose logs do."""
    numbers = {
        table.of_profile[k]: frozenset(p.threads) for k, p in enumerate(profiles) if p.threads
    }
    return {
        process: numbers[process]
        for i, log in enumerate(logs)
        if (process := table.of_log.get((i, 0), -1)) in numbers and not log.beside
        if any(
            each.thread is not None and np.isin(each.thread, list(numbers[process])).any()
            for each in log.operations
        )
    }
