"""All trace files of a run -> what each process did, on one set of names and in nanoseconds.

The files of a run belong together: a forked child uses names that only its parent's file
defines, and a process that became another program has a file for each.
"""

from __future__ import annotations

import posixpath
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_command
from vanidl.model.ordering import stable_order
from vanidl.model.trace import FILES_NOT_RECORDED
from vanidl.readers.dftracer.calls import find_impossible, find_impossible_sums, is_call
from vanidl.readers.dftracer.trace_file import ABSENT, NO_CALLS, Events, Start, TraceFile
from vanidl.readers.records import describe_left_out
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


# Whole paths of the files that DFTracer's events name.
#
# A name is as the program gave it: relative ones count from the folder that the process was
# in, which starts as `cwd` and changes with chdir. A forked child uses hashes that only its
# parent's file defines, so all files of a run are searched.

ALL_FILES = 0
"""The code of what stands for all files of calls that name none."""


class PathTable:
    """All paths of a run, numbered as they come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {FILES_NOT_RECORDED: ALL_FILES}

    def code(self, path: str) -> int:
        """The number of a path."""
        return self._codes.setdefault(path, len(self._codes))

    def paths(self) -> tuple[str, ...]:
        """Paths in the order of their numbers."""
        return tuple(self._codes)


def get_names(file: TraceFile, everyone: Mapping[str, str]) -> Mapping[str, str]:
    """Hash -> name: the file's own table first, as old hashes are short and can collide."""
    return ChainMap(file.files, dict(everyone))


def number_paths(
    events: Events, names: Mapping[str, str], start: Start | None, table: PathTable
) -> Int64Array:
    """Code of the path of each event of one process, -1 where it names none."""
    changes = _follow_folder(events, names, start)
    moments = np.array([ts for ts, _ in changes[1:]], np.int64)
    stay = np.searchsorted(moments, events.columns["ts"], side="right")
    file = events.columns["file"]
    keys = file * len(changes) + stay
    used, place = np.unique(np.where(file < 0, -1, keys), return_inverse=True)
    codes = [_number_path(int(key), events, names, changes, table) for key in used]
    return np.array(codes, np.int64)[place] if len(codes) else np.empty(0, np.int64)


def _number_path(
    key: int,
    events: Events,
    names: Mapping[str, str],
    changes: list[tuple[int, str]],
    table: PathTable,
) -> int:
    if key < 0:
        return -1
    file, stay = divmod(key, len(changes))
    hashed = events.files[file]
    return table.code(_join_path(changes[stay][1], names.get(hashed, hashed)))


def _follow_folder(
    events: Events, names: Mapping[str, str], start: Start | None
) -> list[tuple[int, str]]:
    """(time, folder from then on), the first one from the start of the process."""
    folder = names.get(start.cwd, "") if start else ""
    changes = [(0, folder)]
    rows = np.flatnonzero(is_call(events, "POSIX", ("chdir",)) & (events.columns["ret"] == 0))
    for row in rows[np.argsort(events.columns["ts"][rows], kind="stable")].tolist():
        file = int(events.columns["file"][row])
        if file >= 0:
            hashed = events.files[file]
            folder = _join_path(folder, names.get(hashed, hashed))
            ended = int(events.columns["ts"][row] + events.columns["dur"][row])
            changes.append((ended, folder))
    return changes


def _join_path(folder: str, name: str) -> str:
    if name.startswith("/") or (folder and "/" in name + "/"):
        return posixpath.normpath(posixpath.join(folder or "/", name))
    return name


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


def gather_processes(files: Sequence[TraceFile]) -> tuple[TracedProcess, ...]:
    """Every process that wrote at least one event, by host and pid."""
    files = sorted(files, key=lambda file: file.path)

    # One table of names, hosts and texts for all: a fork uses hashes of its parent's file.
    names = {key: name for file in files for key, name in file.files.items()}
    hosts = {key: name for file in files for key, name in file.hosts.items()}
    strings = {key: text for file in files for key, text in file.strings.items()}

    # What each process wrote into each file, with paths numbered across the run.
    table = PathTable()
    members: dict[tuple[str, int], list[_Member]] = {}
    for file in files:
        host = hosts.get(file.host, file.host)
        for member in _split_file(file, names, table):
            members.setdefault((host, member.pid), []).append(member)

    # The members of a process become one; sums that forks copied are counted once.
    paths = table.paths()
    return drop_copied_sums(
        [_build_process(host, members[host, pid], paths, strings) for host, pid in sorted(members)]
    )


