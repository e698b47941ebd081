"""Who is who: the processes of a run, by their logs and profiles (`roles` says what each is)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vanidl.merge.process_entries import Entry, can_train, entries_of
from vanidl.merge.process_table import ProcessTable, training_threads
from vanidl.merge.roles import assign_roles
from vanidl.merge.unassigned import unassigned_notices
from vanidl.model.trace import Process
from vanidl.readers.command_lines import runs_another
from vanidl.readers.file_names import log_folder
from vanidl.readers.records import ProfileTrace, TracerLog, same_host


def identify(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> ProcessTable:
    """The processes of one run, ranks first in order."""
    entries = entries_of(logs)
    for k, profile in enumerate(profiles):
        entry = _match(profile, entries, profiles)
        if entry is None:
            stray = any(log.nprocs > 1 for log in logs)
            entry = Entry(Process(profile.host, profile.pid), None, 0, [], stray=stray)
            entries.append(entry)
        entry.profiles.append(k)
        _adopt_identity(entry, profile)
    assign_roles(entries, logs)
    order = sorted(range(len(entries)), key=lambda i: _sort_key(entries[i].process))
    table = _table(entries, order)
    return replace(table, threads=training_threads(logs, profiles, table))


def _match(
    profile: ProfileTrace, entries: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
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
    profile: ProfileTrace, near: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
    """The process of a profile that no number tells: the only one it can be."""
    if profile.pid is None and profile.recording:
        return _of_recording(profile, near, profiles)
    free = [e for e in near if e.process.pid is None and not e.profiles]
    return free[0] if len(free) == 1 and (len(profiles) == 1 or free[0].process.host) else None


def _of_session(
    profile: ProfileTrace, near: Sequence[Entry], profiles: Sequence[ProfileTrace]
) -> Entry | None:
    """The process of a profile that names a host only: another window's, or the only one."""
    folder = log_folder(profile.path)
    beside = [e for e in near if any(log_folder(profiles[k].path) == folder for k in e.profiles)]
    alone = [e for e in near if _lived_through(e.process, profile)]
    chosen = beside or alone
    return chosen[0] if len(chosen) == 1 else None


def _of_recording(
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


def _lived_through(process: Process, profile: ProfileTrace) -> bool:
    """Whether a program that can train ran while the profile was recorded."""
    if process.start_ns is None or process.end_ns is None or not len(profile.start_ns):
        return False
    slack = profile.clock_uncertainty_ns
    began = process.start_ns - slack <= int(profile.start_ns.min())
    within = began and int(profile.end_ns.max()) <= process.end_ns + slack
    return within and can_train(process) and not runs_another(process.command)


def _adopt_identity(entry: Entry, profile: ProfileTrace) -> None:
    known = entry.process
    entry.process = replace(
        known,
        host=known.host or profile.host,
        pid=known.pid if known.pid is not None else profile.pid,
        rank=profile.rank if profile.rank is not None else known.rank,
    )
    entry.world_size = profile.world_size or entry.world_size


def _sort_key(process: Process) -> tuple[bool, int, bool, str, int, str]:
    is_rank = process.role == "trainer"
    rank = process.rank if process.rank is not None else 1 << 40
    return (not is_rank, rank, False, process.host, process.pid or 0, process.log)


def _table(entries: Sequence[Entry], order: Sequence[int]) -> ProcessTable:
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


def _rows_of_logs(entries: Sequence[Entry], place: Mapping[int, int]) -> dict[tuple[int, int], int]:
    own = {(e.log, e.log_rank): place[i] for i, e in enumerate(entries) if e.log is not None}
    return own | {(log, 0): place[i] for i, e in enumerate(entries) for log in e.beside}
