"""Whether offsets of read() can be wrong because a file was opened several times at once.

Darshan keeps one position a file and process, not one a descriptor: two descriptors that
read() 0 to 7,000 each are recorded as one stream from 0 to 14,000. Opening a file sets that
position to 0. So offsets are right, whatever was opened, where

- reads jump and nothing seeked: pread, which brings its own offset (h5py, TensorFlow);
- at least as many reads begin at 0 as the file was opened: every opening had a reading of
  its own, one after another;
- no read follows on another;
- of two openings the first was closed before the second.

In the other cases Darshan's records do not say. Verified with Darshan 3.4.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.model.counter_tables import CounterTable
from vanidl.model.ordering import stable_order
from vanidl.model.trace import POSIX, READ, Part, Trace

OPENS = "POSIX_OPENS"


@dataclass(frozen=True, slots=True)
class SharedOpenings:
    """Records (file x process) whose offsets may be wrong; `path` is an example."""

    together: int  # surely open several times at once
    unclear: int
    path: str


@dataclass(slots=True)
class _Reads:
    """How the traced reads of one file by one process follow each other."""

    begins: int = 0  # reads at offset 0
    follows: int = 0  # begin where the read before ended, not at 0
    jumps: int = 0


def shared_openings(trace: Trace, candidates: NDArray[np.bool_]) -> SharedOpenings | None:
    """What cannot be ruled out among the candidate records of the POSIX counters; None: all can."""
    table = trace.counters[POSIX]
    rows = np.flatnonzero(candidates & (_openings(table) > 1))
    if not len(rows):
        return None
    wanted = {(int(table.process[i]), int(table.file[i])): i for i in rows.tolist()}
    reads = _reads(trace, wanted)
    doubtful = [i for key, i in wanted.items() if key in reads and _doubtful(table, i, reads[key])]
    if not doubtful:
        return None
    together = sum(_together(table, i) for i in doubtful)
    example = trace.files.path[int(table.file[doubtful[0]])]
    return SharedOpenings(together, len(doubtful) - together, example)


def _openings(table: CounterTable) -> NDArray[np.int64]:
    """Openings of each record; Darshan 3.5 counts duplicated descriptors among them."""
    dups = table.counters.get("POSIX_DUPS", np.zeros(len(table.file), np.int64))
    return table.counters[OPENS] - np.maximum(dups, 0)


def _doubtful(table: CounterTable, i: int, reads: _Reads) -> bool:
    if reads.follows == 0 and reads.jumps == 0:
        return False
    if reads.jumps:
        seeks = table.counters.get("POSIX_SEEKS")
        return bool(seeks is not None and seeks[i] > 0) and _together(table, i)
    opened = int(_openings(table)[i])
    one_after_another = opened == 2 and _known(table, i) and not _together(table, i)
    return reads.begins < opened and not one_after_another


def _together(table: CounterTable, i: int) -> bool:
    """Whether the first close came after the last open, or never."""
    if not _known(table, i):
        return False
    closed = table.seconds["POSIX_F_CLOSE_START_TIMESTAMP"][i]
    return bool(closed == 0 or closed >= table.seconds["POSIX_F_OPEN_END_TIMESTAMP"][i])


def _known(table: CounterTable, i: int) -> bool:
    names = ("POSIX_F_CLOSE_START_TIMESTAMP", "POSIX_F_OPEN_END_TIMESTAMP")
    return all(n in table.seconds and table.seconds[n][i] >= 0 for n in names)


def _reads(trace: Trace, wanted: dict[tuple[int, int], int]) -> dict[tuple[int, int], _Reads]:
    found: dict[tuple[int, int], _Reads] = {}
    for part in trace.io:
        files = [file for process, file in wanted if process == part.process]
        if part.layer == POSIX and files:
            for file, offset, ends in _by_file(part, files):
                _count(found.setdefault((part.process, file), _Reads()), offset, ends)
    return found


def _by_file(
    part: Part, files: list[int]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """(file, offsets, ends) of the part's reads, in order of start."""
    rows = part.rows(np.isin(part.file, files) & (part.op == READ))
    order = stable_order(rows.file)
    code, offset, nbytes = rows.file[order], rows.offset[order], rows.nbytes[order]
    borders = np.flatnonzero(np.diff(code)) + 1
    for at in np.split(np.arange(len(code)), borders):
        if len(at):
            yield int(code[at[0]]), offset[at], offset[at] + nbytes[at]


def _count(reads: _Reads, offset: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    begins = offset == 0
    follows = ~begins[1:] & (offset[1:] == ends[:-1])
    reads.begins += int(begins.sum())
    reads.follows += int(follows.sum())
    reads.jumps += int((~begins[1:] & ~follows).sum())
