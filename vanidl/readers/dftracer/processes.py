"""All trace files of a run -> what each process did, on one set of names and in nanoseconds.

The files of a run belong together: a forked child uses names that only its parent's file
defines, and a process that became another program has a file for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_command
from vanidl.model.ordering import stable_order
from vanidl.readers.bounds import left_out
from vanidl.readers.dftracer import sums
from vanidl.readers.dftracer.calls import impossible
from vanidl.readers.dftracer.lines import ABSENT
from vanidl.readers.dftracer.paths import ALL_FILES, PathTable, names_of, paths_of
from vanidl.readers.dftracer.trace_file import NO_CALLS, Events, Start, TraceFile

Int64Array = NDArray[np.int64]

_NONE = np.empty(0, np.int64)
_LONGEST_INTERVAL_MS = 86_400_000
_MOST_RANKS = 1 << 31  # MPI counts them in a C int

_RANK_IN_NAME = re.compile(r"-(\d+)-of-(\d+)\.pfw(\.gz)?$")  # as DLIO names its traces
_BETWEEN_WORDS = re.compile(";(?! )")  # of a command; before a blank it is a part of a word
_FORKED = re.compile(r"-fork\.pfw(\.gz)?$")


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """One process: its events, sorted by start, and what its files say of it.

    In `events` times are nanoseconds since the epoch, `file` is an index into `files`, whole
    paths of the run, and `names` are those of the run.
    """

    host: str
    pid: int
    events: Events
    starts: tuple[Start, ...]  # one a program that it became; ticks of their file
    start_ns: int
    end_ns: int
    command: str
    parent_pid: int | None
    forked: bool  # began as a copy of its parent, not as a program
    ended: bool
    rank: int | None  # where the name of its file says it
    ranks: int | None
    files: tuple[str, ...]
    tick_ns: int
    losses: tuple[str, ...]
    other_versions: tuple[tuple[str, str], ...] = ()  # files left out, and the file used instead
    summed: Events = NO_CALLS  # calls of which only sums were recorded
    interval_ns: int | None = None  # of each sum, where its file states it


@dataclass(frozen=True, slots=True)
class _Member:
    """What one process wrote into one file."""

    file: TraceFile
    pid: int
    events: Events
    starts: tuple[Start, ...]
    losses: tuple[str, ...]
    summed: Events

    @property
    def lines(self) -> int:
        """How many lines tell of its calls."""
        return len(self.events) + len(self.summed)

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last moment."""
        ts, dur = self.events.columns["ts"], self.events.columns["dur"]
        moments = [s.ts * self.file.tick_ns for s in self.starts]
        moments += [end for pid, end in self.file.ends if pid == self.pid]
        if len(ts):
            moments += [int(ts.min()), int((ts + dur).max())]
        if not moments:  # an interval may begin before its process
            moments += self.summed.columns["ts"].tolist()
        return min(moments), max(moments)


def processes(files: Sequence[TraceFile]) -> tuple[TracedProcess, ...]:
    """Every process that wrote at least one event, by host and pid."""
    files = sorted(files, key=lambda file: file.path)
    names = {key: name for file in files for key, name in file.files.items()}
    hosts = {key: name for file in files for key, name in file.hosts.items()}
    strings = {key: text for file in files for key, text in file.strings.items()}
    table = PathTable()
    members: dict[tuple[str, int], list[_Member]] = {}
    for file in files:
        host = hosts.get(file.host, file.host)
        for member in _members(file, names, table):
            members.setdefault((host, member.pid), []).append(member)
    paths = table.paths()
    return counted_once(
        [_process(host, members[host, pid], paths, strings) for host, pid in sorted(members)]
    )


