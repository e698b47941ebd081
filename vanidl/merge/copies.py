"""What was recorded twice counts once: copies, versions of one log, processes of two tracers.

A copy holds the same bytes. A version tells of the same process (or of all ranks of the same
job) from the same moment on and holds other bytes: a log that was cut while it was copied, one
that Darshan did not finish beside the finished one, a trace beside its own .gz. Of versions
the most complete one is used.

Which tracer counts is the same for all such processes of a run, as tracers differ in what they see:
the first (in the order of the formats) that traced single operations of each and lost nothing; else
the first that traced any. What only the other one recorded stays, and so do logs that tell of
something else beside a tracer's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vanidl.formatting.units import plural
from vanidl.model.trace import SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers import registry
from vanidl.readers.discover import Found
from vanidl.readers.format import warn_of_versions
from vanidl.readers.names import get_arguments, identify_writer
from vanidl.readers.records import ProfileTrace, TracerLog, same_host

_MOST_NAMES = 3


Item = TypeVar("Item")

_SECOND_NS = 1_000_000_000
_MANY = 512  # logs: on a parallel file system opening each of them once more takes longest
_BLOCK = 1 << 20
_START = 4096  # of a log: its header and job, with the time of its start
_ENDS = (".darshan_partial", ".darshan")


def kinds_with_many_logs(found: Found) -> frozenset[str]:
    """Kinds of which there are so many logs that copies are looked for once they are read."""
    files = (pair for known in registry.FORMATS for pair in found.of(known).items())
    return frozenset(kind.name for kind, some in files if kind.is_log and len(some) >= _MANY)


def drop_copies(
    found: Found, before: Sequence[Path] = (), later: frozenset[str] = frozenset()
) -> tuple[Found, tuple[Notice, ...]]:
    """The files without copies of one another, and a warning that names these.

    Args:
        found: the files of a run.
        before: files that are read as well, so that copies of them are left out.
        later: kinds of files that are left to `distinct_logs`.
    """
    files = [path for kind, some in found.files.items() if kind not in later for path in some]
    copies = _copies_among([*before, *files], found, before)
    if not copies:
        return found, ()
    kept = {
        kind: tuple(path for path in some if path not in copies)
        for kind, some in found.files.items()
    }
    kept = {kind: some for kind, some in kept.items() if some}
    return replace(found, files=kept), (_tell_copies(copies),)


def drop_copied_logs(
    logs: Sequence[TracerLog], found: Found, kinds: frozenset[str]
) -> tuple[list[TracerLog], tuple[Notice, ...]]:
    """The logs without copies among those of some kinds of files, and a warning that names these.

    Copies tell of one process from its start to its end: other logs are not opened again.
    """
    looked_at = {str(path) for kind in kinds for path in found.files[kind]}
    by_process: dict[Hashable, list[str]] = {}
    for log in logs:
        if log.path in looked_at:
            by_process.setdefault((_log_key(log), log.end_ns), []).append(log.path)
    alike = [list(map(Path, paths)) for paths in by_process.values() if len(paths) > 1]
    copies = {copy: of for some in alike for copy, of in _copies_among(some, found, ()).items()}
    if not copies:
        return list(logs), ()
    dropped = set(map(str, copies))
    return [log for log in logs if log.path not in dropped], (_tell_copies(copies),)


def _copies_among(files: Sequence[Path], found: Found, before: Sequence[Path]) -> dict[Path, Path]:
    """Copy -> what it is a copy of. Of a large job nearly all files are told apart unread."""
    # Files of one size; of empty files, which many processes leave, those of one name.
    by_size: dict[int | str, list[Path]] = {}
    for path in files:
        with suppress(OSError):  # gone since it was listed: reading will say so
            by_size.setdefault(path.stat().st_size or path.name, []).append(path)
    # That begin alike: thousands have one size, each with its own start.
    by_start: dict[tuple[int | str, bytes], list[Path]] = {}
    for size, of_one_size in by_size.items():
        for path in of_one_size if len(of_one_size) > 1 else ():
            start = _read_beginning(path)
            if start is not None:
                by_start.setdefault((size, start), []).append(path)
    # That hold the same bytes. Kept is one of the files before, then one whose name tells the
    # writer, one beside a run.json, one near the top.
    records = [path.absolute().parent for path in found.run_records]

    def order(path: Path) -> tuple[bool, bool, bool, int, str]:
        above = path.absolute().parents if records else ()
        unrecorded = not any(folder in above for folder in records)
        unnamed = identify_writer(path) is None
        return path not in before, unnamed, unrecorded, len(path.parts), str(path)

    copies: dict[Path, Path] = {}
    for alike in by_start.values():
        by_content: dict[bytes | None, list[Path]] = {}
        for path in sorted(alike, key=order) if len(alike) > 1 else ():
            by_content.setdefault(_digest(path), []).append(path)
        for digest, (kept, *same) in by_content.items():
            if digest is not None:
                copies |= {copy: kept for copy in same if copy not in before}
    return copies


def _read_beginning(path: Path) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY)  # thousands: an object around each takes twice as long
        try:
            return os.read(file, _START)
        finally:
            os.close(file)
    except OSError:  # gone, or not ours to read: reading will say so
        return None


def _digest(path: Path) -> bytes | None:
    digest = hashlib.blake2b(digest_size=32)
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return None
    return digest.digest()


def _tell_copies(copies: dict[Path, Path]) -> Notice:
    pairs = [f"{copy} of {kept}" for copy, kept in list(copies.items())[:_MOST_NAMES]]
    more = "; ..." if len(copies) > _MOST_NAMES else ""
    many = "1 file is a copy" if len(copies) == 1 else f"{len(copies):,} files are copies"
    return Notice(
        "copies",
        f"{many} of others, byte for byte, and counted once ({'; '.join(pairs)}{more}). Remove "
        "them, or give a narrower path.",
    )


# Versions of one log or profile.


def most_complete_logs(logs: Sequence[TracerLog]) -> tuple[list[TracerLog], list[Notice]]:
    """One log of each process or job, and a warning that names the others."""
    return _most_complete(logs, _log_key, _is_version, _log_completeness)


def most_complete_profiles(
    profiles: Sequence[ProfileTrace],
) -> tuple[list[ProfileTrace], list[Notice]]:
    """One profile of each process and time, and a warning that names the others."""
    return _most_complete(profiles, _profile_key, _is_same_window, _profile_completeness)


def _most_complete(
    items: Sequence[Item],
    key: Callable[[Item], Hashable],
    alike: Callable[[Item, Item], bool],
    completeness: Callable[[Item], tuple[object, ...]],
) -> tuple[list[Item], list[Notice]]:
    """The best of each set of versions, in the order given."""
    by_key: dict[Hashable, list[int]] = {}
    for i, item in enumerate(items):
        by_key.setdefault(key(item), []).append(i)
    worse: dict[int, int] = {}
    for members in by_key.values():
        best: list[int] = []
        # The most complete first: each later one is a version of a kept one, or kept itself.
        for i in sorted(members, key=lambda i: completeness(items[i])):
            of = next((b for b in best if alike(items[b], items[i])), None)
            if of is None:
                best.append(i)
            else:
                worse[i] = of
    kept = [item for i, item in enumerate(items) if i not in worse]
    pairs = ((_path(items[i]), _path(items[of])) for i, of in sorted(worse.items()))
    return kept, list(warn_of_versions(list(pairs)))


def _path(item: object) -> str:
    return str(getattr(item, "path", ""))


def _log_key(log: TracerLog) -> Hashable:
    return log.tracer, log.user_id, log.job_id, log.nprocs, log.start_ns, log.command


def _is_version(a: TracerLog, b: TracerLog) -> bool:
    """Whether two logs of one job, start and command tell of the same processes.

    Logs of different processes can begin in the same second, not in the same nanosecond; where
    only seconds are known the names of the files, which hold a random number, must agree.
    """
    if a.nprocs > 1:
        return True
    if not same_host(a.host, b.host) or (None not in (a.pid, b.pid) and a.pid != b.pid):
        return False
    exact = max(a.start_resolution_ns, b.start_resolution_ns) < _SECOND_NS
    return exact or _stem(a.path) == _stem(b.path)


def _stem(path: str) -> str:
    name = Path(path).name
    return next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), name)


def _log_completeness(log: TracerLog) -> tuple[object, ...]:
    """The best first."""
    rows = sum(len(table.op) for table in log.operations)
    return not log.whole, -rows, -len(log.names), log.pid is None, log.path


def _profile_key(profile: ProfileTrace) -> Hashable:
    return profile.source, profile.host, profile.pid, profile.rank


def _is_same_window(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Whether two profiles of one process are of the same time: it can profile once at a time."""
    if a.path == b.path or not len(a.start_ns) or not len(b.start_ns):
        return False
    if a.pid is None:
        return bool(a.start_ns[0] == b.start_ns[0])
    return bool(a.start_ns.min() < b.end_ns.max() and b.start_ns.min() < a.end_ns.max())