def _split_file(file: TraceFile, names: Mapping[str, str], table: PathTable) -> Iterator[_Member]:
    own = get_names(file, names)
    possible, summed, losses = drop_impossible_events(file)
    calls_of, sums_of = _split_by_process(possible), _split_by_process(summed)
    starts_of: dict[int, tuple[Start, ...]] = {}
    for start in file.starts:
        starts_of[start.pid] = (*starts_of.get(start.pid, ()), start)

    # Every process that left a start, a call or a sum.
    for pid in sorted({*starts_of, *calls_of, *sums_of}):
        starts = starts_of.get(pid, ())
        first = starts[0] if starts else None
        yield _Member(
            file,
            pid,
            _convert_to_ns(
                calls_of.get(pid, pick_events(possible, _NONE)), own, first, file, table
            ),
            starts,
            losses,
            _convert_to_ns(sums_of.get(pid, pick_events(summed, _NONE)), own, first, file, table),
        )


def _split_by_process(events: Events) -> dict[int, Events]:
    # A stable order keeps each process's events sorted by start.
    order = stable_order(events.columns["pid"])
    pids, first = np.unique(events.columns["pid"][order], return_index=True)
    return {
        pid: pick_events(events, rows)
        for pid, rows in zip(pids.tolist(), np.split(order, first[1:]), strict=False)
    }


def _convert_to_ns(
    events: Events, names: Mapping[str, str], start: Start | None, file: TraceFile, table: PathTable
) -> Events:
    """The events with times in nanoseconds and files as codes of their paths."""
    columns = dict(events.columns)
    columns |= {key: columns[key] * file.tick_ns for key in ("ts", "dur")}
    codes = number_paths(events, names, start, table)
    if "calls" in columns:  # newer versions sum up over files
        codes = np.where(codes < 0, ALL_FILES, codes)
    return Events(columns | {"file": codes}, events.names, ())


def drop_impossible_events(file: TraceFile) -> tuple[Events, Events, tuple[str, ...]]:
    """Calls and sums of calls within the bounds of one operation, and what was lost of the file."""
    wrong = find_impossible(file.events, file.tick_ns)
    wrong_sums = find_impossible_sums(file.summed, file.tick_ns)
    if not wrong.any() and not wrong_sums.any():
        return file.events, file.summed, file.losses
    loss = describe_left_out(int(wrong.sum() + wrong_sums.sum()), len(wrong) + len(wrong_sums))
    calls, summed = pick_events(file.events, ~wrong), pick_events(file.summed, ~wrong_sums)
    return calls, summed, (*file.losses, loss)


def _build_process(
    host: str, members: list[_Member], paths: tuple[str, ...], strings: Mapping[str, str]
) -> TracedProcess:
    members, others = _pick_most_complete(members)
    starts = tuple(s for m in members for s in m.starts)
    last = members[-1]
    named = _RANK_IN_NAME.search(last.file.path)
    commands = [strings.get(s.command, "") for s in starts]
    return TracedProcess(
        host=host,
        pid=last.pid,
        events=_drop_repeats(_join_events([m.events for m in members], paths)),
        summed=_join_events([m.summed for m in members], paths),
        interval_ns=_get_interval_ns([m.file for m in members]),
        starts=starts,
        start_ns=members[0].span_ns[0],
        end_ns=max(m.span_ns[1] for m in members),
        command=clean_command(_BETWEEN_WORDS.split((commands or [""])[-1])),
        parent_pid=starts[0].parent_pid if starts else None,
        forked=bool(_FORKED.search(last.file.path)),
        ended=any(pid == last.pid for pid, _ in last.file.ends),
        rank=int(named[1]) if named else _get_rank(last),
        ranks=int(named[2]) if named else None,
        files=tuple(m.file.path for m in members),
        tick_ns=max(m.file.tick_ns for m in members),
        losses=tuple(loss for m in members for loss in m.losses),
        other_versions=others,
    )


def _get_interval_ns(files: Sequence[TraceFile]) -> int | None:
    stated = {file.settings.get("trace_interval_ms", 0) for file in files}
    intervals_ns = {each * 1_000_000 for each in stated if 0 < each <= _LONGEST_INTERVAL_MS}
    return intervals_ns.pop() if len(stated) == len(intervals_ns) == 1 else None


