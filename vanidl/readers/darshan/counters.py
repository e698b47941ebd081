"""Darshan's counters, decoded here: the records of whole regions to columns.

Records of every version that Darshan 3.0 to 3.5 wrote are decoded, as the newest of their
module; of a damaged region those that are whole before the damage. A record is a file id, a rank,
for datasets and variables the id of their file, counters (int64) and time counters (float64,
seconds).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.readers.darshan.counter_checks import (
    LAYERS,
    OTHERS,
    Bins,
    Stripe,
    Table,
    disjoint,
    heatmap_records,
    possible,
    records,
    stripe_records,
)
from vanidl.readers.darshan.counter_names import NAMES, Names
from vanidl.readers.darshan.counters_together import Together
from vanidl.readers.darshan.header import Header
from vanidl.readers.records import CounterFile, CounterRecords

_WORD = 8
_HEAD = 2  # words before the counters of a file: its id and the rank

Words = NDArray[np.int64]


def _as_stored(words: Words) -> tuple[Words, str]:
    return words, ""


def _without_stdio(words: Words) -> tuple[Words, str]:
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


def _opens_together(words: Words) -> tuple[Words, str]:
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
    merge: Callable[[Words], tuple[Words, str]] = _as_stored

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
    ("POSIX", 1): _Form(absent=_POSIX_3, absent_times=_NO_SPAN, merged=4, merge=_without_stdio),
    ("MPI-IO", 2): _Form(absent_times=_NO_SPAN),
    ("MPI-IO", 1): _Form(absent_times=_NO_SPAN),
    ("STDIO", 1): _Form(absent={"FDOPENS": -1}),
    ("H5F", 2): _Form(absent=_H5F_2, absent_times=("META_TIME",)),
    ("H5F", 1): _Form(absent=_H5F_2, absent_times=(*_NO_SPAN, "META_TIME")),
    ("H5D", 1): _Form(),
    ("PNETCDF_FILE", 2): _Form(
        absent=_PNETCDF_2, absent_times=_NO_WAITS, merged=1, merge=_opens_together
    ),
    ("PNETCDF_FILE", 1): _Form(
        absent=_PNETCDF_2,
        absent_times=(*_NO_SPAN, *_NO_WAITS),
        merged=1,
        merge=_opens_together,
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


Layer = tuple[CounterRecords, str]
"""The records of one module, and a sentence about what is left out."""


def decode(log: Raw, known: Mapping[str, Layer]) -> CounterFile:
    """The counters of a log: all whole records of the versions that are known.

    Args:
        log: Its regions.
        known: By module what `layers` decoded of it.
    """
    header, regions, broken = log.header, log.regions, log.broken
    versions = {m: header.regions[m].version for m in DECODED if m in header.regions}
    unread = {m: version for m, version in versions.items() if not is_known(m, version)}
    known_ones = versions.keys() - unread.keys()
    records_of, losses = [], []
    for module in (m for m in LAYERS if m in known_ones):
        whole, left = divmod(len(regions[module]), _record_bytes(module, header))
        losses.append(_lost(module, whole, left, broken))
        if whole:  # else nothing is known of the layer, not that it did nothing
            found, loss = known.get(module) or _layer(module, header, regions[module])
            records_of.append(found)
            losses.append(loss)
    stripes: _Walked[tuple[int, list[Stripe]]] = _Walked()
    heatmaps: _Walked[Bins] = _Walked()
    if "LUSTRE" in known_ones:
        stripes = _stripes(header, regions["LUSTRE"])
        losses.append(_lost("LUSTRE", len(stripes.records), stripes.left, broken))
    if "HEATMAP" in known_ones:
        heatmaps = _heatmaps(header, regions["HEATMAP"])
        losses.append(_lost("HEATMAP", len(heatmaps.records), heatmaps.left, broken))
    return CounterFile(
        tuple(disjoint(records_of)),
        tuple(filter(None, losses)),
        tuple(stripe_records(stripes.records)),
        tuple(heatmap_records(heatmaps.records)),
        unread,
    )


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Walked(Generic[Found]):
    """Records of any length, and how many bytes behind them are none."""

    records: Sequence[Found] = ()
    left: int = 0


def _lost(module: str, records: int, left: int, broken: Collection[str]) -> str:
    """The sentence about a module that is not whole, "" for a whole one."""
    if records and not left and module not in broken:
        return ""
    said = left and module not in broken
    behind = f"; {plural(left, 'byte')} behind them are no record" if said else ""
    return f"{module}: only {plural(records, 'whole record')} could be read{behind}"


def layers(logs: Sequence[Raw]) -> list[dict[str, Layer]]:
    """By module the records of each log that could be decoded with those of others, at once."""
    found: list[dict[str, Layer]] = [{} for _ in logs]
    alike: dict[tuple[str, int, str], list[int]] = {}
    for i, log in enumerate(logs):
        for module, region in log.header.regions.items():
            if (module, region.version) in FORMS and _is_filled(module, log):
                key = module, region.version, log.header.byte_order
                alike.setdefault(key, []).append(i)
    for (module, *_), some in alike.items():
        if len(some) > 1:
            for i, layer in zip(some, _layers(module, [logs[i] for i in some]), strict=False):
                found[i][module] = layer
    return found


def _is_filled(module: str, log: Raw) -> bool:
    """Whether records, at least one, fill the region exactly."""
    data = log.regions[module]
    return bool(data) and not len(data) % _record_bytes(module, log.header)


def _record_bytes(module: str, header: Header) -> int:
    return _WORD * _form(module, header).width(NAMES[module])


def _layers(module: str, logs: Sequence[Raw]) -> list[Layer]:
    """The records of a module in logs that are alike; none where each is to be looked at."""
    width = _record_bytes(module, logs[0].header)
    data = b"".join([log.regions[module] for log in logs])
    table, loss = _table(module, logs[0].header, data)
    if loss:
        return []
    names = NAMES[module]
    together = Together(LAYERS[module], names.counters, names.times, *table)
    lengths = (len(log.regions[module]) // width for log in logs)
    return [(together.records(*pair), "") for pair in pairwise(accumulate(lengths, initial=0))]


def _form(module: str, header: Header) -> _Form:
    return FORMS[module, header.regions[module].version]


def _layer(module: str, header: Header, data: bytes) -> Layer:
    """The whole records of one module."""
    table, loss = _table(module, header, data)
    return _records(module, table), loss


def _records(module: str, table: Table) -> CounterRecords:
    return records(module, NAMES[module].counters, NAMES[module].times, table)


def _table(module: str, header: Header, data: bytes) -> tuple[Table, str]:
    """The possible ones of the whole records of one module, and a sentence about others."""
    names = NAMES[module]
    form = _form(module, header)
    width = form.width(names)
    whole = len(data) // (_WORD * width)
    stored = np.frombuffer(data, f"{header.byte_order}i8", whole * width).reshape(-1, width).T
    words, left_out = form.merge(stored)
    times = form.head + len(names.plain) - len(form.absent)
    table: Table = (
        words[0].astype(np.int64).view(np.uint64),
        words[1].astype(np.int64),
        _placed(words[form.head : times], names.plain, form.absent),
        _placed(
            words[times : len(words) - form.behind].view(f"{header.byte_order}f8"),
            names.plain_times,
            dict.fromkeys(form.absent_times, -1),
        ),
    )
    table, loss = possible(module, names.counters, names.times, table)
    return table, "; ".join(filter(None, (left_out, loss)))


def _placed(rows: NDArray[Any], names: Sequence[str], absent: Mapping[str, int]) -> NDArray[Any]:
    """The rows as contiguous ones of this machine's byte order, between those that are absent."""
    kept = rows.astype(rows.dtype.newbyteorder("="), order="C")
    if not absent:
        return kept
    whole = np.empty((len(names), rows.shape[1]), kept.dtype)
    there = np.array([name not in absent for name in names])
    whole[there] = kept
    whole[~there] = np.array(list(absent.values()), kept.dtype)[:, None]
    return whole


