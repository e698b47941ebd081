"""Passes over a loader that trains which are no training: told apart before anything is counted.

One loader may give its batches to training and to an evaluation (a generator function that serves
both, statistics of the data, a batch that is looked at before). A pass in which no step was made is
one of an evaluation. A run that is resumed takes the batches that it trained on before, and throws
them away: these are skipped, as are passes before all training, of another loader of the same data
as well unless the model was switched to evaluation. What is told apart gets a loader of its own,
next to the one that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.steps.journal import BACKWARD, END, MODE, WAIT, Events, Int64Array, Journal
from vanidl.readers.steps.loaders import EVALUATION, SKIPPED, TOLD_APART, closes_step, is_call
from vanidl.readers.steps.spans import Thread, count_threads, of_training, training_thread

_EVALUATED, _SKIPPED = TOLD_APART, 2 * TOLD_APART
_WHOLE = ((0, 1 << 32),)
_MANY = 3  # batches that are taken without a step, beyond those that loaders read ahead

Rules = Mapping[tuple[int, int], tuple[tuple[int, int], ...]]
"""(loader, epoch) -> [first, last) of its batches that are skipped; none: all are evaluated."""


def told_apart(journal: Journal) -> Journal:
    """A journal whose training loaders gave only batches that were trained on."""
    thread = training_thread(count_threads(journal.events))
    rules = find_rules(journal.events, thread, journal.loaders)
    if not rules:
        return journal
    events = apply(rules, journal.events, thread)
    used = np.unique(events.loader[is_call(events)]).tolist()
    more = {k: described(k, journal.loaders) for k in used if k >= TOLD_APART}
    return replace(journal, events=events, loaders={**journal.loaders, **more})


def described(number: int, loaders: Mapping[int, Mapping[str, object]]) -> dict[str, object]:
    """What is known of a loader, of one that was told apart its role, too."""
    found = dict(loaders.get(number % TOLD_APART, {}))
    if number >= TOLD_APART:
        found |= {"loader": number, "role": EVALUATION if number & _EVALUATED else SKIPPED}
    return found


def find_rules(
    events: Events, thread: Thread, loaders: Mapping[int, Mapping[str, object]]
) -> Rules:
    """Which batches of the thread that trains are to be told apart; none where no step was seen.

    Args:
        events: those of the process.
        thread: the one that trains.
        loaders: what is known of each.
    """
    loop = of_training(events, thread)
    steps = np.flatnonzero(closes_step(loop))
    waits = np.flatnonzero(loop.kind == WAIT)
    if not len(steps) or not len(waits):
        return {}
    loader, epoch, last, trains = _training_passes(loop, waits, steps)
    apart = ~trains & np.isin(loader, loader[trains])
    keys = zip(loader[apart].tolist(), epoch[apart].tolist(), strict=True)
    early = (last[apart] < steps[0]).tolist()  # before training: nothing to evaluate yet
    rules: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
        key: _WHOLE if is_early else () for key, is_early in zip(keys, early, strict=True)
    }
    own = events.thread == thread.number
    evaluates = own & (events.kind == MODE) & (events.number % 2 == 0)
    if not (events.begin[evaluates] < loop.begin[steps[0]]).any():
        alike = {_kind_of(loaders.get(int(k), {})) for k in np.unique(loader[trains])}
        for number in np.unique(loader[~np.isin(loader, loader[trains])]).tolist():
            mine = loader == number
            kind = _kind_of(loaders.get(number, {}))
            if kind and kind in alike and (last[mine] < steps[0]).all():
                rules |= {(number, int(each)): _WHOLE for each in epoch[mine]}
    gradients = np.sort(events.end[own & (events.kind == BACKWARD)])
    for key, left in _left_out(loop, waits, steps, gradients).items():
        if key not in rules:
            rules[key] = left
    return rules


def _kind_of(loader: Mapping[str, object]) -> tuple[object, ...]:
    """What is alike of two loaders of the same data; unlike any where a framework says its use."""
    said = (loader.get("class"), loader.get("dataset"), loader.get("data"), loader.get("batches"))
    return said if "role" not in loader else ()


def apply(rules: Rules, events: Events, thread: Thread) -> Events:
    """The events, those that are told apart with the number of a loader of their own."""
    if not rules:
        return events
    loader = events.loader.copy()
    calls = is_call(events) & (events.thread == thread.number)
    for (number, epoch), left in rules.items():
        mine = calls & (events.loader == number) & (events.epoch == epoch)
        if not left:
            loader[mine] = number | _EVALUATED
        for first, last in left:
            inside = (events.place >= first) & (events.place < last) & (events.kind == WAIT)
            loader[mine & (inside | (left == _WHOLE))] = number | _SKIPPED
    return replace(events, loader=loader)


def _training_passes(
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


def _left_out(
    loop: Events, waits: Int64Array, steps: Int64Array, gradients: Int64Array
) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Batches that were taken in front of a step beyond those that steps usually take.

    Where gradients were recorded, as many batches as there were of these belong to the step.
    """
    found: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
    for loader in np.unique(loop.loader[waits]).tolist():
        mine = waits[loop.loader[waits] == loader]
        taken = np.diff(np.searchsorted(mine, steps), prepend=0)
        usual = int(np.median(taken[taken > 0])) if (taken > 0).any() else 0
        many = np.flatnonzero(taken - usual >= _MANY)
        if not usual or (taken > 0).sum() <= 2 * len(many):
            continue
        for k in many.tolist():
            low = int(loop.end[steps[k - 1]]) if k else 0
            computed = np.searchsorted(gradients, [low, int(loop.end[steps[k]])], side="right")
            excess = int(taken[k] - max(usual, computed[1] - computed[0]))
            if excess < _MANY:
                continue
            end = int(np.searchsorted(mine, steps[k]))
            rows = mine[end - int(taken[k]) :][:excess]
            for epoch in np.unique(loop.epoch[rows]).tolist():
                place = loop.place[rows][loop.epoch[rows] == epoch]
                span = (int(place.min()), int(place.max()) + 1)
                found[loader, epoch] = (*found.get((loader, epoch), ()), span)
    return found
