"""Verdicts on Darshan logs: what they lost, and how much of what was counted is in the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import names_limit
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import percent
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_total
from vanidl.readers import verdict as verdicts
from vanidl.readers.darshan.counter_checks import LAYERS
from vanidl.readers.darshan.header import LAYOUTS, is_cut, version_of
from vanidl.readers.darshan.log import read_log
from vanidl.readers.darshan.log_bytes import log_bytes
from vanidl.readers.darshan.newer import with_newer
from vanidl.readers.darshan.run import LOG
from vanidl.readers.format import FileKind
from vanidl.readers.records import CounterFile, CounterRecords, TracerLog
from vanidl.readers.verdict import LayerCheck, Verdict


def check(
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
    newest = iter(with_newer([log for log in read if isinstance(log, TracerLog)]))
    return [
        _refused(kind.title, path, str(log))
        if isinstance(log, InputError)
        else _verdict(kind, path, next(newest))
        for (kind, path), log in zip(files, read, strict=True)
    ]


def _verdict(kind: FileKind, path: Path, log: TracerLog) -> Verdict:
    """The verdict on a log that could be read."""
    verdict = Verdict(
        str(path), kind.title, _state(log), read=True, version=log.version,
        missing=(*log.losses, *_flagged(log)), layers=_traced(log),
    )  # fmt: skip
    if kind.name != LOG:
        verdict = _unfinished(verdict)
    return verdict if log.counters is None else _with_counters(verdict, log.counters)


def _state(log: TracerLog) -> str:
    if log.whole:
        return verdicts.PARTIAL if log.partial_layers else verdicts.WHOLE
    if any(map(names_limit, log.losses)):
        return verdicts.LIMITED
    return verdicts.CUT if is_cut(bytes(log_bytes(log.path)[:])) else verdicts.DAMAGED


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
        content = bytes(log_bytes(str(path))[:])
    except (InputError, OSError, MemoryError):
        return verdict
    version = version_of(content)
    if version is None:
        return replace(verdict, state=verdicts.FOREIGN)
    if version not in LAYOUTS:
        return replace(verdict, state=verdicts.UNKNOWN_VERSION, version=version)
    state = verdicts.CUT if is_cut(content) else verdicts.DAMAGED
    return replace(verdict, state=state, version=version)


def _with_counters(verdict: Verdict, file: CounterFile) -> Verdict:
    """The verdict with operations counted, and what the counters lack."""
    traced = {c.layer: c.traced_ops for c in verdict.layers}
    totals = {records.layer: _counted_ops(_table(records)) for records in file.layers}
    names = dict.fromkeys([*totals, *traced])
    layers = tuple(LayerCheck(n, totals.get(n), traced.get(n)) for n in names)
    usable = verdict.state in (verdicts.WHOLE, verdicts.PARTIAL)
    state = verdicts.DAMAGED if file.losses and usable else verdict.state
    if state == verdicts.WHOLE and file.unread_modules:
        state = verdicts.PARTIAL
    unread = [
        f"{module}: its records are of version {version}, which this vanidl does not know, and are "
        f"left out{_remedy(module)}"
        for module, version in file.unread.items()
    ]
    why = "; the trace buffer was full" if state in (verdicts.WHOLE, verdicts.PARTIAL) else ""
    untraced = (f"{sentence}{why}" for c in layers for sentence in _untraced(c))
    missing = (*verdict.missing, *file.losses, *unread, *untraced)
    return replace(verdict, state=state, missing=missing, layers=layers)


def _remedy(module: str) -> str:
    """What may read a module of a newer version."""
    if module not in LAYERS or find_spec("darshan"):
        return ""
    return "; PyDarshan may know it: pip install 'vanidl-io[darshan]'"


def _table(records: CounterRecords) -> CounterTable:
    row = np.zeros(len(records.file), np.int32)
    return CounterTable(records.layer, row, row, records.counters, records.seconds)


def _counted_ops(table: CounterTable) -> int | None:
    values = [count_total(table, what) for what in ("READS", "WRITES")]
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _untraced(check: LayerCheck) -> Iterable[str]:
    fraction = check.traced_fraction
    if fraction is not None and fraction < 1:
        yield (
            f"{check.layer}: {check.traced_ops:,} of {check.counted_ops:,} operations are in the "
            f"trace ({percent(fraction)})"
        )
