"""Passes over a loader that trains which are no training: told apart before anything is counted.

One loader may give its batches to training and to an evaluation (a generator function that serves
both, statistics of the data, a batch that is looked at before). A pass in which no step was made is
one of an evaluation. A run that is resumed takes the batches that it trained on before, and throws
them away: these are skipped, as are passes before all training, of another loader of the same data
as well unless the model was switched to evaluation. What is told apart gets a loader of its own,
next to the one that trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.steps.journal import (
    BACKWARD,
    END,
    MODE,
    PHASE,
    WAIT,
    WORKERS_STOP,
    Events,
    Int64Array,
    Journal,
)
from vanidl.readers.steps.spans import (
    EVALUATION,
    SKIPPED,
    SPLIT_OFF,
    Loaders,
    Thread,
    closes_step,
    count_threads,
    find_training_thread,
    is_call,
    select_training,
)
from vanidl.schema.dataclass import dataclass

# Windows of the training thread beside training: validation, and what the program marks.
#
# A framework's evaluation and a mark have a begin and an end. A loop of the program validates from
# the first batch that it asks of a loader that does not train, or from `model.eval()` before it, to
# `model.train()` behind it, else to the end of that loader's pass; and from `model.eval()` to
# `model.train()` of the same model where no loader is asked. A model that is switched to and fro in
# half of the steps or more acts (reinforcement learning) and does not validate.

LOOP = "a loop of the program"
VALIDATION, SAVE, LOADED, COMPILE = "validation", "checkpoint", "load", "compile"
_VALIDATES = frozenset({"validation", "validate", "valid", "val", "evaluation", "eval", "test"})
_SAVES = frozenset({"checkpoint", "save", "saving"})
_LOADS = frozenset({"load", "restore"})
_AT_ONCE_NS = 1_000_000  # from the end of a pass to the stop of what read for it


@dataclass(frozen=True, slots=True)
class Window:
    """One, [start, end) in ns; `label` is "validation", "checkpoint", "load", or another word."""

    start: int
    end: int
    label: str
    call: str


def split_passes(journal: Journal) -> Journal:
    """A journal whose training loaders gave only batches that were trained on."""
    thread = find_training_thread(count_threads(journal.events))
    rules = find_pass_rules(journal.events, thread, journal.loaders)
    if not rules:
        return journal
    events = apply_pass_rules(rules, journal.events, thread)
    used = np.unique(events.loader[is_call(events)]).tolist()
    more = {k: describe_loader(k, journal.loaders) for k in used if k >= SPLIT_OFF}
    return replace(journal, events=events, loaders={**journal.loaders, **more})


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
    # What the program, or a call of a library that is known, says of itself.
    phases = every.pick(every.kind == PHASE)
    columns = (phases.loader.tolist(), phases.begin.tolist(), phases.end.tolist())
    marked = [
        Window(begin, end, _normalize_label(str(name.get("label", ""))), str(name.get("call", "")))
        for number, begin, end in zip(*columns, strict=True)
        for name in [names.get(number, {})]
    ]
    # Steps, and calls of loaders that train.
    own = np.isin(loop.loader, [k for k in set(loop.loader.tolist()) if not _evaluates(loaders, k)])
    trains = loop.pick(closes_step(loop) | (is_call(loop) & own))
    modes = every.pick(every.kind == MODE)
    evaluated = [window for window in marked if window.label != COMPILE]
    stops = every.pick(every.kind == WORKERS_STOP)
    windows = list(_find_validation_passes(loop, loaders, trains, modes, stops, evaluated))
    switched = [
        w for w in _find_switches(modes, trains) if not _overlaps_any(w, [*evaluated, *windows])
    ]
    if 2 * len(switched) < max(int(closes_step(loop).sum()), 1):
        windows += switched
    windows += _find_skipped(loop, loaders)
    return sorted([*marked, *windows], key=lambda window: (window.start, window.end))


def _normalize_label(word: str) -> str:
    """One word for those that mean the same."""
    lower = word.lower()
    meant = ((_VALIDATES, VALIDATION), (_SAVES, SAVE), (_LOADS, LOADED))
    return next((name for words, name in meant if lower in words), lower)


def _evaluates(loaders: Loaders, number: int) -> bool:
    return loaders.role(number) == EVALUATION


def _find_validation_passes(
    loop: Events,
    loaders: Loaders,
    trains: Events,
    modes: Events,
    stops: Events,
    said: list[Window],
) -> Iterator[Window]:
    """Where loaders that do not train are asked for batches, between two events of training.

    Stopping what read the batches, once they have all been given, is part of it.
    """
    evaluating = [k for k in set(loop.loader.tolist()) if _evaluates(loaders, k)]
    calls = loop.pick(is_call(loop) & np.isin(loop.loader, evaluating))
    before = np.searchsorted(trains.end, calls.begin, side="right").tolist()
    rows = zip(before, calls.kind.tolist(), calls.begin.tolist(), calls.end.tolist(), strict=True)
    for place, group in groupby(rows, key=lambda row: row[0]):
        inside = list(group)
        start, end = inside[0][2], max(row[3] for row in inside)
        # Between the training before and after it: -1 where none follows.
        low = int(trains.end[place - 1]) if place else 0
        high = int(trains.begin[place]) if place < len(trains) else -1
        if inside[-1][1] != END and high >= 0:
            end = max(end, high)  # nobody asked for the end: it goes on until training does
        else:
            stopped = stops.end[(stops.begin >= end) & (stops.begin <= end + _AT_ONCE_NS)]
            end = int(stopped.max(initial=end))
            end = min(end, high) if high >= 0 else end
        # Where the model was switched to evaluation and back, it says better.
        of_gap = modes.end >= low
        to_evaluation = modes.begin[of_gap & (modes.end <= start) & (modes.number % 2 == 0)]
        to_training = modes.begin[(modes.begin >= end) & (modes.number % 2 == 1)]
        start = int(to_evaluation[-1]) if len(to_evaluation) else start
        if len(to_training) and (high < 0 or to_training[0] <= high):
            end = int(to_training[0])
        window = Window(start, end, VALIDATION, LOOP)
        if not _overlaps_any(window, said):
            yield window


def _find_skipped(loop: Events, loaders: Loaders) -> Iterator[Window]:
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
            # It is over with the end of its pass, or as another batch is asked for.
            yield Window(start, end if last == END else begin, SKIPPED, LOOP)
            start = -1
    if start >= 0:
        yield Window(start, end, SKIPPED, LOOP)


def _find_switches(modes: Events, trains: Events) -> Iterator[Window]:
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


def _overlaps_any(window: Window, others: Iterable[Window]) -> bool:
    return any(window.start < other.end and other.start < window.end for other in others)


_EVALUATED, _SKIPPED = SPLIT_OFF, 2 * SPLIT_OFF
_WHOLE = ((0, 1 << 32),)
_MANY = 3  # batches that are taken without a step, beyond those that loaders read ahead

Rules = Mapping[tuple[int, int], tuple[tuple[int, int], ...]]
"""(loader, epoch) -> [first, last) of its batches that are skipped; none: all are evaluated."""


def describe_loader(number: int, loaders: Mapping[int, Mapping[str, object]]) -> dict[str, object]:
    """What is known of a loader, of one that was told apart its role, too."""
    loader = dict(loaders.get(number % SPLIT_OFF, {}))
    if number >= SPLIT_OFF:
        loader |= {"loader": number, "role": EVALUATION if number & _EVALUATED else SKIPPED}
    return loader


def find_pass_rules(
    events: Events, thread: Thread, loaders: Mapping[int, Mapping[str, object]]
) -> Rules:
    """Which batches of the thread that trains are to be told apart; none where no step was seen.

    Args:
        events: those of the process.
        thread: the one that trains.
        loaders: what is known of each.
    """
    loop = select_training(events, thread)
    steps = np.flatnonzero(closes_step(loop))
    waits = np.flatnonzero(loop.kind == WAIT)
    if not len(steps) or not len(waits):
        return {}

    # Passes without a step, of loaders that train: skipped before training, else evaluated.
    loader, epoch, last, trains = _find_passes(loop, waits, steps)
    apart = ~trains & np.isin(loader, loader[trains])
    keys = zip(loader[apart].tolist(), epoch[apart].tolist(), strict=True)
    early = (last[apart] < steps[0]).tolist()  # before training: nothing to evaluate yet
    rules: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
        key: _WHOLE if is_early else () for key, is_early in zip(keys, early, strict=True)
    }

    # Early passes of another loader of the same data, unless the model was switched to evaluation.
    own = events.thread == thread.number
    evaluates = own & (events.kind == MODE) & (events.number % 2 == 0)
    if not (events.begin[evaluates] < loop.begin[steps[0]]).any():
        alike = {_get_kind(loaders.get(int(k), {})) for k in np.unique(loader[trains])}
        for number in np.unique(loader[~np.isin(loader, loader[trains])]).tolist():
            of_loader = loader == number
            kind = _get_kind(loaders.get(number, {}))
            if kind and kind in alike and (last[of_loader] < steps[0]).all():
                rules |= {(number, int(each)): _WHOLE for each in epoch[of_loader]}

    # Batches in front of a step, of passes that train otherwise.
    gradients = np.sort(events.end[own & (events.kind == BACKWARD)])
    for key, left in _find_skipped_batches(loop, waits, steps, gradients).items():
        if key not in rules:
            rules[key] = left
    return rules


def _get_kind(loader: Mapping[str, object]) -> tuple[object, ...]:
    """What is alike of two loaders of the same data; unlike any where a framework says its use."""
    said = (loader.get("class"), loader.get("dataset"), loader.get("data"), loader.get("batches"))
    return said if "role" not in loader else ()


def apply_pass_rules(rules: Rules, events: Events, thread: Thread) -> Events:
    """The events, those that are told apart with the number of a loader of their own."""
    if not rules:
        return events
    loader = events.loader.copy()
    calls = is_call(events) & (events.thread == thread.number)
    for (number, epoch), left in rules.items():
        of_epoch = calls & (events.loader == number) & (events.epoch == epoch)
        if not left:
            loader[of_epoch] = number | _EVALUATED
        for first, last in left:
            inside = (events.place >= first) & (events.place < last) & (events.kind == WAIT)
            loader[of_epoch & (inside | (left == _WHOLE))] = number | _SKIPPED
    return replace(events, loader=loader)


def _find_passes(
    loop: Events, waits: Int64Array, steps: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, NDArray[np.bool_]]:
    """Loader and epoch of every pass that gave a batch, its last row, and whether it trains.

    It does where a step is made before it ends, or where its batch was the last one before a step:
    who reads ahead is at the end before that.
    """
    calls = np.flatnonzero((loop.kind == WAIT) | (loop.kind == END))
    pairs = np.column_stack([loop.loader[calls], loop.epoch[calls]])
    keys, of_call = np.unique(pairs, axis=0, return_inverse=True)
    of_call = of_call.ravel()
    gave = loop.kind[calls] == WAIT

    # First batch and last call of each pass; a step between them makes it one of training.
    first = np.full(len(keys), len(loop), np.int64)
    last = np.full(len(keys), -1, np.int64)
    np.minimum.at(first, of_call[gave], calls[gave])
    np.maximum.at(last, of_call, calls)
    trains = np.searchsorted(steps, last) > np.searchsorted(steps, first)
    latest = np.searchsorted(waits, steps) - 1
    before = waits[latest[latest >= 0]]
    trains[of_call[np.searchsorted(calls, before)]] = True
    given = first < len(loop)
    return keys[given, 0], keys[given, 1], last[given], trains[given]


def _find_skipped_batches(
    loop: Events, waits: Int64Array, steps: Int64Array, gradients: Int64Array
) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Batches that were taken in front of a step beyond those that steps usually take.

    Where gradients were recorded, as many batches as there were of these belong to the step.
    """
    skipped: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
    for loader in np.unique(loop.loader[waits]).tolist():
        own_waits = waits[loop.loader[waits] == loader]
        taken = np.diff(np.searchsorted(own_waits, steps), prepend=0)
        usual = int(np.median(taken[taken > 0])) if (taken > 0).any() else 0
        many = np.flatnonzero(taken - usual >= _MANY)
        if not usual or (taken > 0).sum() <= 2 * len(many):
            continue
        for k in many.tolist():
            # What gradients were computed for belongs to the step; the first of the rest were
            # skipped.
            low = int(loop.end[steps[k - 1]]) if k else 0
            computed = np.searchsorted(gradients, [low, int(loop.end[steps[k]])], side="right")
            excess = int(taken[k] - max(usual, computed[1] - computed[0]))
            if excess < _MANY:
                continue
            end = int(np.searchsorted(own_waits, steps[k]))
            rows = own_waits[end - int(taken[k]) :][:excess]
            for epoch in np.unique(loop.epoch[rows]).tolist():
                place = loop.place[rows][loop.epoch[rows] == epoch]
                span = (int(place.min()), int(place.max()) + 1)
                skipped[loader, epoch] = (*skipped.get((loader, epoch), ()), span)
    return skipped
