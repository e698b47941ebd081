"""The run as a Darshan log: what its tools and facilities' scripts read, from any tracer.

POSIX, STDIO and MPI-IO become records of counters, single operations of POSIX and MPI-IO records
of DXT; STDIO has none in Darshan, and layers that Darshan counts in another way stay out. A
process is a rank of the log. A counter that the run's tracer kept is written as it is; what no
tracer kept is computed from the operations, as Darshan's runtime would have; what cannot be told
is -1, which is how Darshan writes that something was not monitored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import vanidl
from vanidl.encoding.budget import whole_number
from vanidl.errors import UsageError
from vanidl.export.darshan.counters import FileCounters
from vanidl.export.darshan.log_file import JobText, LogFile, Recorder, encode
from vanidl.files import atomic
from vanidl.formatting.names import printable
from vanidl.formatting.units import plural
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record
from vanidl.model.selection import select
from vanidl.model.trace import MPIIO, POSIX, STDIO, Part, Trace
from vanidl.readers.darshan.counter_names import NAMES
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Written = list[tuple[str, str]]

_VERSIONS = {POSIX: 4, MPIIO: 3, STDIO: 2}  # of the modules in a log of format 3.41
_DXT = {POSIX: ("DXT_POSIX", 1), MPIIO: ("DXT_MPIIO", 2)}
"""Modules of single operations. The versions after these know threads, but PyDarshan 3.5.0 and all
before it refuse them."""
_MOST_ROWS = 1 << 21  # of the operations that are encoded at once: a file's come in pieces then
_RECORDS_AT_ONCE = 1 << 14
_SHARED = -1  # the process, and the rank, of records of all ranks


def write(run: Run, path: Path) -> Written:
    """Writes the log; the modules in it, and what of the run is not in it.

    Raises:
        UsageError: nothing of POSIX, STDIO or MPI-IO was recorded.
        VanidlError: the file cannot be written.
    """
    trace = run.trace
    recorded = {*trace.layers_traced, *trace.counters}
    layers = [layer for layer in _VERSIONS if layer in recorded]
    if not layers:
        raise UsageError(
            f"--to darshan: expected operations or counters of {', '.join(_VERSIONS)}, found "
            f"{', '.join(sorted(recorded)) or 'none'}; Darshan has no place for these."
        )
    # Layers one by one into regions put aside; the header comes first in the file, so last here.
    with atomic.streamed_file(path) as target, LogFile() as log:
        chosen = {layer: select(trace, replace(run.selection, layer=layer)) for layer in layers}
        writer = _Writer(log, trace, chosen)
        written = [line for layer in layers for line in writer.layer(layer)]
        log.write(target, _describe_job(writer), writer.names(), _list_partial_modules(trace, log))
    # What Darshan has no place for is named, not dropped in silence.
    others = sorted(recorded - {*layers})
    others += ["single operations of STDIO"] if STDIO in trace.layers_traced else []
    others += ["threads"] if any((part.thread >= 0).any() for part in trace.io[:1]) else []
    return [*written, *([("left out", ", ".join(others))] if others else [])]


class _Writer:
    """Writes the layers of one run into a log."""

    def __init__(self, log: LogFile, trace: Trace, chosen: dict[str, Trace]) -> None:
        self._log, self._trace, self._chosen = log, trace, chosen
        firsts = (int(part.start[0]) for of_layer in chosen.values() for part in of_layer.io)
        self.zero_ns = min([trace.job.start_ns, *firsts])
        self.end_ns = max(trace.job.end_ns, self.zero_ns)
        self.processes = max(1, len(trace.processes))
        self._ids = np.array([_record_id(i, name) for i, name in enumerate(trace.files.path)])
        self._used = np.zeros(len(trace.files), bool)

    @property
    def trace(self) -> Trace:
        """The run."""
        return self._trace

    def names(self) -> Iterator[tuple[int, str]]:
        """Id and name of each file that has a record."""
        for code in np.flatnonzero(self._used).tolist():
            yield int(self._ids[code]), self._trace.files.path[code]

    def layer(self, layer: str) -> Iterator[tuple[str, str]]:
        """Writes one layer; its modules, and what is in each."""
        trace = self._chosen[layer]
        table = trace.counters.get(layer)
        records = _Records(layer, table, self._ids)
        operations, count = 0, 0
        of_process = groupby(trace.io, key=attrgetter("process"))
        for process, parts in of_process:
            some = list(parts)
            operations += self._segments(layer, process, some)
            count += self._counters(records, process, FileCounters.of(some, self.zero_ns))
        for process in records.left():  # counted, and not one operation traced
            count += self._counters(records, process, None)
        yield layer, plural(count, "record")
        if layer in _DXT and layer in trace.layers_traced:
            yield _DXT[layer][0], plural(operations, "operation")

    def _segments(self, layer: str, process: int, parts: Sequence[Part]) -> int:
        """Writes the single operations of a process."""
        if layer not in _DXT:
            return 0
        module, version = _DXT[layer]
        host = printable(self._trace.processes[process].host).encode("utf-8", "backslashreplace")
        by = Recorder(process, host, self.zero_ns, self._ids)
        for part in parts:
            # In pieces, which bounds the memory; each is a record of its own.
            for low in range(0, len(part), _MOST_ROWS):
                piece = part.rows(slice(low, low + _MOST_ROWS))
                self._log.add(module, version, encode(piece, by))
        return sum(map(len, parts))

    def _counters(self, records: _Records, process: int, found: FileCounters | None) -> int:
        """Writes the counters of a process; how many records these are."""
        # When the times that its tracer kept of a process begin; of all ranks, with the job.
        began = None if process == _SHARED else self._trace.processes[process].start_ns
        zero_s = ((self._trace.job.start_ns if began is None else began) - self.zero_ns) / 1e9
        codes, words = records.of(process, found, zero_s)
        self._used[codes] = True
        for low in range(0, len(words), _RECORDS_AT_ONCE):
            raw = words[low : low + _RECORDS_AT_ONCE].data.cast("B")
            self._log.add(records.layer, _VERSIONS[records.layer], raw)
        return len(words)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Counters of a layer as the tracer kept them, by process."""

    table: CounterTable
    order: NDArray[np.intp]
    process: NDArray[np.int32]  # in order

    @classmethod
    def of(cls, table: CounterTable) -> _Kept:
        order = np.lexsort((table.file, table.process))
        return cls(table, order, table.process[order])

    def rows(self, process: int) -> NDArray[np.intp]:
        """The rows of a process."""
        low, high = np.searchsorted(self.process, [process, process + 1])
        return self.order[low:high]


