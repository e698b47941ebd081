"""Events of the training loop -> steps, input waits and epochs.

A step begins when training asks for its first batch (with the making of the iterator, where that
comes just before) and ends when it asks for the next step's. An optimizer step closes the batches
before it, so that accumulated gradients and several optimizers make one step. Without optimizer
steps every batch is one. The loaders of steps are those with a batch before an optimizer step, and
those that run along with them; what the others give (validation) is waited for between steps.
The end of an epoch, and the first call of another loader, end a step as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import DeviceTime, SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.journal import DEVICE, END, ITER, OPTIMIZER, WAIT, Events, Journal

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

SOURCE = "vanidl-record"
TRAINING, EVALUATION, SETUP = "training", "evaluation", "setup"
"""What loaders are for; of setup, Keras takes a batch to see its shape."""

MAIN_THREAD = 0
_ADJACENT_NS = 1_000_000
"""A loop calls `__next__` at once after `__iter__`, so that both are one wait.

What lies between them is no wait, so it may be no longer than an error may be. Frameworks do more
there (Keras calls back and makes graphs), and one that has forked workers may lose its core.
"""
_SOON_NS = 1_000_000_000
"""What a framework does between the two (Lightning collects garbage) is of the first step."""


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans of one kind; one entry a span in every array."""

    kind: SpanKind
    start: Int64Array
    end: Int64Array
    number: Int64Array  # of the step or epoch, -1 for a wait
    name: Int64Array
    names: tuple[str, ...]


def profile(journal: Journal) -> ProfileTrace:
    """The spans of the thread that trains; without any where no loop was recorded."""
    events = _of_training(journal.events)
    loaders = _Loaders.of(events, journal)
    blocks = (_steps(events, loaders), _waits(events, loaders, journal), _epochs(events, loaders))
    start, end, step, kind, name, names = _joined(blocks)
    process = journal.process
    return ProfileTrace(
        path=journal.path,
        source=SOURCE,
        host=str(process.get("host", "")),
        pid=_count(process.get("pid")),
        rank=_count(process.get("rank")),
        world_size=_count(process.get("world_size")),
        devices=(),
        start_ns=_frozen(start),
        end_ns=_frozen(end),
        step=_frozen(step.astype(np.int32)),
        kind=_frozen(kind.astype(np.uint8)),
        thread=_frozen(np.zeros(len(start), np.int32)),
        name=_frozen(name.astype(np.int32)),
        names=names,
        losses=journal.losses,
        marks_loop=True,
        device=_device(journal.events),
    )


def _device(events: Events) -> DeviceTime | None:
    mine = events.pick(events.kind == DEVICE)
    if not len(mine):
        return None
    return DeviceTime(len(mine), int((mine.end - mine.begin).sum()), int(mine.number.sum()))


def _of_training(events: Events) -> Events:
    """Those of the loop in one thread: that of the optimizer steps, else the main thread.

    Another one where that asks for twice as many batches: a thread that fetches ahead for the main
    one asks for as many, or a few more.
    """
    events = events.pick(events.kind <= OPTIMIZER)
    trains = events.kind == OPTIMIZER
    by = trains if trains.any() else events.kind == WAIT
    if not by.any():
        return events.pick(by)
    asked = np.bincount(events.thread[by])
    most = int(asked.argmax())
    is_main = not trains.any() and 2 * asked[MAIN_THREAD] >= asked[most]
    return _outermost(events.pick(events.thread == (MAIN_THREAD if is_main else most)))


def _outermost(events: Events) -> Events:
    """Without the calls that one loader makes of another while it is asked itself.

    Events of a thread are in the order of their ends: what lies in a later one lies within it.
    """
    later = np.append(events.begin[1:], np.iinfo(np.int64).max)
    within = np.minimum.accumulate(later[::-1])[::-1] <= events.begin
    return events.pick(~within | (events.kind == OPTIMIZER))


