"""Operations of one process as records of Darshan's extended tracing (DXT).

A record is one file: its head, then its segments, writes before reads, each in the order of their
start, as darshan-dxt-log-format.h lays them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, Part

_WORDS = 4  # of a segment: offset, length, start, end
_HEAD_WORDS = 13  # id, rank, shared flag, 64 bytes of host, writes, reads
_HOST = slice(3, 11)


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
