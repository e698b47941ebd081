"""Dataset files: what counters and folders know of them, samples in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.access import AccessCounts
from vanidl.formatting.units import percent
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record, prefix_of
from vanidl.model.ordering import sum_by_key
from vanidl.model.run_facts import UserData
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

NO_RANK = "no rank"
"""The label of what processes read that count for no rank."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One dataset file. Times in seconds since the start of the job; None: not recorded."""

    path: str
    size: int | None  # bytes on disk, known only where the file was found here
    extent: int | None  # highest byte read + 1
    bytes_read: int
    reads: int
    unique_bytes: int | None  # length of the union of all byte ranges read
    reread_factor: float | None  # bytes read / unique bytes
    visits: int | None
    opens: int | None
    ranks: int | None
    samples: int | None  # in the part of the file that was read
    first_s: float | None
    last_s: float | None

    @property
    def known_nbytes(self) -> int | None:
        """Its size, or as far as it was read; None: neither is known."""
        return self.size if self.size is not None else self.extent


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank read of the dataset."""

    label: str
    rank: int | None
    files: int
    bytes_read: int
    unique_bytes: int
    share: float | None  # unique bytes / (size of the dataset where known, else bytes read by any)


@dataclass(frozen=True, slots=True)
class ReadGrid:
    """Bytes that were asked for over time, shape (files, bins); a read counts where it starts.

    `file` are positions in Dataset.files, in the order of the first visit.
    """

    file: Int64Array
    edges_s: NDArray[np.float64]
    nbytes: Int64Array
    files: int  # how many dataset files were read in all


MOST_FILES = 1000

DATA_SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".he5", ".nc", ".tfrecord", ".tfrecords",
                 ".parquet", ".arrow", ".tar", ".bin", ".dat", ".mds", ".lmdb", ".zarr", ".jpg",
                 ".jpeg", ".png", ".tif", ".tiff", ".wav", ".flac")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counted:
    """Dataset files by code, as one layer's counters have them."""

    reads: dict[int, int]
    nbytes: dict[int, int]
    opens: dict[int, int]
    extent: dict[int, int]


@dataclass(frozen=True, slots=True)
class NeverRead:
    """Data files without a single read. None: it cannot be said."""

    opened: tuple[str, ...] | None  # the job opened them; memory maps are not seen
    on_disk: tuple[str, ...] | None  # in the folder given with --data, never opened
    reason: str = ""  # why it cannot be said


def count_by_file(trace: Trace, layer: str) -> Counted:
    """What the layer's counters say of each dataset file that was read."""
    table = trace.counters.get(layer)
    if table is None:
        return Counted({}, {}, {}, {})
    rows = np.flatnonzero(trace.files.is_data[table.file])
    reads = _sum_by_file(table, rows, count_by_record(table, "READS"))
    nbytes = _sum_by_file(table, rows, count_by_record(table, "BYTES_READ"))

    # A file that was only opened has a record, too.
    read = {code for code in reads if reads[code] or nbytes[code]}
    prefix = prefix_of(layer)
    # -1 stands for a counter that is not there.
    opens = table.counters.get(f"{prefix}_OPENS", np.full(len(table.file), -1, np.int64))
    return Counted(
        {c: n for c, n in reads.items() if c in read},
        {c: n for c, n in nbytes.items() if c in read},
        _sum_by_file(table, rows[opens[rows] >= 0], opens),
        _find_extents(table, rows, f"{prefix}_MAX_BYTE_READ"),
    )


def _find_extents(
    table: CounterTable, rows: np.ndarray[tuple[int], np.dtype[np.intp]], name: str
) -> dict[int, int]:
    """Highest byte read + 1 of each file in these rows that has one."""
    top = table.counters.get(name)
    if top is None:
        return {}
    files, place = np.unique(table.file[rows[top[rows] > 0]], return_inverse=True)
    ends = np.zeros(len(files), np.int64)
    np.maximum.at(ends, place, top[rows[top[rows] > 0]] + 1)
    return dict(zip(files.tolist(), ends.tolist(), strict=True))


def compute_traced_share(known: Counted, traced: int) -> float | None:
    """Traced reads / counted reads of dataset files; None where nothing was counted."""
    total = sum(known.reads.values())
    return min(traced / total, 1.0) if total else None


def find_never_read(trace: Trace) -> NeverRead:
    """Data files that the job opened without reading, or did not open at all."""
    dropped = sorted(
        {name for log in trace.logs for name in log.partial_layers if not name.startswith("DXT")}
    )
    if dropped:
        reason = (
            f"Darshan ran out of records in {', '.join(dropped)}: files missing from the log may "
            "have been read."
        )
        return NeverRead(None, None, reason)
    unopened = trace.user_data.on_disk
    return NeverRead(_find_opened_only(trace), unopened, "")


