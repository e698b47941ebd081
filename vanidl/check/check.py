"""Are these logs whole, and what do they miss? One verdict a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vanidl.errors import InputError
from vanidl.model.counter_totals import counted
from vanidl.model.trace import CounterTable
from vanidl.readers import discover
from vanidl.readers.darshan import library
from vanidl.readers.darshan import log as darshan_log
from vanidl.readers.darshan.header import LAYOUTS, is_cut, version_of
from vanidl.readers.dftracer import trace_file
from vanidl.readers.pytorch import trace as pytorch_trace
from vanidl.readers.records import CounterFile, CounterRecords, ProfileTrace, TracerLog
from vanidl.readers.tensorboard import event_file
from vanidl.readers.xprof import trace_viewer, xplane

WHOLE = "whole"
PARTIAL = "partial"
CUT = "cut"
DAMAGED = "damaged"
UNKNOWN_VERSION = "unknown version"
FOREIGN = "foreign"
EMPTY = "empty"
UNREADABLE = "unreadable"
NOT_CHECKED = "not checked"

STATES = {
    WHOLE: "everything that was written is there",
    PARTIAL: "whole, but the tracer itself says that it left records out or did not finish",
    CUT: "the end of the file is missing; what comes before is used",
    DAMAGED: "bytes inside the file are wrong; what can be read is used",
    UNKNOWN_VERSION: "a Darshan log in a version of the format that vanidl does not know",
    FOREIGN: "not what its name says, or of no kind that vanidl knows",
    EMPTY: "a file without a byte in it",
    UNREADABLE: "missing, or the system does not let it be read",
    NOT_CHECKED: "output of another kind: named here, not looked into",
}
"""Every state and what it means."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """Operations that the counters of a log hold, and that its trace holds."""

    layer: str
    counted_ops: int | None  # None: no counters, or they cannot be read
    traced_ops: int | None  # None: no trace of this layer

    @property
    def traced_fraction(self) -> float | None:
        """Traced / counted operations; None where either is unknown or nothing was counted."""
        if self.traced_ops is None or not self.counted_ops:
            return None
        return self.traced_ops / self.counted_ops


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on one file. `missing` holds a sentence for each thing that is not there."""

    path: str
    kind: str  # "Darshan log", "PyTorch profiler trace", ... or "" where nothing tells
    state: str  # one of STATES
    read: bool  # whether at least a part of it could be read
    version: str = ""  # "" where the file says none
    missing: tuple[str, ...] = ()
    layers: tuple[LayerCheck, ...] = field(default=())


def check(paths: Sequence[str | Path], progress: Progress | None = None) -> tuple[Checked, ...]:
    """One verdict for each log and trace file at the paths, in order of path within each.

    A path is a file, or a folder that is searched as for any command. Nothing raises: what
    cannot be read is a verdict too.
    """
    entries = [entry for path in paths for entry in _entries(Path(path))]
    logs = [str(path) for kind, path in entries if kind == "darshan"]
    pending = library.start_counters([p for p in logs if not darshan_log.has_new_counters(p)])
    verdicts = []
    counts: dict[str, CounterFile | None] = {}
    for i, (kind, path) in enumerate(entries):
        if progress:
            progress("files", i, len(entries))
        if kind == "darshan":
            verdict, counts[str(path)] = _checked_log(kind, path)
        else:
            verdict = _CHECKS.get(kind, _not_checked)(kind, path)
        verdicts.append(verdict)
    return tuple(_all_counted(verdicts, counts, pending))


def _all_counted(
    verdicts: Sequence[Checked],
    counts: Mapping[str, CounterFile | None],
    pending: library.PendingCounters,
) -> Iterator[Checked]:
    """The verdicts with counters; those that are not there yet are read by Darshan's library."""
    whole = {path: file for path, file in counts.items() if file is not None}
    known = pending.result() | whole
    known |= library.read_counters([v.path for v in verdicts if v.path in counts.keys() - known])
    for verdict in verdicts:
        file = known.get(verdict.path)
        yield verdict if file is None else _with_counters(verdict, file)


_KINDS = {
    "darshan": "Darshan log",
    "darshan_partial": "Darshan log",
    "profiler": "PyTorch profiler trace",
    "event_files": "TensorBoard event file",
    "xplane": "TensorFlow or JAX profile",
    "trace_viewer": "TensorFlow trace",
    "input_pipeline": "TensorFlow input pipeline profile",
    "dftracer": "DFTracer trace",
}


def _entries(path: Path) -> list[tuple[str, Path]]:
    """(field of `Found`, file) for everything at a path."""
    try:
        found = discover.find(path)
    except InputError:
        return [("", path)]
    return [(kind, file) for kind in _KINDS for file in getattr(found, kind)]


def _checked_log(kind: str, path: Path) -> tuple[Checked, CounterFile | None]:
    """The verdict on a Darshan log without its counters, and these where they were read."""
    try:
        log = darshan_log.read_log(path)
    except InputError as error:
        return _refused(kind, path, str(error)), None
    verdict = Checked(
        str(path), _KINDS[kind], _darshan_state(log), read=True, version=log.version,
        missing=(*log.losses, *_flagged(log)), layers=_traced(log),
    )  # fmt: skip
    return verdict, log.counters


def _darshan_state(log: TracerLog) -> str:
    if log.whole:
        return PARTIAL if log.partial_layers else WHOLE
    return CUT if is_cut(Path(log.path).read_bytes()) else DAMAGED


def _flagged(log: TracerLog) -> Iterable[str]:
    if log.partial_layers:
        names = ", ".join(log.partial_layers)
        yield f"Darshan itself flagged {names} as incomplete: it ran out of room for records"


