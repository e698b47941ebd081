"""The file of operations on object storage that the recorder's hooks write in a process.

`vanidl/record/injected/vanidl_steps/operations.py` writes it, and says how it is laid out. It runs
in the program's own Python and cannot be imported from here; a test reads what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, bounded_name
from vanidl.readers.recorded_rows import Follower, read_rows, refuse_rows
from vanidl.readers.records import LATEST_NS, describe_left_out, find_impossible_operations
from vanidl.schema.dataclass import dataclass

MAGIC = b"vanidl-objects 1".ljust(47) + b"\n"
TEXT, NAME, READ, WRITE, STAT, LIST, OTHER = range(7)

ROW_BYTES = 48
_COLUMNS = 6
_STATUS_SHIFT = 16
_MOST_STATUS = 0xFFFF
_SECOND_NS = 1_000_000_000
_YEAR_NS = 1 << 55
_INCOMPLETE, _UNSIZED = 1 << 32, 1 << 33
_WHAT = "operations on object storage"

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one process, in the order of their ends; one entry a request in every array."""

    kind: Int64Array  # READ, WRITE, STAT, LIST or OTHER
    name: Int64Array  # index into the names of the file
    offset: Int64Array  # -1 where not known
    nbytes: Int64Array  # of the object: 0 for what failed, and for all that is no read or write
    begin: Int64Array  # ns since the epoch
    end: Int64Array
    thread: Int64Array
    failed: Mask  # no answer, an error, or a body that broke off
    unsized: Mask  # how much was sent is not known

    def __len__(self) -> int:
        return len(self.kind)

    def of_kind(self, *kinds: int) -> Mask:
        """Which requests are of one of these kinds."""
        return np.isin(self.kind, kinds)


@dataclass(frozen=True, slots=True)
class OperationsFile:
    """What one process asked of object storage."""

    path: str
    process: Mapping[str, Any]  # host, pid, parent_pid, rank, ...
    start_ns: int | None  # of the process; None where the file does not say
    end_ns: int | None  # of the process; None where it did not end by itself
    names: tuple[str, ...]
    requests: Requests
    losses: tuple[str, ...]


