"""What each process is to the training: trainer, worker, auxiliary or unassigned.

Rules (in order): a process with a profile is a trainer; what launched, forked or spawned a
trainer is auxiliary, and so is every other Python program where the profiles name all ranks;
a forked child works for the nearest trainer above it; children of multiprocessing's spawn
and of its fork server work for the only trainer on their host whose life contains them; the
fork server, the resource tracker and programs that are not Python are auxiliary; every other
process is a trainer. What fits nothing is `unassigned`: in the totals, in no rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vanidl.merge.jobs import contains, launches
from vanidl.merge.process_entries import Entry, can_train
from vanidl.readers.command_lines import HELPER, LAUNCHER, SERVANT, runs_another, runs_python
from vanidl.readers.records import TracerLog, same_host


def assign_roles(entries: Sequence[Entry], logs: Sequence[TracerLog]) -> None:
    """Gives each entry its role, its trainer and, where it trains, its rank."""
    by_pid: dict[int | None, list[int]] = {}
    for i, entry in enumerate(entries):
        by_pid.setdefault(entry.process.pid, []).append(i)
    parents = [_parent(entry, entries, by_pid, logs) for entry in entries]
    known = _role_evidence(entries, parents, logs)
    for i, entry in enumerate(entries):
        role, trainer = _role(i, known)
        host = entry.process.host
        if trainer is not None:
            host = host or entries[trainer].process.host
        # A worker has its trainer's rank in its environment; it stands for none.
        rank = entry.process.rank if role == "trainer" else None
        entry.process = replace(entry.process, role=role, trainer=trainer, host=host, rank=rank)


def _parent(
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
    above: frozenset[int]  # launched, forked or spawned a trainer
    programs: frozenset[int]  # no Python programs, run by one

    def around(self, i: int) -> list[int]:
        """Trainers whose life contains the beginning of an entry's."""
        entry = self.entries[i]
        found = [t for t in self.trainers if _contains(self.entries[t], entry, self.logs)]
        return sorted(found)


def _role_evidence(
    entries: Sequence[Entry], parents: Sequence[int | None], logs: Sequence[TracerLog]
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
    entries: Sequence[Entry],
    parents: Sequence[int | None],
    logs: Sequence[TracerLog],
) -> set[int]:
    """Entries that forked, launched or spawned others that are trainers."""
    forked = {a for i in profiled for a in _ancestors(i, parents)}
    launchers = {outer for outer, _ in launches(logs)}
    launched = {i for i, e in enumerate(entries) if e.log in launchers}
    return forked | launched | {m for i in profiled for m in _spawned_by(i, entries, logs)}


def _spawned_by(i: int, entries: Sequence[Entry], logs: Sequence[TracerLog]) -> list[int]:
    """The only Python program around a spawned process that has a profile."""
    if not HELPER.search(entries[i].process.command):
        return []
    mains = [
        m
        for m, e in enumerate(entries)
        if not e.profiles and can_train(e.process) and _contains(e, entries[i], logs)
    ]
    return mains if len(mains) == 1 else []


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


def _ancestors(i: int, parents: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    at = parents[i]
    while at is not None and at not in found and at != i:
        found.append(at)
        at = parents[at]
    return found
