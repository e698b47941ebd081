"""Verdicts on Darshan logs: what they lost, and how much of what was counted is in the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import read_whole
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import percent
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import counted
from vanidl.readers import verdict as verdicts
from vanidl.readers.darshan import library
from vanidl.readers.darshan.header import LAYOUTS, is_cut, version_of
from vanidl.readers.darshan.log import needs_library, read_log
from vanidl.readers.darshan.run import LOG
from vanidl.readers.format import FileKind
from vanidl.readers.records import CounterFile, CounterRecords, TracerLog
from vanidl.readers.verdict import LayerCheck, Verdict


def check(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    """One verdict a log, in turn; Darshan's library reads the counters that we do not."""
    logs = [str(path) for kind, path in files if kind.name == LOG]
    pending = library.start_counters([path for path in logs if needs_library(path)])
    found = []
    counts: dict[str, CounterFile | None] = {}
    for kind, path in files:
        before_each()
        verdict, counters = _checked(kind.title, path)
        if kind.name == LOG:
            counts[str(path)] = counters
        found.append(verdict if kind.name == LOG else _unfinished(verdict))
    return list(_all_counted(found, counts, pending))


def _checked(title: str, path: Path) -> tuple[Verdict, CounterFile | None]:
    """The verdict on a log without its counters, and these where they were read."""
    try:
        log = read_one(read_log, path)
    except InputError as error:
        return _refused(title, path, str(error)), None
    verdict = Verdict(
        str(path), title, _state(log), read=True, version=log.version,
        missing=(*log.losses, *_flagged(log)), layers=_traced(log),
    )  # fmt: skip
    return verdict, log.counters


def _state(log: TracerLog) -> str:
    if log.whole:
        return verdicts.PARTIAL if log.partial_layers else verdicts.WHOLE
    return verdicts.CUT if is_cut(read_whole(log.path)) else verdicts.DAMAGED


def _flagged(log: TracerLog) -> Iterable[str]:
    if log.partial_layers:
        names = ", ".join(log.partial_layers)
        yield f"Darshan itself flagged {names} as incomplete: it ran out of room for records"


def _traced(log: TracerLog) -> tuple[LayerCheck, ...]:
    return tuple(LayerCheck(t.layer, None, len(t.op)) for t in log.operations)


def _unfinished(verdict: Verdict) -> Verdict:
    if not verdict.read or verdict.state == verdicts.CUT:
        return verdict
    why = "Darshan did not finish this log: its process exited without closing the log"
    return replace(verdict, state=verdicts.PARTIAL, missing=(why, *verdict.missing))


def _refused(title: str, path: Path, why: str) -> Verdict:
    verdict = verdicts.refused(path, title, why)
    if verdict.state in (verdicts.EMPTY, verdicts.UNREADABLE):
        return verdict
    try:
        content = read_whole(path)
    except (InputError, OSError, MemoryError):
        return verdict
    version = version_of(content)
    if version is None:
        return replace(verdict, state=verdicts.FOREIGN)
    if version not in LAYOUTS:
        return replace(verdict, state=verdicts.UNKNOWN_VERSION, version=version)
    state = verdicts.CUT if is_cut(content) else verdicts.DAMAGED
    return replace(verdict, state=state, version=version)


def _all_counted(
    found: Sequence[Verdict],
    counts: Mapping[str, CounterFile | None],
    pending: library.PendingCounters,
) -> Iterator[Verdict]:
    """The verdicts with counters; those that are not there yet are read by Darshan's library."""
    whole = {path: file for path, file in counts.items() if file is not None}
    known = pending.result() | whole
    known |= library.read_counters(
        [v.path for v in found if v.read and v.path in counts.keys() - known]
    )
    for verdict in found:
        file = known.get(verdict.path)
        yield verdict if file is None else _with_counters(verdict, file)


def _with_counters(verdict: Verdict, file: CounterFile) -> Verdict:
    """The verdict with operations counted, and what the counters lack."""
    if not verdict.read:
        return verdict
    traced = {c.layer: c.traced_ops for c in verdict.layers}
    totals = {records.layer: _counted_ops(_table(records)) for records in file.layers}
    names = dict.fromkeys([*totals, *traced])
    layers = tuple(LayerCheck(n, totals.get(n), traced.get(n)) for n in names)
    usable = verdict.state in (verdicts.WHOLE, verdicts.PARTIAL)
    state = verdicts.DAMAGED if file.losses and usable else verdict.state
    if state == verdicts.WHOLE and file.unread_modules:
        state = verdicts.PARTIAL
    unread = [f"{m}: this version of its records is not known" for m in file.unread_modules]
    why = "; the trace buffer was full" if state in (verdicts.WHOLE, verdicts.PARTIAL) else ""
    untraced = (f"{sentence}{why}" for c in layers for sentence in _untraced(c))
    missing = (*verdict.missing, *file.losses, *unread, *untraced)
    return replace(verdict, state=state, missing=missing, layers=layers)


def _table(records: CounterRecords) -> CounterTable:
    row = np.zeros(len(records.file), np.int32)
    return CounterTable(records.layer, row, row, records.counters, records.seconds)


def _counted_ops(table: CounterTable) -> int | None:
    values = [counted(table, what) for what in ("READS", "WRITES")]
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _untraced(check: LayerCheck) -> Iterable[str]:
    fraction = check.traced_fraction
    if fraction is not None and fraction < 1:
        yield (
            f"{check.layer}: {check.traced_ops:,} of {check.counted_ops:,} operations are in the "
            f"trace ({percent(fraction)})"
        )