@dataclass(frozen=True, slots=True)
class _Loaders:
    """Which loaders give the batches of steps.

    Attributes:
        main: the one with most batches among these, -1 for none.
        of_steps: those whose batches are of steps.
        beginning: those of whose batches each can begin a step.
        has_optimizer: whether optimizer steps were recorded.
        roles: what frameworks say that loaders are for.
    """

    main: int
    of_steps: frozenset[int]
    beginning: frozenset[int]
    has_optimizer: bool
    roles: Mapping[int, str]

    @classmethod
    def of(cls, events: Events, journal: Journal) -> _Loaders:
        """As frameworks say, else as the order of the events tells."""
        roles = {k: str(loader.get("role", "")) for k, loader in journal.loaders.items()}
        waits = np.flatnonzero(events.kind == WAIT)
        optimizer = np.flatnonzero(events.kind == OPTIMIZER)
        loader = events.loader[waits]
        usable = {k for k in set(loader.tolist()) if roles.get(k) != SETUP}
        if not usable:
            return cls(-1, frozenset(), frozenset(), len(optimizer) > 0, roles)
        before = np.searchsorted(waits, optimizer) - 1
        said = {k for k in usable if roles.get(k) == TRAINING}
        trained = said or usable & set(loader[before[before >= 0]].tolist())
        known = trained or usable
        counts = {each: int((loader == each).sum()) for each in sorted(known)}
        main = max(counts, key=lambda each: (counts[each], -each))
        other = {k for k in usable - {main} if not roles.get(k)}
        along = {each for each in other if _along(each, main, loader)}
        of_steps = frozenset(trained | along) if trained else frozenset(known)
        beginning = of_steps if len(optimizer) else of_steps - along
        return cls(main, of_steps, beginning, len(optimizer) > 0, roles)

    @property
    def of_training(self) -> bool:
        """Whether it is known which loaders train."""
        return self.has_optimizer or TRAINING in self.roles.values()

    def role(self, loader: int) -> str:
        """What a loader's batches are for, "" where nothing tells."""
        if self.roles.get(loader) or not self.of_training or self.main < 0:
            return self.roles.get(loader, "")
        return TRAINING if loader in self.of_steps else EVALUATION


def _along(other: int, main: int, loader: Int64Array) -> bool:
    """Whether a batch of another loader comes with most of those of the main one."""
    borders = np.flatnonzero(loader == main)
    between = np.searchsorted(borders, np.flatnonzero(loader == other))
    return 2 * len(np.unique(between)) > len(borders)


def _steps(events: Events, loaders: _Loaders) -> _Spans:
    if loaders.main < 0:
        start, end = _between_optimizer_steps(events)
    else:
        start, end = _steps_by_waits(events, loaders)
    n = len(start)
    return _Spans(SpanKind.STEP, start, end, np.arange(n), np.zeros(n, np.int64), ("step",))


def _between_optimizer_steps(events: Events) -> tuple[Int64Array, Int64Array]:
    """Steps of a loop without a loader: the first has no beginning."""
    at = events.end[events.kind == OPTIMIZER]
    return at[:-1], at[1:]


def _steps_by_waits(events: Events, loaders: _Loaders) -> tuple[Int64Array, Int64Array]:
    own = np.isin(events.loader, list(loaders.of_steps))
    optimizer = events.kind == OPTIMIZER
    ahead = own & _before_a_step(events)
    begins = np.isin(events.loader, list(loaders.beginning)) & (events.kind == WAIT) | ahead
    breaks = ~optimizer & (~own | _ends_of_passes(events, loaders)) & ~ahead
    waits = np.flatnonzero(begins)
    if loaders.has_optimizer:
        closed = np.cumsum(optimizer | breaks)[waits]
        waits = waits[np.append(True, closed[1:] != closed[:-1])]
    start = events.begin[_with_iter(events, own, waits)]
    return start, _step_ends(events, waits, start, np.flatnonzero(breaks))


def _ends_of_passes(events: Events, loaders: _Loaders) -> Mask:
    """Where a loader is at its end, or is begun again: it may have given all that it has.

    One that is at its end once another has given its batch of the same step ends nothing.
    """
    begun_again = np.zeros(len(events), bool)
    for loader in np.unique(events.loader).tolist():
        mine = np.flatnonzero((events.loader == loader) & (events.kind != OPTIMIZER))
        kind = events.kind[mine]
        begun_again[mine[1:]] = (kind[1:] == ITER) & (kind[:-1] == WAIT)
    amid = np.append(False, (events.kind[:-1] == WAIT) & (events.loader[1:] != events.loader[:-1]))
    if not loaders.has_optimizer:
        amid &= events.loader != loaders.main
    ends: Mask = (begun_again | (events.kind == END)) & ~amid
    return ends


def _before_a_step(events: Events) -> Mask:
    """Ends of a pass that are followed by an optimizer's step.

    Who asks for a batch before it gives the last one, as accelerate does, is at the end before it
    gives the last; so is a loop that makes a step of what is left over.
    """
    ahead: Mask = (events.kind == END) & (np.append(events.kind[1:], END) == OPTIMIZER)
    return ahead


