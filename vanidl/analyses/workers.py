"""What each process read of the dataset, and how evenly workers side by side share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from vanidl.analyses.dataset import Dataset, Visits
from vanidl.analyses.reducing import Rows
from vanidl.model.ordering import encode_densely, find_minmax_by_group, sum_by_group
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

_SPREAD_NS = 250_000_000  # by which the logs of processes that were forked together differ
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """When one worker lived and first read samples, in ns; `start` None: not known."""

    process: int  # index into Trace.processes
    start: int | None
    end: int | None
    first_read: int
    uncertainty: int = 0

    @property
    def begin(self) -> int:
        """When it was started, at the latest."""
        return self.first_read if self.start is None else self.start


Files = Mapping[int, frozenset[int]]
"""Process -> the files that it read."""


def group_workers_by_trainer(
    trace: Trace, first_read: Mapping[int, int], visits: Visits | None
) -> dict[int, list[list[WorkerLife]]]:
    """Training process -> its workers that read data, loader by loader.

    A loader starts all its workers before the first of them is asked for a sample. So one that was
    started after others had begun to read works for another loader (of validation, or of the next
    epoch), and so does one that was started after the first of them had ended. Loaders that are
    created together differ in what they read: their workers have no files, or no folders, in
    common. Where the fetches of all were recorded, it is known.

    Args:
        trace: the run.
        first_read: process -> when it first read data, ns since the epoch.
        visits: which files each process read; None: not known.
    """
    # The life of each worker that read, by the process it served.
    found: dict[int, list[WorkerLife]] = {}
    for process in sorted(first_read):
        worker = trace.processes[process]
        if worker.role == "worker" and worker.trainer is not None:
            life = WorkerLife(
                process,
                worker.start_ns,
                worker.end_ns,
                first_read[process],
                worker.clock_uncertainty_ns,
            )
            found.setdefault(worker.trainer, []).append(life)

    # By recorded fetches where all are there, else by lives and by what was read.
    files = find_files_read(visits) if visits is not None and found else {}
    loaders = _get_recorded_loaders(trace)
    return {
        trainer: _group_as_recorded(lives, loaders) or group_workers(lives, files, trace.files.path)
        for trainer, lives in found.items()
    }


def _get_recorded_loaders(trace: Trace) -> dict[int, tuple[int, int]]:
    """Process -> loader and first epoch that it fetched for, where that was recorded."""
    fetches = trace.fetches
    known = fetches.pick((fetches.process >= 0) & (fetches.worker >= 0) & (fetches.name >= 0))
    rows = zip(known.process.tolist(), known.name.tolist(), known.epoch.tolist(), strict=True)
    found: dict[int, tuple[int, int]] = {}
    for process, name, epoch in rows:
        found[process] = min(found.get(process, (name, epoch)), (name, epoch))
    return found


def _group_as_recorded(
    lives: Sequence[WorkerLife], loaders: Mapping[int, tuple[int, int]]
) -> list[list[WorkerLife]]:
    """The workers by loader and epoch, in order of their start; none where one is not known."""
    if any(life.process not in loaders for life in lives):
        return []
    groups: dict[tuple[int, int], list[WorkerLife]] = {}
    for life in sorted(lives, key=lambda one: (one.begin, one.process)):
        groups.setdefault(loaders[life.process], []).append(life)
    return [sorted(group, key=lambda one: one.process) for group in groups.values()]


def find_files_read(visits: Visits) -> dict[int, frozenset[int]]:
    """Process -> the files that it read."""
    found: dict[int, set[int]] = {}
    for process, file in zip(visits.process.tolist(), visits.file.tolist(), strict=True):
        found.setdefault(process, set()).add(file)
    return {process: frozenset(files) for process, files in found.items()}


def group_workers(
    lives: Iterable[WorkerLife], files: Files, paths: Sequence[str]
) -> list[list[WorkerLife]]:
    """The workers of one training process, loader by loader, in order of their start."""
    groups: list[list[WorkerLife]] = []
    for life in sorted(lives, key=lambda one: (one.begin, one.process)):
        if not groups or not _is_started_with(groups[-1], life):
            groups.append([])
        groups[-1].append(life)
    return [part for group in groups for part in _split_by_data(group, files, paths)]


def _is_started_with(group: Sequence[WorkerLife], life: WorkerLife) -> bool:
    """Whether it was started before the group's first read, and while all of them lived."""
    slack = _SPREAD_NS + life.uncertainty + max(one.uncertainty for one in group)
    if life.begin >= min((one.end for one in group if one.end is not None), default=life.begin + 1):
        return False
    return life.begin <= min(one.first_read for one in group) + slack


def _split_by_data(
    group: Sequence[WorkerLife], files: Files, paths: Sequence[str]
) -> list[list[WorkerLife]]:
    """The group by what its workers have in common: files where they share most, else folders."""
    own = {life.process: files.get(life.process, frozenset()) for life in group}
    readers = Counter(file for some in own.values() for file in some)
    # A sampler that divides files leaves few in common: then folders tell loaders apart.
    shared = sum(readers[file] for file in readers if readers[file] > 1)
    if shared > _MOSTLY * readers.total():
        marks: dict[int, frozenset[Hashable]] = dict(own)
    else:
        marks = {
            process: frozenset(str(PurePosixPath(paths[file]).parent) for file in some)
            for process, some in own.items()
        }
    parts: list[tuple[set[Hashable], list[WorkerLife]]] = []
    # A worker that has something in common with several parts makes them one.
    for life in group:
        joined = [part for part in parts if part[0] & marks[life.process]]
        apart = [part for part in parts if not part[0] & marks[life.process]]
        names = set(marks[life.process]).union(*(part[0] for part in joined))
        parts = [*apart, (names, [one for part in joined for one in part[1]] + [life])]
    parts.sort(key=lambda part: (part[1][0].begin, part[1][0].process))
    return [sorted(lives, key=lambda one: one.process) for _, lives in parts]


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
    processes, place = encode_densely(reads.process)
    count = len(processes)
    columns = (
        sum_by_group(place, reads.group_nbytes, count),
        sum_by_group(place, reads.group_duration, count),
        *find_minmax_by_group(place, reads.group_start, reads.group_end, count),
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
    groups = group_workers_by_trainer(trace, first_read, data.visits if data else None)
    rows = [
        WorkerLoad(life.process, trainer, group, sums[life.process][0], sums[life.process][1] / 1e9)
        for trainer in trace.ranks
        for group, members in enumerate(groups.get(trainer, []))
        for life in members
    ]
    return Workers(tuple(rows), *_measure_spread(rows)) if rows else None


def _measure_spread(rows: list[WorkerLoad]) -> tuple[float | None, int]:
    groups: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        groups.setdefault((row.trainer, row.group), []).append(row.bytes_read)
    several = [g for g in groups.values() if len(g) > 1]
    total = sum(map(sum, several))
    spread = sum(max(g) * len(g) for g in several) / total if total else None
    return spread, max(map(len, groups.values()), default=0)