def _find_opened_only(trace: Trace) -> tuple[str, ...] | None:
    """Data files with an open and no byte moved, over the storage layers."""
    tables = [trace.counters[name] for name in STORAGE_LAYERS if name in trace.counters]
    if not tables:
        return None

    # Over all layers at once: what one layer opens another may read.
    opened: set[int] = set()
    moved: set[int] = set()
    for table in tables:
        opens = table.counters.get(f"{prefix_of(table.layer)}_OPENS")
        if opens is not None:
            opened.update(table.file[opens > 0].tolist())
        amount = count_by_record(table, "BYTES_READ") + count_by_record(table, "BYTES_WRITTEN")
        moved.update(table.file[amount > 0].tolist())
    folders = {
        str(PurePosixPath(path).parent)
        for path, kind in zip(trace.files.path, trace.files.kind, strict=True)
        if kind == trace.files.data_kind
    }
    paths = (trace.files.path[code] for code in sorted(opened - moved))
    return tuple(path for path in paths if _is_data(path, folders))


def _is_data(path: str, folders: set[str]) -> bool:
    return path.lower().endswith(DATA_SUFFIXES) or str(PurePosixPath(path).parent) in folders


def _sum_by_file(
    table: CounterTable,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> dict[int, int]:
    files, total = sum_by_key(table.file[rows].astype(np.int64), values[rows])
    return dict(zip(files.tolist(), total.tolist(), strict=True))


_STRONG = 0.8
_SMALLEST = 1024  # smaller pieces are headers and indices more often than samples


@dataclass(frozen=True, slots=True)
class Record:
    """How samples are counted: `nbytes` each, or as the opened files say."""

    nbytes: int | None
    source: str  # "given", "files", "inferred" or "" where unknown
    evidence: str


@dataclass(frozen=True, slots=True)
class SampleBin:
    """Files that hold low <= samples < high."""

    low: int
    high: int
    files: int


@dataclass(frozen=True, slots=True)
class SamplesPerFile:
    """Distribution of samples over dataset files; numbers are None where samples are unknown."""

    record_bytes: int | None
    source: str | None
    evidence: str
    files: int  # how many files the numbers are of
    total: int | None
    min: int | None
    median: float | None
    max: int | None
    histogram: tuple[SampleBin, ...]


def record_size(
    user_data: UserData,
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]],
    within: AccessCounts | None,
) -> Record:
    """The size of one sample: given, else as opened files say, else inferred from strong evidence.

    Inferred only where one transfer size carries 80 % of the dataset's bytes and 80 % of the
    reads begin elsewhere than the one before ended: then one read is one sample. Reads that
    moved nothing, as at the end of a file, are neither.

    Args:
        user_data: what the user and opened files say.
        sizes: distinct sizes of reads, and how many reads have each.
        within: where the reads that moved bytes begin.
    """
    if user_data.record_bytes is not None:
        return Record(user_data.record_bytes, "given", "--record-size")
    known = [f for f in user_data.facts.values() if f.samples is not None]
    if known:
        return Record(None, "files", f"counted in {len(known):,} opened files")
    nbytes, counts = sizes
    volume = nbytes * counts
    if len(volume) == 0 or within is None or not volume.sum() or not within.ops:
        return Record(None, "", "no reads with sizes and offsets were traced")

    # Reads that follow one on another may be pieces of one sample: most have to jump.
    top = int(np.argmax(volume))
    share = float(volume[top] / volume.sum())
    jumps = ((within.forward or 0) + (within.backward or 0)) / within.ops
    if share >= _STRONG and jumps >= _STRONG and nbytes[top] >= _SMALLEST:
        of_size = f"{percent(share)} of the bytes came in reads of this size"
        evidence = f"{of_size}, {percent(jumps)} of reads begin elsewhere than the one before ended"
        return Record(int(nbytes[top]), "inferred", evidence)
    return Record(
        None,
        "",
        "no single transfer size stands for one sample: give --record-size, or --inspect where "
        "the files can be opened",
    )


def add_samples(file: DataFile, record: Record, user_data: UserData) -> DataFile:
    """The file with the number of samples in the part of it that was read."""
    if record.source == "files":
        facts = user_data.facts.get(file.path)
        if facts is None or facts.samples is None:
            return file
        size = max(facts.size, 1)
        seen = size if file.unique_bytes is None else min(file.unique_bytes, size)
        whole = seen >= 0.98 * size  # footers, padding and indices are not always read
        return replace(file, samples=facts.samples if whole else facts.samples * seen // size)
    if record.nbytes is None:
        return file
    read = file.unique_bytes if file.unique_bytes is not None else file.extent
    return file if read is None else replace(file, samples=read // record.nbytes)


def count_samples_per_file(files: Sequence[DataFile], record: Record) -> SamplesPerFile:
    """Distribution of `samples` over the files that have one; histogram in powers of two."""
    values = np.array([f.samples for f in files if f.samples is not None], np.int64)
    source = record.source or None
    if len(values) == 0:
        return SamplesPerFile(record.nbytes, source, record.evidence, 0, None, None, None, None, ())
    return SamplesPerFile(
        record.nbytes,
        source,
        record.evidence,
        len(values),
        int(values.sum()),
        int(values.min()),
        float(np.median(values)),
        int(values.max()),
        _count_in_bins(values),
    )


def _count_in_bins(values: NDArray[np.int64]) -> tuple[SampleBin, ...]:
    top = int(values.max()).bit_length()
    edges = [0, *(1 << i for i in range(top + 1))]
    counts = np.histogram(values, [*edges[:-1], edges[-1]])[0].tolist()
    bins = [SampleBin(a, b, n) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    used = [i for i, b in enumerate(bins) if b.files]
    return tuple(bins[used[0] : used[-1] + 1])
