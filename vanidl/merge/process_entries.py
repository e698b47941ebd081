"""Processes in the making: one for each log of a process, or for each rank of a shared log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vanidl.model.trace import Process
from vanidl.readers.command_lines import HELPER, LAUNCHER
from vanidl.readers.records import TracerLog, same_host

_CLOCK_NS = 1_000_000_000  # what starts in whole seconds may be off


@dataclass(slots=True)
class Entry:
    """A process in the making; `log` and `profiles` are their indices."""

    process: Process
    log: int | None
    log_rank: int
    profiles: list[int]
    beside: list[int] = field(default_factory=list)  # more logs of the same process
    world_size: int | None = None
    stray: bool = False  # a profile of an unknown process beside a log that has all ranks


def entries_of(logs: Sequence[TracerLog]) -> list[Entry]:
    """The processes of the logs; a log that lies beside others' joins the one it is of."""
    entries = [e for i, log in enumerate(logs) if not log.beside for e in _entries(i, log)]
    for i, log in enumerate(logs):
        if log.beside:
            _join(i, log, entries, logs)
    return entries


def can_train(process: Process) -> bool:
    """Whether a process without profile and without known parent stands for a rank."""
    started_by_python = HELPER.search(process.command) or LAUNCHER.search(process.command)
    return process.parent_pid is None and not started_by_python


def _entries(i: int, log: TracerLog) -> list[Entry]:
    """One entry per rank of a shared log, a single one for a log of one process."""
    process = Process(
        host=log.host,
        pid=log.pid,
        parent_pid=log.parent_pid,
        log=log.path,
        start_ns=log.start_ns,
        end_ns=log.end_ns,
        clock_uncertainty_ns=log.start_uncertainty_ns,
        command=log.command,
        rank=log.rank if log.nprocs <= 1 else None,
    )
    if log.nprocs <= 1:
        return [Entry(process, i, 0, [])]
    hosts = _rank_hosts(log)
    return [
        Entry(replace(process, host=hosts.get(r, ""), pid=None, rank=r), i, r, [])
        for r in range(log.nprocs)
    ]


def _join(i: int, log: TracerLog, entries: list[Entry], logs: Sequence[TracerLog]) -> None:
    """Gives a log that lies beside others' to the process it is of; without one it has its own."""
    entry = next((entry for entry in entries if _is_of(log, entry, logs)), None)
    if entry is None:
        entries.extend(_entries(i, log))
        return
    entry.beside.append(i)
    known = entry.process
    rank = log.rank if known.rank is None else known.rank
    entry.process = replace(known, host=known.host or log.host, pid=log.pid, rank=rank)


def _is_of(log: TracerLog, entry: Entry, logs: Sequence[TracerLog]) -> bool:
    """By pid, where both lived at one time (numbers come again), or by the rank of a shared log."""
    known = entry.process
    if entry.log is None or not same_host(known.host, log.host):
        return False
    if known.pid is None:
        return log.parent_pid is None and log.rank is not None and log.rank == known.rank
    other = logs[entry.log]
    if known.pid != log.pid or other.beside:
        return False
    return other.start_ns < log.end_ns + _CLOCK_NS and log.start_ns < other.end_ns + _CLOCK_NS


def _rank_hosts(log: TracerLog) -> dict[int, str]:
    hosts = {record.rank: record.host for record in log.mpi}
    return hosts | {
        int(rank): host
        for table in log.operations
        for rank, host in zip(table.record_rank, table.record_host, strict=True)
        if host
    }
