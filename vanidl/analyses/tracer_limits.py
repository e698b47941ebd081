"""What Darshan did not see or says wrongly, read off its own counters and flags.

Each rule: (trace, traced seconds a layer) -> warnings. What was not recorded is reported as
not recorded, never as zero.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import count, percent, plural, seconds
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record, prefix_of
from vanidl.model.ordering import stable_order
from vanidl.model.trace import MPIIO, POSIX, READ, STDIO, STORAGE_LAYERS, Part, Trace
from vanidl.model.warnings import Notice
from vanidl.schema.dataclass import dataclass

COUNTED_LAYERS = (POSIX, MPIIO, STDIO)
DXT_MODULE = {"POSIX": "DXT_POSIX", "MPI-IO": "DXT_MPIIO"}

_WITHOUT_IO = {"BG/Q", "APXC", "LUSTRE", "HEATMAP"}
"""Modules about the machine, the layout of files, or what other modules count, too."""

_TIME_TOLERANCE = 1e-3
_STDIO_SHARE = 0.01


def find(trace: Trace, traced_s: Mapping[str, float]) -> tuple[Notice, ...]:
    """Every warning that the counters and flags give reason for."""
    rules = OF_CALLS if trace.job.tracer == "vanidl" else RULES
    return tuple(notice for rule in rules for notice in rule(trace, traced_s))


def _warn_of_partial_layers(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    flagged = sorted({layer for log in trace.logs for layer in log.partial_layers})
    records = [layer for layer in flagged if layer in COUNTED_LAYERS]
    if flagged:
        bound = "totals, too, are lower bounds" if records else "counters and totals are whole"
        yield Notice(
            "partial",
            f"Darshan flagged as incomplete: {', '.join(flagged)}. What it dropped is missing from "
            f"every number that rests on these modules; {bound}. Raise its limits (MAX_RECORDS, "
            "NAMEMEM, MODMEM in its configuration) and record again.",
        )
    if records:
        yield Notice(
            "records_exhausted",
            f"Darshan ran out of records or memory in {', '.join(records)}: files that were opened "
            "after that left no trace at all, so a file missing here may have been read. A Python "
            "program's imports can use up the limit of 1,024: raise MAX_RECORDS and NAMEMEM, and "
            "exclude library paths (NAME_EXCLUDE) in Darshan's configuration.",
        )


def _warn_of_unread_modules(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    """Modules of the log that no reader knows; those that record no I/O are worth a remark."""
    logs = Counter(module for log in trace.logs for module in log.unread_modules)
    if not logs:
        return
    named = ", ".join(f"{module} (in {count(n)} of {plural(len(trace.logs), 'log')})"
                      for module, n in sorted(logs.items()))  # fmt: skip
    has_io = not set(logs) <= _WITHOUT_IO
    consequence = (
        "What went through them is in no number here: totals are lower bounds, and no share of "
        "all I/O is claimed. Look at them with darshan-parser."
        if has_io
        else "They record no I/O of files; nothing of them is in this report."
    )
    yield Notice(
        "modules_not_read",
        f"Modules of the log of which vanidl does not know the records, or their version: {named}. "
        f"{consequence}",
        "warning" if has_io else "info",
    )


def _warn_of_time_mismatch(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    for layer, spent_s in traced_s.items():
        counted, with_syncs = _sum_counted_seconds(trace.counters.get(layer))
        if spent_s < counted * (1 - _TIME_TOLERANCE):
            yield Notice(
                "time_mismatch",
                f"{layer}: traced operations add up to {seconds(spent_s)}, the counters to "
                f"{seconds(counted)}, which should not be more. The trace misses operations or its "
                "clock is wrong: times and overlap here are lower bounds. Check the log with "
                "darshan-parser, or record again.",
            )
        elif spent_s < with_syncs * (1 - _TIME_TOLERANCE):
            yield Notice(
                "sync_untraced",
                f"{layer}: at least {seconds(with_syncs - spent_s)} were spent in fsync and its "
                "like. Darshan counts that as write time and traces no single call: it is not in "
                "busy time, the timeline or the overlap. It is what a checkpoint that is made safe "
                "costs beyond its writes; sync less often if it is long.",
                "info",
            )


def exceeds_run_time(table: CounterTable, trace: Trace) -> bool:
    """Whether a layer's metadata time is more than its processes have, so not credible."""
    limit = trace.job.run_time_s * max(len(trace.processes), 1)
    spent_s = table.total_s(f"{prefix_of(table.layer)}_F_META_TIME")
    return bool(spent_s) and 0 < limit < (spent_s or 0.0)


