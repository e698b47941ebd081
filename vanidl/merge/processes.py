"""Who is who: which process is a trainer, which works for it, and which rank it is.

Rules (in order): a process with a profile is a trainer; what launched, forked or spawned a
trainer is auxiliary, and so is every other Python program where the profiles name all ranks;
a forked child works for the nearest trainer above it; children of multiprocessing's spawn
and of its fork server work for the only trainer on their host whose life contains them; the
fork server, the resource tracker and programs that are not Python are auxiliary; every other
process is a trainer. What fits nothing is `unassigned`: in the totals, in no rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vanidl.merge.jobs import contains, launches
from vanidl.merge.process_table import ProcessTable, training_threads
from vanidl.merge.unassigned import unassigned_notices
from vanidl.model.trace import Process
from vanidl.readers.command_lines import HELPER, LAUNCHER, SERVANT, runs_another, runs_python
from vanidl.readers.file_names import log_folder
from vanidl.readers.records import ProfileTrace, TracerLog, same_host

_CLOCK_NS = 1_000_000_000  # what starts in whole seconds may be off


@dataclass(slots=True)
class _Entry:
    """A process in the making; `log` and `profiles` are their indices."""

    process: Process
    log: int | None
    log_rank: int
    profiles: list[int]
    beside: list[int] = field(default_factory=list)  # more logs of the same process
    world_size: int | None = None
    stray: bool = False  # a profile of an unknown process beside a log that has all ranks


def identify(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> ProcessTable:
    """The processes of one run, ranks first in order."""
    entries = [e for i, log in enumerate(logs) if not log.beside for e in _entries(i, log)]
    for i, log in enumerate(logs):
        if log.beside:
            _join(i, log, entries, logs)
    for k, profile in enumerate(profiles):
        entry = _match(profile, entries, profiles)
        if entry is None:
            stray = any(log.nprocs > 1 for log in logs)
            entry = _Entry(Process(profile.host, profile.pid), None, 0, [], stray=stray)
            entries.append(entry)
        entry.profiles.append(k)
        _adopt_identity(entry, profile)
    by_pid: dict[int | None, list[int]] = {}
    for i, e in enumerate(entries):
        by_pid.setdefault(e.process.pid, []).append(i)
    parents = [_parent(e, entries, by_pid, logs) for e in entries]
    _assign_roles(entries, parents, logs)
    order = sorted(range(len(entries)), key=lambda i: _sort_key(entries[i].process))
    table = _table(entries, order)
    return replace(table, threads=training_threads(logs, profiles, table))


def _entries(i: int, log: TracerLog) -> list[_Entry]:
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
        return [_Entry(process, i, 0, [])]
    hosts = _rank_hosts(log)
    return [
        _Entry(replace(process, host=hosts.get(r, ""), pid=None, rank=r), i, r, [])
        for r in range(log.nprocs)
    ]


def _join(i: int, log: TracerLog, entries: list[_Entry], logs: Sequence[TracerLog]) -> None:
    """Gives a log that lies beside others' to the process it is of; without one it has its own."""
    entry = next((entry for entry in entries if _is_of(log, entry, logs)), None)
    if entry is None:
        entries.extend(_entries(i, log))
        return
    entry.beside.append(i)
    known = entry.process
    rank = log.rank if known.rank is None else known.rank
    entry.process = replace(known, host=known.host or log.host, pid=log.pid, rank=rank)


def _is_of(log: TracerLog, entry: _Entry, logs: Sequence[TracerLog]) -> bool:
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
    if profile.pid is None and profile.rank is None and log_folder(profile.path):
        return _of_session(profile, near, profiles)
    return _of_no_process(profile, near, profiles)


def _of_no_process(
    profile: ProfileTrace, near: Sequence[_Entry], profiles: Sequence[ProfileTrace]
) -> _Entry | None:
    """The process of a profile that no number tells: the only one it can be."""
    if profile.pid is None and profile.recording:
        return _of_recording(profile, near)
    free = [e for e in near if e.process.pid is None and not e.profiles]
    return free[0] if len(free) == 1 and (len(profiles) == 1 or free[0].process.host) else None


