"""Files of vanidl's own tracer: what a run's say, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.formatting.units import instant, nbytes, plural, seconds
from vanidl.model import call_kinds, intervals
from vanidl.model import trace as model
from vanidl.model.intervals import Intervals
from vanidl.model.trace import POSIX, READ, STDIO, WRITE
from vanidl.model.warnings import Notice
from vanidl.readers.format import FileKind, Reading, Records
from vanidl.readers.records import (
    LONGEST_NS,
    CounterFile,
    CounterRecords,
    OperationTable,
    TracerLog,
)
from vanidl.readers.tracer.calls_file import CallsFile, Clock, read_calls
from vanidl.readers.tracer.slots import (
    CHILDREN_WAITED,
    FIRST_STREAM_MOVE,
    STREAM_CLASSES,
    SYNC_CLASS,
    Call,
    Header,
    Numbers,
    Others,
    number_files,
)
from vanidl.readers.verdict import (
    PARTIAL,
    WHOLE,
    LayerCheck,
    Verdict,
    classify_losses,
    report_refused,
)
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


# Exact totals of each file, under Darshan's names: of calls with a slot, and of all others.

_MOVES = ("READS", "WRITES")


def read_calls_files(paths: Sequence[Path], reading: Reading) -> Records:
    """What the calls files of a run say."""
    every = reading.each("recorded calls", read_recorded, paths)
    counted = {one.log.path: one.counters for one in every}
    notices = tuple(list_warnings(every))
    return Records(tuple(one.log for one in every), counted, notices=notices)


def check_calls_files(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> list[Verdict]:
    """One verdict a file, in turn."""
    verdicts = []
    for kind, path in files:
        before_each()
        try:
            verdicts.append(_check_file(kind, path, read_one(read_recorded, path)))
        except InputError as error:
            verdicts.append(report_refused(path, kind.title, str(error)))
    return verdicts


def _check_file(kind: FileKind, path: Path, found: Recorded) -> Verdict:
    """The verdict on a file that could be read: partial where calls have no slot."""
    log, header = found.log, found.header
    state, missing = classify_losses(log.losses), log.losses
    if header.missing_calls:
        state = PARTIAL if state == WHOLE else state
        missing = (*missing, f"{plural(header.missing_calls, 'call')} of it are in totals alone")

    # Reads and writes that were counted, and those that were recorded one by one.
    traced = {table.layer: len(table.op) for table in log.operations}
    layers = tuple(
        LayerCheck(
            records.layer,
            sum(int(records.counters[f"{records.layer}_{what}"].sum()) for what in _MOVES),
            traced.get(records.layer, 0),
        )
        for records in found.counters.layers
    )
    return Verdict(
        str(path), kind.title, state, read=True, version=header.tracer, missing=missing,
        layers=layers,
    )  # fmt: skip


Places = NDArray[np.intp]

_LAYERS = ((1, POSIX), (2, STDIO))  # by the number that records of counters have for it
_WORDS = {READ: ("READ", "READ"), WRITE: ("WRITE", "WRITTEN")}
_CALLS: dict[str, tuple[int, ...]] = {
    "OPENS": (Call.OPEN, Call.FOPEN),
    "CLOSES": (Call.CLOSE, Call.FCLOSE),
    "SEEKS": (Call.LSEEK, Call.FSEEK),
    "STATS": (Call.STAT, Call.FSTAT),
    "MMAPS": (Call.MMAP,),
    "FSYNCS": (Call.FSYNC, Call.FDATASYNC, Call.SYNC_RANGE, Call.MSYNC),
}
_NAME_OF = np.full(256, len(_CALLS), np.uint8)  # of a call, its place in `_CALLS`
_NAME_OF[[call for calls in _CALLS.values() for call in calls]] = [
    place for place, calls in enumerate(_CALLS.values()) for _ in calls
]
_COUNTED = {"OPENS": "opens", "SEEKS": "seeks", "STATS": "stats", "READS": "reads",
            "WRITES": "writes", "BYTES_READ": "bytes_read", "BYTES_WRITTEN": "bytes_written",
            "CLOSES": "closes", "FSYNCS": "syncs", "MMAPS": "maps"}  # fmt: skip
_SPENT = {"READ": "read_ns", "WRITE": "write_ns", "META": "metadata_ns", "SYNC": "sync_ns"}
_WORD_OF = np.full(256, list(_SPENT).index("META"), np.uint8)  # of a call, its place in `_SPENT`
_WORD_OF[: Call.OPEN] = 1 - (np.arange(Call.OPEN) >> 4 & 1)  # classes of reads are odd
_WORD_OF[SYNC_CLASS << 4 : (SYNC_CLASS + 1) << 4] = list(_SPENT).index("SYNC")
_OF_STREAM = np.isin(np.arange(256) >> 4, STREAM_CLASSES)
_SIZES = np.array(
    [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30]
)
_SIZE_NAMES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M",
               "100M_1G", "1G_PLUS")  # fmt: skip
_LARGEST = 1 << 56  # bytes or calls of one file
_LEAST_ROWS = 1 << 18  # operations that are added at once: they fit the cache


def sum_calls(file: CallsFile, operations: Sequence[OperationTable]) -> CounterFile:
    """The totals of one process, whose operations are `operations` already."""
    table_of = {table.layer: table for table in operations}
    layers = (_sum_layer(file, number, layer, table_of.get(layer)) for number, layer in _LAYERS)
    return CounterFile(tuple(records for records in layers if len(records.file)))


def _sum_layer(
    file: CallsFile, number: int, layer: str, table: OperationTable | None
) -> CounterRecords:
    """The totals of one layer."""
    # The files that calls of this layer, its counters or its operations name.
    others = file.found.others
    of_layer = _OF_STREAM[others.call] == (layer == STDIO)
    others = others if of_layer.all() else others.pick(of_layer)
    numbers, place = number_files(others.file)
    kept = file.counters[file.counters["layer"] == number]
    kept = kept[_are_used(kept)]
    used = [numbers, kept["file"], *([table.record_file] if table is not None else [])]
    files = np.unique(np.concatenate([some.astype(np.int64) for some in used]))

    # What the tracer summed up itself, then every call with a slot.
    sums = _Sums(files)
    sums.add_kept(kept)
    if table is not None:
        sums.add_operations(table, sizes=len(kept) > 0)
    sums.add_others(others, np.searchsorted(files, numbers)[place])
    return sums.records(layer)


def _are_used(kept: NDArray[np.void]) -> NDArray[np.bool_]:
    """Records that count something, and nothing impossible."""
    counts = np.stack([kept[name] for name in (*_COUNTED.values(), "others")])
    possible = (counts <= _LARGEST).all(axis=0)
    possible &= np.stack([kept[name] <= LONGEST_NS for name in _SPENT.values()]).all(axis=0)
    return np.asarray(possible & (counts > 0).any(axis=0), np.bool_)


class _Sums:
    """Totals of some files, in the order of their numbers, as far as they are added up."""

    def __init__(self, files: Int64Array) -> None:
        self._files = files
        self._counts = {name: np.zeros(len(files), np.int64) for name in _COUNTED}
        self._ns = {word: np.zeros(len(files), np.int64) for word in _SPENT}

    def add_kept(self, kept: NDArray[np.void]) -> None:
        """Adds what the tracer summed up itself, with classes of sizes."""
        if not len(kept):
            return
        place = np.searchsorted(self._files, kept["file"])
        for name, field in _COUNTED.items():
            np.add.at(self._counts[name], place, kept[field].astype(np.int64))
        for word, field in _SPENT.items():
            np.add.at(self._ns[word], place, kept[field].astype(np.int64))
        for word, _ in _WORDS.values():
            for i, size in enumerate(_SIZE_NAMES):
                calls = self._counts.setdefault(f"SIZE_{word}_{size}", np.zeros_like(self._files))
                np.add.at(calls, place, kept[f"{word.lower()}_sizes"][:, i].astype(np.int64))

    def add_operations(self, table: OperationTable, *, sizes: bool) -> None:
        """Adds reads and writes."""
        twice = 2 * len(self._files)
        calls, nbytes, spent = (np.zeros(twice, np.int64) for _ in range(3))
        place_of = 2 * np.searchsorted(self._files, table.record_file.astype(np.int64))
        # A block at a time, which bounds the memory; reads in even places, writes in odd ones.
        at_once = max(_LEAST_ROWS, 2 * twice)
        for low in range(0, len(table.op), at_once):
            rows = slice(low, low + at_once)
            place = place_of[table.record[rows]] + table.op[rows]
            calls += np.bincount(place, minlength=twice)
            nbytes += _sum_by_place(place, table.nbytes[rows], twice)
            spent += _sum_by_place(place, table.end_ns[rows] - table.start_ns[rows], twice)
            if sizes:
                size = np.searchsorted(_SIZES, table.nbytes[rows])
                for i, name in enumerate(_SIZE_NAMES):
                    of_size = np.bincount(place[size == i], minlength=twice)
                    for op, (word, _) in _WORDS.items():
                        self._counts[f"SIZE_{word}_{name}"] += of_size[op::2]
        for op, (word, moved) in _WORDS.items():
            self._counts[f"{word}S"] += calls[op::2]
            self._counts[f"BYTES_{moved}"] += nbytes[op::2]
            self._ns[word] += spent[op::2]

    def add_others(self, others: Others, place: Places) -> None:
        """Adds calls that moved no data, each of the file at its place.

        Those that failed count as time alone.
        """
        kinds = len(_CALLS) + 1
        key = place * kinds + _NAME_OF[others.call]
        counts = np.bincount(key[others.result >= 0], minlength=len(self._files) * kinds)
        for i, name in enumerate(_CALLS):
            self._counts[name] += counts[i::kinds]
        key = place * len(_SPENT) + _WORD_OF[others.call]
        spent = _sum_by_place(key, others.end_ns - others.start_ns, len(self._files) * len(_SPENT))
        for i, word in enumerate(_SPENT):
            self._ns[word] += spent[i :: len(_SPENT)]

    def records(self, layer: str) -> CounterRecords:
        """All of it. As in Darshan, time of syncs is time of writing; it is told apart as well."""
        spent = self._ns | {"WRITE": self._ns["WRITE"] + self._ns["SYNC"]}
        return CounterRecords(
            layer,
            self._files.astype(np.uint64),
            np.zeros(len(self._files), np.int64),
            {f"{layer}_{name}": values for name, values in self._counts.items()},
            {f"{layer}_F_{word}_TIME": ns / 1e9 for word, ns in spent.items()},
        )


def _sum_by_place(place: Places, values: Numbers, count: int) -> Int64Array:
    """Sums by place: exact, as no sum of a file reaches 2^53."""
    return np.bincount(place, values, count).astype(np.int64)


# Calls of one process -> a log like those of other system tracers: operations, totals, kinds.
#
# Calls on descriptors are operations of POSIX; calls on streams, as far as the program got or gave
# their bytes, of STDIO. No transfer is in both: what libc itself reads and writes for a stream is
# in no slot.


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


def build_log(file: CallsFile) -> TracerLog:
    """The log of one process."""
    # From the first call, or the beginning of the recording, to the last one or its end.
    header, found = file.header, (file.found.moves, file.found.others)
    early = -min(int(some.start_ns.min(initial=0)) for some in found)
    last = max(int(some.end_ns.max(initial=0)) for some in found)
    ended = header.end_monotonic_ns - header.start_monotonic_ns if header.end_monotonic_ns else last
    placed = _Placed(file, file.clock.start_ns - early, early)
    end = int(file.clock.placed(np.array([max(ended, last)]))[0])
    tables = tuple(_build_tables(placed))
    metadata, calls = _find_call_intervals(placed)
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
        ended=header.end_monotonic_ns != 0,
        end_lost=header.end_monotonic_ns == 0 and header.written_every_ms > 0,
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


def _build_tables(placed: _Placed) -> Iterator[OperationTable]:
    """The operations of each layer that has some."""
    moves = placed.file.found.moves
    stream = moves.call >= FIRST_STREAM_MOVE
    of_streams = int(np.count_nonzero(stream))
    for layer, count, rows in (
        (model.POSIX, len(moves) - of_streams, ~stream if of_streams else None),
        (model.STDIO, of_streams, stream if of_streams < len(moves) else None),
    ):
        if not count:
            continue
        some = moves if rows is None else moves.pick(rows)
        files, record = number_files(some.file)
        op = (some.call >> np.uint8(4)) & np.uint8(1)
        op ^= np.uint8(1)  # classes of reads are odd
        columns = (
            record, op, some.offset, some.nbytes, placed.since_start(some.start_ns),
            placed.since_start(some.end_ns), some.thread,
        )  # fmt: skip
        for column in columns:
            column.flags.writeable = False
        ranks, hosts = np.zeros(len(files), np.int64), (placed.file.header.host,) * len(files)
        yield OperationTable(layer, files.astype(np.uint64), ranks, hosts, *columns)


def _find_call_intervals(placed: _Placed) -> tuple[Intervals, dict[str, Intervals]]:
    """When the process was in metadata calls, and kind -> in such calls, without kinds not used."""
    others, kinds = placed.file.found.others, call_kinds.CALL_KINDS
    number_of = np.full(256, len(kinds), np.uint8)
    number_of[Call.OPEN :] = kinds.index(call_kinds.OTHER)  # below are reads and writes
    for call, of_call in _KIND_OF.items():
        number_of[call] = kinds.index(of_call)
    number = number_of[others.call]
    start, end = placed.since_start(others.start_ns), placed.since_start(others.end_ns)
    of_metadata = number < kinds.index(call_kinds.SYNC)  # the last of them
    by_kind = {}
    for i, kind in enumerate(kinds):
        of_kind = number == i
        if of_kind.any():
            by_kind[kind] = intervals.union(start[of_kind], end[of_kind])
    return intervals.union(start[of_metadata], end[of_metadata]), by_kind


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one file says, without the calls that are in its log already."""

    log: TracerLog
    counters: CounterFile
    header: Header
    clock: Clock


