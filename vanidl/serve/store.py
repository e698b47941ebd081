"""All slices of a run in a folder: written once, opened in no time, looked up by window."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.overlap import RankFates, busy_by_fate
from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError
from vanidl.files.checked_json import checked_fields
from vanidl.model import intervals
from vanidl.model.selection import select
from vanidl.run import Run
from vanidl.serve.columns import Writer, mapped, writing
from vanidl.viewer.blocks import COLUMNS, Block, blocks, fates_of
from vanidl.viewer.content import SERVED, shown_lanes
from vanidl.viewer.lanes import IO, SPAN_LANES, Lane, Lanes
from vanidl.viewer.payload import Labels, process_label

Int64Array = NDArray[np.int64]

VERSION = 1  # of the folder; raised when anything in it changes its meaning
REACH_ROWS = 4096
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
    with writing(folder) as columns:
        segments = [
            _written(block, columns, fates_of(lanes, block.lane, run.breakdown.fates))
            for block in blocks(trace, lanes)
            if len(block)
        ]
        fates = {
            position: columns.add("fate_start", found.start)
            for position, found in run.breakdown.fates.items()
        }
        for found in run.breakdown.fates.values():
            columns.add("fate", found.fate)
    meta = {
        "version": VERSION,
        "since_ns": trace.job.start_ns,
        "low_ns": min((s.low_ns for s in segments), default=trace.job.start_ns),
        "high_ns": max((s.high_ns for s in segments), default=trace.job.end_ns),
        "lanes": [asdict(lane) for lane in lanes.lanes],
        "fates": [[position, *place] for position, place in fates.items()],
        "paths": list(trace.files.path),
        "span_names": list(trace.spans.names),
        "processes": [process_label(trace, i) for i in range(len(trace.processes))],
        "segments": [[*asdict(segment).values()] for segment in segments],
        "lengths": columns.lengths,
    }
    (folder / _META).write_text(json.dumps(meta), encoding="utf-8")


def _written(block: Block, columns: Writer, fates: RankFates) -> Segment:
    places = {name: columns.add(name, getattr(block, name)) for name in COLUMNS}
    latest = np.maximum.accumulate(block.end)
    ends = np.minimum(np.arange(REACH_ROWS, len(block) + REACH_ROWS, REACH_ROWS), len(block)) - 1
    reach, _ = columns.add("reach", latest[ends])
    busy = []
    for row in np.unique(block.row).tolist():
        mine = block.row == row
        covered = intervals.union(block.start[mine], block.end[mine])
        for fate, part in busy_by_fate(covered, fates).items():
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
        meta = json.loads(read_whole(folder / _META))
        if meta["version"] != VERSION:
            raise InputError("it is of another version")
        lanes = Lanes.of([_lane(value) for value in meta["lanes"]])
        columns = mapped(folder, {str(k): _whole(v) for k, v in meta["lengths"].items()})
        fates = {
            _whole(position): RankFates(
                columns["fate_start"][first:last], columns["fate"][first:last]
            )
            for position, first, last in meta["fates"]
        }
        texts = ([str(t) for t in meta[name]] for name in ("paths", "span_names", "processes"))
        paths, span_names, processes = texts
        segments = tuple(_segment(value, len(lanes.lanes), columns) for value in meta["segments"])
        return Store(
            Labels(_whole(meta["since_ns"]), paths, span_names, lanes, fates),
            segments,
            columns,
            processes,
            _whole(meta["low_ns"]),
            _whole(meta["high_ns"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InputError) as error:
        raise InputError(
            f"{folder}: expected the slices of a run, found none whole: {error}"
        ) from error


def _lane(value: object) -> Lane:
    found = checked_fields(Lane, value)
    if found["kind"] not in (IO, *SPAN_LANES) or not isinstance(value, dict):
        raise ValueError("a lane of unknown kind")
    return Lane(**found, processes=tuple(_whole(p) for p in value["processes"]))


def _segment(value: Sequence[Any], lanes: int, columns: Mapping[str, NDArray[Any]]) -> Segment:
    *numbers, busy = value
    lane, first, last, low, high, reach = (_whole(number) for number in numbers)
    ranges = tuple((_whole(r), _whole(f), _whole(a), _whole(b)) for r, f, a, b in busy)
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


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) >= 2**63:
        raise TypeError(f"expected a whole number, found {value!r}"[:80])
    return value