def _warn_of_metadata_time(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    for table in trace.counters.values():
        spent_s = table.total_s(f"{prefix_of(table.layer)}_F_META_TIME")
        if exceeds_run_time(table, trace):
            yield Notice(
                "meta_time_not_credible",
                f"{table.layer}: metadata time {seconds(spent_s)} exceeds what "
                f"{plural(len(trace.processes), 'process has', 'processes have')} in "
                f"{seconds(trace.job.run_time_s)}. "
                "Darshan counts concurrent opens of many threads several times. It is shown as "
                "recorded, and no finding rests on it; counts and bytes are not affected.",
            )


def _warn_of_untraced_stdio(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    table, posix = trace.counters.get(STDIO), trace.counters.get(POSIX)
    if table is None or not traced_s or STDIO in trace.layers_traced:
        return
    moved = _sum_bytes(table)
    total = moved + (_sum_bytes(posix) if posix else 0)
    if moved > _STDIO_SHARE * total:
        yield Notice(
            "stdio_untraced",
            f"STDIO (fread; np.load, too, from Darshan 3.5 on) moved {moved:,} of the {total:,} "
            f"bytes of POSIX and STDIO ({percent(moved / total)}). Darshan traces no single STDIO "
            "operation: these bytes are in the totals, not in busy time, the timeline or the "
            "overlap. Reading with read or pread "
            "instead would be traced.",
        )


def _warn_of_ambiguous_offsets(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    table = trace.counters.get(POSIX)
    if table is None or POSIX not in traced_s or OPENS not in table.counters:
        return
    dataset = trace.files.is_data[table.file]
    shared = find_shared_openings(trace, dataset & (table.process >= 0))
    if shared is None:
        return
    files = shared.together + shared.unclear
    surely = "surely" if shared.together == files else f"{count(shared.together)} of them surely"
    sure = surely if shared.together else "perhaps"
    yield Notice(
        "offsets_ambiguous",
        f"{plural(files, 'file was', 'files were')} opened several times by one process, {sure} at "
        f"the same time (for example {shared.path}). Darshan keeps one position a file: if two "
        "descriptors were read with read(), offsets, access pattern and re-reads of these files "
        "are wrong. Where threads open and close files at the same time, reads can be counted for "
        "the wrong file, or lost: bytes and operations of single files, too, are not certain then "
        "(--data compares them with the sizes). pread (h5py, TensorFlow) gives right offsets.",
        "warning" if shared.together else "info",
    )


def _warn_of_mmap(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    table = trace.counters.get(POSIX)
    if table is None or "POSIX_MMAPS" not in table.counters:
        return
    mapped = table.counters["POSIX_MMAPS"]
    if (mapped < 0).all() and len(mapped):
        yield Notice(
            "mmap_not_monitored",
            "Darshan did not monitor mmap: data read through memory maps (np.memmap, Arrow, "
            "safetensors) is not in any number here. If the job uses them, its reads are not "
            "recorded; reading with read or pread would be.",
            "info",
        )


def _warn_of_unseen_reads(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    table = trace.counters.get(POSIX)
    if table is None or "POSIX_OPENS" not in table.counters:
        return
    # Files that were opened and of which no byte was moved.
    opened = np.unique(table.file[table.counters["POSIX_OPENS"] > 0])
    silent = np.setdiff1d(opened, _find_moved_files(trace)).tolist()
    through_stdio = _find_files_with_bytes(trace.counters.get(STDIO))
    # Of a .npy file calls read the header alone where the rest is mapped.
    headers = np.setdiff1d(table.file[_mark_only_header(table)], through_stdio).tolist()
    names = [trace.files.path[c] for c in silent]
    data = [name for name in names if name.lower().endswith(_DATA_SUFFIXES)]
    data += [trace.files.path[c] for c in headers if trace.files.path[c].endswith(".npy")]
    if data:
        by_darshan = trace.job.tracer == "darshan"
        bypassing = (
            "mmap bypasses every call that Darshan wraps, and so do np.load and np.fromfile before "
            "Darshan 3.5"
            if by_darshan
            else "mmap, np.load and np.fromfile bypass every call that DFTracer wraps, which "
            "records opens that failed, too"
        )
        yield Notice(
            "reads_not_seen",
            f"{len(data)} data files were opened and no read of them was seen, or none behind the "
            f"header of a .npy file (for example {data[0]}). {bypassing}: unless these files were "
            "only opened, bytes are missing here and I/O time is too short. Record with Darshan "
            "3.5, or read with read or pread.",
        )


def _warn_of_mapped_files(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    """Data files that were mapped, and of which no call read anything."""
    table = trace.counters.get(POSIX)
    if table is None or "POSIX_MMAPS" not in table.counters:
        return
    mapped = np.unique(table.file[table.counters["POSIX_MMAPS"] > 0])
    silent = [
        trace.files.path[code] for code in np.setdiff1d(mapped, _find_moved_files(trace)).tolist()
    ]
    data = [name for name in silent if name.lower().endswith(_DATA_SUFFIXES)]
    if data:
        yield Notice(
            "reads_not_seen",
            f"{plural(len(data), 'data file was', 'data files were')} mapped into memory, and no "
            f"call read of {'it' if len(data) == 1 else 'them'} (for example {data[0]}). What is "
            "read of a mapping are page faults: these bytes are missing here, and I/O time is too "
            "short.",
        )


def _warn_of_unseen_dataset(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    """Hardly a file was read of those that the command names as the dataset: DLIO's parameters."""
    named = max(map(int, _NAMED_FILES.findall(trace.job.command)), default=0)
    read = np.unique(_find_moved_files(trace))
    seen = int(trace.files.is_data[read].sum())
    if named >= _MANY_FILES and seen < _HARDLY * named:
        yield Notice(
            "dataset_not_seen",
            f"Hardly any byte of the dataset is in the log: the command names {named:,} files of "
            f"it, and {plural(seen, 'data file was', 'data files were')} read. The processes that "
            "read for training, such as the workers of a loader, left no log, or read past the "
            "tracer: I/O is a lower bound. Let the tracer follow forked processes (Darshan: "
            "DARSHAN_ENABLE_NONMPI=1 where workers are spawned; vanidl record does).",
        )


_NAMED_FILES = re.compile(r"\bnum_files_train=(\d{1,12})\b")
_MANY_FILES = 10
_HARDLY = 0.1


def _warn_of_anonymised_names(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    if trace.job.command.isdecimal():  # darshan-convert --obfuscate writes a hash
        yield Notice(
            "anonymised",
            "The log is anonymised: its command and file names are hashes. The kind of a file "
            "rests on how it was used, not on its name.",
            "info",
        )


_DATA_SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".tfrecord", ".tfrecords", ".parquet", ".arrow",
                  ".tar", ".bin", ".dat", ".mds", ".lmdb", ".zarr", ".safetensors")  # fmt: skip
_SMALLEST_BUFFER = 512


def _mark_only_header(table: CounterTable) -> NDArray[np.bool_]:
    """Records of which only one full buffer at offset 0 was read each time they were opened.

    So looks np.load of a .npy file: Python's file object reads its buffer, a power of two,
    for the header; NumPy reads the data through a descriptor of its own.
    """
    names = ("POSIX_READS", "POSIX_OPENS", "POSIX_MAX_BYTE_READ")
    if not set(names) <= set(table.counters):
        return np.zeros(len(table.file), bool)
    reads, opens, last = (table.counters[name] for name in names)
    size = last + 1
    buffer = (size >= _SMALLEST_BUFFER) & (size & last == 0)
    each = count_by_record(table, "BYTES_READ") == reads * size
    found: NDArray[np.bool_] = buffer & each & (reads > 0) & (reads <= opens)
    return found


def _find_moved_files(trace: Trace) -> NDArray[np.int32]:
    """Files of which bytes were seen moving on any storage layer."""
    tables = (trace.counters.get(layer) for layer in STORAGE_LAYERS)
    return np.concatenate([_find_files_with_bytes(table) for table in tables])


def _find_files_with_bytes(table: CounterTable | None) -> NDArray[np.int32]:
    if table is None:
        return np.empty(0, np.int32)
    moved = count_by_record(table, "BYTES_READ") + count_by_record(table, "BYTES_WRITTEN")
    return table.file[moved > 0]


def _sum_counted_seconds(table: CounterTable | None) -> tuple[float, float]:
    """Read and write time by the counters: without files that were synced, and of all.

    Darshan adds the time of fsync, fdatasync and MPI_File_sync to the write time of a file.
    """
    if table is None:
        return 0.0, 0.0
    prefix = prefix_of(table.layer)
    synced = np.zeros(len(table.file), bool)
    for name in ("FSYNCS", "FDSYNCS", "SYNCS"):
        if f"{prefix}_{name}" in table.counters:
            synced |= table.counters[f"{prefix}_{name}"] > 0
    found = (table.seconds.get(f"{prefix}_F_{what}_TIME") for what in ("READ", "WRITE"))
    seconds = sum((np.maximum(s, 0) for s in found if s is not None), np.zeros(len(table.file)))
    return float(seconds[~synced].sum()), float(seconds.sum())


def _sum_bytes(table: CounterTable) -> int:
    return int(sum(count_by_record(table, f"BYTES_{d}").sum() for d in ("READ", "WRITTEN")))


Rule = Callable[[Trace, Mapping[str, float]], Iterator[Notice]]
RULES: tuple[Rule, ...] = (
    _warn_of_partial_layers,
    _warn_of_unread_modules,
    _warn_of_time_mismatch,
    _warn_of_metadata_time,
    _warn_of_untraced_stdio,
    _warn_of_ambiguous_offsets,
    _warn_of_mmap,
    _warn_of_unseen_reads,
    _warn_of_unseen_dataset,
    _warn_of_anonymised_names,
)
OF_CALLS: tuple[Rule, ...] = (
    _warn_of_unread_modules,
    _warn_of_metadata_time,
    _warn_of_mapped_files,
    _warn_of_unseen_dataset,
    _warn_of_anonymised_names,
)
"""Of a tracer that sees every call of libc, and knows where in a file each one is."""


OPENS = "POSIX_OPENS"


@dataclass(frozen=True, slots=True)
class SharedOpenings:
    """Records (file x process) whose offsets may be wrong; `path` is an example."""

    together: int  # surely open several times at once
    unclear: int
    path: str


@dataclass(slots=True)
class _Reads:
    """How the traced reads of one file by one process follow each other."""

    begins: int = 0  # reads at offset 0
    follows: int = 0  # begin where the read before ended, not at 0
    jumps: int = 0


def find_shared_openings(trace: Trace, candidates: NDArray[np.bool_]) -> SharedOpenings | None:
    """What cannot be ruled out among the candidate records of the POSIX counters; None: all can.

    Darshan keeps one position a file and process, not one a descriptor: two descriptors that
    read() 0 to 7,000 each are recorded as one stream from 0 to 14,000. Opening a file sets that
    position to 0. So offsets are right, whatever was opened, where

    - reads jump and nothing seeked: pread, which brings its own offset (h5py, TensorFlow);
    - at least as many reads begin at 0 as the file was opened: every opening had a reading of
      its own, one after another;
    - no read follows on another;
    - of two openings the first was closed before the second.

    In the other cases Darshan's records do not say. Verified with Darshan 3.4.7.
    """
    table = trace.counters[POSIX]
    rows = np.flatnonzero(candidates & (_count_openings(table) > 1))
    if not len(rows):
        return None
    wanted = {(int(table.process[i]), int(table.file[i])): i for i in rows.tolist()}

    # Where the reads of these begin and end, by their trace.
    reads: dict[tuple[int, int], _Reads] = {}
    for part in trace.io:
        files = [file for process, file in wanted if process == part.process]
        if part.layer == POSIX and files:
            for file, offset, ends in _iterate_by_file(part, files):
                _add_reads(reads.setdefault((part.process, file), _Reads()), offset, ends)

    # What none of the four rules clears.
    doubtful = [
        i for key, i in wanted.items() if key in reads and _is_doubtful(table, i, reads[key])
    ]
    if not doubtful:
        return None
    together = sum(_is_open_together(table, i) for i in doubtful)
    example = trace.files.path[int(table.file[doubtful[0]])]
    return SharedOpenings(together, len(doubtful) - together, example)


def _count_openings(table: CounterTable) -> NDArray[np.int64]:
    """Openings of each record; Darshan 3.5 counts duplicated descriptors among them."""
    dups = table.counters.get("POSIX_DUPS", np.zeros(len(table.file), np.int64))
    return table.counters[OPENS] - np.maximum(dups, 0)


def _is_doubtful(table: CounterTable, i: int, reads: _Reads) -> bool:
    if reads.follows == 0 and reads.jumps == 0:
        return False
    if reads.jumps:
        seeks = table.counters.get("POSIX_SEEKS")
        return bool(seeks is not None and seeks[i] > 0) and _is_open_together(table, i)
    opened = int(_count_openings(table)[i])
    one_after_another = opened == 2 and _is_sure(table, i) and not _is_open_together(table, i)
    return reads.begins < opened and not one_after_another


def _is_open_together(table: CounterTable, i: int) -> bool:
    """Whether the first close came after the last open, or never."""
    if not _is_sure(table, i):
        return False
    closed = table.seconds["POSIX_F_CLOSE_START_TIMESTAMP"][i]
    return bool(closed == 0 or closed >= table.seconds["POSIX_F_OPEN_END_TIMESTAMP"][i])


def _is_sure(table: CounterTable, i: int) -> bool:
    names = ("POSIX_F_CLOSE_START_TIMESTAMP", "POSIX_F_OPEN_END_TIMESTAMP")
    return all(n in table.seconds and table.seconds[n][i] >= 0 for n in names)


def _iterate_by_file(
    part: Part, files: list[int]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """(file, offsets, ends) of the part's reads, in order of start."""
    rows = part.rows(np.isin(part.file, files) & (part.op == READ))
    order = stable_order(rows.file)
    code, offset, nbytes = rows.file[order], rows.offset[order], rows.nbytes[order]
    borders = np.flatnonzero(np.diff(code)) + 1
    for at in np.split(np.arange(len(code)), borders):
        if len(at):
            yield int(code[at[0]]), offset[at], offset[at] + nbytes[at]


def _add_reads(reads: _Reads, offset: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    begins = offset == 0
    follows = ~begins[1:] & (offset[1:] == ends[:-1])
    reads.begins += int(begins.sum())
    reads.follows += int(follows.sum())
    reads.jumps += int((~begins[1:] & ~follows).sum())
