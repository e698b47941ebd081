"""What each process read of the dataset, and how evenly workers side by side share it."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.analyses.dataset import Dataset
from vanidl.analyses.rows import Rows
from vanidl.analyses.sorting import dense_codes, minmax_by_group, sum_by_group
from vanidl.analyses.worker_groups import groups_of_trainers
from vanidl.model.trace import Trace

Sums = tuple[int, int, int, int]
"""Bytes read, time reading (sum of durations), first start, last end; times in ns."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """The dataset reads of one worker process, and the trainer and group that it works in.

    A group are the workers of one loader: those of one epoch, where it starts them again for each.
    """

    process: int  # index into Trace.processes
    trainer: int
    group: int
    bytes_read: int
    read_s: float


@dataclass(frozen=True, slots=True)
class Workers:
    """Loads by trainer, group and process.

    `spread` is max / mean of the bytes within groups of at least two, weighted by bytes: sum of
    each group's largest times its size / sum of bytes. None without such a group.
    """

    rows: tuple[WorkerLoad, ...]
    spread: float | None
    largest_group: int


NOTHING: dict[int, Sums] = {}


def partial(rows: Rows, trace: Trace) -> dict[int, Sums]:
    """The dataset reads among some rows, by process."""
    reads = rows.reads_of_kind(trace.files.data_kind, trace)
    processes, place = dense_codes(reads.process)
    count = len(processes)
    columns = (
        sum_by_group(place, reads.group_nbytes, count),
        sum_by_group(place, reads.group_duration, count),
        *minmax_by_group(place, reads.group_start, reads.group_end, count),
    )
    sums = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(processes.tolist(), sums, strict=True))


def combine(a: dict[int, Sums], b: dict[int, Sums]) -> dict[int, Sums]:
    """The reads of both."""
    both = {**a, **b}
    for process in a.keys() & b.keys():
        one, other = a[process], b[process]
        both[process] = (
            one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])
        )  # fmt: skip
    return both


def finish(sums: dict[int, Sums], trace: Trace, data: Dataset | None) -> Workers | None:
    """Loads of every worker that read; None where none did."""
    first_read = {process: first for process, (_, _, first, _) in sums.items()}
    groups = groups_of_trainers(trace, first_read, data.visits if data else None)
    rows = [
        WorkerLoad(life.process, trainer, group, sums[life.process][0], sums[life.process][1] / 1e9)
        for trainer in trace.ranks
        for group, members in enumerate(groups.get(trainer, []))
        for life in members
    ]
    return Workers(tuple(rows), *_spread(rows)) if rows else None


def _spread(rows: list[WorkerLoad]) -> tuple[float | None, int]:
    groups: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        groups.setdefault((row.trainer, row.group), []).append(row.bytes_read)
    several = [g for g in groups.values() if len(g) > 1]
    total = sum(map(sum, several))
    spread = sum(max(g) * len(g) for g in several) / total if total else None
    return spread, max(map(len, groups.values()), default=0)