def read_recorded(path: Path) -> Recorded:
    """One process: its log and its totals.

    Raises:
        InputError, OSError: as `read_calls`.
    """
    file = read_calls(path)
    of_process = build_log(file)
    return Recorded(of_process, sum_calls(file, of_process.operations), file.header, file.clock)


_UNSEEN_NBYTES, _UNSEEN_SHARE = 16 << 20, 0.05
_TOLD_NBYTES = 1 << 20  # less is mostly what starting a program reads


def list_warnings(found: Sequence[Recorded]) -> Iterator[Notice]:
    """What the files of a run do not hold."""
    processes = [(one.log, one.header) for one in found]
    # Calls that are in totals alone: since when, and which limit ended the record of single ones.
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
    # Processes that did not end by themselves, clocks that were set meanwhile.
    killed = [header for _, header in processes if header.end_monotonic_ns == 0]
    if killed:
        every_ms = max(header.written_every_ms for header in killed)
        missing = (
            f"what they did in their last {seconds(every_ms / 1e3)} of recording may be missing, "
            "as the storage of RUN cannot hold calls at once without risk to the program"
            if every_ms
            else "what each thread was in just then is missing, at most one call"
        )
        yield Notice(
            "calls_unfinished",
            f"{plural(len(killed), 'process was', 'processes were')} killed or still running: "
            f"{missing}.",
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
    # Reads that no wrapper saw, files whose names found no room.
    yield from _warn_of_unseen_reads(found)
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


def _warn_of_unseen_reads(found: Sequence[Recorded]) -> Iterator[Notice]:
    """How much of what was read from files the tracer saw, at least, by the kernel's count.

    The kernel counts what calls read, of pipes and sockets as well; what the tracer saw of these is
    taken off, and all that remains beside its calls on files is taken for files it did not see.
    Streams may get less than they read ahead, which makes the bound lower, never higher.
    """
    # Bytes of files that each process read itself, by the kernel and by the tracer.
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
    # How much of them is traced, and whether the rest is worth a warning.
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
