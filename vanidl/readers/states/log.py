"""The file of samples that the recorder's sampler writes: rows of 16 bytes.

`vanidl/record/states/sampler.c` writes it. After the first row, `MAGIC`, each is little-endian:
a 32-bit number, the 16-bit number of a thread, the kind and flags of 8 bits each, and two numbers
of 32 bits or one of 64. By kind:

- below GONE, a sample: microseconds since the last TIME; its file (0: none) or system call; how
  long the thread has waited for a core, in microseconds modulo 2^32.
- TIME: nanoseconds since the epoch, in 64 bits.
- THREAD: process id; that of the thread, and of the parent of its process. Flags above 1 are two
  more than the rounds of samples in which it was there before its first one, at most.
- NAME: length of the text in the rows that follow, padded with blanks; its number. With flag 1 the
  host, and the period of sampling in microseconds in place of a number.
- CPU: microseconds; ticks in user and in kernel mode. IO: microseconds; flags say what, 64 bits.
- LEFT_OUT: threads that are not sampled; with flag 1 all of a process (the first number), as the
  system forbids it.
- END: the recording ended.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import read_whole
from vanidl.formatting.from_logs import clean_path, clean_text
from vanidl.model.states import IN_FILES, OTHER, SampledThread, Samples, States
from vanidl.readers.recorded_rows import refuse_rows
from vanidl.schema.dataclass import dataclass

MAGIC = b"vanidl-states 1\n"
GONE, TIME, THREAD, NAME, CPU, IO, LEFT_OUT, END = 0xEF, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xFF
LATE = 1
OF_HOST = FORBIDDEN = 1  # flags of NAME and LEFT_OUT

ROW = np.dtype(
    [("first", "<u4"), ("thread", "<u2"), ("kind", "u1"), ("flags", "u1"), ("second", "<u4"),
     ("third", "<u4")]
)  # fmt: skip
_WHAT = "states of threads"
_MOST_NAMES = 1 << 16


@dataclass(frozen=True, slots=True)
class StatesLog:
    """One file: what was sampled, and what is missing."""

    path: str
    period_us: int
    states: States
    forbidden: tuple[int, ...]  # processes that the system let nobody look into
    left_out: bool  # there were more threads than can be sampled
    ended: bool
    losses: tuple[str, ...]


def read_states(path: Path) -> StatesLog:
    """The samples of one recorder; of a file that is cut everything before the cut.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        content = read_whole(path)
    except OSError as error:
        raise refuse_rows(path, _WHAT, f"no readable file ({error.strerror})") from error
    if not content.startswith(MAGIC):
        raise refuse_rows(path, _WHAT, "something else or nothing")
    cut = len(content) % ROW.itemsize
    losses = [f"its last row is cut: {cut} of {ROW.itemsize} bytes"] if cut else []
    rows = np.frombuffer(content, ROW, len(content) // ROW.itemsize)[1:]
    # Names of paths and threads first: their rows hold text, all others a time.
    host, period_us, paths, is_text = _split_names(rows)
    rows = rows[~is_text]
    times, timed = _decode_times(rows)
    lost = int((~timed & (rows["kind"] < GONE)).sum())
    if lost:
        losses.append(f"samples left out as their time is not known: {lost:,}")
    threads = _split_threads(rows, times, timed, host, paths)
    # What the recorder says that it did not sample.
    left_out = rows[rows["kind"] == LEFT_OUT]
    forbidden = left_out["first"][left_out["flags"] == FORBIDDEN]
    return StatesLog(
        str(path),
        period_us,
        States(threads),
        tuple(np.unique(forbidden).tolist()),
        bool((left_out["flags"] == 0).any()),
        bool((rows["kind"] == END).any()),
        tuple(losses),
    )


def _split_names(rows: NDArray[np.void]) -> tuple[str, int, dict[int, str], NDArray[np.bool_]]:
    """Host, period, number -> path, and which rows hold text."""
    is_text = np.zeros(len(rows), bool)
    host, period_us, paths, behind = "", 0, dict[int, str](), 0
    for row in np.flatnonzero(rows["kind"] == NAME).tolist():
        if row < behind:
            continue  # inside of a text
        length = min(int(rows["first"][row]), (len(rows) - row - 1) * ROW.itemsize)
        behind = row + 1 + -(-length // ROW.itemsize)
        is_text[row + 1 : behind] = True
        text = rows[row + 1 : behind].tobytes()[:length].decode("utf-8", "replace")
        if rows["flags"][row] == OF_HOST:
            host, period_us = clean_text(text), int(rows["second"][row])
        else:
            number = int(rows["second"][row])
            if 0 < number < _MOST_NAMES:
                paths[number] = clean_path(text)
    return host, period_us, paths, is_text


def _decode_times(rows: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """When each row was written, ns since the epoch, and whether that is known."""
    bases = np.flatnonzero(rows["kind"] == TIME)
    place = np.searchsorted(bases, np.arange(len(rows)), side="right") - 1
    if not len(bases):
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    high = rows["third"][bases].astype(np.int64)
    base = (high << 32) | rows["second"][bases].astype(np.int64)
    timed = (place >= 0) & (base[np.maximum(place, 0)] > 0)
    return base[np.maximum(place, 0)] + rows["first"].astype(np.int64) * 1000, timed


def _split_threads(
    rows: NDArray[np.void],
    times: NDArray[np.int64],
    timed: NDArray[np.bool_],
    host: str,
    paths: dict[int, str],
) -> tuple[SampledThread, ...]:
    """Every thread that the file tells of, with its rows."""
    # Rows by thread, those without a time left out; paths by a code of this log.
    order = np.argsort(rows["thread"], kind="stable")
    order = order[timed[order]]
    numbers = rows["thread"][order]
    of_kind = rows["kind"][order]
    known = tuple(paths.values())
    codes = np.full(max(paths, default=0) + 1, -1, np.int32)
    codes[list(paths)] = np.arange(len(paths))
    # Of each thread that is described: samples in the order of time, processor time, bytes moved.
    threads = []
    described = np.flatnonzero(rows["kind"] == THREAD)
    # Of a thread that is described again the last row counts.
    for row in {int(rows["thread"][k]): k for k in described.tolist()}.values():
        first = np.searchsorted(numbers, rows["thread"][row], "left")
        behind = np.searchsorted(numbers, rows["thread"][row], "right")
        of_thread, kinds = order[first:behind], of_kind[first:behind]
        taken = of_thread[kinds < GONE]
        taken = taken[np.argsort(times[taken], kind="stable")]
        kind = np.minimum(rows["kind"][taken], OTHER)
        file = np.where(rows["second"][taken] < len(codes), rows["second"][taken], 0)
        in_files = np.isin(kind, IN_FILES)
        ticks, moved = of_thread[kinds == CPU], of_thread[kinds == IO]
        # A number of 64 bits in two words.
        value = rows["second"][moved].astype(np.int64) | (
            (rows["third"][moved].astype(np.int64) & 0x7FFFFFFF) << 32
        )
        columns = (
            times[taken],
            kind,
            np.where(in_files & (file > 0), codes[file], -1).astype(np.int32),
            rows["third"][taken],
            rows["flags"][taken] & LATE > 0,
        )
        for column in columns:
            column.flags.writeable = False
        threads.append(
            SampledThread(
                host=host,
                pid=int(rows["first"][row]),
                tid=int(rows["second"][row]),
                parent_pid=int(rows["third"][row]),
                samples=Samples(*columns),
                paths=known,
                ticks=_build_table(times[ticks], rows["second"][ticks], rows["third"][ticks]),
                moved=_build_table(times[moved], rows["flags"][moved], value),
                missed=max(int(rows["flags"][row]) - 2, -1),
            )
        )
    return tuple(threads)


def _build_table(*columns: NDArray[np.generic]) -> NDArray[np.int64]:
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)
    table.flags.writeable = False
    return table
