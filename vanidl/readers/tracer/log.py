"""Calls of one process -> a log like those of other system tracers: operations, totals, kinds.

Calls on descriptors are operations of POSIX; calls on streams, as far as the program got or gave
their bytes, of STDIO. No transfer is in both: what libc itself reads and writes for a stream is in
no slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import instant, nbytes, plural
from vanidl.model import call_kinds, intervals
from vanidl.model import trace as model
from vanidl.model.intervals import Intervals
from vanidl.model.warnings import Notice
from vanidl.readers.records import CounterFile, OperationTable, TracerLog
from vanidl.readers.tracer.calls_file import CallsFile, Clock, read_calls
from vanidl.readers.tracer.layout import CHILDREN_WAITED, FIRST_STREAM_MOVE, Call, Header
from vanidl.readers.tracer.slots import Moves, numbered
from vanidl.readers.tracer.totals import totals

Int64Array = NDArray[np.int64]

TRACER = "vanidl"

_KIND_OF = {
    Call.OPEN: call_kinds.OPEN, Call.FOPEN: call_kinds.OPEN,
    Call.CLOSE: call_kinds.CLOSE, Call.FCLOSE: call_kinds.CLOSE,
    Call.LSEEK: call_kinds.SEEK, Call.FSEEK: call_kinds.SEEK,
    Call.STAT: call_kinds.STAT, Call.FSTAT: call_kinds.STAT, Call.ACCESS: call_kinds.STAT,
    Call.READLINK: call_kinds.STAT,
    Call.OPENDIR: call_kinds.LIST, Call.READDIR: call_kinds.LIST,
    Call.UNLINK: call_kinds.REMOVE, Call.RENAME: call_kinds.RENAME, Call.MKDIR: call_kinds.MKDIR,
    Call.MMAP: call_kinds.MAP, Call.MUNMAP: call_kinds.MAP,
    Call.FFLUSH: call_kinds.FLUSH,
    Call.FSYNC: call_kinds.SYNC, Call.FDATASYNC: call_kinds.SYNC, Call.SYNC_RANGE: call_kinds.SYNC,
    Call.MSYNC: call_kinds.SYNC,
}  # fmt: skip
"""What calls that move no data are for; all others are call_kinds.OTHER."""

_LIMIT = 1  # why calls are missing; else for lack of space


def log(file: CallsFile) -> TracerLog:
    """The log of one process."""
    # From the first call, or the beginning of the recording, to the last one or its end.
    header, found = file.header, (file.found.moves, file.found.others)
    early = -min(int(some.start_ns.min(initial=0)) for some in found)
    last = max(int(some.end_ns.max(initial=0)) for some in found)
    ended = header.end_monotonic_ns - header.start_monotonic_ns if header.end_monotonic_ns else last
    placed = _Placed(file, file.clock.start_ns - early, early)
    end = int(file.clock.placed(np.array([max(ended, last)]))[0])
    tables = tuple(_tables(placed))
    metadata, calls = _calls(placed)
    return TracerLog(
        path=file.path,
        tracer=TRACER,
        version=header.tracer,
        job_id="",
        host=header.host,
        pid=header.pid,
        parent_pid=header.parent_pid if header.forked else None,
        user_id=header.user_id,
        nprocs=1,
        start_ns=placed.start_ns,
        end_ns=file.clock.start_ns + end,
        start_resolution_ns=1,
        start_error_ns=file.clock.error_ns,
        command=header.program,
        metadata={},
        mounts=(),
        names={0: model.FILES_NOT_RECORDED, **file.found.names},
        modules=tuple(table.layer for table in tables),
        operations=tables,
        partial_layers=(),
        whole=not file.losses,
        losses=file.losses,
        metadata_calls=metadata,
        calls=calls,
        counts_apart=True,
        names_program=True,
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """The calls of one file, and the start of its log."""

    file: CallsFile
    start_ns: int  # since the epoch
    early_ns: int  # how much that is before the recording

    def since_start(self, times_ns: Int64Array) -> Int64Array:
        """Instants of the recording, from the start of the log on and on the system's clock."""
        placed = self.file.clock.placed(times_ns)
        return placed + self.early_ns if self.early_ns else placed