def _with_iter(events: Events, own: Mask, waits: Int64Array) -> Int64Array:
    """For each wait the row of the first `__iter__` that comes soon before it, else its own.

    Those of loaders that are not of steps (a next pass of validation that is begun at its end, as
    Keras does on TensorFlow) belong to no step.
    """
    rows = np.arange(len(events))
    soon = np.append(False, events.begin[1:] - events.end[:-1] <= _SOON_NS)
    follows = np.append(False, (events.kind[:-1] == ITER) & own[:-1]) & soon  # the row before it
    chain = np.maximum.accumulate(np.where(follows, -1, rows))
    return chain[waits]


def _step_ends(
    events: Events, waits: Int64Array, start: Int64Array, breaks: Int64Array
) -> Int64Array:
    """Where each step ends: at the next one's start, at a break, or with its last event."""
    following = np.append(waits[1:], len(events))
    end = np.append(start[1:], np.int64(0))
    end[-1] = events.end[waits[-1] :].max()
    at = np.searchsorted(breaks, waits)
    broken = at < len(breaks)
    broken[broken] = breaks[at[broken]] < following[broken]
    end[broken] = events.begin[breaks[at[broken]]]
    return np.maximum(end, start)


def _waits(events: Events, loaders: _Loaders, journal: Journal) -> _Spans:
    """Each call of a loader; `__iter__` and the `__next__` just after it are one wait."""
    mine = events.pick(events.kind != OPTIMIZER)
    start, keep = mine.begin.copy(), np.ones(len(mine), bool)
    pairs = np.flatnonzero(
        (mine.kind[:-1] == ITER)
        & (mine.kind[1:] != ITER)
        & (mine.loader[:-1] == mine.loader[1:])
        & (mine.begin[1:] - mine.end[:-1] <= _ADJACENT_NS)
    )
    start[pairs + 1], keep[pairs] = mine.begin[pairs], False
    used, name = np.unique(mine.loader[keep], return_inverse=True)
    names = tuple(_name(k, journal.loaders.get(k, {}), loaders.role(k)) for k in used.tolist())
    start, end = start[keep], mine.end[keep]
    number = np.full(len(start), -1, np.int64)
    return _Spans(SpanKind.INPUT_WAIT, start, end, number, name.ravel().astype(np.int64), names)


def loader_names(journal: Journal) -> dict[int, str]:
    """Number -> name of each loader that something was asked of."""
    loaders = _Loaders.of(_of_training(journal.events), journal)
    used = np.unique(journal.events.loader[journal.events.kind == WAIT]).tolist()
    return {k: _name(k, journal.loaders.get(k, {}), loaders.role(k)) for k in used}


def _name(number: int, loader: Mapping[str, Any], role: str) -> str:
    """`DataLoader 0 (Images, training)`."""
    details = ", ".join(word for word in (str(loader.get("dataset", "")), role) if word)
    return f"{loader.get('class', 'loader')} {number}{f' ({details})' if details else ''}"


def _epochs(events: Events, loaders: _Loaders) -> _Spans:
    """Each pass over the main loader that gave a batch, from its first call to its last."""
    mine = events.pick((events.loader == loaders.main) & (events.kind != OPTIMIZER))
    mine = mine.pick(np.isin(mine.epoch, mine.epoch[mine.kind == WAIT]))
    epoch, first, of_event = np.unique(mine.epoch, return_index=True, return_inverse=True)
    start, end = mine.begin[first], np.zeros(len(first), np.int64)
    np.maximum.at(end, of_event, mine.end)
    number = np.arange(len(epoch))
    names = tuple(f"epoch {k}" for k in number.tolist())
    return _Spans(SpanKind.EPOCH, start, end, number, number, names)


def _joined(
    blocks: tuple[_Spans, ...],
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, tuple[str, ...]]:
    """(start, end, number, kind, name, names) of all spans, sorted by start."""
    offsets = np.cumsum([0, *(len(block.names) for block in blocks)])
    start, end, number = (
        np.concatenate([getattr(block, column) for block in blocks])
        for column in ("start", "end", "number")
    )
    kind = np.concatenate([np.full(len(block.start), block.kind, np.int64) for block in blocks])
    name = np.concatenate([b.name + at for b, at in zip(blocks, offsets[:-1], strict=True)])
    names = tuple(name for block in blocks for name in block.names)
    order = np.argsort(start, kind="stable")
    return start[order], end[order], number[order], kind[order], name[order], names


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
