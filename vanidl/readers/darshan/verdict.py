"""The verdict on a Darshan log: what it lost, how much of what was counted is in its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import names_limit
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import percent
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_total
from vanidl.readers import verdict as verdicts
from vanidl.readers.darshan.counters import LAYERS
from vanidl.readers.darshan.header import LAYOUTS, is_cut, open_log, read_version
from vanidl.readers.darshan.log import read_log
from vanidl.readers.darshan.reading import LOG, complete_counters
from vanidl.readers.format import FileKind
from vanidl.readers.records import CounterFile, CounterRecords, TracerLog
from vanidl.readers.verdict import LayerCheck, Verdict


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

    # Counters of all that could be read, and a verdict in the order of the files.
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

    # The bytes tell why: another format, an unknown version, a cut or damage.
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
