"""Darshan's counters, decoded here: the records of whole regions to columns.

Records of every version that Darshan 3.0 to 3.5 wrote are decoded, as the newest of their
module. Unknown versions, and anything that is not whole, are left to Darshan's own library
(`library`). A record is a file id, a rank, for datasets and variables the id of their file,
counters (int64) and time counters (float64, seconds).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def decodable(header: Header) -> bool:
    """Whether `decode` knows the version of all counters that a log announces."""
    return all(
        is_known(module, header.regions[module].version)
        for module in (*LAYERS, *OTHERS)
        if module in header.regions
    )


def is_known(module: str, version: int) -> bool:
    """Whether records of this version are decoded here."""
    return version in OTHER_VERSIONS.get(module, ()) or (module, version) in FORMS


@dataclass(frozen=True, slots=True)
class Raw:
    """A whole log's counters, not yet decoded: module to the inflated bytes of its region."""

    header: Header
    regions: Mapping[str, bytes]


Layer = tuple[CounterRecords, str]
"""The records of one module, and a sentence about what is left out."""


def decode(log: Raw, known: Mapping[str, Layer]) -> CounterFile | None:
    """The counters of a log; None where Darshan's library has to read them.

    Args:
        log: Its regions.
        known: By module what `layers` decoded of it.
    """
    header, regions = log.header, log.regions
    if not decodable(header):
        return None
    records_of, losses = [], []
    for module in (m for m in LAYERS if m in header.regions):
        found = known.get(module) or _layer(module, header, regions[module])
        if found is None:
            return None
        records_of.append(found[0])
        losses += [found[1]] if found[1] else []
    stripes = _stripes(header, regions)
    heatmaps = _heatmaps(header, regions)
    if stripes is None or heatmaps is None:
        return None
    return CounterFile(
        tuple(disjoint(records_of)),
        tuple(losses),
        tuple(stripe_records(stripes)),
        tuple(heatmap_records(heatmaps)),
    )


def layers(logs: Sequence[Raw]) -> list[dict[str, Layer]]:
    """By module the records of each log that could be decoded with those of others, at once."""
    found: list[dict[str, Layer]] = [{} for _ in logs]
    alike: dict[tuple[str, int, str], list[int]] = {}
    for i, log in enumerate(logs):
        for module, region in log.header.regions.items():
            if (module, region.version) in FORMS:
                key = module, region.version, log.header.byte_order
                alike.setdefault(key, []).append(i)
    for (module, *_), some in alike.items():
        if len(some) > 1:
            for i, layer in zip(some, _layers(module, [logs[i] for i in some]), strict=False):
                found[i][module] = layer
    return found


def _layers(module: str, logs: Sequence[Raw]) -> list[Layer]:
    """The records of a module in logs that are alike; none where each is to be looked at."""
    width = _WORD * _form(module, logs[0].header).width(NAMES[module])
    lengths = [len(log.regions[module]) for log in logs]
    if not all(length and length % width == 0 for length in lengths):
        return []
    data = b"".join([log.regions[module] for log in logs])
    whole = _table(module, logs[0].header, data)
    if whole is None or whole[1]:
        return []
    names = NAMES[module]
    together = Together(LAYERS[module], names.counters, names.times, *whole[0])
    pairs = pairwise(accumulate((length // width for length in lengths), initial=0))
    return [(together.records(*pair), "") for pair in pairs]


def _form(module: str, header: Header) -> _Form:
    return FORMS[module, header.regions[module].version]


def _layer(module: str, header: Header, data: bytes) -> Layer | None:
    """The records of one module; None where they do not fill the region exactly."""
    found = _table(module, header, data)
    return found and (_records(module, found[0]), found[1])


def _records(module: str, table: Table) -> CounterRecords:
    return records(module, NAMES[module].counters, NAMES[module].times, table)


def _table(module: str, header: Header, data: bytes) -> tuple[Table, str] | None:
    """The possible records of one module, and a sentence about others."""
    names = NAMES[module]
    form = _form(module, header)
    width = form.width(names)
    if not len(data) or len(data) % (_WORD * width):
        return None
    stored = np.frombuffer(data, f"{header.byte_order}i8").reshape(-1, width).T
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


def _stripes(header: Header, regions: Mapping[str, bytes]) -> list[tuple[int, list[Stripe]]] | None:
    """Layouts by file; None for what the library makes shorter or refuses."""
    if "LUSTRE" not in header.regions:
        return []
    data = regions["LUSTRE"]
    if not len(data) or len(data) % _WORD:
        return None
    # A view: of millions of targets no list is made.
    words = np.frombuffer(data, f"{header.byte_order}i8").astype(np.int64).data
    one = _layout_1 if header.regions["LUSTRE"].version == 1 else _layout_2
    found, at = [], 0
    while at < len(words):
        layout = one(words, at)
        if layout is None:
            return None
        parts, end = layout
        found.append((words[at] % (1 << 64), parts))
        at = end
    return found


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


def _layout_2(words: memoryview[int], at: int) -> tuple[list[Stripe], int] | None:
    """Id, rank, number of components and targets, the components, the targets of all."""
    if len(words) - at < 4:
        return None
    components, stripes = words[at + 2 : at + 4]
    first = at + 4 + _COMPONENT * components
    end = first + stripes
    if components < 1 or stripes < 0 or end > len(words):
        return None
    heads = words[at + 4 : first].tolist()
    sizes, counts = heads[::_COMPONENT], heads[1::_COMPONENT]
    # Unused components have size -1: the library leaves them and their targets out.
    if -1 in sizes or min(counts) < 0 or sum(counts) != stripes:
        return None
    parts: list[Stripe] = []
    for size, count in zip(sizes, counts, strict=True):
        parts.append((size, count, words[first : first + count].tolist()))
        first += count
    return parts, end


def _heatmaps(header: Header, regions: Mapping[str, bytes]) -> list[Bins] | None:
    """Heat maps; None where the library would make their numbers of bins equal."""
    if "HEATMAP" not in header.regions:
        return []
    data = regions["HEATMAP"]
    head = struct.Struct(f"{header.byte_order}Qqdq16x")
    found: list[Bins] = []
    at, bins = 0, -1
    while len(data) - at >= head.size:
        key, rank, width_s, count = head.unpack_from(data, at)
        at += head.size
        if not 0 <= count <= (len(data) - at) // (2 * _WORD) or bins not in (-1, count):
            return None
        sides = np.frombuffer(data, f"{header.byte_order}i8", 2 * count, at).astype(np.int64)
        sides.setflags(write=False)
        found.append((key, rank, width_s, sides[:count], sides[count:]))
        at, bins = at + 2 * _WORD * count, count
    return found if found and at == len(data) else None