def _tables(placed: _Placed) -> Iterator[OperationTable]:
    """The operations of each layer that has some."""
    moves = placed.file.found.moves
    stream = moves.call >= FIRST_STREAM_MOVE
    of_streams = int(np.count_nonzero(stream))
    for layer, count, rows in (
        (model.POSIX, len(moves) - of_streams, ~stream if of_streams else None),
        (model.STDIO, of_streams, stream if of_streams < len(moves) else None),
    ):
        if count:
            yield _table(placed, layer, moves if rows is None else moves.pick(rows))


def _table(placed: _Placed, layer: str, moves: Moves) -> OperationTable:
    files, record = numbered(moves.file)
    op = (moves.call >> np.uint8(4)) & np.uint8(1)
    op ^= np.uint8(1)  # classes of reads are odd
    columns = (
        record, op, moves.offset, moves.nbytes, placed.since_start(moves.start_ns),
        placed.since_start(moves.end_ns), moves.thread,
    )  # fmt: skip
    for column in columns:
        column.flags.writeable = False
    ranks, hosts = np.zeros(len(files), np.int64), (placed.file.header.host,) * len(files)
    return OperationTable(layer, files.astype(np.uint64), ranks, hosts, *columns)


def _calls(placed: _Placed) -> tuple[Intervals, dict[str, Intervals]]:
    """When the process was in metadata calls, and kind -> in such calls, without kinds not used."""
    others, kinds = placed.file.found.others, call_kinds.CALL_KINDS
    number_of = np.full(256, len(kinds), np.uint8)
    number_of[Call.OPEN :] = kinds.index(call_kinds.OTHER)  # below are reads and writes
    for call, of_call in _KIND_OF.items():
        number_of[call] = kinds.index(of_call)
    number = number_of[others.call]
    start, end = placed.since_start(others.start_ns), placed.since_start(others.end_ns)
    of_metadata = number < kinds.index(call_kinds.SYNC)  # the last of them
    found = {}
    for i, kind in enumerate(kinds):
        mine = number == i
        if mine.any():
            found[kind] = intervals.union(start[mine], end[mine])
    return intervals.union(start[of_metadata], end[of_metadata]), found


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one file says, without the calls that are in its log already."""

    log: TracerLog
    counters: CounterFile
    header: Header
    clock: Clock


def recorded(path: Path) -> Recorded:
    """One process: its log and its totals.

    Raises:
        InputError, OSError: as `read_calls`.
    """
    file = read_calls(path)
    of_process = log(file)
    return Recorded(of_process, totals(file, of_process.operations), file.header, file.clock)


_UNSEEN_NBYTES, _UNSEEN_SHARE = 16 << 20, 0.05
_TOLD_NBYTES = 1 << 20  # less is mostly what starting a program reads


def notices(found: Sequence[Recorded]) -> Iterator[Notice]:
    """What the files of a run do not hold."""
    processes = [(one.log, one.header) for one in found]
    cut = [(log, header) for log, header in processes if header.missing_since_ns]
    if cut:
        calls = sum(header.missing_calls for _, header in cut)
        since_ns = min(
            log.start_ns + header.missing_since_ns - header.start_monotonic_ns
            for log, header in cut
        )
        first_ns = min(log.start_ns for log, _ in processes)
        limits = [header.event_limit for _, header in cut if header.missing_reason == _LIMIT]
        why = (
            f"they had made the {plural(min(limits), 'call')} that are recorded one by one of a "
            "process"
            if limits
            else "no space was left under RUN"
        )
        yield Notice(
            "calls_summed",
            f"{plural(calls, 'call')} of {plural(len(cut), 'process', 'processes')}, from "
            f"{instant((since_ns - first_ns) / 1e9)} on, are in totals alone: {why}. Bytes and "
            "numbers of calls are exact; busy time, timeline, access pattern and overlap lack "
            "these calls. Record with a higher limit, or to a file system with more space.",
        )
    killed = sum(header.end_monotonic_ns == 0 for _, header in processes)
    if killed:
        yield Notice(
            "calls_unfinished",
            f"{plural(killed, 'process was', 'processes were')} killed or still running: what each "
            "thread was in just then is missing, at most one call.",
            "info",
        )
    jumps = sum(one.clock.was_set for one in found)
    if jumps:
        yield Notice(
            "clock_set",
            f"The system's clock was set while {plural(jumps, 'process')} were recorded: calls "
            "are where it said they were, with a jump between two of them.",
            "info",
        )
    yield from _unseen(found)
    unnamed = sum(header.names_missing for _, header in processes)
    if unnamed:
        yield Notice(
            "files_unnamed",
            f"{plural(unnamed, 'file name')} could not be written down for lack of space: what "
            f"went through these files is in totals, as of {model.FILES_NOT_RECORDED}.",
        )


def _read_by_children(found: Sequence[Recorded]) -> list[int | None]:
    """Bytes that are in the kernel's count of each file's process, as its children read them.

    Linux adds the count of a child to that of the parent that waits for it (`wait_task_zombie`).
    None: the process has no count, or of some child it is not known whether it is in it.
    """
    # A process that becomes other programs has a file of each; its parent waits for the last one.
    files_of: dict[tuple[str, int, int], list[Header]] = {}
    for one in found:
        header = one.header
        files_of.setdefault((header.host, header.parent_pid, header.pid), []).append(header)
    children_of: dict[tuple[str, int], list[list[Header]]] = {}
    for (host, parent_pid, _), files in files_of.items():
        children_of.setdefault((host, parent_pid), []).append(files)

    def read_by_children(parent: Header) -> int | None:
        nbytes = 0
        for files in children_of.get((parent.host, parent.pid), ()):
            counts = [child.kernel_read_nbytes for child in files]
            if None in counts:  # it was killed, nobody knows when
                return None
            end_ns = max(child.end_monotonic_ns for child in files)
            # One that ended later was not waited for by then; one that ended before this program
            # began is in the count of the program that its parent was before.
            if parent.start_monotonic_ns < end_ns <= parent.end_monotonic_ns:
                if parent.children != CHILDREN_WAITED:
                    return None
                nbytes += sum(count or 0 for count in counts)
        return nbytes

    return [
        None if one.header.kernel_read_nbytes is None else read_by_children(one.header)
        for one in found
    ]


def _unseen(found: Sequence[Recorded]) -> Iterator[Notice]:
    """How much of what was read from files the tracer saw, at least, by the kernel's count.

    The kernel counts what calls read, of pipes and sockets as well; what the tracer saw of these is
    taken off, and all that remains beside its calls on files is taken for files it did not see.
    Streams may get less than they read ahead, which makes the bound lower, never higher.
    """
    of_children = _read_by_children(found)
    counted = [one for one, nbytes in zip(found, of_children, strict=True) if nbytes is not None]
    of_files = traced = 0
    for one, children_nbytes in zip(found, of_children, strict=True):
        if children_nbytes is None:
            continue
        seen = sum(
            int(t.counters[f"{t.layer}_BYTES_READ"].sum()) for t in one.counters.layers
        )  # fmt: skip
        own = (one.header.kernel_read_nbytes or 0) - one.header.other_read_nbytes - children_nbytes
        traced += seen
        of_files += max(own, seen)
    if of_files < _TOLD_NBYTES:
        return
    missing = of_files - traced
    share = 1000 * traced // of_files / 10  # rounded down, as it is a bound
    bound = f"At least {share:g} % of the bytes that calls read from files are"
    if len(counted) < len(found):
        bound += f", in {len(counted)} of {plural(len(found), 'process', 'processes')},"
    if missing > max(_UNSEEN_NBYTES, _UNSEEN_SHARE * of_files):
        yield Notice(
            "reads_not_seen",
            f"{bound} traced; the rest ({nbytes(missing)}) were read through calls that the tracer "
            "does not see (programs without libc), or from pipes and sockets in such calls, by the "
            "count of the kernel. Mapped files and io_uring are in neither.",
        )
    else:
        yield Notice(
            "reads_traced",
            f"{bound} traced, by the count of the kernel. Mapped files and io_uring are in "
            "neither.",
            "info",
        )
