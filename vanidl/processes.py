"""Who is who: which process is a trainer, which works for it, and which rank it is.

Rules (in order): a process with a profile is a trainer; a forked child works for the nearest
trainer above it; children of multiprocessing's spawn and forkserver work for the only trainer
on their host whose life contains them; launchers are auxiliary; every other process is a
trainer. What fits nothing is `unassigned`: in the totals, in no rank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vanidl.clocks import uncertainty_ns
from vanidl.grouping import HELPER, contains, same_host
from vanidl.sources.pieces import ProfileTrace, TracerLog
from vanidl.trace import Notice, Process

_LAUNCHER = re.compile(
    r"\btorchrun\b|torch[./]distributed[./](run|launch)|\bmpi(exec|run)\b|accelerate launch"
)
_TRACKER = re.compile(r"resource_tracker")


@dataclass(frozen=True, slots=True)
class Cast:
    """All processes of a run, and where each piece's rows belong."""

    processes: tuple[Process, ...]
    of_log: dict[tuple[int, int], int]  # (log, rank in the log) -> process
    of_profile: tuple[int, ...]  # profile -> process
    notices: tuple[Notice, ...]


@dataclass(slots=True)
class _Entry:
    """A process in the making; `log` and `profiles` are indices of pieces."""

    process: Process
    log: int | None
    log_rank: int
    profiles: list[int]


