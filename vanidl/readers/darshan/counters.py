"""Darshan's counters, decoded here: the records of whole regions to columns.

Records of every version that Darshan 3.0 to 3.5 wrote are decoded, as the newest of their
module; of a damaged region those that are whole before the damage. A record is a file id, a rank,
for datasets and variables the id of their file, counters (int64) and time counters (float64,
seconds).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.model.trace import (
    DAOS,
    DAOS_OF_DFS,
    DFS,
    H5D,
    H5F,
    MPIIO,
    PNETCDF,
    PNETCDF_VAR,
    POSIX,
    STDIO,
)
from vanidl.readers.darshan.counter_names import NAMES, Names
from vanidl.readers.darshan.header import Header
from vanidl.readers.darshan.job import decode_text
from vanidl.readers.records import (
    Columns,
    CounterFile,
    CounterRecords,
    HeatmapRecord,
    MpiRecord,
    StripeRecord,
)
from vanidl.schema.dataclass import dataclass

# Counters as they were read, by us or by PyDarshan, checked: one log's `CounterFile`.

LAYERS = {
    "POSIX": POSIX,
    "MPI-IO": MPIIO,
    "STDIO": STDIO,
    "H5F": H5F,
    "H5D": H5D,
    "PNETCDF_FILE": PNETCDF,
    "PNETCDF_VAR": PNETCDF_VAR,
    "DFS": DFS,
    "DAOS": DAOS,
}
"""Darshan's module to layer. Any module whose records are id, rank, counters and time
counters can be added here."""

OTHERS = ("LUSTRE", "HEATMAP")
"""Modules whose records have a shape of their own."""

HEATMAP_LAYERS = {
    16592106915301738621: POSIX,
    3989511027826779520: STDIO,
    3668870418325792824: MPIIO,
    1597927878319380788: DFS,
}
"""Darshan's id of a heat map's record (the hash of its name) to the layer.

That of DAOS is left out: it holds what went through DFS as well, which our layer DAOS does not.
"""

Stripe = tuple[int, int, Sequence[int], int, int]
"""Stripe size, stripe count and targets of one component of a file's layout, and the first byte
that it holds and the first behind them, -1 for the end of the file."""

WHOLE_FILE = 0, -1
"""The extent of a layout of one component."""

Bins = tuple[int, int, float, NDArray[np.int64], NDArray[np.int64]]
"""Heat map, rank, width of a bin in s, bytes written and read in each bin."""

Table = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Ids and ranks, shape (records,); counters and time counters, shape (counters, records)."""

_SUMMED = ("_OPENS", "_READS", "_WRITES", "_BYTES_READ", "_BYTES_WRITTEN")
_LARGEST = 1 << 56  # bytes or operations on one file: 64 PiB
_LONGEST_S = 2.0**32


