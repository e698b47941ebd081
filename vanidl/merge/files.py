"""File ids of each log -> file codes of the run, and what kind of file each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_path, clean_paths, clean_text
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record
from vanidl.model.file_kinds import KindRule, data_kind, kind_of, log_paths
from vanidl.model.trace import STORAGE_LAYERS, Files, Part
from vanidl.parallel.threads import batches
from vanidl.readers import registry
from vanidl.readers.records import CounterFile, ProfileTrace, TracerLog

Int64Array = NDArray[np.int64]

_TOGETHER_ROWS = 1 << 18  # operations of small parts that are added up at once
_MOST_LATEST = 64  # lists of ids whose codes are kept


def path_of(log: TracerLog, file_id: int) -> str:
    """The path that a log gives a file id, or a stand-in where it has no name for it."""
    return log.names.get(file_id) or _stand_in(file_id)


def paths_of(log: TracerLog, file_ids: Iterable[int]) -> list[str]:
    """`path_of` each id: without a call for each, as thousands of logs have dozens of them."""
    known = log.names.get
    return [known(file_id) or _stand_in(file_id) for file_id in file_ids]


def _stand_in(file_id: int) -> str:
    return f"<unnamed {file_id:#018x}>"


class FileCodes(dict[str, int]):
    """Path -> file code."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Numbers the paths in turn."""
        super().__init__((path, code) for code, path in enumerate(paths))
        self._latest: dict[tuple[int, bytes], tuple[Mapping[int, str], NDArray[np.int32]]] = {}

    def of_ids(self, log: TracerLog, file_ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The code of each file id of a log; of logs that share their names looked up once."""
        key = id(log.names), file_ids.tobytes()
        if key not in self._latest:
            codes = np.array([self[path] for path in paths_of(log, file_ids.tolist())], np.int32)
            codes.setflags(write=False)
            if len(self._latest) >= _MOST_LATEST:
                self._latest.clear()
            self._latest[key] = log.names, codes  # held, so that no others get their id
        return self._latest[key][1]


def number_files(logs: Sequence[TracerLog], counters: Mapping[str, CounterFile]) -> FileCodes:
    """The codes of every file with operations or counters; paths in order.

    Args:
        logs: the logs of the run.
        counters: the counters of each log, keyed by its path.
    """
    found: set[str] = set()
    seen: set[tuple[int, bytes]] = set()  # of thousands of logs many share their names
    for log in logs:
        ids = [t.record_file for t in log.operations]
        ids += [c.file for c in counters[log.path].layers] if log.path in counters else []
        for some in ids:
            if (key := (id(log.names), some.tobytes())) not in seen:
                seen.add(key)
                found.update(paths_of(log, some.tolist()))
    return FileCodes(sorted(found))


def describe_files(
    paths: Sequence[str],
    logs: Sequence[TracerLog],
    tables: Mapping[str, CounterTable],
    io: Sequence[Part],
    rules: Sequence[KindRule],
    profiles: Sequence[ProfileTrace] = (),
) -> Files:
    """Kind and mount point of each file, by its name and by what was read, written and saved."""
    read, written = _sum_traffic(len(paths), tables, io)
    outputs = log_paths(known.outputs for known in registry.FORMATS)
    saved = _find_saved(paths, profiles)
    kinds = [
        kind_of(path, r, w, rules, outputs, s)
        for path, r, w, s in zip(paths, read.tolist(), written.tolist(), saved, strict=True)
    ]
    by_kind: dict[str, int] = {}
    for kind, nbytes in zip(kinds, read.tolist(), strict=True):
        by_kind[kind] = by_kind.get(kind, 0) + nbytes
    # Longest first: a path belongs to the innermost mount point above it.
    mounts = sorted({m for log in logs for m in log.mounts}, key=lambda m: (-len(m[0]), m))
    found = [_find_mount(path, mounts) for path in paths]
    return Files(
        path=clean_paths(paths),
        kind=tuple(kinds),
        mount=tuple(clean_path(point) for point, _ in found),
        file_system=tuple(clean_text(kind) for _, kind in found),
        data_kind=data_kind(by_kind),
        true_path=tuple(paths),
    )


def _find_saved(
    paths: Sequence[str], profiles: Sequence[ProfileTrace]
) -> Sequence[bool] | Sequence[None]:
    """Which files are checkpoints that a library saved, or lie in a folder that is one."""
    if not any(profile.marks_saves for profile in profiles):
        return [None] * len(paths)
    calls = [c for profile in profiles for c in profile.checkpoint_calls if not c.is_load]
    names = {name for call in calls for name in (call.path, *call.former) if name}

    def is_saved(path: str) -> bool:
        while path:
            if path in names:
                return True
            path = path.rpartition("/")[0]
        return False

    return [is_saved(path) for path in clean_paths(paths)]


def _sum_traffic(
    files: int, tables: Mapping[str, CounterTable], io: Sequence[Part]
) -> tuple[Int64Array, Int64Array]:
    """Bytes read and written of each file over the storage layers, from counters and trace."""
    sums = np.zeros((2, files), np.int64)
    for layer in STORAGE_LAYERS:
        if layer in tables:
            table = tables[layer]
            for op, what in enumerate(("BYTES_READ", "BYTES_WRITTEN")):
                np.add.at(sums[op], table.file, count_by_record(table, what))
    traced = np.zeros_like(sums)
    for some in batches(io, len, _TOGETHER_ROWS):
        columns = (np.concatenate([getattr(p, n) for p in some]) for n in ("op", "file", "nbytes"))
        ops, codes, nbytes = _add_runs(*columns)
        np.add.at(traced, (ops, codes), nbytes)
    # Counters and trace may each lack some: the larger sum is nearer to what was moved.
    sums = np.maximum(sums, traced)
    return sums[0], sums[1]


def _add_runs(
    op: NDArray[np.uint8], file: NDArray[np.int32], nbytes: Int64Array
) -> tuple[NDArray[np.uint8], NDArray[np.int32], Int64Array]:
    """Op, file and bytes of neighbours that have both in common: mostly there are many."""
    new = (op[1:] != op[:-1]) | (file[1:] != file[:-1])
    first = np.flatnonzero(np.append(True, new)[: len(op)])
    if not len(first):
        return op, file, nbytes
    return op[first], file[first], np.add.reduceat(nbytes, first)


def _find_mount(path: str, mounts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    # An object's mount point is its bucket.
    if "://" in path:
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}", "object storage"
    for point, kind in mounts:
        if path == point or path.startswith(point if point.endswith("/") else point + "/"):
            return point, kind
    return "", ""
