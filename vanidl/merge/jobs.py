"""Which logs and profiles are one run.

Links: the same job id; a fork parent; one process by two tracers; a profile of a process that a
log knows; profiles of one distributed job; the same user and command at the same time; a launcher
whose command ends with that of what it started. What hangs together is a run. Multiprocessing's
own processes, and programs that a Python program ran, join the only run around them. Logs that
each hold all ranks of an MPI program are runs of their own, even those of one job: their ranks
are different processes under the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import combinations
from pathlib import Path

from vanidl.errors import InputError, SeveralJobsError
from vanidl.formatting.names import elided
from vanidl.formatting.units import seconds
from vanidl.merge.copies import pair_tracers
from vanidl.model.intervals import find_gap, span_each
from vanidl.readers.names import HELPER, find_log_folder, get_arguments, runs_another
from vanidl.readers.records import ProfileTrace, TracerLog, same_host
from vanidl.schema.dataclass import dataclass

_SESSION_NS = 120_000_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Logs and profiles of one run."""

    logs: tuple[TracerLog, ...]
    profiles: tuple[ProfileTrace, ...]

    @property
    def job_ids(self) -> tuple[str, ...]:
        """Distinct job ids, sorted."""
        return tuple(sorted({log.job_id for log in self.logs}))


def group_runs(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> tuple[Group, ...]:
    """The runs among the logs and profiles, earliest first.

    A profile that fits no log joins the run where there is only one.
    """
    links = Links(len(logs) + len(profiles))
    for i, j in (*_link_logs(logs), *find_launches(logs), *_link_profiles(logs, profiles)):
        links.join(i, j)
    _adopt_started(logs, links)
    # One run with logs: every profile is taken to be of it.
    with_logs = {links.root(i) for i in range(len(logs))}
    if len(with_logs) == 1:
        for i in range(len(profiles)):
            links.join(0, len(logs) + i)
    sets = [part for members in links.sets() for part in _split_executions(members, logs, profiles)]
    groups = [_pick_group(members, logs, profiles) for members in sets]
    return tuple(sorted(groups, key=_start_ns))


def choose_run(groups: Sequence[Group], job_ids: Sequence[str] = ()) -> Group:
    """The only group, or the ones that hold the wanted job ids, as one.

    Raises:
        SeveralJobsError: there are several groups and none was asked for.
        InputError: no group holds a wanted job id.
    """
    every = groups
    if job_ids:
        # Ids, or places in the table that the error shows.
        groups = [g for i, g in enumerate(groups, 1) if {*g.job_ids, f"{PLACE}{i}"} & set(job_ids)]
        if not groups:
            raise InputError(f"--job {', '.join(job_ids)}: no log of that job here.")
    _refuse_several_executions(groups)
    if len(groups) > 1 and not job_ids:
        apart = find_hosts_apart([log for g in groups for log in g.logs])
        hint = f" {apart}: if they are one run, take them all." if apart else ""
        raise SeveralJobsError(
            f"expected the logs of one run, found {len(groups)} unrelated groups: choose with "
            f"--job ID or --job {PLACE}NUMBER (repeatable to take several as one run), or give a "
            f"narrower path.{hint}",
            _make_table(every),
        )
    return Group(
        tuple(log for g in groups for log in g.logs),
        tuple(p for g in groups for p in g.profiles),
    )


def find_hosts_apart(logs: Sequence[TracerLog]) -> str:
    """Which hosts have no moment in common, as of nodes whose clocks differ; "" for none."""
    spans = span_each((log.host, log.start_ns, log.end_ns) for log in logs)
    gap = find_gap(spans)
    if "" in spans or gap is None:
        return ""
    before, after, gap_ns = gap
    return (
        f"Logs of {before} and {after} do not overlap in time, by {seconds(gap_ns / 1e9)} "
        "(the clocks of hosts may differ)"
    )


PLACE = "@"
"""Before the number of a run in the table of several: ids may be missing, or the same."""


def _holds_all_ranks(log: TracerLog) -> bool:
    return log.nprocs > 1


def _refuse_several_executions(groups: Sequence[Group]) -> None:
    executions = [g for g in groups if any(map(_holds_all_ranks, g.logs))]
    ids = [job_id for g in executions for job_id in g.job_ids]
    if len(set(ids)) == len(ids):
        return
    logs = [next(log.path for log in g.logs if _holds_all_ranks(log)) for g in executions]
    raise SeveralJobsError(
        f"expected the logs of one run, found {len(executions)} executions of MPI programs in one "
        f"job, each with all its ranks: they are not added up. Name one of their logs ("
        f"{', '.join(logs[:3])}{', ...' if len(logs) > 3 else ''}).",
        _make_table(groups),
    )


def _split_executions(
    members: list[int], logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> list[list[int]]:
    """The members as one run, or one for each execution of an MPI program among them.

    Logs of one execution, which begins once, are versions of each other. Everything else
    belongs to the execution during which it began, in doubt to the first.
    """
    whole = [i for i in members if i < len(logs) and _holds_all_ranks(logs[i])]
    executions: dict[tuple[int, int, str], list[int]] = {}
    for i in sorted(whole, key=lambda i: (logs[i].start_ns, logs[i].path)):
        key = logs[i].start_ns, logs[i].nprocs, logs[i].command
        executions.setdefault(key, []).append(i)
    parts = list(executions.values())
    # One execution, or none that has all its ranks: nothing to tell apart.
    if len(parts) < 2:
        return [members]
    for i in sorted({*members} - {*whole}):
        began_ns = _start_ns(_pick_group([i], logs, profiles))[0]
        around = (p for p in parts if logs[p[0]].start_ns <= began_ns < logs[p[0]].end_ns)
        next(around, parts[0]).append(i)
    return parts


class Links:
    """Disjoint sets of 0..n-1, each known by its smallest member.

    Not scipy's connected components: links are added by the sets found so far, and every
    summary would import scipy for it.
    """

    def __init__(self, n: int) -> None:
        self._parent = list(range(n))

    def root(self, i: int) -> int:
        """The smallest member of the set of a member."""
        while self._parent[i] != i:
            self._parent[i] = i = self._parent[self._parent[i]]
        return i

    def join(self, i: int, j: int) -> None:
        """Makes the sets of two members one."""
        i, j = self.root(i), self.root(j)
        self._parent[max(i, j)] = min(i, j)

    def sets(self) -> list[list[int]]:
        """The members of each set."""
        found: dict[int, list[int]] = {}
        for i in range(len(self._parent)):
            found.setdefault(self.root(i), []).append(i)
        return list(found.values())


def _link_logs(logs: Sequence[TracerLog]) -> Iterable[tuple[int, int]]:
    by_job: dict[tuple[int, str], int] = {}
    by_pid: dict[tuple[int, str], list[int]] = {}
    by_command: dict[tuple[int, str], list[int]] = {}
    for i, log in enumerate(logs):
        yield by_job.setdefault((log.user_id, run_of(log)), i), i
        by_pid.setdefault((log.user_id, str(log.pid)), []).append(i)
        by_command.setdefault((log.user_id, log.command), []).append(i)
    for i, log in enumerate(logs):
        for parent in by_pid.get((log.user_id, str(log.parent_pid)), ()):
            if contains(logs[parent], log):  # numbers of processes come again
                yield parent, i
        if log.beside:
            same = by_pid.get((log.user_id, str(log.pid)), ())
            yield from ((i, j) for j in same if contains(logs[j], log) or contains(log, logs[j]))
    yield from pair_tracers(logs)
    # The same command at the same time: ranks of one job that no launcher shows.
    for (_, command), members in by_command.items():
        if not command or HELPER.search(command):
            continue
        # Each log in order of start against the one before that reaches furthest.
        first, *others = sorted(members, key=lambda i: logs[i].start_ns)
        reach, owner = logs[first].end_ns, first
        for i in others:
            if logs[i].start_ns < reach:
                yield owner, i
            if logs[i].end_ns > reach:
                reach, owner = logs[i].end_ns, i


def run_of(log: TracerLog) -> str:
    """What logs of one user that are one run have in common: the job id, else the folder."""
    return log.job_id or str(Path(log.path).parent)


def _link_profiles(
    logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> Iterable[tuple[int, int]]:
    by_pid: dict[int | None, list[int]] = {}
    for i, log in enumerate(logs):
        by_pid.setdefault(log.pid, []).append(i)
    for k, profile in enumerate(profiles):
        candidates = by_pid.get(profile.pid, []) if profile.pid is not None else []
        for i in candidates:
            if same_host(logs[i].host, profile.host):
                yield i, len(logs) + k
    # Profiles of one job belong together without any log.
    for (j, a), (k, b) in combinations(enumerate(profiles), 2):
        if _same_job(a, b):
            yield len(logs) + j, len(logs) + k


def _same_job(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Of one process, one session, one recording, or different ranks of one distributed job."""
    if a.pid is not None and (a.host, a.pid) == (b.host, b.pid):
        return True
    if a.recording and b.recording:
        return a.recording == b.recording
    # Marks of loops in one folder: `vanidl record` makes a new one for each run.
    one_folder = Path(a.path).parent == Path(b.path).parent
    if _same_session(a, b) or (a.marks_loop and b.marks_loop and one_folder):
        return True
    distributed = a.world_size == b.world_size and (a.world_size or 0) > 1
    if not distributed or not len(a.start_ns) or not len(b.start_ns):
        return False
    return bool(a.start_ns.min() < b.end_ns.max() and b.start_ns.min() < a.end_ns.max())


def _same_session(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Profiles in one log folder: of one host at any time, of different ones at one time.

    Each host names its session after its own clock, so those of one capture differ a little.
    """
    folder = find_log_folder(a.path)
    if folder is None or folder != find_log_folder(b.path):
        return False
    if same_host(a.host, b.host):
        return True
    if not len(a.start_ns) or not len(b.start_ns):
        return False
    return abs(int(a.end_ns.max()) - int(b.end_ns.max())) <= _SESSION_NS


def find_launches(logs: Sequence[TracerLog]) -> Iterator[tuple[int, int]]:
    """(launcher, launched): logs where the first's command ends with the second's.

    So does that of `torchrun --nproc-per-node 2 train.py` with that of `python -u train.py`.
    The launched one began during the launcher's life, on its host and as its user.
    """
    words = [get_arguments(log.command) for log in logs]
    by_words: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for i, log in enumerate(logs):
        by_words.setdefault((log.user_id, words[i]), []).append(i)
    for i, log in enumerate(logs):
        # Every end of the command, looked up instead of compared with each other log.
        for k in range(1, len(words[i])):
            for j in by_words.get((log.user_id, words[i][k:]), ()):
                if contains(log, logs[j]):
                    yield i, j


def _adopt_started(logs: Sequence[TracerLog], links: Links) -> None:
    """Joins processes that a Python program started to the only run around them."""
    mains = [
        i for i, log in enumerate(logs) if not (HELPER.search(log.command) or _is_program(log))
    ]
    for i, log in enumerate(logs):
        if HELPER.search(log.command):
            around = [j for j in mains if contains(logs[j], log)]
        elif _is_program(log):
            around = [j for j in mains if _inside(logs[j], log)]
        else:
            continue
        # Of the same user, and only where one run is around it: of two it is not known which.
        roots = {links.root(j) for j in around if logs[j].user_id == log.user_id}
        if len(roots) == 1:
            links.join(roots.pop(), i)


def _inside(outer: TracerLog, inner: TracerLog) -> bool:
    """Whether the inner process's whole life lies within the outer one's, on the same host."""
    whole = outer.start_ns < inner.start_ns and inner.end_ns <= outer.end_ns
    return whole and same_host(outer.host, inner.host)


def _is_program(log: TracerLog) -> bool:
    """Whether it is one process of its own that is no Python program."""
    return log.nprocs <= 1 and log.parent_pid is None and runs_another(log.command)


def contains(outer: TracerLog, inner: TracerLog) -> bool:
    """Whether the inner process began during the outer one's life, on the same host."""
    began = outer.start_ns <= inner.start_ns < outer.end_ns
    return began and same_host(outer.host, inner.host)


def _pick_group(
    members: list[int], logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> Group:
    return Group(
        tuple(logs[i] for i in members if i < len(logs)),
        tuple(profiles[i - len(logs)] for i in members if i >= len(logs)),
    )


def _start_ns(group: Group) -> tuple[int, str]:
    starts = [log.start_ns for log in group.logs]
    starts += [int(p.start_ns.min()) for p in group.profiles if len(p.start_ns)]
    paths = [log.path for log in group.logs] + [p.path for p in group.profiles]
    return min(starts, default=0), min(paths)


def _make_table(groups: Sequence[Group]) -> str:
    head = ("choose", "job", "start (UTC)", "logs", "profiles", "where", "command")
    common = _common_folder([path for g in groups for path in _paths(g)])
    rows = [head, *(_make_row(f"{PLACE}{i}", g, common) for i, g in enumerate(groups, 1))]
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(r, widths, strict=False)), r[6]]).rstrip()
        for r in rows
    )


def _paths(group: Group) -> list[str]:
    return [log.path for log in group.logs] + [p.path for p in group.profiles]


def _common_folder(paths: Sequence[str]) -> str:
    """The folder of all paths, which says nothing about which is which."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120
    except ValueError:  # absolute and relative ones
        return ""


def _make_row(place: str, group: Group, common: str) -> tuple[str, ...]:
    start = datetime.fromtimestamp(_start_ns(group)[0] / 1e9, tz=timezone.utc)
    first = min(_paths(group))
    where = os.path.relpath(first, common) if common else first
    return (
        place,
        elided(", ".join(group.job_ids), limit=24) or "-",
        start.strftime("%Y-%m-%d %H:%M:%S"),
        str(len(group.logs)),
        str(len(group.profiles)),
        elided(where, limit=40),
        elided(group.logs[0].command, limit=60) if group.logs else "",
    )