class _Records:
    """Records of counters of one layer: as the tracer kept them, the rest from operations."""

    def __init__(self, layer: str, table: CounterTable | None, ids: NDArray[np.uint64]) -> None:
        self.layer = layer
        self._ids = ids
        self._kept = None if table is None else _Kept.of(table)
        self._shared = (
            np.unique(table.file[table.process == _SHARED]) if table is not None else np.empty(0)
        )
        self._done: set[int] = set()

    def left(self) -> list[int]:
        """Processes with counters that were not asked for yet."""
        known = [] if self._kept is None else np.unique(self._kept.process).tolist()
        return [process for process in known if process not in self._done]

    def of(
        self, process: int, found: FileCounters | None, since_zero_s: float
    ) -> tuple[Int64Array, Int64Array]:
        """The files of one process, and their records; shape (records, words).

        Files whose record is one of all ranks are left to that. Moments that the tracer kept
        count from `since_zero_s`, those of the log from its start.
        """
        self._done.add(process)
        # Files that the tracer counted, then those that only operations know.
        rows = np.empty(0, np.intp) if self._kept is None else self._kept.rows(process)
        files = np.empty(0, np.int64)
        if self._kept is not None:
            files = self._kept.table.file[rows].astype(np.int64)
        if found is not None:
            known = np.concatenate([files, self._shared])
            files = np.concatenate([files, found.codes[~np.isin(found.codes, known)]])
        # -1 until something is known, by which Darshan means not monitored; 0 of what is never
        # counted.
        names = NAMES[self.layer]
        counters = np.full((len(names.plain), len(files)), -1, np.int64)
        seconds = np.zeros((len(names.plain_times), len(files)))
        for i, name in enumerate(names.plain):
            if name in _ZERO:
                counters[i] = 0
        if found is not None:
            self._fill(found, files, counters, seconds)
        if self._kept is not None:
            # A counter that the tracer kept goes over one computed from operations.
            self._keep(rows, counters, seconds, since_zero_s)
        # A record as Darshan lays it out: id, rank, counters, then times as float64 in the same
        # words.
        words = np.empty((len(files), 2 + len(counters) + len(seconds)), "<i8")
        words[:, 0] = self._ids[files].view(np.int64)
        words[:, 1] = process
        words[:, 2 : 2 + len(counters)] = counters.T
        words[:, 2 + len(counters) :] = seconds.T.astype("<f8").view("<i8")
        return files, words

    def _fill(
        self,
        found: FileCounters,
        files: Int64Array,
        counters: Int64Array,
        seconds: NDArray[np.float64],
    ) -> None:
        """Writes what operations tell into the columns of their files."""
        names = NAMES[self.layer]
        # Where each file that operations know stands among those of the process.
        codes, column = np.unique(files, return_index=True)
        mine = np.isin(found.codes, codes)
        column = column[np.searchsorted(codes, found.codes[mine])]
        for i, name in enumerate(names.plain):
            values = found.counters.get(_OF_MPIIO.get(name, name.replace("_AGG", "")))
            if values is not None:
                counters[i, column] = values[mine]
        for i, name in enumerate(names.plain_times):
            if name in found.seconds:
                seconds[i, column] = found.seconds[name][mine]

    def _keep(
        self,
        rows: NDArray[np.intp],
        counters: Int64Array,
        seconds: NDArray[np.float64],
        since_zero_s: float,
    ) -> None:
        """Writes what the tracer counted over it, in the first columns.

        Of files of which operations are missing nothing is told by those that are there.
        """
        if self._kept is None or not len(rows):
            return
        names, table, count = NAMES[self.layer], self._kept.table, len(rows)
        # Files of which more operations were counted than traced.
        traced = sum(
            np.maximum(counters[names.plain.index(name), :count], 0)
            for name in names.plain
            if name.endswith(("READS", "WRITES")) and not name.startswith(("SEQ_", "CONSEC_"))
        )
        counted = sum(count_by_record(table, what)[rows] for what in ("READS", "WRITES"))
        counters[:, :count][:, counted > traced] = -1
        # What the tracer counted, where it did; times from the start of the log.
        for i, name in enumerate(names.counters):
            if name in table.counters:
                values = table.counters[name][rows]
                counters[i, :count] = np.where(values >= 0, values, counters[i, :count])
        for i, name in enumerate(names.times):
            if name in table.seconds:
                times = table.seconds[name][rows]
                if name.endswith("_TIMESTAMP"):
                    times = np.where(times > 0, times + since_zero_s, times)
                seconds[i, :count] = np.where(times >= 0, times, seconds[i, :count])


