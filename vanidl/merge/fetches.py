"""Tables of fetches -> those of the trace, with its processes and on its clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vanidl.model.fetches import COLUMNS, NO_FETCHES, Fetches, Int64Array, of_columns
from vanidl.model.trace import Process, Profile
from vanidl.readers.records import FetchTable, ProfileTrace, TracerLog, same_host

_TIMES = ("begin", "collate", "end", "wait_begin", "wait_end")
_AS_READ = ("epoch", "batch", "samples")


def fetches(
    found: Sequence[ProfileTrace], processes: Sequence[Process], profiles: Sequence[Profile]
) -> Fetches:
    """All fetches of the training processes of the trace whose clock is that of their steps.

    Args:
        found: what was read, with the tables of fetches.
        processes: those of the trace.
        profiles: those of the trace, with their clocks.
    """
    tables = _tables(found)
    names = tuple(sorted({name for table in tables for name in table.loaders.values()}))
    blocks = []
    for table in sorted(tables, key=lambda table: (table.host, table.pid or -1)):
        trainer = _process(table.host, table.pid, processes)
        offset_ns = loop_offset_ns(trainer, profiles)
        if trainer is not None and offset_ns is not None:
            blocks.append(_columns(table, trainer, processes, names, offset_ns))
    if not blocks:
        return NO_FETCHES
    return of_columns({c: np.concatenate([b[c] for b in blocks]) for c in COLUMNS}, names)


def _tables(profiles: Sequence[ProfileTrace]) -> list[FetchTable]:
    return [p.fetches for p in profiles if p.fetches is not None]


def with_trainers(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> list[TracerLog]:
    """The logs, those of workers with the process that they fetched for as their parent.

    Tracers know the parent of a forked process only, not that of a spawned one.
    """
    tables = _tables(profiles)
    return [_with_trainer(log, tables) for log in logs]


def _with_trainer(log: TracerLog, tables: Sequence[FetchTable]) -> TracerLog:
    if log.parent_pid is not None or log.pid is None or log.nprocs > 1:
        return log
    fits = [t.pid for t in tables if same_host(t.host, log.host) and _worked(log, t)]
    return replace(log, parent_pid=fits[0]) if len(fits) == 1 else log


def _worked(log: TracerLog, table: FetchTable) -> bool:
    """Whether a log is of a worker of a training process, by what it fetched in its life."""
    members = [m for m, (pid, worker) in enumerate(table.by) if pid == log.pid and worker >= 0]
    mine = np.isin(table.member, members)
    late_ns = log.start_uncertainty_ns
    inside = (table.end > log.start_ns - late_ns) & (table.begin < log.end_ns + late_ns)
    return bool((mine & inside).any())


def _process(host: str, pid: int | None, processes: Sequence[Process]) -> int | None:
    """The process of a pid, the training process before others that had it."""
    fits = [i for i, p in enumerate(processes) if p.pid == pid and same_host(p.host, host)]
    return min(fits, key=lambda i: (processes[i].role != "trainer", i)) if fits else None


def loop_offset_ns(trainer: int | None, profiles: Sequence[Profile]) -> int | None:
    """What was added to the times of the trainer's recorded loop; None where it has none."""
    mine = [p for p in profiles if p.process == trainer and p.marks_loop and p.aligned]
    return mine[0].clock_offset_ns if mine else None


def _columns(
    table: FetchTable,
    trainer: int,
    processes: Sequence[Process],
    names: Sequence[str],
    offset_ns: int,
) -> dict[str, Int64Array]:
    who = np.array(list(_members(table, trainer, processes)), np.int64).reshape(-1, 2)[table.member]
    loaders = {number: names.index(name) for number, name in table.loaders.items()}
    columns = {c: getattr(table, c) for c in _AS_READ}
    for column in _TIMES:
        times = getattr(table, column)
        columns[column] = np.where(times >= 0, times + offset_ns, -1)
    columns["trainer"] = np.full(len(table.begin), trainer, np.int64)
    columns["process"], columns["worker"] = who.T
    columns["pid"] = np.array([pid for pid, _ in table.by], np.int64)[table.member]
    used, place = np.unique(table.loader, return_inverse=True)
    codes = np.array([loaders.get(number, -1) for number in used.tolist()] or [-1], np.int64)
    columns["name"] = codes[place.ravel()]
    ahead = [table.ahead.get(number, (-1, -1)) for number in used.tolist()]
    of_loader = np.array(ahead, np.int64).reshape(-1, 2)
    columns["ahead"], columns["in_order"] = of_loader[place.ravel()].T
    return columns


def _members(
    table: FetchTable, trainer: int, processes: Sequence[Process]
) -> Iterator[tuple[int, int]]:
    """(process, worker) of all that fetched."""
    yield trainer, -1
    for pid, worker in table.by[1:]:
        found = _process(table.host, pid, processes)
        yield -1 if found is None else found, worker