def _get_rank(member: _Member) -> int | None:
    """Its rank in MPI, where the trace states it."""
    rank = member.file.ranks.get(member.pid, ABSENT)
    return rank if 0 <= rank < _MOST_RANKS else None


def _pick_most_complete(
    members: list[_Member],
) -> tuple[list[_Member], tuple[tuple[str, str], ...]]:
    """By start; of files that begin with the same event, as a cut copy does, the fullest."""
    used: dict[int, _Member] = {}
    others = []
    for member in sorted(members, key=lambda m: (bool(m.losses), -m.lines, m.file.path)):
        best = used.setdefault(member.span_ns[0], member)
        if best is not member:
            others.append((member.file.path, best.file.path))
    return sorted(used.values(), key=lambda m: (m.span_ns, m.file.path)), tuple(sorted(others))


def pick_events(events: Events, rows: NDArray[np.bool_] | Int64Array) -> Events:
    """The events that a mask or an index array picks."""
    columns = {name: column[rows] for name, column in events.columns.items()}
    return Events(columns, events.names, events.files)


def _rename_events(block: Events, names: dict[tuple[str, str], int]) -> Int64Array:
    """The codes of the block's names in `names`, where those that it uses are added."""
    used, place = np.unique(block.columns["name"], return_inverse=True)
    codes = [names.setdefault(block.names[code], len(names)) for code in used.tolist()]
    return np.array(codes, np.int64)[place]


def _join_events(blocks: Sequence[Events], paths: tuple[str, ...]) -> Events:
    """All events on one list of names, sorted by start."""
    names: dict[tuple[str, str], int] = {}
    columns = {key: np.concatenate([b.columns[key] for b in blocks]) for key in blocks[0].columns}
    columns["name"] = np.concatenate([_rename_events(block, names) for block in blocks])
    joined = Events(columns, tuple(names), paths)
    return pick_events(joined, stable_order(columns["ts"]))


def _drop_repeats(events: Events) -> Events:
    """The events without repeats: old tracers copied what was not yet written into each fork.

    A repeat has the number of the first, and all else alike.
    """
    # Only events that start together can be repeats.
    start = events.columns["ts"]
    beside = np.flatnonzero(start[1:] == start[:-1])
    some = np.union1d(beside, beside + 1)
    some = some[events.columns["number"][some] != ABSENT]
    if not len(some):
        return events

    # Of equal rows the first is kept.
    rows = np.column_stack([column[some] for column in events.columns.values()])
    kept = np.ones(len(events), bool)
    kept[some] = False
    kept[some[np.unique(rows, axis=0, return_index=True)[1]]] = True
    return events if kept.all() else pick_events(events, kept)


def drop_copied_sums(traced: Sequence[TracedProcess]) -> tuple[TracedProcess, ...]:
    """The processes without sums that are a copy of another's.

    Sums not yet written go into each forked process under its number, but with the thread that
    made the calls. Threads have one number each on a host, so the fullest sum is the thread's own.
    """
    # How many calls of each sum every process has.
    some = [i for i, process in enumerate(traced) if len(process.summed)]
    calls: dict[tuple[object, ...], dict[int, int]] = {}
    for i in some if len(some) > 1 else ():
        counts = traced[i].summed.columns["calls"].tolist()
        for key, count in zip(_list_sum_keys(traced[i]), counts, strict=True):
            of_key = calls.setdefault(key, {})
            of_key[i] = of_key.get(i, 0) + count

    # Each sum stays with its owner.
    processes = list(traced)
    for i in some:
        kept = [
            _find_owner(calls.get(key, {}), i, traced) == i for key in _list_sum_keys(traced[i])
        ]
        if not all(kept):
            processes[i] = replace(traced[i], summed=pick_events(traced[i].summed, np.array(kept)))
    return tuple(processes)


def _list_sum_keys(process: TracedProcess) -> Iterator[tuple[object, ...]]:
    columns = process.summed.columns
    for tid, ts, name, file in zip(
        *(columns[key].tolist() for key in ("tid", "ts", "name", "file")), strict=True
    ):
        yield process.host, tid, ts, process.summed.names[name], file


def _find_owner(calls: Mapping[int, int], one: int, traced: Sequence[TracedProcess]) -> int:
    """Who has most of the calls of a sum; of equal ones, as in a fresh copy, who began first."""
    return max(calls, key=lambda i: (calls[i], -traced[i].start_ns), default=one)
