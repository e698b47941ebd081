"""The file that the recorder's hooks write in a process: rows of four 64-bit integers.

`vanidl/record/injected/vanidl_steps/journal.py` writes it, and says how it is laid out. It runs
in the program's own Python and cannot be imported from here; a test reads what it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.readers.recorded_rows import read_rows, refuse_rows
from vanidl.schema.dataclass import dataclass

MAGICS = tuple(b"vanidl-steps %d" % version + b" " * 17 + b"\n" for version in (1, 2, 3, 4))
"""How files begin; version 2 has the kinds of events from COLLATE on, 3 those from STEP on, 4 those
from CHECKPOINT on."""

(TEXT, WAIT, END, ITER, OPTIMIZER, COLLATE, FETCH, WORKER, TAKEN, DEVICE, REPLAY,
 STEP, OTHER_STEP, CHECKPOINT, LOAD, PHASE, MODE, FORWARD, BACKWARD,
 WORKERS_START, WORKERS_STOP, COLLECTIVE) = range(22)  # fmt: skip

ROW_BYTES = 32
KIND = 0xFF  # of a code: the kind of its event
_THREAD_SHIFT, LOADER_SHIFT, _EPOCH_SHIFT = 8, 16, 32
_PLACE = (1 << _EPOCH_SHIFT) - 1
_WHAT = "steps"

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one process in the order of their ends; one entry per event in every array."""

    kind: Int64Array
    thread: Int64Array
    loader: Int64Array  # of WORKER, TAKEN the iterator's; of saves, phases a name; COLLATE's bytes
    epoch: Int64Array  # of FETCH and TAKEN the round of the workers
    place: Int64Array  # in the epoch or round; samples of COLLATE, the worker's number of WORKER
    begin: Int64Array  # ns since the epoch; of WORKER its process id
    end: Int64Array

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def number(self) -> Int64Array:
        """Epoch and place as one number: of DEVICE ns on the host, of saves and loads bytes."""
        number: Int64Array = (self.epoch << _EPOCH_SHIFT) | self.place
        return number

    def pick(self, rows: NDArray[np.bool_] | Int64Array) -> Events:
        """Those of a mask, or of these rows."""
        return Events(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Journal:
    """What one process recorded of its loop."""

    path: str
    process: Mapping[str, Any]  # host, pid, rank, world_size, ...
    loaders: Mapping[int, Mapping[str, Any]]  # number -> class, dataset, batches, workers
    events: Events
    losses: tuple[str, ...]
    profiled: tuple[Mapping[str, Any], ...] = ()  # what became of --profile
    unseen: tuple[Mapping[str, Any], ...] = ()  # files read past tracers: unseen (how), path, size
    replayed: tuple[Mapping[str, Any], ...] = ()  # what became of each loader of a ceiling run
    checkpoints: Mapping[int, Mapping[str, Any]] = field(
        default_factory=dict
    )  # number -> path, call
    phases: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # number -> label, call
    lines: tuple[Mapping[str, Any], ...] = ()  # tables of sampled lines, the latest last
    ended: bool = True  # False: it should say where it ends, and does not


def read_journal(path: Path) -> Journal:
    """The journal of one process; of a damaged file everything before the damage.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    # Rows: texts of JSON between events.
    recorded = read_rows(path, MAGICS, _WHAT)
    rows, losses = recorded.rows, [*recorded.losses]
    texts, is_event = split_texts(rows, 1)
    process = next((text for text in texts if "pid" in text), None)
    if process is None:
        raise refuse_rows(path, _WHAT, "no description of its process")
    events, lost = keep_sound_events(rows[is_event])
    if lost:
        losses.append(f"events left out as their kind is unknown or their times run back: {lost:,}")

    # What the texts are about.
    loaders = {text["loader"]: text for text in texts if describes_loader(text)}
    profiled = tuple(text for text in texts if "profile" in text)
    unseen = tuple(text for text in texts if "unseen" in text)
    replayed = tuple({text["replay"]: text for text in texts if _is_replay(text)}.values())
    lines = tuple(text for text in texts if type(text.get("lines")) is str)
    ended = not process.get("marks_end") or any("ended" in text for text in texts)
    # Of one that was renamed the last name stands.
    checkpoints: dict[int, dict[str, Any]] = {}
    for text in texts:
        number = text.get("checkpoint")
        if type(number) is int:
            before = checkpoints.get(number, {})
            former = [*before.get("former", ()), *([before["path"]] if "path" in before else [])]
            checkpoints[number] = {**text, "former": former}
    return Journal(
        str(path),
        process,
        loaders,
        events,
        tuple(losses),
        profiled,
        unseen,
        replayed,
        checkpoints,
        {t["phase"]: t for t in texts if type(t.get("phase")) is int},
        lines,
        ended,
    )


def _is_replay(text: Mapping[str, Any]) -> bool:
    return type(text.get("replay")) is int and type(text.get("state")) is str


def describes_loader(text: Mapping[str, Any]) -> bool:
    """Whether a text is about a loader."""
    return type(text.get("loader")) is int


def split_texts(rows: Int64Array, after: int = 0) -> tuple[list[dict[str, Any]], NDArray[np.bool_]]:
    """All texts, and which rows are events; a text that is cut or damaged is left out.

    Args:
        rows: of a journal.
        after: how many rows at the beginning are neither.
    """
    is_event = np.ones(len(rows), bool)
    is_event[:after] = False
    texts = []
    for row in np.flatnonzero(rows[:, 0] == TEXT).tolist():
        if row < after:
            continue  # inside a text
        length = min(max(int(rows[row, 1]), 0), len(rows) - row - 1)
        after = row + 1 + length
        is_event[row:after] = False
        text = _parse_text(rows[row + 1 : after].tobytes())
        if text is not None:
            texts.append(text)
    return texts, is_event


def _parse_text(text: bytes) -> dict[str, Any] | None:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return values if isinstance(values, dict) else None


def keep_sound_events(rows: Int64Array) -> tuple[Events, int]:
    """The events that make sense, and how many do not."""
    code, number, begin, end = (np.ascontiguousarray(column, np.int64) for column in rows.T)
    kind = code & KIND
    sound = (kind >= WAIT) & (kind <= COLLECTIVE) & (begin > 0) & (begin <= end)
    events = Events(
        kind=kind,
        thread=(code >> _THREAD_SHIFT) & 0xFF,
        loader=code >> LOADER_SHIFT,
        epoch=number >> _EPOCH_SHIFT,
        place=number & _PLACE,
        begin=begin,
        end=end,
    )
    order = np.argsort(events.end, kind="stable")  # one thread may note what another waited for
    return events.pick(order[sound[order]]), int(len(sound) - np.count_nonzero(sound))