def _of_session(
    profile: ProfileTrace, near: Sequence[_Entry], profiles: Sequence[ProfileTrace]
) -> _Entry | None:
    """The process of a profile that names a host only: another window's, or the only one."""
    folder = log_folder(profile.path)
    beside = [e for e in near if any(log_folder(profiles[k].path) == folder for k in e.profiles)]
    alone = [e for e in near if _lived_through(e.process, profile)]
    chosen = beside or alone
    return chosen[0] if len(chosen) == 1 else None


def _of_recording(profile: ProfileTrace, near: Sequence[_Entry]) -> _Entry | None:
    """The process of a profile that names host and rank: of that rank, or the only one."""
    mains = [e for e in near if e.process.parent_pid is None and not e.profiles]
    ranked = [e for e in mains if e.process.rank == profile.rank]
    alone = [e for e in mains if e.process.rank is None and _lived_through(e.process, profile)]
    chosen = ranked or alone
    return chosen[0] if len(chosen) == 1 else None


def _lived_through(process: Process, profile: ProfileTrace) -> bool:
    """Whether a program that can train ran while the profile was recorded."""
    if process.start_ns is None or process.end_ns is None or not len(profile.start_ns):
        return False
    slack = profile.clock_uncertainty_ns
    began = process.start_ns - slack <= int(profile.start_ns.min())
    within = began and int(profile.end_ns.max()) <= process.end_ns + slack
    return within and _can_train(process) and not runs_another(process.command)


def _adopt_identity(entry: _Entry, profile: ProfileTrace) -> None:
    known = entry.process
    entry.process = replace(
        known,
        host=known.host or profile.host,
        pid=known.pid if known.pid is not None else profile.pid,
        rank=profile.rank if profile.rank is not None else known.rank,
    )
    entry.world_size = profile.world_size or entry.world_size


