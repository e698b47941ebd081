"""The Darshan logs of a run, read here or by workers, and the verdict on each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import names_limit
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import percent
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_total
from vanidl.parallel.threads import batches
from vanidl.readers import verdict as verdicts
from vanidl.readers.darshan.counters import LAYERS
from vanidl.readers.darshan.header import LAYOUTS, is_cut, open_log, read_version
from vanidl.readers.darshan.log import read_log, read_logs, read_logs_to_send
from vanidl.readers.format import FileKind, Files, Reading, Records
from vanidl.readers.names import parse_darshan_name
from vanidl.readers.records import CounterFile, CounterRecords, TracerLog
from vanidl.readers.verdict import LayerCheck, Verdict

LOG, UNFINISHED_LOG = "darshan", "darshan_partial"

_LOGS = "Darshan logs"
_BATCH = 16  # logs that a worker reads at a time, of a cluster
_HERE = 128  # the same of this machine
_BATCH_NBYTES = 8 << 20  # and not more than that, but for a log that is larger itself
_MANY = 512  # logs that are worth starting workers on this machine
_SECOND_NS = 1_000_000_000
_QUARTER_S = 900  # offsets of time zones are multiples


def read_darshan(files: Files, reading: Reading) -> Records:
    """What all logs say."""
    paths = [*files.get(LOG, ()), *files.get(UNFINISHED_LOG, ())]
    # Read here, or by the workers of an executor; in order.
    logs: Sequence[TracerLog]
    if reading.executor is not None:
        logs = _read_by_workers(paths, reading, reading.executor, _BATCH, read_logs)
    elif len(paths) < _MANY:
        logs = reading.each(_LOGS, read_log, paths)
    else:
        from vanidl.parallel.executors import local_workers

        with local_workers() as workers:
            logs = _read_by_workers(paths, reading, workers, _HERE, read_logs_to_send)
    logs = complete_counters(logs)
    return Records(
        logs=tuple(logs),
        counters={log.path: log.counters for log in logs if log.counters is not None},
        utc_offset_s=find_utc_offset_s((log.path, log.start_ns) for log in logs),
    )


def complete_counters(logs: Sequence[TracerLog]) -> Sequence[TracerLog]:
    """The logs with counters of newer versions than ours, as far as PyDarshan knows them."""
    if not any(log.counters and log.counters.unread for log in logs):
        return logs
    from vanidl.readers.darshan.pydarshan import add_newer_counters

    return add_newer_counters(logs)


def _read_by_workers(
    paths: Sequence[Path],
    reading: Reading,
    executor: Executor,
    size: int,
    read: Callable[[list[str]], list[TracerLog | InputError]],
) -> list[TracerLog]:
    from vanidl.parallel.executors import run_batches

    # Batches may end in any order.
    outcomes: dict[str, TracerLog | InputError] = {}
    some_each = (list(map(str, some)) for some in _split_batches(paths, size))  # cheaper to send
    for some, records in run_batches(read, some_each, executor, _explain_killed):
        outcomes |= zip(some, records, strict=True)
        reading.progress(_LOGS, len(outcomes), len(paths))

    # In the order of the paths; what could not be read is noted.
    every = [(path, outcomes[str(path)]) for path in paths]
    reading.unreadable.update((path, one) for path, one in every if isinstance(one, InputError))
    return [one for _, one in every if isinstance(one, TracerLog)]


def _split_batches(paths: Sequence[Path], size: int) -> Iterator[list[Path]]:
    """The paths in lists of so many at most, shorter ones of large logs."""

    def weight(path: Path) -> int:
        with suppress(OSError):  # gone, or not ours to read: reading will say so
            return max(os.stat(path).st_size * size, _BATCH_NBYTES)  # noqa: PTH116 - of thousands
        return _BATCH_NBYTES

    return batches(paths, weight, _BATCH_NBYTES * size)


def _explain_killed(path: str) -> InputError:
    return InputError(f"{path}: the worker that read it ended twice; read it with vanidl check")


def find_utc_offset_s(logs: Iterable[tuple[str, int]]) -> int | None:
    """Local time minus UTC on the machine of a run, None where no name tells.

    Names of logs hold the local time of their start.

    Args:
        logs: Path and start (ns since the epoch) of each.
    """
    for path, start_ns in logs:
        name = parse_darshan_name(path)
        if name is not None:
            start_s = start_ns // _SECOND_NS
            utc = datetime.fromtimestamp(start_s, timezone.utc)
            around = (utc - timedelta(days=1), utc, utc + timedelta(days=1))  # names hold no year
            days = {datetime(day.year, day.month, day.day, tzinfo=timezone.utc) for day in around}
            named = [day for day in days if (day.month, day.day) == (name.month, name.day)]
            if not named:
                return 0
            apart = named[0] + timedelta(seconds=name.second) - utc
            return round(apart.total_seconds() / _QUARTER_S) * _QUARTER_S
    return None


# Verdicts on Darshan logs: what they lost, and how much of what was counted is in the trace.


def check_logs(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    """One verdict a log, in turn."""
    read: list[TracerLog | InputError] = []
    for _, path in files:
        before_each()
        try:
            read.append(read_one(read_log, path))
        except InputError as error:
            read.append(error)
    newest = iter(complete_counters([log for log in read if isinstance(log, TracerLog)]))
    return [
        _report_refused(kind.title, path, str(log))
        if isinstance(log, InputError)
        else _check_log(kind, path, next(newest))
        for (kind, path), log in zip(files, read, strict=True)
    ]


def _check_log(kind: FileKind, path: Path, log: TracerLog) -> Verdict:
    """The verdict on a log that could be read."""
    missing = log.losses
    if log.partial_layers:
        names = ", ".join(log.partial_layers)
        missing += (
            f"Darshan itself flagged {names} as incomplete: it ran out of room for records",
        )
    verdict = Verdict(
        str(path), kind.title, _find_state(log), read=True, version=log.version, missing=missing,
        layers=tuple(LayerCheck(t.layer, None, len(t.op)) for t in log.operations),
    )  # fmt: skip

    # A log that kept the name of an unfinished one is partial, where nothing worse is known.
    if kind.name != LOG and verdict.state != verdicts.CUT:
        why = "Darshan did not finish this log: its process exited without closing the log"
        verdict = replace(verdict, state=verdicts.PARTIAL, missing=(why, *verdict.missing))
    return verdict if log.counters is None else _add_counters(verdict, log.counters)


def _find_state(log: TracerLog) -> str:
    if log.whole:
        return verdicts.PARTIAL if log.partial_layers else verdicts.WHOLE
    if any(map(names_limit, log.losses)):
        return verdicts.LIMITED
    return verdicts.CUT if is_cut(bytes(open_log(log.path)[:])) else verdicts.DAMAGED


def _report_refused(title: str, path: Path, why: str) -> Verdict:
    verdict = verdicts.report_refused(path, title, why)
    if verdict.state in (verdicts.EMPTY, verdicts.UNREADABLE):
        return verdict
    try:
        content = bytes(open_log(str(path))[:])
    except (InputError, OSError, MemoryError):
        return verdict
    version = read_version(content)
    if version is None:
        return replace(verdict, state=verdicts.FOREIGN)
    if version not in LAYOUTS:
        return replace(verdict, state=verdicts.UNKNOWN_VERSION, version=version)
    state = verdicts.CUT if is_cut(content) else verdicts.DAMAGED
    return replace(verdict, state=state, version=version)


def _add_counters(verdict: Verdict, file: CounterFile) -> Verdict:
    """The verdict with operations counted, and what the counters lack."""
    traced = {c.layer: c.traced_ops for c in verdict.layers}
    totals = {records.layer: _count_ops(_to_table(records)) for records in file.layers}
    names = dict.fromkeys([*totals, *traced])
    layers = tuple(LayerCheck(n, totals.get(n), traced.get(n)) for n in names)

    # Counters that were lost damage a log, those that nobody knows leave it partial.
    usable = verdict.state in (verdicts.WHOLE, verdicts.PARTIAL)
    state = verdicts.DAMAGED if file.losses and usable else verdict.state
    if state == verdicts.WHOLE and file.unread_modules:
        state = verdicts.PARTIAL

    # Sentences: what the counters lack, then which operations are not in the trace.
    unread = [
        f"{module}: its records are of version {version}, which this vanidl does not know, and are "
        f"left out{_suggest_remedy(module)}"
        for module, version in file.unread.items()
    ]
    why = "; the trace buffer was full" if state in (verdicts.WHOLE, verdicts.PARTIAL) else ""
    untraced = (f"{sentence}{why}" for c in layers for sentence in _describe_untraced(c))
    missing = (*verdict.missing, *file.losses, *unread, *untraced)
    return replace(verdict, state=state, missing=missing, layers=layers)


def _suggest_remedy(module: str) -> str:
    """What may read a module of a newer version."""
    if module not in LAYERS or find_spec("darshan"):
        return ""
    return "; PyDarshan may know it: pip install 'vanidl-io[darshan]'"


def _to_table(records: CounterRecords) -> CounterTable:
    row = np.zeros(len(records.file), np.int32)
    return CounterTable(records.layer, row, row, records.counters, records.seconds)


def _count_ops(table: CounterTable) -> int | None:
    values = [count_total(table, what) for what in ("READS", "WRITES")]
    counted = [v for v in values if v is not None]
    return sum(counted) if counted else None


def _describe_untraced(layer: LayerCheck) -> Iterable[str]:
    fraction = layer.traced_fraction
    if fraction is not None and fraction < 1:
        yield (
            f"{layer.layer}: {layer.traced_ops:,} of {layer.counted_ops:,} operations are in the "
            f"trace ({percent(fraction)})"
        )