_ZERO = frozenset(
    {
        "RENAMED_FROM",
        "FASTEST_RANK",
        "FASTEST_RANK_BYTES",
        "SLOWEST_RANK",
        "SLOWEST_RANK_BYTES",
    }
)
"""Darshan leaves these at 0 in records of one rank."""

_OF_MPIIO = {"INDEP_READS": "READS", "INDEP_WRITES": "WRITES"}
"""Operations of which nothing says that they were collective count as independent."""


def _describe_job(writer: _Writer) -> JobText:
    trace, job = writer.trace, writer.trace.job
    pids = [process.pid for process in trace.processes if process.pid is not None]
    # Mount points by length, longest first, as Darshan's runtime writes them: the first match
    # counts.
    named = zip(trace.files.mount, trace.files.file_system, strict=True)
    mounts = {(point, kind) for point, kind in named if point and "://" not in point}
    return JobText(
        user_id=job.user_id if job.user_id is not None else -1,
        job_id=whole_number(job.id or "") or next(iter(pids), 0),
        nprocs=writer.processes,
        start_ns=writer.zero_ns,
        end_ns=writer.end_ns,
        writer=f"vanidl {vanidl.__version__}",
        command=job.command,
        mounts=tuple(sorted(mounts, key=lambda mount: (-len(mount[0]), mount))),
    )


def _list_partial_modules(trace: Trace, log: LogFile) -> list[str]:
    """Modules that are flagged incomplete, as the run's own logs are."""
    if any(not one.whole for one in trace.logs):
        return list(log.modules)
    flagged = {layer for one in trace.logs for layer in one.partial_layers}
    return [module for module in log.modules if module in flagged]


def _record_id(code: int, name: str) -> np.uint64:
    """An id of a file, which is nobody else's and the same in every log of the run."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8)
    return np.uint64(int.from_bytes(digest.digest(), "little") or code + 1)
