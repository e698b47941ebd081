"""TensorBoard event files as a source of training steps.

A file is a sequence of records (length, its checksum, data, its checksum; TFRecord format)
that each hold one Event message: wall time, step, and summaries with tags. Decoding those
three fields takes less than installing `tensorboard` does, which is the oracle of the tests.

Step k of a tag is (wall_(k-1), wall_k]: an event is written when its step is over, so the
first has no start and is dropped. A falling step number starts a new segment.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import read_whole
from vanidl.encoding.crc32c import masked_crcs
from vanidl.encoding.protobuf import NotProtobuf, fields, varint_int64
from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.names import parse_event_file_name
from vanidl.readers.records import EventRecords, ProfileTrace
from vanidl.schema.dataclass import dataclass

SOURCE = "tensorboard-events"

_HEAD = struct.Struct("<QI")  # length, its masked CRC-32C; the data's follows the data
_FOOT_BYTES = 4
_LARGEST_SCALAR = 64 << 10  # longer records hold pictures, sound or graphs
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE, _TAG = 1, 1
_RANK = re.compile(r"(?:^|[^a-z])rank[_-]?(\d+)(?:\D|$)")
_EXPECTED = "expected a TensorBoard event file"


@dataclass(frozen=True, slots=True)
class Marks:
    """When each step of one tag was written, in the order of the file."""

    wall_ns: NDArray[np.int64]
    step: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventFile:
    """Marks by tag, in the order in which the tags first appear."""

    tags: dict[str, Marks]
    losses: tuple[str, ...]
    wall_s: tuple[float, ...] = ()  # of every record, 0 where it is not known
    nbytes: tuple[int, ...] = ()  # of every record, with its frame


def read_steps(path: str | Path, tag: str | None = None) -> tuple[ProfileTrace, ...]:
    """One profile per segment of rising step numbers, which holds steps and nothing else.

    Empty where the file has no such tag, or no tag that marks two steps.

    Args:
        path: The event file.
        tag: The tag whose events mark steps; by default the one with most of them.

    Raises:
        InputError: The file cannot be read or is no event file.
    """
    return find_steps(path, read_events(path), tag)


def find_steps(
    path: str | Path, content: EventFile, tag: str | None = None
) -> tuple[ProfileTrace, ...]:
    """The same of a file that was read already."""
    if tag is None:  # the one with most different steps, of equals the first
        counts = Counter({name: len(np.unique(m.step)) for name, m in content.tags.items()})
        tag = counts.most_common(1)[0][0] if counts else ""
    if tag not in content.tags:
        return ()
    return tuple(
        _build_segment(Path(path), segment, tag, () if i else content.losses)
        for i, segment in enumerate(_split_segments(content.tags[tag]))
    )


def list_records(path: str | Path, content: EventFile) -> EventRecords:
    """When each record of a file that was read already was made, and how long it is."""
    name = parse_event_file_name(Path(path))
    wall_s = np.array(content.wall_s, float)
    usable = np.isfinite(wall_s) & (wall_s > 0) & (wall_s < 2**33)
    return EventRecords(
        str(path),
        name.host if name else "",
        name.pid if name else None,
        np.round(np.where(usable, wall_s, 0.0) * 1e6).astype(np.int64) * 1_000,
        np.array(content.nbytes, np.int64),
    )


def read_events(path: str | Path) -> EventFile:
    """What every tag of the file marks. A cut or damaged file gives what comes before.

    An empty file is one that its writer never got to fill: it marks nothing.

    Raises:
        InputError: The file cannot be read or is no event file.
    """
    try:
        data = read_whole(path)
    except OSError as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error.strerror}; check the path") from error
    records, loss = _split_records(data)
    if data and not records:
        raise InputError(f"{path}: {_EXPECTED}, found {loss}; give events.out.tfevents.* files")
    # Times and steps by tag, up to the first record that is no event.
    found_tags: dict[str, list[tuple[float, int]]] = {}
    walls: list[float] = []
    for low, high in records:
        try:
            wall_s, step, tags = _read_event(data, low, high)
        except NotProtobuf as error:
            loss = f"a record holds no event ({error})"
            break
        walls.append(wall_s)
        for name in tags:
            found_tags.setdefault(name, []).append((wall_s, step))
    tagged = {name: _sort_marks(rows) for name, rows in found_tags.items()}
    losses = (f"the event file is damaged: {loss}",) if loss else ()
    framed = [high - low + _HEAD.size + _FOOT_BYTES for low, high in records[: len(walls)]]
    return EventFile(tagged, losses, tuple(walls), tuple(framed))


def _split_records(data: bytes) -> tuple[list[tuple[int, int]], str]:
    """Bounds of all whole records, and what is wrong with the next ("" for nothing)."""
    bounds, heads, loss, at = [], [], "", 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            loss = "its end is missing"
            break
        length, crc = _HEAD.unpack_from(data, at)
        low = at + _HEAD.size
        if length > len(data) - low - _FOOT_BYTES:
            loss = "a record that is longer than the file"
            break
        heads.append((at, at + 8, crc))
        bounds.append((low, low + length))
        at = low + length + _FOOT_BYTES
    # (low, high, checksum) of the data of each record; of long ones it is not checked.
    feet = [
        (low, high, int.from_bytes(data[high : high + _FOOT_BYTES], "little"))
        if high - low <= _LARGEST_SCALAR
        else (low, low, -1)
        for low, high in bounds
    ]
    whole = min(_find_first_bad(data, heads), _find_first_bad(data, feet))
    if whole < len(bounds):
        loss = f"the checksum of record {whole:,} is wrong"
    return bounds[:whole], loss


def _find_first_bad(data: bytes, ranges: list[tuple[int, int, int]]) -> int:
    """Index of the first range whose masked CRC-32C differs, their number where none does."""
    crcs = masked_crcs(data, [(low, high) for low, high, _ in ranges])
    expected = np.array([crc for _, _, crc in ranges], np.int64)
    bad = np.flatnonzero((crcs != expected) & (expected >= 0))
    return int(bad[0]) if len(bad) else len(ranges)


def _read_event(data: bytes, low: int, high: int) -> tuple[float, int, list[str]]:
    """(wall time in seconds, step, tags) of one Event; no tags for what marks no step."""
    if high - low > _LARGEST_SCALAR:
        return 0.0, 0, []
    event = fields(memoryview(data)[low:high])
    wall_s = struct.unpack("<d", event.fixed64(_WALL_TIME))[0]
    step = varint_int64(event.varint(_STEP))
    tags = [
        bytes(tag).decode("utf-8", "backslashreplace")
        for summary in event.messages(_SUMMARY)
        for value in fields(summary).messages(_VALUE)
        for tag in fields(value).messages(_TAG)
    ]
    return wall_s, step, tags


def _sort_marks(rows: list[tuple[float, int]]) -> Marks:
    wall_s = np.array([wall for wall, _ in rows])
    usable = np.isfinite(wall_s) & (np.abs(wall_s) < 2**33)
    wall_ns = np.round(np.where(usable, wall_s, 0.0) * 1e6).astype(np.int64) * 1_000
    step = np.array([step for _, step in rows], np.int64)
    return Marks(wall_ns[usable], step[usable])


def _split_segments(marks: Marks) -> Iterator[Marks]:
    """Runs of rising step numbers and times with at least two marks.

    A step that was marked twice in a row counts once, when it was first marked.
    """
    new = np.concatenate([[True], np.diff(marks.step) != 0])[: len(marks.step)]
    step, wall_ns = marks.step[new], marks.wall_ns[new]
    falls = np.flatnonzero((np.diff(step) < 0) | (np.diff(wall_ns) < 0)) + 1
    for rows in np.split(np.arange(len(step)), falls):
        if len(rows) > 1:
            yield Marks(wall_ns[rows], step[rows])


def _build_segment(path: Path, marks: Marks, tag: str, losses: tuple[str, ...]) -> ProfileTrace:
    name = parse_event_file_name(path)
    rows = len(marks.step) - 1
    step = marks.step[1:]
    int32 = np.clip(step, -(2**31), 2**31 - 1).astype(np.int32)
    columns = (marks.wall_ns[:-1].copy(), marks.wall_ns[1:].copy(), int32)
    for column in columns:
        column.setflags(write=False)
    # How many training steps lie between two marks, mostly.
    stride = int(np.median(np.diff(marks.step)))
    # The rank that the file's folder names, as in `tb/rank3/events...`.
    named = _RANK.search(path.absolute().parent.name.lower())
    rank = int(named[1]) if named else None
    return ProfileTrace(
        path=str(path),
        source=SOURCE,
        host=name.host if name else "",
        pid=name.pid if name else None,
        rank=rank,
        world_size=None,
        devices=(),
        start_ns=columns[0],
        end_ns=columns[1],
        step=columns[2],
        kind=np.full(rows, SpanKind.STEP, np.uint8),
        thread=np.full(rows, -1, np.int32),
        name=np.zeros(rows, np.int32),
        names=(tag,),
        losses=losses,
        every=stride,
    )
