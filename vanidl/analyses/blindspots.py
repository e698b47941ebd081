"""What Darshan did not see or says wrongly, read off its own counters and flags.

Each rule: (trace, traced seconds a layer) -> warnings. What was not recorded is reported as
not recorded, never as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from vanidl.analyses.counted import prefix_of, record_counts
from vanidl.trace import POSIX, STDIO, CounterTable, Notice, Trace

DXT_MODULE = {"POSIX": "DXT_POSIX", "MPI-IO": "DXT_MPIIO"}

_TIME_TOLERANCE = 1e-3
_STDIO_SHARE = 0.01


def find(trace: Trace, traced_s: Mapping[str, float]) -> tuple[Notice, ...]:
    """Every warning that the counters and flags give reason for."""
    return tuple(notice for rule in RULES for notice in rule(trace, traced_s))


def _partial(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    flagged = sorted({layer for log in trace.logs for layer in log.partial_layers})
    records = [layer for layer in flagged if not layer.startswith("DXT")]
    if flagged:
        yield Notice(
            "partial",
            f"Darshan flagged as incomplete: {', '.join(flagged)}. What it dropped is missing "
            "from every number below.",
        )
    if records:
        yield Notice(
            "records_exhausted",
            f"Darshan ran out of records in {', '.join(records)}: files that were opened after "
            "that left no trace at all, so files missing here may have been read. A Python "
            "job's imports can use up the limit: raise MAX_RECORDS and exclude library paths "
            "(NAME_EXCLUDE) in Darshan's configuration.",
        )


def _time_mismatch(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    for layer, seconds in traced_s.items():
        counted = _counted_seconds(trace.counters.get(layer))
        if counted and seconds < counted * (1 - _TIME_TOLERANCE):
            yield Notice(
                "time_mismatch",
                f"{layer}: traced operations add up to {seconds:.3f} s, the counters to "
                f"{counted:.3f} s. The trace misses operations, or its clock is wrong.",
            )


def _meta_time(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    limit = trace.job.run_time_s * max(len(trace.processes), 1)
    for table in trace.counters.values():
        seconds = table.total_s(f"{prefix_of(table.layer)}_F_META_TIME")
        if seconds and limit > 0 and seconds > limit:
            yield Notice(
                "meta_time_not_credible",
                f"{table.layer}: metadata time {seconds:.1f} s exceeds what "
                f"{len(trace.processes)} processes have in {trace.job.run_time_s:.1f} s. Darshan "
                "counts concurrent opens of many threads several times; it is not used.",
            )


def _stdio_untraced(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    table, posix = trace.counters.get(STDIO), trace.counters.get(POSIX)
    if table is None or not traced_s:
        return
    moved = _bytes(table)
    total = moved + (_bytes(posix) if posix else 0)
    if moved > _STDIO_SHARE * total:
        yield Notice(
            "stdio_untraced",
            f"STDIO moved {moved:,} of {total:,} bytes ({moved / total:.1%}). Darshan traces no "
            "single STDIO operation: they are in the totals, not in the timeline or the overlap.",
        )


def _offsets_ambiguous(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:
    table = trace.counters.get(POSIX)
    if table is None or POSIX not in traced_s or "POSIX_OPENS" not in table.counters:
        return
    dataset = _kind_mask(trace, table, "dataset")
    seeks = table.counters.get("POSIX_SEEKS", np.zeros(len(dataset), np.int64))
    one_process = table.process >= 0
    many = (table.counters["POSIX_OPENS"] > 1) & (seeks > 0) & dataset & one_process
    if many.any():
        example = trace.files.path[int(table.file[many][0])]
        yield Notice(
            "offsets_ambiguous",
            f"{int(many.sum())} dataset file records were opened more than once by one process "
            f"(for example {example}). If two descriptors were read() at the same time, Darshan "
            "mixes their offsets: access pattern and re-reads of these files may be wrong.",
            "info",
        )


def _mmap(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    table = trace.counters.get(POSIX)
    if table is None or "POSIX_MMAPS" not in table.counters:
        return
    mapped = table.counters["POSIX_MMAPS"]
    if (mapped < 0).all() and len(mapped):
        yield Notice(
            "mmap_not_monitored",
            "Darshan did not monitor mmap: data read through memory maps (np.memmap, Arrow, "
            "safetensors) is not in any number here.",
            "info",
        )


def _reads_not_seen(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    table = trace.counters.get(POSIX)
    if table is None or "POSIX_OPENS" not in table.counters:
        return
    opened = table.counters["POSIX_OPENS"] > 0
    silent = (record_counts(table, "BYTES_READ") + record_counts(table, "BYTES_WRITTEN")) == 0
    codes = np.unique(table.file[opened & silent])
    moved = np.unique(table.file[~silent])
    names = [trace.files.path[c] for c in np.setdiff1d(codes, moved).tolist()]
    data = [name for name in names if name.lower().endswith(_DATA_SUFFIXES)]
    if data:
        yield Notice(
            "reads_not_seen",
            f"{len(data)} data files were opened and no read of them was seen (for example "
            f"{data[0]}). mmap and np.load bypass every call that Darshan wraps: their bytes are "
            "not recorded, not zero.",
        )


def _anonymised(trace: Trace, traced_s: Mapping[str, float]) -> Iterator[Notice]:  # noqa: ARG001
    if trace.job.command.isdecimal():  # darshan-convert --obfuscate writes a hash
        yield Notice(
            "anonymised",
            "The log is anonymised: its command and file names are hashes. Kinds of files are told "
            "by how they were used alone, not by their names.",
            "info",
        )


_DATA_SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".tfrecord", ".tfrecords", ".parquet", ".arrow",
                  ".tar", ".bin", ".dat", ".mds", ".lmdb", ".zarr", ".safetensors")  # fmt: skip


def _counted_seconds(table: CounterTable | None) -> float | None:
    if table is None:
        return None
    prefix = prefix_of(table.layer)
    values = [table.total_s(f"{prefix}_F_{what}_TIME") for what in ("READ", "WRITE")]
    return sum(v for v in values if v is not None)


def _bytes(table: CounterTable) -> int:
    return int(sum(record_counts(table, f"BYTES_{d}").sum() for d in ("READ", "WRITTEN")))


def _kind_mask(
    trace: Trace, table: CounterTable, kind: str
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    wanted = np.array([k == kind for k in trace.files.kind], bool)
    return wanted[table.file] if len(wanted) else np.zeros(len(table.file), bool)


Rule = Callable[[Trace, Mapping[str, float]], Iterator[Notice]]
RULES: tuple[Rule, ...] = (
    _partial,
    _time_mismatch,
    _meta_time,
    _stdio_untraced,
    _offsets_ambiguous,
    _mmap,
    _reads_not_seen,
    _anonymised,
)
