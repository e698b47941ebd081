"""bz2 logs for Darshan's library, which is often built without bz2: the same log in zlib.

PyDarshan's wheels cannot open a bz2 log at all. Its records are not decoded a second time
here: each region is decompressed and compressed again, and the header's compression code and
table of contents are rewritten. Traced operations, which our own reader takes from the log
itself, are left out.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path

from vanidl.errors import InputError
from vanidl.sources import dxt
from vanidl.sources.darshan_header import COMPRESSIONS, Header, read_header
from vanidl.sources.inflate import joined

_COMPRESSION_AT = 16  # behind version and magic
_LEVEL = 1


def openable(path: str, folder: Path) -> str:
    """Absolute path of the log, or of a copy in `folder` that Darshan's library can open.

    Whatever cannot be read or understood is left to the library to complain about.
    """
    original = os.path.abspath(path)  # noqa: PTH100 - a link stays a link
    try:
        with Path(path).open("rb") as file:
            if file.read(_COMPRESSION_AT + 1)[_COMPRESSION_AT:] != _code("bz2"):
                return original
            content = in_zlib(memoryview(Path(path).read_bytes()), path)
    except (OSError, InputError):
        return original
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".darshan", delete=False) as copy:
        copy.write(content)
    return copy.name


def in_zlib(data: memoryview, path: str) -> bytes:
    """The log with every region but the traced operations compressed with zlib.

    Of a damaged region what is whole before the damage is kept.

    Raises:
        InputError: It is no Darshan log, of an unknown version, or cut in its header.
    """
    header = read_header(data, path)
    kept = [r for r in header.regions.values() if r.name not in dxt.LAYERS]
    places: dict[int, tuple[int, int]] = {}
    body = b""
    for region in sorted(kept, key=lambda r: r.start):
        raw, _ = joined(region.cut_from(data), header.compression, cut=True)
        packed = zlib.compress(raw, _LEVEL)
        places[region.start] = header.length + len(body), len(packed)
        body += packed
    return _rewritten(bytes(data[: header.length]), header, places) + body


def _rewritten(head: bytes, header: Header, places: dict[int, tuple[int, int]]) -> bytes:
    """The header with new places: (start, length) by old start, nothing for what is gone."""
    table = struct.Struct(f"{header.byte_order}{2 + 2 * header.layout.slots}Q")
    first = header.length - 4 * header.layout.slots - table.size
    old = table.unpack_from(head, first)
    new: list[int] = []
    for start, length in zip(old[::2], old[1::2], strict=True):
        new += places.get(start, (0, 0)) if length else (0, 0)
    content = bytearray(head)
    content[_COMPRESSION_AT : _COMPRESSION_AT + 1] = _code("zlib")
    table.pack_into(content, first, *new)
    return bytes(content)


def _code(compression: str) -> bytes:
    return bytes([COMPRESSIONS.index(compression)])