def _stripes(header: Header, data: bytes) -> _Walked[tuple[int, list[Stripe]]]:
    """Layouts by file."""
    # A view: of millions of targets no list is made.
    count = len(data) // _WORD
    words = np.frombuffer(data, f"{header.byte_order}i8", count).astype(np.int64).data
    one = _layout_1 if header.regions["LUSTRE"].version == 1 else _layout_2
    found: list[tuple[int, list[Stripe]]] = []
    at = 0
    while layout := one(words, at):
        parts, end = layout
        found.append((words[at] % (1 << 64), parts))
        at = end
    return _Walked(found, len(data) - _WORD * at)


def _layout_1(words: memoryview[int], at: int) -> tuple[list[Stripe], int] | None:
    """One component: id, rank, two counts of targets, offset, size, count, the targets."""
    if len(words) - at < 7:
        return None
    size, count = words[at + 5 : at + 7]
    end = at + 7 + count
    if count < 0 or end > len(words):
        return None
    return [(size, count, words[at + 7 : end].tolist())], end


_COMPONENT = 9  # words: seven counters and the name of a pool
_UNUSED = -1  # stripe size of a component that was never written to


def _layout_2(words: memoryview[int], at: int) -> tuple[list[Stripe], int] | None:
    """Id, rank, number of components and targets, the components, the targets of all."""
    if len(words) - at < 4:
        return None
    components, stripes = words[at + 2 : at + 4]
    first = at + 4 + _COMPONENT * components
    end = first + stripes
    if components < 0 or stripes < 0 or end > len(words):
        return None
    heads = words[at + 4 : first].tolist()
    parts: list[Stripe] = []
    for size, count in zip(heads[::_COMPONENT], heads[1::_COMPONENT], strict=True):
        behind = first + max(0, min(count, end - first))
        if size != _UNUSED:
            parts.append((size, count, words[first:behind].tolist()))
        first = behind
    return parts, end


def _heatmaps(header: Header, data: bytes) -> _Walked[Bins]:
    """Heat maps, each with its own number of bins."""
    head = struct.Struct(f"{header.byte_order}Qqdq16x")
    found: list[Bins] = []
    at = 0
    while len(data) - at >= head.size:
        key, rank, width_s, count = head.unpack_from(data, at)
        first = at + head.size
        if not 0 <= count <= (len(data) - first) // (2 * _WORD):
            break
        sides = np.frombuffer(data, f"{header.byte_order}i8", 2 * count, first).astype(np.int64)
        sides.setflags(write=False)
        found.append((key, rank, width_s, sides[:count], sides[count:]))
        at = first + 2 * _WORD * count
    return _Walked(found, len(data) - at)
