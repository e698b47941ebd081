"""Logs that Darshan's library cannot be given as they are: the same log, whole and in zlib.

PyDarshan's wheels cannot open a bz2 log at all, and on a damaged one the library aborts, or hands
out what damage made of the records. Its records are not decoded a second time here: what is whole
of each region is compressed again, and the header's compression code and table of contents are
rewritten. Traced operations, which our own reader takes from the log itself, are left out.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from vanidl.encoding.budget import Budget
from vanidl.encoding.inflate import damage, joined
from vanidl.errors import InputError
from vanidl.readers.darshan import dxt
from vanidl.readers.darshan.header import (
    COMPRESSIONS,
    JOB,
    NAMES,
    Header,
    Region,
    believed,
    layout_losses,
    read_header,
    slot_names,
)

_COMPRESSION_AT = 16  # behind version and magic
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A log that the library can be given, and a sentence for each loss on the way."""

    path: str  # absolute
    losses: tuple[str, ...] = ()


def prepared(path: str, folder: Path) -> Prepared:
    """The log itself where it is whole, else a copy in `folder` of what is whole of it.

    Whatever cannot be read or understood is left to the library to complain about.
    """
    original = Prepared(os.path.abspath(path))  # noqa: PTH100 - a link stays a link
    try:
        data = _mapped(path)
        header, doubtful = believed(read_header(data, path), len(data))
        damaged = _damaged(data, header)
        if (
            header.compression != "bz2"
            and not damaged
            and not doubtful
            and not layout_losses(header, len(data))
        ):
            return original
        content = in_zlib(data, path)
    except (OSError, ValueError, InputError):
        return original
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".darshan", delete=False) as copy:
        copy.write(content)
    some = ", ".join(damaged)
    return Prepared(copy.name, (f"only what is whole of {some} was read",) if some else ())


def _mapped(path: str) -> memoryview:
    """The bytes of a file, of which only those that are looked at are read."""
    with Path(path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def in_zlib(data: memoryview, path: str) -> bytes:
    """The log with every region but the traced operations compressed with zlib.

    Of a cut region what is whole before the cut is kept, of a damaged one all before the
    stream that is; of regions that overlap nothing.

    Raises:
        InputError: It is no Darshan log, of an unknown version, or cut in its header.
    """
    header, _ = believed(read_header(data, path), len(data))
    places: dict[str, tuple[int, int]] = {}
    body, budget = b"", Budget.of_file(len(data))
    for region in _copied(header):
        held, cut = region.cut_from(data), _is_cut(region, data)
        raw, _ = joined(held, header.compression, cut=cut, budget=budget)
        packed = zlib.compress(raw, _LEVEL) if raw else b""
        places[region.name] = header.length + len(body), len(packed)
        body += packed
    return _rewritten(bytes(data[: header.length]), header, places) + body


def _copied(header: Header) -> list[Region]:
    kept = [r for r in header.regions.values() if r.name not in dxt.LAYERS]
    return sorted(kept, key=lambda r: (r.name != JOB, r.start))


def _is_cut(region: Region, data: memoryview) -> bool:
    return bool(region.missing(len(data)))


def _damaged(data: memoryview, header: Header) -> tuple[str, ...]:
    """Names of the modules that are not whole."""
    budget = Budget.of_file(len(data))
    return tuple(
        region.name
        for region in _copied(header)
        if region.name not in (JOB, NAMES)
        and (_is_cut(region, data) or damage(region.cut_from(data), header.compression, budget))
    )


def _rewritten(head: bytes, header: Header, places: dict[str, tuple[int, int]]) -> bytes:
    """The header with new places: (start, length) by region, nothing for what is gone."""
    table = struct.Struct(f"{header.byte_order}{2 + 2 * header.layout.slots}Q")
    first = header.length - 4 * header.layout.slots - table.size
    names = (NAMES, *slot_names(header.layout))
    new = [number for name in names for number in places.get(name, (0, 0))]
    content = bytearray(head)
    content[_COMPRESSION_AT : _COMPRESSION_AT + 1] = _code("zlib")
    table.pack_into(content, first, *new)
    return bytes(content)


def _code(compression: str) -> bytes:
    return bytes([COMPRESSIONS.index(compression)])
