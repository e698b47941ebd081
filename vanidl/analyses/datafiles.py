"""Dataset files as counters and folders know them: opened, read, sized, never touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from vanidl.analyses.sorting import sum_by_key
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import prefix_of, record_counts
from vanidl.model.trace import STORAGE_LAYERS, Trace

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


def counted(trace: Trace, layer: str) -> Counted:
    """What the layer's counters say of each dataset file that was read."""
    table = trace.counters.get(layer)
    if table is None:
        return Counted({}, {}, {}, {})
    rows = np.flatnonzero(trace.files.is_data[table.file])
    reads = _by_file(table, rows, record_counts(table, "READS"))
    nbytes = _by_file(table, rows, record_counts(table, "BYTES_READ"))
    read = {code for code in reads if reads[code] or nbytes[code]}
    prefix = prefix_of(layer)
    opens = table.counters.get(f"{prefix}_OPENS", np.full(len(table.file), -1, np.int64))
    return Counted(
        {c: n for c, n in reads.items() if c in read},
        {c: n for c, n in nbytes.items() if c in read},
        _by_file(table, rows[opens[rows] >= 0], opens),
        _extents(table, rows, f"{prefix}_MAX_BYTE_READ"),
    )


def _extents(
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


def traced_share(known: Counted, traced: int) -> float | None:
    """Traced reads / counted reads of dataset files; None where nothing was counted."""
    total = sum(known.reads.values())
    return min(traced / total, 1.0) if total else None


def never_read(trace: Trace) -> NeverRead:
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
    return NeverRead(_opened_only(trace), unopened, "")


def _opened_only(trace: Trace) -> tuple[str, ...] | None:
    """Data files with an open and no byte moved, over the storage layers."""
    tables = [trace.counters[name] for name in STORAGE_LAYERS if name in trace.counters]
    if not tables:
        return None
    opened: set[int] = set()
    moved: set[int] = set()
    for table in tables:
        opens = table.counters.get(f"{prefix_of(table.layer)}_OPENS")
        if opens is not None:
            opened.update(table.file[opens > 0].tolist())
        amount = record_counts(table, "BYTES_READ") + record_counts(table, "BYTES_WRITTEN")
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


def _by_file(
    table: CounterTable,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> dict[int, int]:
    files, total = sum_by_key(table.file[rows].astype(np.int64), values[rows])
    return dict(zip(files.tolist(), total.tolist(), strict=True))
