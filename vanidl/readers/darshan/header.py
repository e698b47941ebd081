"""The uncompressed head of a Darshan log: what lies where, in which version and byte order."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import cache
from itertools import compress, pairwise
from pathlib import Path

from vanidl.encoding.file_bytes import AnyBytes, FileBytes, whole_bytes
from vanidl.encoding.text_stream import GZIP_MAGIC, TextStream
from vanidl.errors import InputError
from vanidl.schema.dataclass import dataclass

_VERSION_1 = re.compile(rb"1\.2\d\0")
MAGIC = 6567223
NAMES = "names"
JOB = "job"
DXT_MODULES = ("DXT_POSIX", "DXT_MPIIO")
"""The modules of traced operations."""
COMPRESSIONS = ("zlib", "bz2", "none")  # in the order of the header's codes

_MODULES_300 = (
    "NULL",
    "POSIX",
    "MPI-IO",
    "H5F",
    "PNETCDF_FILE",
    "BG/Q",
    "LUSTRE",
    "STDIO",
    "DXT_POSIX",
    "DXT_MPIIO",
    "MDHIM",
    "APXC",
    "APMPI",
    "HEATMAP",
)
_MODULES_320 = (*_MODULES_300[:4], "H5D", *_MODULES_300[4:])
_MODULES_341 = (*_MODULES_320[:6], "PNETCDF_VAR", *_MODULES_320[6:], "DFS", "DAOS")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the logs of one version of the format are built."""

    modules: tuple[str, ...]  # names by module number
    slots: int  # modules that the header has room for
    head: str  # struct format: version, magic, compression, partial flags
    job: str  # struct format of the job record before its metadata
    whole_seconds: bool  # the job record has no nanoseconds
    counted_names: bool  # a name comes with its length, not with an end mark


LAYOUTS = {
    "3.00": Layout(_MODULES_300, 16, "8sqB3xI", "5q", True, True),
    "3.10": Layout(_MODULES_300, 16, "8sqB3xI", "5q", True, False),
    "3.20": Layout(_MODULES_320, 16, "8sqB3xI", "5q", True, False),
    "3.21": Layout(_MODULES_320, 16, "8sqB3xI", "5q", True, False),
    "3.41": Layout(_MODULES_341, 64, "8sqB7xQ", "7q", False, False),
}


