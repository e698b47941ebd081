"""Events of a TensorFlow or JAX profile -> one `ProfileTrace`, whichever file they came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace, freeze
from vanidl.readers.xprof import span_kinds
from vanidl.readers.xprof.events import NO_STEP, SessionEvents
from vanidl.readers.xprof.span_kinds import NONE, Label
from vanidl.readers.xprof.start_time import Placed

Int64Array = NDArray[np.int64]
_Key = TypeVar("_Key")

_LARGEST_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Writer:
    """The file and the process that was profiled."""

    path: Path
    source: str
    host: str
    pid: int | None
    losses: tuple[str, ...] = ()


def profile_trace(
    events: SessionEvents, writer: Writer, waits: Sequence[re.Pattern[str]], placed: Placed
) -> ProfileTrace:
    """The spans of a profile, sorted by start.

    Raises:
        InputError: No event means anything to the analyses.
    """
    kind = _kinds(events, waits)
    keep = np.flatnonzero(kind != NONE)
    if not keep.size:
        raise InputError(
            f"{writer.path}: expected a profile with steps, waits for input or operators, found "
            f"{len(kind):,} other events; profile at least one training step"
        )
    keep = keep[np.lexsort((-events.end_ns[keep], events.start_ns[keep]))]
    used, label = np.unique(events.label[keep], return_inverse=True)
    labels = [events.labels[code] for code in used.tolist()]
    name_of, names = _numbered([label.name for label in labels])
    thread_of, _ = _numbered([(label.plane, label.line) for label in labels])
    return ProfileTrace(
        path=str(writer.path),
        source=writer.source,
        host=writer.host,
        pid=writer.pid,
        rank=None,
        world_size=None,
        devices=tuple(sorted({x.plane for x in labels if span_kinds.is_device(x.plane)})),
        start_ns=freeze(events.start_ns[keep] + placed.zero_ns),
        end_ns=freeze(events.end_ns[keep] + placed.zero_ns),
        step=freeze(_steps(events.step[keep], kind[keep], labels, label)),
        kind=freeze(kind[keep]),
        thread=freeze(thread_of[label]),
        name=freeze(name_of[label]),
        names=tuple(map(_printable, names)),
        losses=writer.losses,
        clock_method=placed.method,
        clock_uncertainty_ns=placed.uncertainty_ns,
    )


def _kinds(events: SessionEvents, waits: Sequence[re.Pattern[str]]) -> NDArray[np.uint8]:
    counts = np.bincount(events.label, minlength=len(events.labels)).tolist()
    of_label = span_kinds.kinds(events.labels, waits)
    of_label[span_kinds.steps(events.labels, counts)] = SpanKind.STEP
    return of_label[events.label]


def _steps(
    carried: Int64Array, kind: NDArray[np.uint8], labels: Sequence[Label], label: Int64Array
) -> NDArray[np.int32]:
    """The number of each step; of one on a device's own line of steps that is its name."""
    named = [int(x.name) if span_kinds.is_device_step(x) else NO_STEP for x in labels]
    number = np.maximum(carried, np.array(named, np.int64)[label])
    number[kind != SpanKind.STEP] = NO_STEP
    return np.clip(number, NO_STEP, _LARGEST_STEP).astype(np.int32)


def _numbered(values: Sequence[_Key]) -> tuple[NDArray[np.int32], tuple[_Key, ...]]:
    """Each value's place among the different ones, and those."""
    different = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([different[value] for value in values], np.int32), tuple(different)


def _printable(name: str) -> str:
    """The name without lone surrogates, which no file can hold."""
    return name.encode("utf-8", "replace").decode("utf-8")