def _members(file: TraceFile, names: Mapping[str, str], table: PathTable) -> Iterator[_Member]:
    own = names_of(file, names)
    possible, summed, losses = possible_events(file)
    calls_of, sums_of = _by_process(possible), _by_process(summed)
    starts_of: dict[int, tuple[Start, ...]] = {}
    for start in file.starts:
        starts_of[start.pid] = (*starts_of.get(start.pid, ()), start)
    for pid in sorted({*starts_of, *calls_of, *sums_of}):
        starts = starts_of.get(pid, ())
        first = starts[0] if starts else None
        yield _Member(
            file,
            pid,
            _in_ns(calls_of.get(pid, picked(possible, _NONE)), own, first, file, table),
            starts,
            losses,
            _in_ns(sums_of.get(pid, picked(summed, _NONE)), own, first, file, table),
        )


def _by_process(events: Events) -> dict[int, Events]:
    order = stable_order(events.columns["pid"])
    pids, first = np.unique(events.columns["pid"][order], return_index=True)
    return {
        pid: picked(events, rows)
        for pid, rows in zip(pids.tolist(), np.split(order, first[1:]), strict=False)
    }


def _in_ns(
    events: Events, names: Mapping[str, str], start: Start | None, file: TraceFile, table: PathTable
) -> Events:
    """The events with times in nanoseconds and files as codes of their paths."""
    columns = dict(events.columns)
    columns |= {key: columns[key] * file.tick_ns for key in ("ts", "dur")}
    codes = paths_of(events, names, start, table)
    if "calls" in columns:  # newer versions sum up over files
        codes = np.where(codes < 0, ALL_FILES, codes)
    return Events(columns | {"file": codes}, events.names, ())


def possible_events(file: TraceFile) -> tuple[Events, Events, tuple[str, ...]]:
    """Calls and sums of calls within the bounds of one operation, and what was lost of the file."""
    wrong = impossible(file.events, file.tick_ns)
    wrong_sums = sums.impossible(file.summed, file.tick_ns)
    if not wrong.any() and not wrong_sums.any():
        return file.events, file.summed, file.losses
    loss = left_out(int(wrong.sum() + wrong_sums.sum()), len(wrong) + len(wrong_sums))
    calls, summed = picked(file.events, ~wrong), picked(file.summed, ~wrong_sums)
    return calls, summed, (*file.losses, loss)


def _process(
    host: str, members: list[_Member], paths: tuple[str, ...], strings: Mapping[str, str]
) -> TracedProcess:
    members, others = _most_complete(members)
    starts = tuple(s for m in members for s in m.starts)
    last = members[-1]
    named = _RANK_IN_NAME.search(last.file.path)
    commands = [strings.get(s.command, "") for s in starts]
    return TracedProcess(
        host=host,
        pid=last.pid,
        events=_once(_joined([m.events for m in members], paths)),
        summed=_joined([m.summed for m in members], paths),
        interval_ns=_interval_ns([m.file for m in members]),
        starts=starts,
        start_ns=members[0].span_ns[0],
        end_ns=max(m.span_ns[1] for m in members),
        command=clean_command(_BETWEEN_WORDS.split((commands or [""])[-1])),
        parent_pid=starts[0].parent_pid if starts else None,
        forked=bool(_FORKED.search(last.file.path)),
        ended=any(pid == last.pid for pid, _ in last.file.ends),
        rank=int(named[1]) if named else _rank(last),
        ranks=int(named[2]) if named else None,
        files=tuple(m.file.path for m in members),
        tick_ns=max(m.file.tick_ns for m in members),
        losses=tuple(loss for m in members for loss in m.losses),
        other_versions=others,
    )


def _interval_ns(files: Sequence[TraceFile]) -> int | None:
    stated = {file.settings.get("trace_interval_ms", 0) for file in files}
    known = {each * 1_000_000 for each in stated if 0 < each <= _LONGEST_INTERVAL_MS}
    return known.pop() if len(stated) == len(known) == 1 else None


def _rank(member: _Member) -> int | None:
    """Its rank in MPI, where the trace states it."""
    rank = member.file.ranks.get(member.pid, ABSENT)
    return rank if 0 <= rank < _MOST_RANKS else None