def read_operations(path: Path) -> OperationsFile:
    """The operations of one process; of a damaged file everything that makes sense.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    read = read_rows(path, (MAGIC,), _WHAT)
    rows, losses = read.rows, [*read.losses]
    budget = Budget.of_file(read.nbytes)
    texts = _Texts.of(rows, budget)
    if texts.process is None:
        raise refuse_rows(path, _WHAT, "no description of its process")

    # What makes no sense is left out, and said.
    requests, lost = _decode_requests(rows[texts.is_request], texts)
    if lost:
        losses.append(describe_left_out(lost, int(texts.is_request.sum())))
    if texts.dropped:
        losses.append(f"its names take more than {budget.memory_limit}: operations are left out")
    return OperationsFile(
        path=str(path),
        process=texts.process,
        start_ns=texts.process_started_ns,
        end_ns=texts.end_ns,
        names=tuple(texts.names),
        requests=requests,
        losses=tuple(losses),
    )


@dataclass(slots=True)
class _Texts:
    """What the rows of text say, and which rows are requests."""

    is_request: Mask
    names: list[str]
    number: dict[int, int]  # as in the file -> index into names
    process: Mapping[str, Any] | None = None
    end_ns: int | None = None
    dropped: bool = False

    @classmethod
    def of(cls, rows: Int64Array, budget: Budget) -> _Texts:
        texts = cls(np.ones(len(rows), bool), [], {})
        texts.is_request[0] = False  # the magic
        index: dict[str, int] = {}
        for kind, number, text in texts._walk_texts(rows):
            if kind == TEXT:
                texts._read_description(text)
            elif not budget.hold(OBJECT_BYTES + len(text)):
                texts.dropped = True
                break
            else:
                name = bounded_name(text.decode("utf-8", "replace"))
                texts.number[number] = index.setdefault(name, len(index))
        texts.names = list(index)
        return texts

    def _walk_texts(self, rows: Int64Array) -> Iterator[tuple[int, int, bytes]]:
        """(kind, number, text) of every text; one that runs past the end is cut there."""
        after = 1
        for row in np.flatnonzero((rows[:, 0] == TEXT) | (rows[:, 0] == NAME)).tolist():
            if row < after:
                continue  # inside a text
            kind, length, number = rows[row, :3].tolist()
            after = row + 1 + min(max(length, 0), len(rows) - row - 1)
            self.is_request[row:after] = False
            yield kind, number, rows[row + 1 : after].tobytes().rstrip(b" ")

    @property
    def process_started_ns(self) -> int | None:
        """When the process began, where it says so."""
        start_ns = (self.process or {}).get("start_ns")
        return start_ns if type(start_ns) is int and 0 < start_ns < LATEST_NS else None

    def _read_description(self, text: bytes) -> None:
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:
            return
        if not isinstance(values, dict):
            return
        if "pid" in values and self.process is None:
            self.process = values
        if type(values.get("end_ns")) is int:
            self.end_ns = values["end_ns"]


def have_failed(code: Int64Array) -> Mask:
    """Which requests got no answer, an error, or a body that broke off."""
    status = (code >> _STATUS_SHIFT) & _MOST_STATUS
    lost: Mask = (status == 0) | (status >= 400) | (code & _INCOMPLETE > 0)
    return lost


def _decode_requests(rows: Int64Array, texts: _Texts) -> tuple[Requests, int]:
    """The requests that make sense, and how many do not."""
    code, number, offset, nbytes, begin, end = (
        np.ascontiguousarray(column, np.int64) for column in rows.T
    )
    # Names as the file numbers them -> those of this log; -1 for one that it does not explain.
    kind = code & 0xFF
    used, place = np.unique(number, return_inverse=True)
    index = np.array([texts.number.get(n, -1) for n in used.tolist()] or [-1], np.int64)
    name = index[place.ravel()] if len(rows) else number
    # Those that can be.
    sound = (kind >= READ) & (kind <= OTHER) & (name >= 0) & (begin > 0) & (offset >= -1)
    sound &= ~find_impossible_operations(offset, nbytes, begin, end)
    started = texts.process_started_ns
    if started is not None:  # a single damaged time would make the run years long
        sound &= (begin >= started - _SECOND_NS) & (end < started + _YEAR_NS)
    lost = have_failed(code)
    moves = np.isin(kind, (READ, WRITE)) & ~lost
    requests = Requests(
        kind=kind[sound],
        name=name[sound],
        offset=offset[sound],
        nbytes=np.where(moves, nbytes, 0)[sound],
        begin=begin[sound],
        end=end[sound],
        thread=((code >> 8) & 0xFF)[sound],
        failed=lost[sound],
        unsized=(moves & (code & _UNSIZED > 0))[sound],
    )
    return requests, int(len(sound) - np.count_nonzero(sound))


# How much a file of operations on object storage that is being written holds so far.

_MOST_ROWS = 32_768


class LiveOperations:
    """The reads of one process so far: `reads` requests, for `nbytes`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = self.nbytes = 0
        self._follower = Follower(path, (MAGIC,), "operations on object storage")
        self._restarts = 0
        self._text_rows = 0  # of the last text that are still to come

    def read(self) -> None:
        """Reads what has been written.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        while len(rows := self._follower.peek(_MOST_ROWS)):
            if self._follower.restarts != self._restarts:
                self._restarts = self._follower.restarts
                self.reads = self.nbytes = self._text_rows = 0
            self._follower.advance(len(rows))
            self._count_rows(rows)

    def _count_rows(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        # First the rest of a text that began in rows before.
        after = min(self._text_rows, len(rows))
        self._text_rows -= after
        is_request = np.ones(len(rows), bool)
        is_request[:after] = False

        # Rows within a text hold any bytes: what looks like a head there is none.
        for row in np.flatnonzero((rows[:, 0] == TEXT) | (rows[:, 0] == NAME)).tolist():
            if row >= after:
                after = row + 1 + max(int(rows[row, 1]), 0)
                is_request[row:after] = False
                self._text_rows = max(after - len(rows), 0)

        # All others are requests; sound reads are counted.
        code, _, offset, nbytes, begin, end = (
            np.ascontiguousarray(column) for column in rows[is_request].T
        )
        read = (code & 0xFF == READ) & ~find_impossible_operations(offset, nbytes, begin, end)
        self.reads += int(read.sum())
        self.nbytes += int(nbytes[read & ~have_failed(code)].sum())