def build_layer(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> tuple[CounterRecords, str]:
    """The records of one module without impossible ones, and a sentence about those ("")."""
    table, loss = drop_impossible(module, names, times, table)
    return to_records(module, names, times, table), loss


def drop_impossible(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> tuple[Table, str]:
    """A table without impossible records, and a sentence about those ("")."""
    # Records that damage made: sums over them would mean nothing, or leave the integers.
    summed, timed = _find_checked(names, times)
    ids, ranks, counters, seconds = table
    with np.errstate(invalid="ignore"):
        in_range = np.abs(seconds[timed]) <= _LONGEST_S  # false for NaN
    some = counters[summed]
    possible = (some >= -1) & (some <= _LARGEST)
    wrong = np.asarray(~(in_range.all(axis=0) & possible.all(axis=0)), np.bool_)
    loss = ""
    if wrong.any():
        loss = (
            f"{module}: {int(wrong.sum()):,} of {len(wrong):,} records hold impossible numbers "
            "and are left out"
        )
        table = ids[~wrong], ranks[~wrong], counters[:, ~wrong], seconds[:, ~wrong]
    for array in table:
        array.setflags(write=False)
    return table, loss


def to_records(
    module: str, names: tuple[str, ...], times: tuple[str, ...], table: Table
) -> CounterRecords:
    """A table of possible records of one module as a record."""
    ids, ranks, counters, seconds = table
    columns = Columns(names, counters), Columns(times, seconds)
    return CounterRecords(LAYERS[module], ids, ranks, *columns)


def split_daos_files(layers: Sequence[CounterRecords]) -> Iterator[CounterRecords]:
    """The layers of one log, where objects of DAOS that are files of DFS are a layer apart.

    Both modules count what goes through such a file, under one id.
    """
    files = next((records.file for records in layers if records.layer == DFS), None)
    for records in layers:
        if records.layer != DAOS or files is None:
            yield records
            continue
        of_files = np.isin(records.file, files)
        for layer, rows in ((DAOS, ~of_files), (DAOS_OF_DFS, of_files)):
            if rows.any():
                yield _pick_records(records, layer, rows)


def _pick_records(records: CounterRecords, layer: str, rows: NDArray[np.bool_]) -> CounterRecords:
    """Some of the records, as of another layer."""
    file, rank = records.file[rows], records.rank[rows]
    for array in (file, rank):
        array.setflags(write=False)
    columns = _pick_columns(records.counters, rows), _pick_columns(records.seconds, rows)
    return CounterRecords(layer, file, rank, *columns)


def _pick_columns(values: Mapping[str, NDArray[Any]], rows: NDArray[np.bool_]) -> Columns:
    picked = np.array([column[rows] for column in values.values()])
    picked.setflags(write=False)
    return Columns(tuple(values), picked)


@lru_cache(64)
def _find_checked(
    names: tuple[str, ...], times: tuple[str, ...]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of the counters that are summed, and of the times that have a bound."""
    summed = [i for i, name in enumerate(names) if name.endswith(_SUMMED)]
    timed = [i for i, name in enumerate(times) if "VARIANCE" not in name]
    return np.array(summed, np.intp), np.array(timed, np.intp)


def build_stripe_records(records: Iterable[tuple[int, Sequence[Stripe]]]) -> Iterator[StripeRecord]:
    """Every file once: ranks that record it say the same."""
    for file, parts in dict(records).items():
        for nbytes, count, osts, start, end in parts:
            extent = start, None if end < 0 else end
            yield StripeRecord(file, nbytes, count, tuple(osts), *extent)


def build_heatmap_records(records: Iterable[Bins]) -> Iterator[HeatmapRecord]:
    """The heat maps of known layers that have bins of a possible width."""
    for key, rank, width_s, written, read in records:
        layer = HEATMAP_LAYERS.get(key)
        bin_ns = round(width_s * 1e9) if math.isfinite(width_s * 1e9) else 0
        if layer is not None and bin_ns > 0 and len(written):
            yield HeatmapRecord(layer, rank, bin_ns, read, written)


# Counters of many logs that were decoded at once, and the records of each of them.

Rows = NDArray[Any] | tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class BatchCounters:
    """The records of one module in many logs, one log behind the other.

    On their way to another process most counters are one number: what a program does not use
    is 0 or -1 in all of its records.
    """

    layer: str
    names: tuple[str, ...]
    times: tuple[str, ...]
    file: NDArray[np.uint64]  # (records,)
    rank: NDArray[np.int64]
    counters: Rows  # of each name (records,)
    seconds: Rows

    def __reduce__(self) -> tuple[Any, ...]:
        sent = _pack_rows(self.counters), _pack_rows(self.seconds)
        return _unpack_batch, (self.layer, self.names, self.times, self.file, self.rank, *sent)


@dataclass(frozen=True, slots=True)
class RecordsPlace:
    """Which records of many logs, decoded together, are one log's: sent for these."""

    batch: BatchCounters
    first: int
    behind: int

    @property
    def layer(self) -> str:
        """As the records'."""
        return self.batch.layer

    def cut(self) -> CounterRecords:
        """The records of the log."""
        return _slice_batch(self.batch, self.first, self.behind)

    def __reduce__(self) -> tuple[Any, ...]:
        return _slice_batch, (self.batch, self.first, self.behind)


@dataclass(frozen=True, slots=True)
class _CounterSlice(CounterRecords):
    """The records of one log, sent as places among those of all."""

    batch: BatchCounters
    first: int
    behind: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _slice_batch, (self.batch, self.first, self.behind)


def _slice_batch(whole: BatchCounters, first: int, behind: int) -> CounterRecords:
    return _CounterSlice(
        whole.layer,
        whole.file[first:behind],
        whole.rank[first:behind],
        Columns(whole.names, whole.counters, first, behind),
        Columns(whole.times, whole.seconds, first, behind),
        whole,
        first,
        behind,
    )


_Sent = tuple[int, NDArray[Any], NDArray[np.intp], NDArray[Any]]
"""The number of records, the first value of each row, which rows vary, and these."""


def _pack_rows(rows: Rows) -> _Sent:
    table = np.asarray(rows)
    bits = table.view(np.int64)
    varied = np.flatnonzero((bits != bits[:, :1]).any(axis=1))
    return table.shape[1], table[:, 0], varied, table[varied]


def _unpack_batch(
    layer: str,
    names: tuple[str, ...],
    times: tuple[str, ...],
    file: NDArray[np.uint64],
    rank: NDArray[np.int64],
    *sent: _Sent,
) -> BatchCounters:
    return BatchCounters(layer, names, times, file, rank, *[_unpack_rows(*each) for each in sent])


def _unpack_rows(
    records: int, first: NDArray[Any], varied: NDArray[np.intp], table: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    rows = [np.broadcast_to(value, records) for value in first]
    for i, row in zip(varied.tolist(), table, strict=True):
        rows[i] = row
    return tuple(rows)


# Darshan's AutoPerf module for MPI: how long each rank was inside MPI calls.
#
# Our own reader: Darshan's library tells the module's header from its records by a variable
# that lives as long as the process, so of several logs it reads only the first one right.
# Layout from darshan-apmpi-log-format.h: a header, then one record of fixed size per rank.

MPI_MODULE = "APMPI"

_HEADER_BYTES = 48
_SYNC_FLAG_AT = 24  # not 0: waits before collectives were timed
_COUNTERS = 396  # calls, bytes and size classes, which nothing here uses
_TIMES = 222 + 16  # seconds of single calls, and of their waits for others
_RECORD = f"Qq{8 * (_COUNTERS + _TIMES)}x2d128s"  # id, rank, ..., total and sync, host


def decode_mpi(data: bytes, byte_order: str) -> tuple[tuple[MpiRecord, ...], int]:
    """The records of a region, and how many bytes at its end are no whole record."""
    record = struct.Struct(byte_order + _RECORD)
    body = memoryview(data)[_HEADER_BYTES:]
    whole = len(body) - len(body) % record.size
    timed = any(data[_SYNC_FLAG_AT : _SYNC_FLAG_AT + 4])
    records = tuple(
        MpiRecord(rank, decode_text(host), total_s, sync_s if timed else None)
        for _, rank, total_s, sync_s, host in record.iter_unpack(body[:whole])
    )
    return records, len(body) - whole


_WORD = 8
_HEAD = 2  # words before the counters of a file: its id and the rank

Words = NDArray[np.int64]


def _keep_words(words: Words) -> tuple[Words, str]:
    return words, ""


def _drop_mixed_records(words: Words) -> tuple[Words, str]:
    """Records of POSIX alone: version 1 counts calls of STDIO between them.

    What such a record says of bytes and times is of both, so it is left out, as Darshan's
    library does (darshan-posix-logutils.c).
    """
    first = _HEAD + 6  # fopen, fread, fwrite, fseek
    mixed = words[first] > 0
    count = int(mixed.sum())
    loss = (
        f"POSIX: {count:,} of {len(mixed):,} records count calls of STDIO, too (Darshan 3.0), and "
        "are left out"
    )
    return np.delete(words, range(first, first + 4), axis=0)[:, ~mixed], loss if count else ""


def _sum_opens(words: Words) -> tuple[Words, str]:
    """Independent and collective opens as one counter (darshan-pnetcdf-logutils.c)."""
    kept = np.delete(words, _HEAD, axis=0)
    kept[_HEAD] += words[_HEAD]
    return kept, ""


@dataclass(frozen=True, slots=True)
class _Form:
    """How the records of one version differ from the newest of their module."""

    head: int = _HEAD
    absent: Mapping[str, int] = field(default_factory=dict)  # counter -> what stands for it
    absent_times: tuple[str, ...] = ()  # -1 stands for them
    merged: int = 0  # words that `merge` takes out
    behind: int = 0  # words after the times: identifiers
    merge: Callable[[Words], tuple[Words, str]] = _keep_words

    def width(self, names: Names) -> int:
        """Words of a record as it is stored."""
        absent = len(self.absent) + len(self.absent_times)
        return (
            self.head
            + len(names.plain)
            + len(names.plain_times)
            - absent
            + self.merged
            + self.behind
        )


_NO_SPAN = ("CLOSE_START_TIMESTAMP", "OPEN_END_TIMESTAMP")
_POSIX_3 = {"FILENOS": -1, "DUPS": -1, "RENAME_SOURCES": -1, "RENAME_TARGETS": -1,
            "RENAMED_FROM": 0}  # fmt: skip
_H5F_2 = {"FLUSHES": -1, "USE_MPIIO": -1}
_PNETCDF_2 = dict.fromkeys(
    ("CREATES", "REDEFS", "INDEP_WAITS", "COLL_WAITS", "SYNCS", "BYTES_READ", "BYTES_WRITTEN",
     "WAIT_FAILURES"), -1,
)  # fmt: skip
_NO_WAITS = ("WAIT_START_TIMESTAMP", "WAIT_END_TIMESTAMP", "META_TIME", "WAIT_TIME")

_NEWEST = {
    "POSIX": (4, _Form()),
    "MPI-IO": (3, _Form()),
    "STDIO": (2, _Form()),
    "H5F": (3, _Form()),
    "H5D": (2, _Form(head=3)),
    "PNETCDF_FILE": (3, _Form()),
    "PNETCDF_VAR": (1, _Form(head=3)),
    "DFS": (1, _Form(behind=4)),  # the pool, the container
    "DAOS": (1, _Form(behind=6)),  # and the object
}
_OLDER = {
    ("POSIX", 3): _Form(absent=_POSIX_3),
    ("POSIX", 2): _Form(absent=_POSIX_3, absent_times=_NO_SPAN),
    ("POSIX", 1): _Form(
        absent=_POSIX_3, absent_times=_NO_SPAN, merged=4, merge=_drop_mixed_records
    ),
    ("MPI-IO", 2): _Form(absent_times=_NO_SPAN),
    ("MPI-IO", 1): _Form(absent_times=_NO_SPAN),
    ("STDIO", 1): _Form(absent={"FDOPENS": -1}),
    ("H5F", 2): _Form(absent=_H5F_2, absent_times=("META_TIME",)),
    ("H5F", 1): _Form(absent=_H5F_2, absent_times=(*_NO_SPAN, "META_TIME")),
    ("H5D", 1): _Form(),
    ("PNETCDF_FILE", 2): _Form(
        absent=_PNETCDF_2, absent_times=_NO_WAITS, merged=1, merge=_sum_opens
    ),
    ("PNETCDF_FILE", 1): _Form(
        absent=_PNETCDF_2,
        absent_times=(*_NO_SPAN, *_NO_WAITS),
        merged=1,
        merge=_sum_opens,
    ),
}

FORMS = {(module, version): form for module, (version, form) in _NEWEST.items()} | _OLDER
OTHER_VERSIONS = {"LUSTRE": (1, 2), "HEATMAP": (1,)}


DECODED = (*LAYERS, *OTHERS)
"""Modules whose records are decoded here."""


def is_known(module: str, version: int) -> bool:
    """Whether records of this version are decoded here."""
    return version in OTHER_VERSIONS.get(module, ()) or (module, version) in FORMS


@dataclass(frozen=True, slots=True)
class Raw:
    """A log's counters, not yet decoded: module to the inflated bytes of its region.

    Of regions that are `broken`, cut or damaged, the bytes are those before the damage.
    """

    header: Header
    regions: Mapping[str, bytes]
    broken: frozenset[str] = frozenset()


Layer = tuple[CounterRecords | RecordsPlace, str]
"""The records of one module, and a sentence about what is left out."""


def decode_counters(log: Raw, known: Mapping[str, Layer]) -> CounterFile:
    """The counters of a log: all whole records of the versions that are known.

    Args:
        log: Its regions.
        known: By module what `layers` decoded of it.
    """
    header, regions, broken = log.header, log.regions, log.broken
    known_ones, unread = _sort_modules(tuple((r.name, r.version) for r in header.regions.values()))

    # Modules of one shape of records.
    records_of: list[CounterRecords] = []
    losses: list[str] = []
    for module in known_ones:
        if module not in LAYERS:
            continue
        whole, left = divmod(len(regions[module]), _get_record_bytes(module, header))
        losses.append(_describe_loss(module, whole, left, broken))
        if whole:  # else nothing is known of the layer, not that it did nothing
            records, loss = known.get(module) or _decode_layer(module, header, regions[module])
            if "DFS" in known_ones and isinstance(records, RecordsPlace):
                records = records.cut()
            records_of.append(cast(CounterRecords, records))  # or becomes them when it is sent
            losses.append(loss)

    # Modules with a shape of their own.
    stripes: _Walked[tuple[int, list[Stripe]]] = _Walked()
    heatmaps: _Walked[Bins] = _Walked()
    if "LUSTRE" in known_ones:
        # Layouts by file.
        data = regions["LUSTRE"]
        # A view: of millions of targets no list is made.
        count = len(data) // _WORD
        words = np.frombuffer(data, f"{header.byte_order}i8", count).astype(np.int64).data
        one = _read_layout_1 if header.regions["LUSTRE"].version == 1 else _read_layout_2
        layouts: list[tuple[int, list[Stripe]]] = []
        at = 0
        while layout := one(words, at):
            parts, end = layout
            layouts.append((words[at] % (1 << 64), parts))
            at = end
        stripes = _Walked(layouts, len(data) - _WORD * at)
        losses.append(_describe_loss("LUSTRE", len(stripes.records), stripes.left, broken))
    if "HEATMAP" in known_ones:
        heatmaps = _walk_heatmaps(header, regions["HEATMAP"])
        losses.append(_describe_loss("HEATMAP", len(heatmaps.records), heatmaps.left, broken))
    return CounterFile(
        tuple(split_daos_files(records_of) if "DFS" in known_ones else records_of),
        tuple(filter(None, losses)),
        tuple(build_stripe_records(stripes.records)),
        tuple(build_heatmap_records(heatmaps.records)),
        dict(unread),
    )


@lru_cache(256)  # of the thousands of logs of a job
def _sort_modules(
    modules: tuple[tuple[str, int], ...],
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Of those with counters the ones of known versions in the order of DECODED, and the others."""
    version_of = dict(modules)
    versions = {module: version_of[module] for module in DECODED if module in version_of}
    unread = tuple(pair for pair in versions.items() if not is_known(*pair))
    return tuple(pair[0] for pair in versions.items() if is_known(*pair)), unread


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Walked(Generic[Found]):
    """Records of any length, and how many bytes behind them are none."""

    records: Sequence[Found] = ()
    left: int = 0


def _describe_loss(module: str, records: int, left: int, broken: Collection[str]) -> str:
    """The sentence about a module that is not whole, "" for a whole one."""
    if records and not left and module not in broken:
        return ""
    is_said = left and module not in broken
    behind = f"; {plural(left, 'byte')} behind them are no record" if is_said else ""
    return f"{module}: only {plural(records, 'whole record')} could be read{behind}"


def decode_layers(logs: Sequence[Raw], *, sent: bool = False) -> list[dict[str, Layer]]:
    """By module the records of each log that could be decoded with those of others, at once.

    Those that are to be `sent` are only places among those of all.
    """
    # Logs whose records of a module are of one version and order of bytes.
    decoded: list[dict[str, Layer]] = [{} for _ in logs]
    alike: dict[tuple[str, int, str], list[int]] = {}
    for i, log in enumerate(logs):
        for module, region in log.header.regions.items():
            if (module, region.version) in FORMS and _is_filled(module, log):
                key = module, region.version, log.header.byte_order
                alike.setdefault(key, []).append(i)
    for (module, *_), some in alike.items():
        if len(some) > 1:
            places = _decode_alike_layers(module, [logs[i] for i in some])
            for i, place in zip(some, places, strict=False):
                decoded[i][module] = place if sent else place.cut(), ""
    return decoded


def _is_filled(module: str, log: Raw) -> bool:
    """Whether records, at least one, fill the region exactly."""
    data = log.regions[module]
    return bool(data) and not len(data) % _get_record_bytes(module, log.header)


def _get_record_bytes(module: str, header: Header) -> int:
    return _WORD * _get_form(module, header).width(NAMES[module])


def _decode_alike_layers(module: str, logs: Sequence[Raw]) -> list[RecordsPlace]:
    """The records of a module in logs that are alike; none where each is to be looked at."""
    width = _get_record_bytes(module, logs[0].header)
    data = b"".join([log.regions[module] for log in logs])
    table, loss = _decode_table(module, logs[0].header, data)
    if loss:
        return []
    names = NAMES[module]
    together = BatchCounters(LAYERS[module], names.counters, names.times, *table)
    lengths = (len(log.regions[module]) // width for log in logs)
    return [RecordsPlace(together, *pair) for pair in pairwise(accumulate(lengths, initial=0))]


def _get_form(module: str, header: Header) -> _Form:
    return FORMS[module, header.regions[module].version]


def _decode_layer(module: str, header: Header, data: bytes) -> Layer:
    """The whole records of one module."""
    table, loss = _decode_table(module, header, data)
    names = NAMES[module]
    return to_records(module, names.counters, names.times, table), loss


def _decode_table(module: str, header: Header, data: bytes) -> tuple[Table, str]:
    """The possible ones of the whole records of one module, and a sentence about others."""
    names = NAMES[module]
    form = _get_form(module, header)
    width = form.width(names)
    whole = len(data) // (_WORD * width)
    stored = np.frombuffer(data, f"{header.byte_order}i8", whole * width).reshape(-1, width).T

    # As the newest version has them: identifiers, counters, then times.
    words, left_out = form.merge(stored)
    times = form.head + len(names.plain) - len(form.absent)
    table: Table = (
        words[0].astype(np.int64).view(np.uint64),
        words[1].astype(np.int64),
        _fill_absent(words[form.head : times], names.plain, form.absent),
        _fill_absent(
            words[times : len(words) - form.behind].view(f"{header.byte_order}f8"),
            names.plain_times,
            dict.fromkeys(form.absent_times, -1),
        ),
    )
    table, loss = drop_impossible(module, names.counters, names.times, table)
    return table, "; ".join(filter(None, (left_out, loss)))


def _fill_absent(
    rows: NDArray[Any], names: Sequence[str], absent: Mapping[str, int]
) -> NDArray[Any]:
    """The rows as contiguous ones of this machine's byte order, between those that are absent."""
    kept = rows.astype(rows.dtype.newbyteorder("="), order="C")
    if not absent:
        return kept
    whole = np.empty((len(names), rows.shape[1]), kept.dtype)
    there = np.array([name not in absent for name in names])
    whole[there] = kept
    whole[~there] = np.array(list(absent.values()), kept.dtype)[:, None]
    return whole


def _read_layout_1(words: memoryview[int], at: int) -> tuple[list[Stripe], int] | None:
    """One component: id, rank, two counts of targets, offset, size, count, the targets."""
    if len(words) - at < 7:
        return None
    size, count = words[at + 5 : at + 7]
    end = at + 7 + count
    if count < 0 or end > len(words):
        return None
    return [(size, count, words[at + 7 : end].tolist(), *WHOLE_FILE)], end


# Words of a component: size and count of stripes, pattern, flags, both ends of its extent, its
# mirror, and the name of a pool (darshan-lustre-log-format.h).
_COMPONENT = 9
_EXTENT = slice(4, 6)
_UNUSED = -1  # stripe size of a component that was never written to


def _read_layout_2(words: memoryview[int], at: int) -> tuple[list[Stripe], int] | None:
    """Id, rank, number of components and targets, the components, the targets of all."""
    if len(words) - at < 4:
        return None
    components, stripes = words[at + 2 : at + 4]
    first = at + 4 + _COMPONENT * components
    end = first + stripes
    if components < 0 or stripes < 0 or end > len(words):
        return None

    # Component by component; the targets of all lie behind the last of them.
    heads = words[at + 4 : first].tolist()
    parts: list[Stripe] = []
    for i in range(0, len(heads), _COMPONENT):
        size, count = heads[i : i + 2]
        start, stop = heads[i : i + _COMPONENT][_EXTENT]
        # A count that is negative or reaches beyond the end is cut to what is there.
        behind = first + max(0, min(count, end - first))
        if size != _UNUSED:
            parts.append((size, count, words[first:behind].tolist(), start, stop))
        first = behind
    return parts, end


def _walk_heatmaps(header: Header, data: bytes) -> _Walked[Bins]:
    """Heat maps, each with its own number of bins."""
    head = struct.Struct(f"{header.byte_order}Qqdq16x")
    bins: list[Bins] = []
    at = 0
    while len(data) - at >= head.size:
        key, rank, width_s, count = head.unpack_from(data, at)
        first = at + head.size
        if not 0 <= count <= (len(data) - first) // (2 * _WORD):
            break
        sides = np.frombuffer(data, f"{header.byte_order}i8", 2 * count, first).astype(np.int64)
        sides.setflags(write=False)
        bins.append((key, rank, width_s, sides[:count], sides[count:]))
        at = first + 2 * _WORD * count
    return _Walked(bins, len(data) - at)