def _traced(log: TracerLog) -> tuple[LayerCheck, ...]:
    return tuple(LayerCheck(t.layer, None, len(t.op)) for t in log.operations)


def _unfinished(kind: str, path: Path) -> Checked:
    verdict, _ = _checked_log(kind, path)
    if not verdict.read or verdict.state == CUT:
        return verdict
    why = "Darshan did not finish this log: its process ended without a farewell"
    return Checked(
        verdict.path, verdict.kind, PARTIAL, read=True, version=verdict.version,
        missing=(why, *verdict.missing), layers=verdict.layers,
    )  # fmt: skip


def _profiler(kind: str, path: Path) -> Checked:
    try:
        trace = _PROFILES[kind](path)
    except InputError as error:
        return _refused(kind, path, str(error))
    state = WHOLE
    if trace.losses:
        state = CUT if _ends_early(trace.losses) else DAMAGED
    return Checked(str(path), _KINDS[kind], state, read=True, missing=trace.losses)


def _dftracer(kind: str, path: Path) -> Checked:
    try:
        losses = trace_file.read_file(path).losses
        empty = path.stat().st_size == 0
    except (InputError, OSError) as error:
        return _refused(kind, path, str(error))
    if empty:
        return Checked(str(path), _KINDS[kind], EMPTY, read=False, missing=(_NO_BYTE,))
    return Checked(str(path), _KINDS[kind], _dftracer_state(losses), read=True, missing=losses)


def _dftracer_state(losses: Sequence[str]) -> str:
    """What was never recorded leaves a file whole: that is partial, not damaged."""
    if _ends_early(losses):
        return CUT
    lost = [loss for loss in losses if "recorded without" not in loss]
    return DAMAGED if lost else PARTIAL if losses else WHOLE


def _event_file(kind: str, path: Path) -> Checked:
    try:
        content = event_file.read_events(path)
        empty = path.stat().st_size == 0
    except (InputError, OSError) as error:
        return _refused(kind, path, str(error))
    if empty:
        return Checked(str(path), _KINDS[kind], EMPTY, read=False, missing=(_NO_BYTE,))
    state = DAMAGED if content.losses else WHOLE
    return Checked(str(path), _KINDS[kind], state, read=True, missing=content.losses)


_NO_BYTE = "a file without a byte in it"


def _ends_early(sentences: Iterable[str]) -> bool:
    """Whether the reader says so: readers of JSON tell a cut text from a wrong one."""
    return any("is cut" in sentence for sentence in sentences)


def _refused(kind: str, path: Path, why: str) -> Checked:
    """A file that no reader takes: why not."""
    try:
        content = path.read_bytes()
    except OSError:
        return Checked(str(path), _KINDS[kind], UNREADABLE, read=False, missing=(why,))
    version = version_of(content) if kind.startswith("darshan") else None
    if not content:
        state = EMPTY
    elif version is not None:
        state = _refused_log(version, content)
    else:
        state = CUT if kind in _PROFILES and _ends_early([why]) else FOREIGN
    return Checked(
        str(path), _KINDS[kind], state, read=False, version=version or "", missing=(why,)
    )


def _refused_log(version: str, content: bytes) -> str:
    if version not in LAYOUTS:
        return UNKNOWN_VERSION
    return CUT if is_cut(content) else DAMAGED


def _not_checked(kind: str, path: Path) -> Checked:
    if not kind:
        return _of_no_kind(path)
    empty = path.stat().st_size == 0
    missing = (_NO_BYTE,) if empty else ()
    state = EMPTY if empty else NOT_CHECKED
    return Checked(str(path), _KINDS[kind], state, read=False, missing=missing)


def _of_no_kind(path: Path) -> Checked:
    state, kind = FOREIGN, ""
    why = "neither its name nor its first bytes are those of a log or a profile"
    if path.is_dir():
        kind = "folder"
        why = "expected logs or profiler output in this folder, found none; give another folder"
    elif not path.exists():
        state, why = UNREADABLE, "nothing is there under this name; check the path"
    elif path.stat().st_size == 0:
        state, why = EMPTY, _NO_BYTE
    return Checked(str(path), kind, state, read=False, missing=(why,))


_PROFILES: dict[str, Callable[[Path], ProfileTrace]] = {
    "profiler": pytorch_trace.read_trace,
    "xplane": xplane.read_profile,
    "trace_viewer": trace_viewer.read_profile,
}

_CHECKS: dict[str, Callable[[str, Path], Checked]] = {
    "darshan_partial": _unfinished,
    **dict.fromkeys(_PROFILES, _profiler),
    "event_files": _event_file,
    "dftracer": _dftracer,
}


def _with_counters(verdict: Checked, file: CounterFile) -> Checked:
    """The verdict with operations counted, and what the counters lack."""
    if not verdict.read:
        return verdict
    traced = {c.layer: c.traced_ops for c in verdict.layers}
    totals = {records.layer: _counted_ops(_table(records)) for records in file.layers}
    names = dict.fromkeys([*totals, *traced])
    layers = tuple(LayerCheck(n, totals.get(n), traced.get(n)) for n in names)
    state = DAMAGED if file.losses and verdict.state in (WHOLE, PARTIAL) else verdict.state
    why = "; the trace buffer was full" if state in (WHOLE, PARTIAL) else ""
    untraced = (f"{sentence}{why}" for c in layers for sentence in _untraced(c))
    missing = (*verdict.missing, *file.losses, *untraced)
    return Checked(
        verdict.path, verdict.kind, state, verdict.read, verdict.version, missing, layers
    )


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
            f"trace ({fraction:.1%})"
        )