def cast(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> Cast:
    """The processes of one run, ranks first in order."""
    entries = [e for i, log in enumerate(logs) for e in _entries(i, log)]
    for k, profile in enumerate(profiles):
        entry = _match(profile, entries, profiles)
        if entry is None:
            entry = _Entry(Process(profile.host, profile.pid), None, 0, [])
            entries.append(entry)
        entry.profiles.append(k)
        _adopt_identity(entry, profile)
    parents = [_parent(e, entries, logs) for e in entries]
    _assign_roles(entries, parents, logs)
    order = sorted(range(len(entries)), key=lambda i: _sort_key(entries[i].process))
    return _cast(entries, order)


def _entries(i: int, log: TracerLog) -> list[_Entry]:
    """One entry a rank of a shared log, one in all for a log of one process."""
    process = Process(
        host=log.host,
        pid=log.pid,
        parent_pid=log.parent_pid,
        log=log.path,
        start_ns=log.start_ns,
        end_ns=log.end_ns,
        clock_uncertainty_ns=uncertainty_ns(log),
        command=log.command,
    )
    if log.nprocs <= 1:
        return [_Entry(process, i, 0, [])]
    hosts = _rank_hosts(log)
    return [
        _Entry(replace(process, host=hosts.get(r, ""), pid=None, rank=r), i, r, [])
        for r in range(log.nprocs)
    ]


def _rank_hosts(log: TracerLog) -> dict[int, str]:
    return {
        int(rank): host
        for table in log.operations
        for rank, host in zip(table.record_rank, table.record_host, strict=True)
        if host
    }


def _match(
    profile: ProfileTrace, entries: Sequence[_Entry], profiles: Sequence[ProfileTrace]
) -> _Entry | None:
    """The process that a profile is of: by host and pid, by rank, or the only one it can be."""
    near = [e for e in entries if same_host(e.process.host, profile.host)]
    if profile.pid is not None:
        for e in near:
            if e.process.pid == profile.pid:
                return e
    if profile.rank is not None:
        for e in near:
            if e.process.pid is None and e.process.rank == profile.rank:
                return e
    free = [e for e in near if e.process.pid is None and not e.profiles]
    return free[0] if len(free) == 1 and len(profiles) == 1 else None


def _adopt_identity(entry: _Entry, profile: ProfileTrace) -> None:
    known = entry.process
    entry.process = replace(
        known,
        host=known.host or profile.host,
        pid=known.pid if known.pid is not None else profile.pid,
        rank=profile.rank if profile.rank is not None else known.rank,
    )


def _parent(entry: _Entry, entries: Sequence[_Entry], logs: Sequence[TracerLog]) -> int | None:
    """Index of the entry that forked this one, or None."""
    pid = entry.process.parent_pid
    if pid is None or pid == entry.process.pid:
        return None
    candidates = [
        i
        for i, e in enumerate(entries)
        if e.process.pid == pid and same_host(e.process.host, entry.process.host)
    ]
    alive = [i for i in candidates if _contains(entries[i], entry, logs)]
    return next(iter(alive or candidates), None)


def _contains(outer: _Entry, inner: _Entry, logs: Sequence[TracerLog]) -> bool:
    if outer.log is None or inner.log is None:
        return True
    return contains(logs[outer.log], logs[inner.log])


def _assign_roles(
    entries: list[_Entry], parents: list[int | None], logs: Sequence[TracerLog]
) -> None:
    profiled = {i for i, e in enumerate(entries) if e.profiles}
    above_trainers = {a for i in profiled for a in _ancestors(i, parents)} - profiled
    trainers = profiled | {
        i
        for i, e in enumerate(entries)
        if i not in above_trainers and parents[i] is None and _can_train(e.process)
    }
    if not trainers:  # a launcher alone is the job
        trainers = {i for i, p in enumerate(parents) if p is None}
    for i, entry in enumerate(entries):
        role, trainer = _role(i, entries, parents, (trainers, above_trainers), logs)
        host = entry.process.host
        if trainer is not None:
            host = host or entries[trainer].process.host
        entry.process = replace(entry.process, role=role, trainer=trainer, host=host)


def _role(
    i: int,
    entries: Sequence[_Entry],
    parents: Sequence[int | None],
    known: tuple[set[int], set[int]],
    logs: Sequence[TracerLog],
) -> tuple[str, int | None]:
    """(role, index of its trainer)."""
    trainers, above_trainers = known
    entry = entries[i]
    if i in trainers:
        return "trainer", i
    trainer = next((a for a in _ancestors(i, parents) if a in trainers), None)
    if trainer is None and HELPER.search(entry.process.command):
        around = [t for t in sorted(trainers) if _contains(entries[t], entry, logs)]
        trainer = around[0] if len(around) == 1 else None
    if i in above_trainers or _LAUNCHER.search(entry.process.command):
        return "auxiliary", None
    if trainer is None:
        return "unassigned", None
    is_tracker = _TRACKER.search(entry.process.command)
    return ("auxiliary" if is_tracker else "worker"), trainer


def _can_train(process: Process) -> bool:
    """Whether a process without profile and without known parent stands for a rank."""
    started_by_python = HELPER.search(process.command) or _LAUNCHER.search(process.command)
    return process.parent_pid is None and not started_by_python


def _ancestors(i: int, parents: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    at = parents[i]
    while at is not None and at not in found and at != i:
        found.append(at)
        at = parents[at]
    return found


def _sort_key(process: Process) -> tuple[bool, int, bool, str, int, str]:
    is_rank = process.role == "trainer"
    rank = process.rank if process.rank is not None else 1 << 40
    return (not is_rank, rank, False, process.host, process.pid or 0, process.log)


def _cast(entries: Sequence[_Entry], order: Sequence[int]) -> Cast:
    place = {old: new for new, old in enumerate(order)}
    processes = []
    for old in order:
        process = entries[old].process
        trainer = None if process.trainer is None else place[process.trainer]
        processes.append(replace(process, trainer=trainer))
    by_profile = {k: place[i] for i, e in enumerate(entries) for k in e.profiles}
    return Cast(
        tuple(processes),
        {(e.log, e.log_rank): place[i] for i, e in enumerate(entries) if e.log is not None},
        tuple(by_profile[k] for k in sorted(by_profile)),
        _notices(processes),
    )


def _notices(processes: Sequence[Process]) -> tuple[Notice, ...]:
    roles = Counter(p.role for p in processes)
    if not roles["unassigned"]:
        return ()
    names = ", ".join(p.label for p in processes if p.role == "unassigned")[:200]
    return (
        Notice(
            "unassigned",
            f"{roles['unassigned']} of {len(processes)} processes could not be tied to a training "
            f"process ({names}): their I/O is in the totals, in no rank.",
        ),
    )
