"""A Darshan log of format 3.41 as it is written: its regions are put aside, then follow the header.

The layout is that of darshan-log-format.h: a header that says where each region lies, the job
record with command and mount table, the names of all records, and the modules, each region one or
more zlib streams.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.names import printable
from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, Part
from vanidl.readers.darshan.header import LAYOUTS, MAGIC
from vanidl.readers.darshan.job import METADATA_BYTES
from vanidl.schema.dataclass import dataclass

# Operations of one process as records of Darshan's extended tracing (DXT).
#
# A record is one file: its head, then its segments, writes before reads, each in the order of their
# start, as darshan-dxt-log-format.h lays them out.

_WORDS = 4  # of a segment: offset, length, start, end
_HEAD_WORDS = 13  # id, rank, shared flag, 64 bytes of host, writes, reads
_HOST = slice(3, 11)  # of the head: 64 bytes of name


@dataclass(frozen=True, slots=True)
class Recorder:
    """Whose operations they are, and what the words of its records are made with."""

    rank: int
    host: bytes
    zero_ns: int  # times count from it
    ids: NDArray[np.uint64]  # by file code


def encode(part: Part, by: Recorder) -> memoryview:
    """The records of all files of a part, in the order of their codes."""
    # Rows by file, writes first; the part is in the order of time, which stays.
    key = 2 * part.file.astype(np.int64) + (part.op == READ)
    order = stable_order(key)
    keys, first = np.unique(key[order], return_index=True)
    counts = np.diff(first, append=len(part))
    files, record = np.unique(keys // 2, return_inverse=True)
    by_op = np.zeros((len(files), 2), np.int64)
    by_op[record, keys % 2] = counts
    # Where heads and segments lie: every head before the segments of its record.
    of_record = by_op.sum(axis=1)
    head = _HEAD_WORDS * np.arange(len(files)) + _WORDS * (np.cumsum(of_record) - of_record)
    row = _WORDS * np.arange(len(part))
    row += _HEAD_WORDS * np.repeat(np.arange(1, len(files) + 1), of_record)
    words = np.zeros(_HEAD_WORDS * len(files) + _WORDS * len(part), "<i8")
    # Heads.
    words[head] = by.ids[files].view(np.int64)
    words[head + 1] = by.rank
    words[head[:, None] + np.arange(_HOST.start, _HOST.stop)] = np.frombuffer(
        by.host[:63].ljust(64, b"\0"), "<i8"
    )
    words[head[:, None] + np.arange(_HOST.stop, _HEAD_WORDS)] = by_op
    # Segments, column by column.
    words[row] = part.offset[order]
    words[row + 1] = part.nbytes[order]
    for i, times in ((2, part.start), (3, part.end)):
        words[row + i] = ((times[order] - by.zero_ns) / 1e9).astype("<f8").view("<i8")
    return words.data.cast("B")


_VERSION = "3.41"
_LAYOUT = LAYOUTS[_VERSION]
_HEADER = struct.Struct(f"<{_LAYOUT.head}{2 + 2 * _LAYOUT.slots}Q{_LAYOUT.slots}I")
_JOB = struct.Struct(f"<{_LAYOUT.job}")
_JOB_RECORD_BYTES = 4096  # DARSHAN_JOB_RECORD_SIZE: Darshan's own reader holds no more of it
_LONGEST_COMMAND_BYTES = 2048  # of it; the mount table has the rest
_LEVEL = 1  # three times as fast as zlib's default, a tenth larger
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class JobText:
    """What the job record of a log says."""

    user_id: int
    job_id: int
    nprocs: int
    start_ns: int
    end_ns: int
    writer: str
    command: str
    mounts: tuple[tuple[str, str], ...]  # (mount point, file system type)


@dataclass(slots=True)
class _Region:
    """The compressed bytes of one region so far."""

    version: int
    file: IO[bytes]


class LogFile:
    """Takes the records of modules, then writes the log that holds them."""

    def __init__(self) -> None:
        self._regions: dict[str, _Region] = {}
        self._files = ExitStack()

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that have records."""
        return tuple(self._regions)

    def add(self, module: str, version: int, records: bytes | memoryview) -> None:
        """Appends whole records to a module, as a stream of their own.

        Raises:
            OSError: there is no room for temporary files.
        """
        if module not in self._regions:
            file = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (a stack)
            self._regions[module] = _Region(version, file)
        self._regions[module].file.write(zlib.compress(records, _LEVEL))

    def write(
        self,
        target: IO[bytes],
        job: JobText,
        names: Iterable[tuple[int, str]],
        partial: Sequence[str],
    ) -> None:
        """Writes the whole log.

        Args:
            target: where to; need not be able to seek.
            job: the job record.
            names: id and name of each record.
            partial: modules whose records are flagged incomplete.
        """
        # The table of contents: what lies where, module by module in the order of their numbers.
        times = (*divmod(job.start_ns, _SECOND_NS), *divmod(job.end_ns, _SECOND_NS))
        fixed = _JOB.pack(job.user_id, *times, job.nprocs, job.job_id)
        metadata = b"lib_ver=%s\n" % encode_text(job.writer, METADATA_BYTES - 16)
        record = fixed + metadata.ljust(METADATA_BYTES, b"\0")
        record += encode_text(job.command, _LONGEST_COMMAND_BYTES)
        # Darshan's reader takes a log without any mount for one without a command.
        for point, kind in job.mounts or (("/", "unknown"),):
            line = b"\n%s\t%s" % tuple(_escape_field(text) for text in (kind, point))
            if len(record) + len(line) < _JOB_RECORD_BYTES:
                record += line
        job_record = record + b"\0"
        key = struct.Struct("<Q")
        records = b"".join(key.pack(i) + encode_text(name, 4096) + b"\0" for i, name in names)
        head = zlib.compress(job_record), zlib.compress(records, _LEVEL)
        table, versions = [0] * (2 + 2 * _LAYOUT.slots), [0] * _LAYOUT.slots
        position = _HEADER.size + len(head[0])
        table[:2] = position, len(head[1])
        position += len(head[1])
        number = {module: _LAYOUT.modules.index(module) for module in self._regions}
        in_turn = sorted(self._regions, key=number.__getitem__)
        for module in in_turn:
            region, i = self._regions[module], number[module]
            length = region.file.tell()
            table[2 + 2 * i : 4 + 2 * i] = position, length
            versions[i] = region.version
            position += length
        flags = sum(1 << number[module] for module in partial if module in number)
        # Header, job and names, then the regions as they were put aside.
        target.write(_HEADER.pack(_VERSION.encode(), MAGIC, 0, flags, *table, *versions))
        target.write(b"".join(head))
        for module in in_turn:
            self._regions[module].file.seek(0)
            shutil.copyfileobj(self._regions[module].file, target)


def encode_text(text: str, most: int) -> bytes:
    """A name or command as a log holds it: no control characters, UTF-8, at most so many bytes."""
    raw = printable(text).encode("utf-8", "backslashreplace")
    return raw if len(raw) <= most else raw[:most].decode("utf-8", "ignore").encode()


def _escape_field(text: str) -> bytes:
    """A mount point or type as /proc/mounts writes it: blanks would end the field."""
    return encode_text("".join("\\040" if c.isspace() else c for c in text) or "unknown", 1024)
