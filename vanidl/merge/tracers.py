"""A process that two tracers recorded counts once, by one of them.

Which one is the same for all such processes of a run, as tracers differ in what they see: the
first (in the order of the formats) that traced single operations of each and lost nothing; else
the first that traced any. What only the other one recorded stays, and so do logs that tell of
something else beside a tracer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vanidl import readers
from vanidl.formatting.units import plural
from vanidl.model.warnings import Notice
from vanidl.readers.command_lines import arguments
from vanidl.readers.records import TracerLog, same_host

_MOST_NAMES = 3


def traced_once(logs: Sequence[TracerLog]) -> tuple[tuple[TracerLog, ...], list[Notice]]:
    """The logs without those of processes that the tracer in use recorded, and a remark."""
    pairs = [*of_one_process(logs), *_ranks(logs)]
    if not pairs:
        return tuple(logs), []
    used = _chosen([logs[i] for pair in pairs for i in pair])
    left_out = {i for pair in pairs for i in pair if logs[i].tracer != used}
    kept = tuple(log for i, log in enumerate(logs) if i not in left_out)
    return kept, [_said([logs[i] for i in sorted(left_out)], used)]


def of_one_process(logs: Sequence[TracerLog]) -> Iterator[tuple[int, int]]:
    """Pairs of logs by two tracers about one process: its number, on one host at one time."""
    if len({log.tracer for log in logs if not log.beside}) < 2:
        return
    by_pid: dict[int, dict[str, list[int]]] = {}
    for i, log in enumerate(logs):
        if log.pid is None or log.beside:
            continue
        known = by_pid.setdefault(log.pid, {})
        others = (j for name, some in known.items() if name != log.tracer for j in some)
        yield from ((j, i) for j in others if _is_same(logs[j], log))
        known.setdefault(log.tracer, []).append(i)


def _is_same(a: TracerLog, b: TracerLog) -> bool:
    return same_host(a.host, b.host) and _at_one_time(a, b)


def _ranks(logs: Sequence[TracerLog]) -> Iterator[tuple[int, int]]:
    """A log of all ranks of an MPI job, and one of a process that is one of them."""
    shared = [i for i, log in enumerate(logs) if log.nprocs > 1]
    forking = {(log.tracer, log.pid, log.command) for log in logs}
    for i, log in enumerate(logs):
        if log.beside or log.pid is None:
            continue
        if (log.tracer, log.parent_pid, log.command) not in forking:
            yield from ((j, i) for j in shared if _is_rank_of(log, logs[j]))


def _is_rank_of(log: TracerLog, shared: TracerLog) -> bool:
    """Whether a process is one of those that a log of all ranks tells of."""
    words = arguments(log.command)
    same_program = bool(words) and words == arguments(shared.command)
    return log.tracer != shared.tracer and same_program and _at_one_time(log, shared)


def _at_one_time(a: TracerLog, b: TracerLog) -> bool:
    return a.start_ns < b.end_ns and b.start_ns < a.end_ns


def _chosen(logs: Sequence[TracerLog]) -> str:
    """The tracer that counts, of logs of processes that several recorded."""
    names = [known.name for known in readers.FORMATS if known.traces_io]
    names = [name for name in names if any(log.tracer == name for log in logs)]
    by_name = {name: [log for log in logs if log.tracer == name] for name in names}
    whole = (name for name in names if all(map(_is_whole, by_name[name])))
    traced = (name for name in names if any(map(_has_operations, by_name[name])))
    return next(whole, next(traced, names[0]))


def _is_whole(log: TracerLog) -> bool:
    return _has_operations(log) and log.whole and not log.partial_layers


def _has_operations(log: TracerLog) -> bool:
    return any(len(table.op) for table in log.operations)


def _said(left_out: Sequence[TracerLog], used: str) -> Notice:
    titles = {known.name: known.title for known in readers.FORMATS}
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