def _most_complete(members: list[_Member]) -> tuple[list[_Member], tuple[tuple[str, str], ...]]:
    """By start; of files that begin with the same event, as a cut copy does, the fullest."""
    used: dict[int, _Member] = {}
    others = []
    for member in sorted(members, key=lambda m: (bool(m.losses), -m.lines, m.file.path)):
        best = used.setdefault(member.span_ns[0], member)
        if best is not member:
            others.append((member.file.path, best.file.path))
    return sorted(used.values(), key=lambda m: (m.span_ns, m.file.path)), tuple(sorted(others))


def picked(events: Events, rows: NDArray[np.bool_] | Int64Array) -> Events:
    """The events that a mask or an index array picks."""
    columns = {name: column[rows] for name, column in events.columns.items()}
    return Events(columns, events.names, events.files)


def _renamed(block: Events, names: dict[tuple[str, str], int]) -> Int64Array:
    """The codes of the block's names in `names`, where those that it uses are added."""
    used, place = np.unique(block.columns["name"], return_inverse=True)
    codes = [names.setdefault(block.names[code], len(names)) for code in used.tolist()]
    return np.array(codes, np.int64)[place]


def _joined(blocks: Sequence[Events], paths: tuple[str, ...]) -> Events:
    """All events on one list of names, sorted by start."""
    names: dict[tuple[str, str], int] = {}
    columns = {key: np.concatenate([b.columns[key] for b in blocks]) for key in blocks[0].columns}
    columns["name"] = np.concatenate([_renamed(block, names) for block in blocks])
    joined = Events(columns, tuple(names), paths)
    return picked(joined, stable_order(columns["ts"]))


def _once(events: Events) -> Events:
    """The events without repeats: old tracers copied what was not yet written into each fork.

    A repeat has the number of the first, and all else alike.
    """
    start = events.columns["ts"]
    beside = np.flatnonzero(start[1:] == start[:-1])
    some = np.union1d(beside, beside + 1)
    some = some[events.columns["number"][some] != ABSENT]
    if not len(some):
        return events
    rows = np.column_stack([column[some] for column in events.columns.values()])
    kept = np.ones(len(events), bool)
    kept[some] = False
    kept[some[np.unique(rows, axis=0, return_index=True)[1]]] = True
    return events if kept.all() else picked(events, kept)


def counted_once(traced: Sequence[TracedProcess]) -> tuple[TracedProcess, ...]:
    """The processes without sums that are a copy of another's.

    Sums not yet written go into each forked process under its number, but with the thread that
    made the calls. Threads have one number each on a host, so the fullest sum is the thread's own.
    """
    some = [i for i, process in enumerate(traced) if len(process.summed)]
    calls: dict[tuple[object, ...], dict[int, int]] = {}
    for i in some if len(some) > 1 else ():
        for key, count in zip(_sum_keys(traced[i]), _calls(traced[i]), strict=True):
            of_key = calls.setdefault(key, {})
            of_key[i] = of_key.get(i, 0) + count
    found = list(traced)
    for i in some:
        kept = [_owner(calls.get(key, {}), i, traced) == i for key in _sum_keys(traced[i])]
        if not all(kept):
            found[i] = replace(traced[i], summed=picked(traced[i].summed, np.array(kept)))
    return tuple(found)


def _calls(process: TracedProcess) -> list[int]:
    calls: list[int] = process.summed.columns["calls"].tolist()
    return calls


def _sum_keys(process: TracedProcess) -> Iterator[tuple[object, ...]]:
    columns = process.summed.columns
    for tid, ts, name, file in zip(
        *(columns[key].tolist() for key in ("tid", "ts", "name", "file")), strict=True
    ):
        yield process.host, tid, ts, process.summed.names[name], file


def _owner(calls: Mapping[int, int], one: int, traced: Sequence[TracedProcess]) -> int:
    """Who has most of the calls of a sum; of equal ones, as in a fresh copy, who began first."""
    return max(calls, key=lambda i: (calls[i], -traced[i].start_ns), default=one)
