"""Windows of the training thread beside training: validation, and what the program marks.

A framework's evaluation and a mark have a begin and an end. A loop of the program validates from
the first batch that it asks of a loader that does not train, or from `model.eval()` before it, to
`model.train()` behind it, else to the end of that loader's pass; and from `model.eval()` to
`model.train()` of the same model where no loader is asked. A model that is switched to and fro in
half of the steps or more acts (reinforcement learning) and does not validate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from vanidl.readers.steps.journal import END, MODE, PHASE, Events
from vanidl.readers.steps.loaders import EVALUATION, SKIPPED, Loaders, closes_step, is_call

LOOP = "a loop of the program"
VALIDATION, SAVE, LOADED, COMPILE = "validation", "checkpoint", "load", "compile"
_VALIDATES = frozenset({"validation", "validate", "valid", "val", "evaluation", "eval", "test"})
_SAVES = frozenset({"checkpoint", "save", "saving"})
_LOADS = frozenset({"load", "restore"})


@dataclass(frozen=True, slots=True)
class Window:
    """One, [start, end) in ns; `label` is "validation", "checkpoint", "load", or another word."""

    start: int
    end: int
    label: str
    call: str


def find_windows(
    every: Events, loop: Events, loaders: Loaders, names: Mapping[int, Mapping[str, Any]]
) -> list[Window]:
    """All windows of the training thread beside training but saves and loads, by start.

    Args:
        every: all events of the training thread.
        loop: those of them that tell of steps, calls of loaders only where outermost.
        loaders: which of them train.
        names: what the windows that have a begin and an end are.
    """
    said = [
        Window(begin, end, _label(str(name.get("label", ""))), str(name.get("call", "")))
        for number, begin, end in _rows(every.pick(every.kind == PHASE))
        for name in [names.get(number, {})]
    ]
    trains = _training_times(loop, loaders)
    modes = every.pick(every.kind == MODE)
    evaluated = [window for window in said if window.label != COMPILE]
    found = list(_passes(loop, loaders, trains, modes, evaluated))
    switched = [w for w in _switches(modes, trains) if not _meets(w, [*evaluated, *found])]
    if 2 * len(switched) < max(int(closes_step(loop).sum()), 1):
        found += switched
    found += _skipped(loop, loaders)
    return sorted([*said, *found], key=lambda window: (window.start, window.end))


def _label(word: str) -> str:
    """One word for those that mean the same."""
    lower = word.lower()
    meant = ((_VALIDATES, VALIDATION), (_SAVES, SAVE), (_LOADS, LOADED))
    return next((name for words, name in meant if lower in words), lower)


def _rows(events: Events) -> Iterable[tuple[int, int, int]]:
    columns = (events.loader.tolist(), events.begin.tolist(), events.end.tolist())
    return zip(*columns, strict=True)


def _training_times(loop: Events, loaders: Loaders) -> Events:
    """Steps, and calls of loaders that train."""
    own = np.isin(loop.loader, [k for k in set(loop.loader.tolist()) if not _evaluates(loaders, k)])
    return loop.pick(closes_step(loop) | (is_call(loop) & own))


def _evaluates(loaders: Loaders, number: int) -> bool:
    return loaders.role(number) == EVALUATION


def _passes(
    loop: Events, loaders: Loaders, trains: Events, modes: Events, said: list[Window]
) -> Iterator[Window]:
    """Where loaders that do not train are asked for batches, between two events of training."""
    evaluating = [k for k in set(loop.loader.tolist()) if _evaluates(loaders, k)]
    calls = loop.pick(is_call(loop) & np.isin(loop.loader, evaluating))
    before = np.searchsorted(trains.end, calls.begin, side="right").tolist()
    rows = zip(before, calls.kind.tolist(), calls.begin.tolist(), calls.end.tolist(), strict=True)
    for place, group in groupby(rows, key=lambda row: row[0]):
        inside = list(group)
        start, end = inside[0][2], max(row[3] for row in inside)
        low = int(trains.end[place - 1]) if place else 0
        high = int(trains.begin[place]) if place < len(trains) else -1
        if inside[-1][1] != END and high >= 0:
            end = max(end, high)  # nobody asked for the end: it goes on until training does
        of_gap = modes.end >= low
        to_evaluation = modes.begin[of_gap & (modes.end <= start) & (modes.number % 2 == 0)]
        to_training = modes.begin[(modes.begin >= end) & (modes.number % 2 == 1)]
        start = int(to_evaluation[-1]) if len(to_evaluation) else start
        if len(to_training) and (high < 0 or to_training[0] <= high):
            end = int(to_training[0])
        window = Window(start, end, VALIDATION, LOOP)
        if not _meets(window, said):
            yield window


def _skipped(loop: Events, loaders: Loaders) -> Iterator[Window]:
    """Batches that were taken without a step: until their pass is over, or another is asked for."""
    calls = loop.pick(is_call(loop))
    left = np.array([loaders.role(k) == SKIPPED for k in calls.loader.tolist()], bool)
    rows = zip(
        left.tolist(), calls.kind.tolist(), calls.begin.tolist(), calls.end.tolist(), strict=True
    )
    start = end = last = -1
    for is_left, kind, begin, until in rows:
        if is_left:
            start, end, last = begin if start < 0 else start, until, kind
        elif start >= 0:
            yield Window(start, end if last == END else begin, SKIPPED, LOOP)
            start = -1
    if start >= 0:
        yield Window(start, end, SKIPPED, LOOP)


def _switches(modes: Events, trains: Events) -> Iterator[Window]:
    """From each switch of a model to evaluation to the next one back, without training between."""
    number = modes.number
    since: dict[int, int] = {}
    for model, trains_now, at in zip(
        (number >> 1).tolist(), (number & 1).tolist(), modes.begin.tolist(), strict=True
    ):
        begin = since.pop(model, None)
        if not trains_now:
            since[model] = at if begin is None else begin
        elif begin is not None:
            inside = np.searchsorted(trains.end, [begin, at])
            if inside[0] == inside[1]:
                yield Window(begin, at, VALIDATION, LOOP)


def _meets(window: Window, others: Iterable[Window]) -> bool:
    return any(window.start < other.end and other.start < window.end for other in others)