def _profile_completeness(profile: ProfileTrace) -> tuple[object, ...]:
    steps = int((profile.kind == SpanKind.STEP).sum())
    return bool(profile.losses), -steps, -len(profile.kind), profile.path


# Processes that two tracers recorded.


def count_processes_once(logs: Sequence[TracerLog]) -> tuple[tuple[TracerLog, ...], list[Notice]]:
    """The logs without those of processes that the tracer in use recorded, and a remark."""
    pairs = [*pair_tracers(logs), *_pair_ranks(logs)]
    if not pairs:
        return tuple(logs), []
    used = _choose_tracer([logs[i] for pair in pairs for i in pair])
    left_out = {i for pair in pairs for i in pair if logs[i].tracer != used}
    kept = tuple(log for i, log in enumerate(logs) if i not in left_out)
    return kept, [_tell_left_out([logs[i] for i in sorted(left_out)], used)]


def pair_tracers(logs: Sequence[TracerLog]) -> Iterator[tuple[int, int]]:
    """Pairs of logs by two tracers about one process: its number, on one host at one time."""
    if len({log.tracer for log in logs if not log.beside}) < 2:
        return
    by_pid: dict[int, dict[str, list[int]]] = {}
    for i, log in enumerate(logs):
        if log.pid is None or log.beside:
            continue
        # A process number is given out again: host and time must agree as well.
        known = by_pid.setdefault(log.pid, {})
        others = (j for name, some in known.items() if name != log.tracer for j in some)
        for j in others:
            if same_host(logs[j].host, log.host) and _at_one_time(logs[j], log):
                yield j, i
        known.setdefault(log.tracer, []).append(i)