@dataclass(frozen=True, slots=True)
class Region:
    """One stretch of a log as the header announces it; nothing says that it is there."""

    name: str  # a module's name, NAMES or JOB
    start: int  # bytes from the start of the file
    length: int  # bytes, compressed
    version: int  # of the module's records; 0 for NAMES and JOB

    @property
    def end(self) -> int:
        """First byte behind the region."""
        return self.start + self.length

    def cut_from(self, data: AnyBytes) -> AnyBytes:
        """The bytes of the region that the file really holds."""
        if isinstance(data, memoryview):
            return data[self.start : self.start + self.length]
        return data.between(min(self.start, len(data)), min(self.end, len(data)))

    def missing(self, size: int) -> int:
        """Bytes of the region that a file of `size` bytes lacks."""
        lacking = self.start + self.length - size
        return 0 if lacking <= 0 else min(self.length, lacking)


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a log, with names instead of numbers."""

    version: str
    layout: Layout
    byte_order: str  # "<" or ">"
    compression: str  # one of COMPRESSIONS
    partial: tuple[str, ...]  # modules whose records Darshan itself flagged incomplete
    regions: dict[str, Region]  # job, names and modules that are not empty
    length: int  # bytes of the header itself


def read_header(data: memoryview, path: str) -> Header:
    """The header of a log.

    Args:
        data: The whole file, or what is left of it.
        path: Name of the file, for messages.

    Raises:
        InputError: It is no Darshan log, of an unknown version, or shorter than a header.
    """
    if _VERSION_1.match(bytes(data[:8])):  # it has no magic number
        raise InputError(
            f"{path}: expected a log of Darshan 3, found one of Darshan 1, which no vanidl reads; "
            "darshan-parser of darshan-util 2.x prints what is in it"
        )
    # The magic number tells the byte order.
    orders = "<>" if len(data) >= 16 else ""
    order = next((o for o in orders if struct.unpack_from(f"{o}q", data, 8)[0] == MAGIC), "")
    if not order:
        found = "an empty file" if not len(data) else f"{len(data):,} bytes of another kind"
        raise InputError(
            f"{path}: expected a Darshan log, found {found}; "
            "name a .darshan file or the folder that holds them"
        )

    # The version, as text, tells where the fields lie.
    version = bytes(data[:8]).split(b"\0")[0].decode("ascii", "backslashreplace")
    layout = LAYOUTS.get(version)
    if layout is None:
        if version.startswith("2."):
            raise InputError(
                f"{path}: expected a log of Darshan 3, found one of Darshan {version}, which no "
                "vanidl reads; darshan-util 2.x reads it, and darshan-convert of darshan-util 3.0 "
                "makes a log of Darshan 3 of it"
            )
        versions = ", ".join(LAYOUTS)
        raise InputError(
            f"{path}: expected a Darshan log of version {versions}, found version {version!r}; "
            "a newer vanidl may read it, or convert it with darshan-convert"
        )
    return _read_fields(data, path, version, order)


def find_layout_losses(header: Header, size: int) -> list[str]:
    """Sentences about regions that do not tile a file of `size` bytes."""
    losses = []
    # Regions follow one another, from the end of the header to that of the file.
    position = header.length
    for region in sorted(header.regions.values(), key=lambda r: r.start):
        if region.start != position:
            losses.append(
                f"the log's table of contents is damaged: {region.name} starts at byte "
                f"{region.start}, expected {position}"
            )
        position = region.end
        if missing := region.missing(size):
            losses.append(
                f"the log is cut: {region.name} has {region.length:,} bytes, "
                f"{region.length - missing:,} of them are in the file"
            )
    if position < size:
        losses.append(f"{size - position:,} bytes at the end of the log belong to nothing")
    return losses


def drop_overlapping(header: Header, size: int) -> tuple[Header, list[str]]:
    """The header without regions that lie where another lies, and a sentence for each of those.

    Where one of two is plainly wrong only that is left out: it starts inside the header, or
    reaches over others beyond the end of the file, which has `size` bytes.
    """
    regions = sorted(
        (r for r in header.regions.values() if r.name != JOB), key=lambda r: (r.start, r.end)
    )

    # Plainly wrong: inside the header, or beyond the end and over others.
    last = max((r.start for r in regions if r.start < size), default=0)
    wrong = {r.name for r in regions if r.start <= header.length}
    wrong |= {r.name for r in regions if r.end > size and r.start < last}

    # Of the rest, both of two that overlap.
    rest = [r for r in regions if r.name not in wrong]
    wrong |= {r.name for a, b in pairwise(rest) if b.start < a.end for r in (a, b)}
    kept = {name: r for name, r in header.regions.items() if name not in wrong}
    if not wrong:
        return header, []
    sentences = [f"{name} overlaps other parts of the log and is left out" for name in wrong]
    return replace(header, regions=kept), sorted(sentences)


def read_version(data: bytes) -> str | None:
    """Version of the format that a log names, None where the bytes are of no Darshan log."""
    for order in "<>":
        if len(data) >= 16 and struct.unpack_from(f"{order}q", data, 8)[0] == MAGIC:
            return data[:8].split(b"\0")[0].decode("ascii", "backslashreplace")
    return None


def is_cut(data: bytes) -> bool:
    """Whether a log of a known version ends before its header, or what that announces, does."""
    layout = LAYOUTS[read_version(data) or ""]
    if len(data) < _get_struct(layout, "<").size:
        return True
    header = read_header(memoryview(data), "")
    return any(region.missing(len(data)) for region in header.regions.values())


def _read_fields(data: memoryview, path: str, version: str, order: str) -> Header:
    layout = LAYOUTS[version]
    form = _get_struct(layout, order)
    if len(data) < form.size:
        raise InputError(
            f"{path}: expected {form.size} bytes of header, found {len(data)}; "
            "the log is cut too short to be used: copy it again"
        )
    _, _, code, flags, *table = form.unpack_from(data)
    if code >= len(COMPRESSIONS):
        raise InputError(
            f"{path}: expected a compression of {', '.join(COMPRESSIONS)} (0 to 2), "
            f"found {code}; the log's header is damaged: copy it again"
        )

    # The regions that are used, the table of names before those of modules.
    names = name_slots(layout)
    count = len(names)
    starts, lengths = table[: 2 * count + 2 : 2], table[1 : 2 * count + 2 : 2]
    versions = (0, *table[2 * count + 2 :])
    named = (NAMES, *names)
    used = list(compress(range(count + 1), lengths))
    regions = {named[i]: Region(named[i], starts[i], lengths[i], versions[i]) for i in used}
    # The header does not say how long the job record is: it ends where the next begins.
    first = form.size
    end = min((r.start for r in regions.values() if r.start > first), default=max(len(data), first))
    regions = {JOB: Region(JOB, first, end - first, 0), **regions}
    partial = tuple(name for i, name in enumerate(names) if flags >> i & 1) if flags else ()
    return Header(version, layout, order, COMPRESSIONS[code], partial, regions, form.size)


@cache
def _get_struct(layout: Layout, order: str) -> struct.Struct:
    return struct.Struct(f"{order}{layout.head}{2 + 2 * layout.slots}Q{layout.slots}I")


@cache
def name_slots(layout: Layout) -> tuple[str, ...]:
    """A name for every module number that the header has room for."""
    spare = range(len(layout.modules), layout.slots)
    return (*layout.modules, *(f"module {i}" for i in spare))


# The bytes of a log, those of a large one read where they are used.

_START = 16  # version and magic
_LARGE = 64 << 20  # bytes


def _unpack_log(name: str) -> memoryview:
    """The bytes of a log that was packed by gzip as a whole.

    Raises:
        InputError: They are damaged, or more than a file of its size may hold.
    """
    text = TextStream(Path(name))
    data = b"".join(text)
    if text.damage:
        raise InputError(f"{name}: expected a Darshan log, found that {text.damage}; copy it again")
    return memoryview(data)


def open_log(name: str) -> AnyBytes:
    """The bytes of what may be a log; of a large one they are read where they are used.

    Raises:
        InputError: They cannot be read.
    """
    try:
        data = whole_bytes(name, _LARGE)
        if data is not None:
            return _unpack_log(name) if data[:2] == GZIP_MAGIC else data
        large = FileBytes(name)
        return large if read_version(bytes(large[:_START])) else large[:]
    except FileNotFoundError:
        found, remedy = "no such file", "check the name"
    except IsADirectoryError:
        found, remedy = "a folder", "name one of the logs in it"
    except OSError as error:
        found, remedy = str(error.strerror), "make it readable"
    raise InputError(f"{name}: expected a Darshan log, found {found}; {remedy}")
