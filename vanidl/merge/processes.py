"""Who is who: the processes of a run, by their logs and profiles, and what each is to the training.

Roles, by the first rule that holds: a process with a profile is a trainer; what launched, forked or
spawned a trainer is auxiliary, and so is every other Python program where the profiles name all
ranks; a forked child works for the nearest trainer above it; children of multiprocessing's spawn
and of its fork server work for the only trainer on their host whose life contains them; the
fork server, the resource tracker and programs that are not Python are auxiliary; every other
process is a trainer. What fits nothing is `unassigned`: in the totals, in no rank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vanidl.merge.jobs import contains, find_launches
from vanidl.model.trace import Process
from vanidl.model.warnings import Notice
from vanidl.readers.names import (
    HELPER,
    LAUNCHER,
    SERVANT,
    find_log_folder,
    runs_another,
    runs_python,
)
from vanidl.readers.records import ProfileTrace, TracerLog, same_host
from vanidl.schema.dataclass import dataclass

_EXECUTED_NS = 10_000_000_000  # to the first call of what a process executed, at most
_CLOCK_NS = 1_000_000_000  # what starts in whole seconds may be off


_TRACKER_PIPE = re.compile(r"tracker_fd=(\d+)")
_MOST_NAMES = 4


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

    def iterate_own_logs(self, logs: Sequence[TracerLog]) -> Iterator[tuple[tuple[int, int], int]]:
        """((log, rank in the log), row) of each process that a log knows.

        A log beside others counts only for a process that has no tracer's log.
        """
        own = {row for (i, _), row in self.of_log.items() if not logs[i].beside}
        for place, row in self.of_log.items():
            if not logs[place[0]].beside or row not in own:
                yield place, row


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


def identify_processes(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> ProcessTable:
    """The processes of one run, ranks first in order."""
    entries = open_entries(logs)
    for k, profile in enumerate(profiles):
        entry = _match_profile(profile, entries, profiles)
        # A profile whose process has no log is a process of its own.
        if entry is None:
            stray = any(log.nprocs > 1 for log in logs)
            entry = Entry(Process(profile.host, profile.pid), None, 0, [], stray=stray)
            entries.append(entry)
        entry.profiles.append(k)

        # What either of both knows of it; a rank is the profile's.
        known = entry.process
        entry.process = replace(
            known,
            host=known.host or profile.host,
            pid=known.pid if known.pid is not None else profile.pid,
            rank=profile.rank if profile.rank is not None else known.rank,
        )
        entry.world_size = profile.world_size or entry.world_size

    # What each is to the training, once all are known.
    table = _build_rows(entries, assign_roles(entries, logs))
    return replace(table, threads=find_training_threads(logs, profiles, table))


def open_entries(logs: Sequence[TracerLog]) -> list[Entry]:
    """The processes of the logs; a log that lies beside others' joins the one it is of, if any."""
    entries = [e for i, log in enumerate(logs) if not log.beside for e in _make_entries(i, log)]
    for i, log in enumerate(logs):
        if not log.beside:
            continue
        entry = next((entry for entry in entries if _is_of(log, entry, logs)), None)
        if entry is None:
            entries.extend(_make_entries(i, log))
            continue
        entry.beside.append(i)
        known = entry.process
        rank = log.rank if known.rank is None else known.rank
        entry.process = replace(known, host=known.host or log.host, pid=log.pid, rank=rank)
    return entries


def _make_entries(i: int, log: TracerLog) -> list[Entry]:
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
    # A shared log has one header: hosts of its ranks are named in its records.
    hosts = {record.rank: record.host for record in log.mpi}
    for table in log.operations:
        places = zip(table.record_rank, table.record_host, strict=True)
        hosts |= {int(rank): host for rank, host in places if host}
    return [
        Entry(replace(process, host=hosts.get(r, ""), pid=None, rank=r), i, r, [])
        for r in range(log.nprocs)
    ]


def _is_of(log: TracerLog, entry: Entry, logs: Sequence[TracerLog]) -> bool:
    """By pid, where both lived at one time (numbers come again), or by the rank of a shared log."""
    known = entry.process
    if entry.log is None or not same_host(known.host, log.host):
        return False
    # A rank of a shared log has no number of its own: the rank decides.
    if known.pid is None:
        return log.parent_pid is None and log.rank is not None and log.rank == known.rank
    other = logs[entry.log]
    if known.pid != log.pid or other.beside:
        return False
    return other.start_ns < log.end_ns + _CLOCK_NS and log.start_ns < other.end_ns + _CLOCK_NS