def _parent(
    entry: _Entry,
    entries: Sequence[_Entry],
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
    alive = [i for i in candidates if _contains(entries[i], entry, logs)]
    return next(iter(alive or candidates), None)


def _contains(outer: _Entry, inner: _Entry, logs: Sequence[TracerLog]) -> bool:
    if outer.log is None or inner.log is None:
        return True
    return contains(logs[outer.log], logs[inner.log])


def _assign_roles(
    entries: list[_Entry], parents: list[int | None], logs: Sequence[TracerLog]
) -> None:
    known = _role_evidence(entries, parents, logs)
    for i, entry in enumerate(entries):
        role, trainer = _role(i, known)
        host = entry.process.host
        if trainer is not None:
            host = host or entries[trainer].process.host
        # A worker has its trainer's rank in its environment; it stands for none.
        rank = entry.process.rank if role == "trainer" else None
        entry.process = replace(entry.process, role=role, trainer=trainer, host=host, rank=rank)


@dataclass(frozen=True, slots=True)
class _RoleEvidence:
    """What the roles follow from. Sets and `parents` hold indices of entries."""

    entries: Sequence[_Entry]
    parents: Sequence[int | None]
    logs: Sequence[TracerLog]
    trainers: frozenset[int]
    above: frozenset[int]  # launched, forked or spawned a trainer
    programs: frozenset[int]  # no Python programs, run by one

    def around(self, i: int) -> list[int]:
        """Trainers whose life contains the beginning of an entry's."""
        entry = self.entries[i]
        found = [t for t in self.trainers if _contains(self.entries[t], entry, self.logs)]
        return sorted(found)


def _role_evidence(
    entries: Sequence[_Entry], parents: Sequence[int | None], logs: Sequence[TracerLog]
) -> _RoleEvidence:
    profiled = {i for i, e in enumerate(entries) if e.profiles and not e.stray}
    strays = {i for i, e in enumerate(entries) if e.stray}
    above = _above(profiled, entries, parents, logs) - profiled
    programs = {i for i in range(len(entries)) if _is_program(i, entries, logs)} - profiled
    trainers = set(profiled)
    if not _all_ranks_known([entries[i] for i in profiled]):
        trainers |= {
            i
            for i, e in enumerate(entries)
            if i not in above | programs | strays and parents[i] is None and _can_train(e.process)
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


def _role(i: int, known: _RoleEvidence) -> tuple[str, int | None]:
    """(role, index of its trainer)."""
    if i in known.trainers:
        return "trainer", i
    if known.entries[i].stray:
        return "unassigned", None
    command, forked = known.entries[i].process.command, known.parents[i] is not None
    ancestors = _ancestors(i, known.parents)
    trainer = next((a for a in ancestors if a in known.trainers), None)
    if trainer is None and (i in known.programs or HELPER.search(command)):
        around = known.around(ancestors[-1] if ancestors else i)
        trainer = around[0] if len(around) == 1 else None
    if i in known.above or LAUNCHER.search(command):
        return "auxiliary", None
    if i in known.programs or (SERVANT.search(command) and not forked):
        return "auxiliary", trainer
    if trainer is None:
        main = not forked and not HELPER.search(command)
        return ("auxiliary" if main else "unassigned"), None
    return "worker", trainer


def _above(
    profiled: set[int],
    entries: Sequence[_Entry],
    parents: Sequence[int | None],
    logs: Sequence[TracerLog],
) -> set[int]:
    """Entries that forked, launched or spawned others that are trainers."""
    forked = {a for i in profiled for a in _ancestors(i, parents)}
    launchers = {outer for outer, _ in launches(logs)}
    launched = {i for i, e in enumerate(entries) if e.log in launchers}
    return forked | launched | {m for i in profiled for m in _spawned_by(i, entries, logs)}


def _spawned_by(i: int, entries: Sequence[_Entry], logs: Sequence[TracerLog]) -> list[int]:
    """The only Python program around a spawned process that has a profile."""
    if not HELPER.search(entries[i].process.command):
        return []
    mains = [
        m
        for m, e in enumerate(entries)
        if not e.profiles and _can_train(e.process) and _contains(e, entries[i], logs)
    ]
    return mains if len(mains) == 1 else []


def _is_program(i: int, entries: Sequence[_Entry], logs: Sequence[TracerLog]) -> bool:
    """Whether it is no Python program, and ran during the life of one."""
    entry = entries[i]
    if entry.process.pid is None or not runs_another(entry.process.command):
        return False
    return any(
        runs_python(e.process.command) and _contains(e, entry, logs)
        for e in entries
        if e.log is not None
    )


def _all_ranks_known(profiled: Sequence[_Entry]) -> bool:
    """Whether the profiles name every rank of their world."""
    sizes = {e.world_size for e in profiled}
    size = sizes.pop() if len(sizes) == 1 else None
    ranks = {e.process.rank for e in profiled}
    # Not by making the set of all: the size is what a file says.
    return len(ranks) == size and all(rank is not None and rank < len(ranks) for rank in ranks)


def _can_train(process: Process) -> bool:
    """Whether a process without profile and without known parent stands for a rank."""
    started_by_python = HELPER.search(process.command) or LAUNCHER.search(process.command)
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


def _table(entries: Sequence[_Entry], order: Sequence[int]) -> ProcessTable:
    place = {old: new for new, old in enumerate(order)}
    processes = []
    for old in order:
        process = entries[old].process
        if process.trainer is not None and process.trainer != place[process.trainer]:
            process = replace(process, trainer=place[process.trainer])
        processes.append(process)
    by_profile = {k: place[i] for i, e in enumerate(entries) for k in e.profiles}
    return ProcessTable(
        rows=tuple(processes),
        of_log=_rows_of_logs(entries, place),
        of_profile=tuple(by_profile[k] for k in sorted(by_profile)),
        notices=unassigned_notices(processes),
    )


def _rows_of_logs(
    entries: Sequence[_Entry], place: Mapping[int, int]
) -> dict[tuple[int, int], int]:
    own = {(e.log, e.log_rank): place[i] for i, e in enumerate(entries) if e.log is not None}
    return own | {(log, 0): place[i] for i, e in enumerate(entries) for log in e.beside}
