"""All slices of a run in a folder: written once, opened in no time, looked up by window.

Columns of slices and of busy time lie in files that are mapped into memory, not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.overlap import RankFates, split_busy_by_fate
from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError
from vanidl.files.checked_json import checked_fields
from vanidl.model import intervals
from vanidl.model.selection import select
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.viewer.content import SERVED, shown_lanes
from vanidl.viewer.lanes import COLUMNS, IO, SPAN_LANES, Block, Lane, Lanes, blocks, fates_of
from vanidl.viewer.payload import Labels, label_process

Int64Array = NDArray[np.int64]

VERSION = 1  # of the folder; raised when anything in it changes its meaning
REACH_ROWS = 4096  # slices that share one latest end
_META = "store.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """Slices of one lane that follow each other, rows [first, last) of the columns.

    `busy` has a range of the busy columns for each row and fate: (row, fate, first, last).
    """

    lane: int
    first: int
    last: int
    low_ns: int
    high_ns: int
    reach: int  # its first row of the column
    busy: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Store:
    """Slices of a run as they lie in a folder."""

    labels: Labels
    segments: tuple[Segment, ...]
    columns: Mapping[str, NDArray[Any]]
    processes: Sequence[str]
    low_ns: int  # of all slices
    high_ns: int


def write_store(run: Run, folder: Path) -> None:
    """Writes all slices of a run into an empty folder, block by block.

    Raises:
        OSError: there is no room.
    """
    trace = select(run.trace, run.selection)
    lanes, _ = shown_lanes(trace, SERVED)
    with open_columns(folder) as columns:
        segments = [
            _write_block(block, columns, fates_of(lanes, block.lane, run.breakdown.fates))
            for block in blocks(trace, lanes)
            if len(block)
        ]
        # What became of each rank's time, once: slices refer to it.
        fates = {
            position: columns.add("fate_start", found.start)
            for position, found in run.breakdown.fates.items()
        }
        for found in run.breakdown.fates.values():
            columns.add("fate", found.fate)
    # The file of the rest comes last: a folder without it is not whole.
    meta = {
        "version": VERSION,
        "since_ns": trace.job.start_ns,
        "low_ns": min((s.low_ns for s in segments), default=trace.job.start_ns),
        "high_ns": max((s.high_ns for s in segments), default=trace.job.end_ns),
        "lanes": [asdict(lane) for lane in lanes.lanes],
        "fates": [[position, *place] for position, place in fates.items()],
        "paths": list(trace.files.path),
        "span_names": list(trace.spans.names),
        "processes": [label_process(trace, i) for i in range(len(trace.processes))],
        "segments": [[*asdict(segment).values()] for segment in segments],
        "lengths": columns.lengths,
    }
    (folder / _META).write_text(json.dumps(meta), encoding="utf-8")


def _write_block(block: Block, columns: Writer, fates: RankFates) -> Segment:
    places = {name: columns.add(name, getattr(block, name)) for name in COLUMNS}
    # The latest end so far, every few rows: where a search for what still goes on may stop.
    latest = np.maximum.accumulate(block.end)
    ends = np.minimum(np.arange(REACH_ROWS, len(block) + REACH_ROWS, REACH_ROWS), len(block)) - 1
    reach, _ = columns.add("reach", latest[ends])
    # Busy time by row and fate, with its running sum: a window is two look-ups.
    busy = []
    for row in np.unique(block.row).tolist():
        of_row = block.row == row
        covered = intervals.union(block.start[of_row], block.end[of_row])
        for fate, part in split_busy_by_fate(covered, fates).items():
            first, last = columns.add("busy_start", part.start)
            columns.add("busy_end", part.end)
            columns.add("busy_before", np.cumsum(part.end - part.start) - (part.end - part.start))
            busy.append((row, int(fate), first, last))
    first, last = places["start"]
    low, high = int(block.start[0]), int(latest[-1])
    return Segment(block.lane, first, last, low, high, reach, tuple(busy))


def open_store(folder: Path) -> Store:
    """The slices that `write_store` left in a folder.

    Raises:
        InputError: there are none, or they are not whole.
    """
    try:
        # Nothing is believed: numbers are checked here, places against the columns.
        meta = json.loads(read_whole(folder / _META))
        if meta["version"] != VERSION:
            raise InputError("it is of another version")
        lanes = Lanes.of([_parse_lane(value) for value in meta["lanes"]])
        columns = map_columns(
            folder, {str(k): _require_whole_number(v) for k, v in meta["lengths"].items()}
        )
        fates = {
            _require_whole_number(position): RankFates(
                columns["fate_start"][first:last], columns["fate"][first:last]
            )
            for position, first, last in meta["fates"]
        }
        texts = ([str(t) for t in meta[name]] for name in ("paths", "span_names", "processes"))
        paths, span_names, processes = texts
        segments = tuple(
            _parse_segment(value, len(lanes.lanes), columns) for value in meta["segments"]
        )
        return Store(
            Labels(_require_whole_number(meta["since_ns"]), paths, span_names, lanes, fates),
            segments,
            columns,
            processes,
            _require_whole_number(meta["low_ns"]),
            _require_whole_number(meta["high_ns"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InputError) as error:
        raise InputError(
            f"{folder}: expected the slices of a run, found none whole: {error}"
        ) from error


def _parse_lane(value: object) -> Lane:
    found = checked_fields(Lane, value)
    if found["kind"] not in (IO, *SPAN_LANES) or not isinstance(value, dict):
        raise ValueError("a lane of unknown kind")
    return Lane(**found, processes=tuple(_require_whole_number(p) for p in value["processes"]))


def _parse_segment(
    value: Sequence[Any], lanes: int, columns: Mapping[str, NDArray[Any]]
) -> Segment:
    *numbers, busy = value
    lane, first, last, low, high, reach = (_require_whole_number(number) for number in numbers)
    ranges = tuple(
        (
            _require_whole_number(r),
            _require_whole_number(f),
            _require_whole_number(a),
            _require_whole_number(b),
        )
        for r, f, a, b in busy
    )
    # All that a segment points to lies inside its columns.
    rows = len(columns["start"])
    held = -(-(last - first) // REACH_ROWS)
    if not (
        0 <= lane < lanes
        and 0 <= first < last <= rows
        and 0 <= reach <= len(columns["reach"]) - held
        and all(0 <= a <= b <= len(columns["busy_start"]) for _, _, a, b in ranges)
        and all(0 <= row < 256 and 0 <= fate < 8 for row, fate, _, _ in ranges)
    ):
        raise ValueError("a segment outside its columns")
    return Segment(lane, first, last, low, high, reach, ranges)


def _require_whole_number(value: object) -> int:
    if type(value) is not int or abs(value) >= 2**63:
        raise TypeError(f"expected a whole number, found {value!r}"[:80])
    return value


Columns = Mapping[str, NDArray[Any]]

TYPES: dict[str, str] = {
    "start": "<i8", "end": "<i8", "offset": "<i8", "nbytes": "<i8", "name": "<i4",
    "thread": "<i4", "process": "<i4", "row": "<u1", "write": "<u1",
    "reach": "<i8", "busy_start": "<i8", "busy_end": "<i8", "busy_before": "<i8",
    "fate_start": "<i8", "fate": "<u1",
}  # fmt: skip
"""Columns of a store: of slices, the latest end up to each block of them (`reach`), busy time
with how much of it came before, and the fates of each rank."""


class Writer:
    """Appends to columns; knows how long each is."""

    def __init__(self, files: Mapping[str, BinaryIO]) -> None:
        self._files = files
        self.lengths = dict.fromkeys(files, 0)

    def add(self, name: str, values: NDArray[Any]) -> tuple[int, int]:
        """Appends values; the range that they have in the column."""
        first = self.lengths[name]
        np.ascontiguousarray(values, TYPES[name]).tofile(self._files[name])
        self.lengths[name] = first + len(values)
        return first, self.lengths[name]


@contextmanager
def open_columns(folder: Path) -> Iterator[Writer]:
    """New, empty columns in a folder."""
    with ExitStack() as stack:
        yield Writer(
            {n: stack.enter_context(_get_column_path(folder, n).open("wb")) for n in TYPES}
        )


def map_columns(folder: Path, lengths: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """The columns of a folder, read-only.

    Raises:
        InputError: a file is missing or not as long as it should be.
        OSError: a file cannot be opened.
    """
    found = {}
    for name, kind in TYPES.items():
        path, length = _get_column_path(folder, name), lengths[name]
        if path.stat().st_size != length * np.dtype(kind).itemsize:
            raise InputError(f"{path}: expected {length:,} values, found another number")
        found[name] = np.memmap(path, kind, "r", shape=(length,)) if length else np.empty(0, kind)
    return found


def _get_column_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