def _pair_ranks(logs: Sequence[TracerLog]) -> Iterator[tuple[int, int]]:
    """A log of all ranks of an MPI job, and one of a process that is one of them."""
    shared = [i for i, log in enumerate(logs) if log.nprocs > 1]
    # A worker that a rank forked has the command of the rank, and is none.
    forking = {(log.tracer, log.pid, log.command) for log in logs}
    for i, log in enumerate(logs):
        if log.beside or log.pid is None:
            continue
        if (log.tracer, log.parent_pid, log.command) not in forking:
            yield from ((j, i) for j in shared if _is_rank_of(log, logs[j]))


def _is_rank_of(log: TracerLog, shared: TracerLog) -> bool:
    """Whether a process is one of those that a log of all ranks tells of."""
    words = get_arguments(log.command)
    same_program = bool(words) and words == get_arguments(shared.command)
    return log.tracer != shared.tracer and same_program and _at_one_time(log, shared)


def _at_one_time(a: TracerLog, b: TracerLog) -> bool:
    return a.start_ns < b.end_ns and b.start_ns < a.end_ns


def _choose_tracer(logs: Sequence[TracerLog]) -> str:
    """The tracer that counts, of logs of processes that several recorded."""
    names = [known.name for known in registry.FORMATS if known.traces_io]
    names = [name for name in names if any(log.tracer == name for log in logs)]
    by_name = {name: [log for log in logs if log.tracer == name] for name in names}
    traced = [name for name in names if any(map(_has_operations, by_name[name]))]
    # In the order of the registry: the first whose logs are whole, else the first that traced.
    whole = (
        name
        for name in traced
        if all(_has_operations(g) and g.whole and not g.partial_layers for g in by_name[name])
    )
    return next(whole, (traced or names)[0])


def _has_operations(log: TracerLog) -> bool:
    return any(len(table.op) for table in log.operations)


def _tell_left_out(left_out: Sequence[TracerLog], used: str) -> Notice:
    titles = {known.name: known.title for known in registry.FORMATS}
    others = " and ".join(sorted({titles[log.tracer] for log in left_out}))
    paths = ", ".join(log.path for log in left_out[:_MOST_NAMES])
    more = ", ..." if len(left_out) > _MOST_NAMES else ""
    return Notice(
        "two_tracers",
        f"{plural(len({log.path for log in left_out}), 'process log')} of {others} tell of "
        f"processes that {titles[used]} tell of, too, and are left out: each process counts once "
        f"({paths}{more}). Give their folder alone to see what they say.",
        "info",
    )