def _match_profile(
    profile: ProfileTrace, entries: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
    """The process that a profile is of: by host and pid, by rank, or the only one it can be."""
    near = [e for e in entries if same_host(e.process.host, profile.host)]
    if profile.pid is not None:
        named = [e for e in near if e.process.pid == profile.pid]
        if named:  # of several, as a shell becomes the program that it starts, what ran meanwhile
            return max(named, key=lambda e: _measure_life(e.process, profile))
    if profile.rank is not None:
        for e in near:
            if e.process.pid is None and e.process.rank == profile.rank:
                return e
    if profile.pid is None and profile.rank is None and find_log_folder(profile.path):
        return _match_session(profile, near, profiles)
    # The process of a profile that no number tells: the only one it can be.
    if profile.pid is None and profile.recording:
        return _match_recording(profile, near, profiles)
    free = [e for e in near if e.process.pid is None and not e.profiles]
    return free[0] if len(free) == 1 and (len(profiles) == 1 or free[0].process.host) else None


def _match_session(
    profile: ProfileTrace, near: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
    """The process of a profile that names a host only: another window's, or the only one."""
    folder = find_log_folder(profile.path)
    beside = [
        e for e in near if any(find_log_folder(profiles[k].path) == folder for k in e.profiles)
    ]
    alone = [e for e in near if _lived_through(e.process, profile)]
    # A window of the same session shows whose it is; else the only one that could train.
    chosen = beside or alone
    return chosen[0] if len(chosen) == 1 else None


def _match_recording(
    profile: ProfileTrace, near: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
    """The process of a profile that names host and rank: of that rank, or the only one.

    It may have profiles that name it, found before or after this one, but no other that does not.
    """
    mains = [
        e
        for e in near
        if e.process.parent_pid is None and all(profiles[k].pid is not None for k in e.profiles)
    ]
    ranked = [e for e in mains if e.process.rank == profile.rank]
    unranked = [e for e in mains if e.process.rank is None]
    # A program that a rank runs for a moment has the rank's number as well.
    through = [[e for e in es if _lived_through(e.process, profile)] for es in (ranked, unranked)]
    chosen = through[0] or ranked or through[1]
    return chosen[0] if len(chosen) == 1 else None


def _measure_life(process: Process, profile: ProfileTrace) -> tuple[int, int]:
    """How long a process ran while a profile was recorded, and in all; ns."""
    if process.start_ns is None or process.end_ns is None:
        return 0, 0
    meanwhile = 0
    if len(profile.start_ns):
        last = min(process.end_ns, int(profile.end_ns.max()))
        meanwhile = max(last - max(process.start_ns, int(profile.start_ns.min())), 0)
    return meanwhile, process.end_ns - process.start_ns


def _lived_through(process: Process, profile: ProfileTrace) -> bool:
    """Whether a program that can train ran while the profile was recorded."""
    if process.start_ns is None or process.end_ns is None or not len(profile.start_ns):
        return False
    slack = profile.clock_uncertainty_ns
    began = process.start_ns - slack <= int(profile.start_ns.min())
    within = began and int(profile.end_ns.max()) <= process.end_ns + slack
    return within and can_train(process) and not runs_another(process.command)


def can_train(process: Process) -> bool:
    """Whether a process without profile and without known parent stands for a rank."""
    return process.parent_pid is None and not _is_started_by_python(process.command)


@lru_cache(256)  # thousands of processes have few commands
def _is_started_by_python(command: str) -> bool:
    return bool(HELPER.search(command) or LAUNCHER.search(command))


# Roles.


class Role(NamedTuple):
    """What an entry is to the training; `trainer` is an index of entries."""

    name: str
    trainer: int | None
    host: str
    rank: int | None  # of one that trains


def assign_roles(entries: Sequence[Entry], logs: Sequence[TracerLog]) -> list[Role]:
    """The role of each entry."""
    by_pid: dict[int | None, list[int]] = {}
    for i, entry in enumerate(entries):
        by_pid.setdefault(entry.process.pid, []).append(i)
    parents = [_find_parent(entry, entries, by_pid, logs) for entry in entries]
    known = _gather_role_evidence(entries, parents, logs)
    roles = []
    for i, entry in enumerate(entries):
        name, trainer = _assign_role(i, known)
        host = entry.process.host
        if trainer is not None:
            host = host or entries[trainer].process.host
        # A worker has its trainer's rank in its environment; it stands for none.
        roles.append(Role(name, trainer, host, entry.process.rank if name == "trainer" else None))
    return roles


def _find_parent(
    entry: Entry,
    entries: Sequence[Entry],
    by_pid: Mapping[int | None, list[int]],
    logs: Sequence[TracerLog],
) -> int | None:
    """Index of the entry that forked this one, or None."""
    pid = entry.process.parent_pid
    if pid is None or pid == entry.process.pid:
        return None
    candidates = [
        i for i in by_pid.get(pid, ()) if same_host(entries[i].process.host, entry.process.host)
    ]
    # Numbers come again: the one that lived around this process is its parent.
    alive = [i for i in candidates if _contains(entries[i], entry, logs)]
    return next(iter(alive or candidates), None)


def _contains(outer: Entry, inner: Entry, logs: Sequence[TracerLog]) -> bool:
    if outer.log is None or inner.log is None:
        return True
    return contains(logs[outer.log], logs[inner.log])


@dataclass(frozen=True, slots=True)
class _RoleEvidence:
    """What the roles follow from. Sets and `parents` hold indices of entries."""

    entries: Sequence[Entry]
    parents: Sequence[int | None]
    logs: Sequence[TracerLog]
    trainers: frozenset[int]
    above: frozenset[int]  # launched, forked or spawned a trainer, or became another program
    programs: frozenset[int]  # no Python programs, run by one

    def around(self, i: int) -> list[int]:
        """Trainers whose life contains the beginning of an entry's."""
        entry = self.entries[i]
        found = [t for t in self.trainers if _contains(self.entries[t], entry, self.logs)]
        return sorted(found)


def _gather_role_evidence(
    entries: Sequence[Entry], parents: Sequence[int | None], logs: Sequence[TracerLog]
) -> _RoleEvidence:
    profiled = {i for i, e in enumerate(entries) if e.profiles and not e.stray}
    strays = {i for i, e in enumerate(entries) if e.stray}
    above = _find_above(profiled, entries, parents, logs) | _find_replaced(entries)
    above -= profiled
    programs = {i for i in range(len(entries)) if _is_program(i, entries, logs)} - profiled
    trainers = set(profiled)
    if not _all_ranks_known([entries[i] for i in profiled]):
        trainers |= {
            i
            for i, e in enumerate(entries)
            if i not in above | programs | strays and parents[i] is None and can_train(e.process)
        }
    ranked = {i for i in trainers if entries[i].process.rank is not None}
    trainers = (ranked | profiled) or trainers  # what has no rank only started those that have
    others = {i for i in trainers - ranked - profiled if runs_another(entries[i].process.command)}
    if trainers - others:  # shells and tools beside Python programs train nothing
        trainers, programs = trainers - others, programs | others
    if not trainers:  # a launcher alone is the job
        trainers = {i for i, p in enumerate(parents) if p is None}
    return _RoleEvidence(
        entries=entries,
        parents=parents,
        logs=logs,
        trainers=frozenset(trainers),
        above=frozenset(above),
        programs=frozenset(programs),
    )


def _assign_role(i: int, known: _RoleEvidence) -> tuple[str, int | None]:
    """(role, index of its trainer)."""
    if i in known.trainers:
        return "trainer", i
    if known.entries[i].stray:
        return "unassigned", None
    command, forked = known.entries[i].process.command, known.parents[i] is not None
    ancestors = _find_ancestors(i, known.parents)
    trainer = next((a for a in ancestors if a in known.trainers), None)
    # What has no known parent that trains works for the only trainer around it.
    if trainer is None and (i in known.programs or HELPER.search(command)):
        around = known.around(ancestors[-1] if ancestors else i)
        trainer = around[0] if len(around) == 1 else None
    if i in known.above or LAUNCHER.search(command):
        return "auxiliary", None
    if i in known.programs or (SERVANT.search(command) and not forked):
        return "auxiliary", trainer
    if trainer is None:
        # A program of its own is auxiliary; what was forked serves a rank that is not known.
        main = not forked and not HELPER.search(command)
        return ("auxiliary" if main else "unassigned"), None
    return "worker", trainer


def _find_replaced(entries: Sequence[Entry]) -> set[int]:
    """Entries of a process that then executed another program: a shell's before its command.

    Numbers of processes are given anew only after all others have been.
    """
    by_pid: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    for i, entry in enumerate(entries):
        one = entry.process
        if one.pid is not None and one.start_ns is not None and one.end_ns is not None:
            name = one.pid, one.host.partition(".")[0]
            by_pid.setdefault(name, []).append((one.start_ns, one.end_ns, i))
    return {
        i
        for lives in by_pid.values()
        for (_, end_ns, i), (start_ns, *_) in pairwise(sorted(lives))
        if end_ns <= start_ns <= end_ns + _EXECUTED_NS
    }


def _find_above(
    profiled: set[int],
    entries: Sequence[Entry],
    parents: Sequence[int | None],
    logs: Sequence[TracerLog],
) -> set[int]:
    """Entries that forked, launched or spawned others that are trainers."""
    forked = {a for i in profiled for a in _find_ancestors(i, parents)}
    launchers = {outer for outer, _ in find_launches(logs)}
    launched = {i for i, e in enumerate(entries) if e.log in launchers}
    # A spawned process that has a profile was started by the only Python program around it.
    spawned = set[int]()
    for i in profiled:
        if HELPER.search(entries[i].process.command):
            mains = [
                m
                for m, e in enumerate(entries)
                if not e.profiles and can_train(e.process) and _contains(e, entries[i], logs)
            ]
            spawned |= set(mains) if len(mains) == 1 else set()
    return forked | launched | spawned


def _is_program(i: int, entries: Sequence[Entry], logs: Sequence[TracerLog]) -> bool:
    """Whether it is no Python program, and ran during the life of one."""
    entry = entries[i]
    if entry.process.pid is None or not runs_another(entry.process.command):
        return False
    return any(
        runs_python(e.process.command) and _contains(e, entry, logs)
        for e in entries
        if e.log is not None
    )


def _all_ranks_known(profiled: Sequence[Entry]) -> bool:
    """Whether the profiles name every rank of their world."""
    sizes = {e.world_size for e in profiled}
    size = sizes.pop() if len(sizes) == 1 else None
    ranks = {e.process.rank for e in profiled}
    # Not by making the set of all: the size is what a file says.
    return len(ranks) == size and all(rank is not None and rank < len(ranks) for rank in ranks)


def _find_ancestors(i: int, parents: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    at = parents[i]
    while at is not None and at not in found and at != i:
        found.append(at)
        at = parents[at]
    return found


# The table.


def _build_rows(entries: Sequence[Entry], roles: Sequence[Role]) -> ProcessTable:
    # Ranks first, then by host and process.
    def order(i: int) -> tuple[bool, int, str, int, str]:
        process, role = entries[i].process, roles[i]
        rank = role.rank if role.rank is not None else 1 << 40
        return role.name != "trainer", rank, role.host, process.pid or 0, process.log

    # Indices change with the order: trainers, logs and profiles follow.
    in_order = sorted(range(len(entries)), key=order)
    place = {old: new for new, old in enumerate(in_order)}
    processes = []
    for old in in_order:
        name, trainer, host, rank = roles[old]
        trainer = None if trainer is None else place[trainer]
        known = entries[old].process
        processes.append(known.changed(role=name, trainer=trainer, host=host, rank=rank))
    # Where the rows of each file belong.
    of_log = {(e.log, e.log_rank): place[i] for i, e in enumerate(entries) if e.log is not None}
    of_log |= {(log, 0): place[i] for i, e in enumerate(entries) for log in e.beside}
    by_profile = {k: place[i] for i, e in enumerate(entries) for k in e.profiles}
    return ProcessTable(
        rows=tuple(processes),
        of_log=of_log,
        of_profile=tuple(by_profile[k] for k in sorted(by_profile)),
        notices=warn_of_unassigned(processes),
    )


def find_training_threads(
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


def warn_of_unassigned(processes: Sequence[Process]) -> tuple[Notice, ...]:
    """One notice of all of them; none where there is none."""
    roles = Counter(p.role for p in processes)
    if not roles["unassigned"]:
        return ()
    lost = [p for p in processes if p.role == "unassigned"]
    names = ", ".join(p.label for p in lost[:_MOST_NAMES])
    more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
    return (
        Notice(
            "unassigned",
            f"{len(lost)} of {len(processes)} processes could not be tied to one of the "
            f"{roles['trainer']} training processes ({names}{more}): the tracer does not "
            "record who started them, and several training processes ran around them. Their I/O "
            "is in the totals, in no rank, so busy time and overlap of the ranks lack it. "
            "DataLoader workers that are forked "
            f'(multiprocessing_context="fork") can be tied.{_tell_families(lost)}',
        ),
    )


def _tell_families(processes: Sequence[Process]) -> str:
    """What the commands of spawned children tell: siblings name the same tracker's pipe.

    The number is that of a descriptor of the parent, so it tells families apart and does not
    say whose they are.
    """
    pipes = [_TRACKER_PIPE.search(p.command) for p in processes]
    sizes = Counter((p.host, pipe[1]) for p, pipe in zip(processes, pipes, strict=True) if pipe)
    if sum(sizes.values()) < len(processes) or len(sizes) < 2:
        return ""
    each = sorted(set(sizes.values()))
    many = f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}"
    return (
        f" All were started by multiprocessing (spawn); by their common pipe they are "
        f"{len(sizes)} families of {many}, and Darshan does not record whose."
    )
