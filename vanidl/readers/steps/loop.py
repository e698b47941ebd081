"""Events of the training loop -> spans of steps, input waits and epochs; see `spans`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vanidl.encoding.budget import bounded_name
from vanidl.model.trace import (
    INFERENCE,
    ITERABLE,
    MAP,
    UNSURE,
    CheckpointCall,
    DeviceTime,
    SpanKind,
)
from vanidl.readers.records import ProfileTrace, freeze
from vanidl.readers.steps import spans
from vanidl.readers.steps.journal import (
    BACKWARD,
    CHECKPOINT,
    COLLECTIVE,
    DEVICE,
    FORWARD,
    LOAD,
    OPTIMIZER,
    OTHER_STEP,
    STEP,
    WAIT,
    WORKERS_START,
    WORKERS_STOP,
    Events,
    Journal,
)
from vanidl.readers.steps.spans import (
    TRAINING,
    Int64Array,
    Loaders,
    get_roles,
    is_call,
    name_loader,
)
from vanidl.readers.steps.windows import LOADED, SAVE, VALIDATION, Window, find_windows
from vanidl.schema.dataclass import dataclass

SOURCE = "vanidl-record"
_SYNC_NS = 1_000_000_000  # at most, between a save and its rename
_OWN_KIND = (VALIDATION, SAVE, LOADED)
MARKED = "vanidl.step() in the program"


@dataclass(frozen=True, slots=True)
class _Block:
    """Spans of one kind; one entry a span in every array."""

    kind: SpanKind
    start: Int64Array
    end: Int64Array
    number: Int64Array  # of the step or epoch, -1 for a wait
    name: Int64Array
    names: tuple[str, ...]

    @classmethod
    def of(cls, kind: SpanKind, found: spans.Spans, number: Int64Array, name: str) -> _Block:
        """With one name for all."""
        return cls(kind, found.start, found.end, number, np.zeros_like(number), (name,))


def build_profile(journal: Journal) -> ProfileTrace:
    """The spans of the thread that trains; without any where no loop was recorded."""
    # The events of the thread that trains, and which loaders train.
    thread = spans.find_training_thread(spans.count_threads(journal.events))
    events = spans.keep_outermost(spans.select_training(journal.events, thread))
    loaders = Loaders.of(events, get_roles(journal.loaders))

    # Spans: steps and waits, then what lies between and beside them.
    own = journal.events.pick(journal.events.thread == thread.number)
    windows = find_windows(own, events, loaders, journal.phases) if len(events) else []
    calls = _find_checkpoint_calls(journal, thread.number, events, windows) if len(events) else ()
    blocks = (
        _collect_steps(events, loaders),
        _collect_other_steps(events),
        _collect_waits(events, loaders, journal.loaders),
        _collect_epochs(events, loaders),
        _collect_saves(calls, SpanKind.CHECKPOINT),
        _collect_saves(calls, SpanKind.LOAD),
        _collect_windows([w for w in windows if w.label == VALIDATION], SpanKind.VALIDATION),
        _collect_windows([w for w in windows if w.label not in _OWN_KIND], SpanKind.PHASE),
    )
    # Calls of the program that returned once every rank had come.
    collective = own.pick(own.kind == COLLECTIVE)
    rows = np.zeros(len(collective), np.int64)
    collectives = _Block(
        SpanKind.COMMUNICATION, collective.begin, collective.end, rows - 1, rows, ("collective",)
    )
    beside = (*_collect_parts(own), _collect_workers(own), collectives)
    start, end, step, kind, name, names = _join_blocks((*blocks, *beside))

    # What the journal says of its process besides.
    process = journal.process
    stated = process.get("frameworks")
    frameworks = tuple(n for n in stated if isinstance(n, str)) if isinstance(stated, list) else ()
    return ProfileTrace(
        path=journal.path,
        source=f"{SOURCE}, steps marked by {MARKED}" if loaders.is_marked else SOURCE,
        host=str(process.get("host", "")),
        pid=_to_count(process.get("pid")),
        rank=_to_count(process.get("rank")),
        world_size=_to_count(process.get("world_size")),
        devices=(),
        start_ns=freeze(start),
        end_ns=freeze(end),
        step=freeze(step.astype(np.int32)),
        kind=freeze(kind.astype(np.uint8)),
        thread=freeze(np.zeros(len(start), np.int32)),
        name=freeze(name.astype(np.int32)),
        names=names,
        losses=journal.losses,
        marks_loop=True,
        threads=_get_threads(events, process),
        device=_measure_device(journal.events),
        checkpoint_calls=calls,
        marks_saves=bool(process.get("marks_saves")),
        dataset_kind=_get_dataset_kind(journal.loaders.get(loaders.main, {})),
        purpose=_infer_purpose(journal, loaders),
        frameworks=frameworks,
    )


def _infer_purpose(journal: Journal, loaders: Loaders) -> str:
    """What its batches are for, "" for training.

    A journal says which libraries were there whose gradients its hooks look for.
    """
    libraries = journal.process.get("gradients")
    if not isinstance(libraries, list) or loaders.main < 0 or loaders.of_training:
        return ""
    trained = np.isin(journal.events.kind, (OPTIMIZER, STEP, OTHER_STEP, BACKWARD)).any()
    if trained or TRAINING in get_roles(journal.loaders).values():
        return ""
    return INFERENCE if libraries else UNSURE


@dataclass(frozen=True, slots=True)
class OtherLoop:
    """What a thread did that trains beside the one that the numbers are of."""

    steps: int
    took_ns: int  # from the begin of its first step to the end of its last
    waited_ns: int  # of that, for input


def find_other_loops(journal: Journal) -> list[OtherLoop]:
    """The loop of each further thread that trains, kept apart from all others."""
    events = journal.events
    counts = spans.count_threads(events)
    thread = spans.find_training_thread(counts)
    if thread.number < 0 or thread.is_marked:
        return []

    # Threads with steps of an optimizer, or with backward passes where there are none.
    trained = np.maximum(counts[OPTIMIZER], 0 if counts[OPTIMIZER].any() else counts[BACKWARD])
    loops = []
    for number in np.flatnonzero(trained).tolist():
        if number == thread.number:
            continue
        own = spans.keep_outermost(
            spans.select_training(events, replace(thread, number=number, is_bare=False))
        )
        steps = spans.find_steps(own, Loaders.of(own, get_roles(journal.loaders)))
        waits = spans.find_waits(own)
        # Waits before its first step and behind its last one are not of its loop.
        begin, end = (steps.start.min(), steps.end.max()) if len(steps.start) else (0, 0)
        inside = (waits.start >= begin) & (waits.end <= end)
        waited = int((waits.end - waits.start)[inside].sum())
        loops.append(OtherLoop(len(steps.start), int(end - begin), waited))
    return loops


_OF_KERAS = "ConverterIterableDataset"
"""What Keras makes of any data for PyTorch's loader: whether workers share it is Keras' matter."""


def _get_dataset_kind(loader: Mapping[str, Any]) -> str:
    kind = loader.get("data")
    return kind if kind in (MAP, ITERABLE) and loader.get("dataset") != _OF_KERAS else ""


def _get_threads(events: Events, process: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of the thread that trains: the journal has those of the main thread."""
    numbers = process.get("thread")
    if not len(events) or events.thread[0] != spans.MAIN_THREAD or not isinstance(numbers, list):
        return ()
    return tuple(number for number in numbers if type(number) is int and number > 0)


def _measure_device(events: Events) -> DeviceTime | None:
    timed = events.pick(events.kind == DEVICE)
    if not len(timed):
        return None
    return DeviceTime(len(timed), int((timed.end - timed.begin).sum()), int(timed.number.sum()))


def _find_checkpoint_calls(
    journal: Journal, trains: int, loop: Events, windows: Sequence[Window]
) -> tuple[CheckpointCall, ...]:
    """Saves and loads of all threads; samples that are loaded within a wait are none.

    A file that is renamed once it is saved is one save until then, with what lies between (a
    sync), unless the loop went on meanwhile.
    """
    every = journal.events
    saves = every.pick(np.isin(every.kind, (CHECKPOINT, LOAD)))
    saves = saves.pick((saves.kind == CHECKPOINT) | ~spans.find_within_calls(saves, every))
    columns = (saves.kind, saves.loader, saves.begin, saves.end, saves.number, saves.thread)

    # Calls in turn: one that goes on with the file of the call before is one with it.
    calls: list[CheckpointCall] = []
    last: dict[int, int] = {}  # number of a name -> place of its call
    for kind, number, begin, end, nbytes, thread in np.column_stack(columns).tolist():
        before = calls[last[number]] if number in last else None
        if number and before is not None:
            between = np.searchsorted(loop.end, begin) - np.searchsorted(loop.end, before.end)
            if begin - before.end <= _SYNC_NS and not between:
                calls[last[number]] = replace(before, end=end)
                continue
        name = journal.checkpoints.get(number, {})
        last[number] = len(calls)
        calls.append(
            CheckpointCall(
                start=begin,
                end=end,
                is_load=kind == LOAD,
                call=str(name.get("call", "")),
                path=bounded_name(str(name.get("path", ""))),
                nbytes=nbytes or None,
                in_loop=thread == trains,
                former=tuple(bounded_name(str(path)) for path in name.get("former", ())),
            )
        )

    # A window that the program marked as a save or load stands for the calls inside.
    for window in windows:
        if window.label not in (SAVE, LOADED):
            continue
        inside = [c for c in calls if window.start <= c.start and c.end <= window.end and c.in_loop]
        path = next((c.path for c in inside if c.path), "")
        nbytes = sum(call.nbytes or 0 for call in inside) or None
        calls = [call for call in calls if call not in inside]
        is_load = window.label == LOADED
        calls.append(
            CheckpointCall(window.start, window.end, is_load, window.call, path, nbytes, True)
        )
    return tuple(sorted(calls, key=lambda call: (call.start, call.end)))


def _collect_workers(events: Events) -> _Block:
    """When the training thread started workers, and when it stopped them."""
    changes = events.pick(np.isin(events.kind, (WORKERS_START, WORKERS_STOP)))
    stops = (changes.kind == WORKERS_STOP).astype(np.int64)
    names = ("start of workers", "stop of workers")
    return _Block(
        SpanKind.WORKERS, changes.begin, changes.end, np.full(len(changes), -1), stops, names
    )


def _collect_parts(events: Events) -> Iterator[_Block]:
    """What the model does, where its backward passes were recorded; of devices they are moments."""
    events = events.pick((events.kind != BACKWARD) | (events.end > events.begin))
    if not (events.kind == BACKWARD).any():
        return
    kinds = (
        (FORWARD, SpanKind.FORWARD),
        (BACKWARD, SpanKind.BACKWARD),
        (OPTIMIZER, SpanKind.OPTIMIZER),
    )
    for kind, as_span in kinds:
        of_kind = events.pick(events.kind == kind)
        rows = np.zeros(len(of_kind), np.int64)
        yield _Block(as_span, of_kind.begin, of_kind.end, rows - 1, rows, (as_span.name.lower(),))


def _collect_windows(windows: Sequence[Window], kind: SpanKind) -> _Block:
    """Windows of one kind, named by what called them; of others by their label."""
    called = [w.call if kind == SpanKind.VALIDATION else w.label for w in windows]
    names = tuple(sorted(set(called)))
    return _Block(
        kind,
        np.array([window.start for window in windows], np.int64),
        np.array([window.end for window in windows], np.int64),
        np.full(len(windows), -1, np.int64),
        np.array([names.index(name) for name in called], np.int64),
        names,
    )


def _collect_saves(calls: Sequence[CheckpointCall], kind: SpanKind) -> _Block:
    """Saves or loads of the training thread, named by what was called."""
    of_kind = [call for call in calls if call.in_loop and call.is_load == (kind == SpanKind.LOAD)]
    names = tuple(sorted({call.call for call in of_kind}))
    return _Block(
        kind,
        np.array([call.start for call in of_kind], np.int64),
        np.array([call.end for call in of_kind], np.int64),
        np.full(len(of_kind), -1, np.int64),
        np.array([names.index(call.call) for call in of_kind], np.int64),
        names,
    )


def _collect_steps(events: Events, loaders: Loaders) -> _Block:
    steps = spans.find_steps(events, loaders)
    return _Block.of(SpanKind.STEP, steps, np.arange(len(steps.start)), "step")


def _collect_other_steps(events: Events) -> _Block:
    """Those that the program marks as validation, or anything else."""
    steps = spans.find_other_steps(events)
    return _Block.of(SpanKind.EVALUATION, steps, np.full(len(steps.start), -1), "validation step")


def _collect_waits(
    events: Events, loaders: Loaders, described: Mapping[int, Mapping[str, Any]]
) -> _Block:
    waits = spans.find_waits(events)
    used, name = np.unique(events.loader[waits.row], return_inverse=True)
    names = tuple(name_loader(k, described.get(k, {}), loaders.role(k)) for k in used.tolist())
    number = np.full(len(waits.start), -1, np.int64)
    return _Block(
        SpanKind.INPUT_WAIT, waits.start, waits.end, number, name.ravel().astype(np.int64), names
    )


def name_loaders(journal: Journal) -> dict[int, str]:
    """Number -> name of each loader that something was asked of."""
    thread = spans.find_training_thread(spans.count_threads(journal.events))
    loop = spans.keep_outermost(spans.select_training(journal.events, thread))
    loaders = Loaders.of(loop, get_roles(journal.loaders))
    used = np.unique(journal.events.loader[journal.events.kind == WAIT]).tolist()
    return {k: name_loader(k, journal.loaders.get(k, {}), loaders.role(k)) for k in used}


def _collect_epochs(events: Events, loaders: Loaders) -> _Block:
    """Each pass over a loader of steps that gave a batch, from its first call to its last.

    Of loaders that run along with each other, one that is begun again and again is cycled: those of
    the one with fewest passes count. A loader that takes another's place has epochs of its own.
    """
    # Begin, end and number of batches of each pass.
    own_calls = events.pick(np.isin(events.loader, list(loaders.of_steps)) & is_call(events))
    passes: dict[int, dict[int, list[int]]] = {}
    batches: dict[int, int] = {}
    columns = (own_calls.loader, own_calls.epoch, own_calls.kind, own_calls.begin, own_calls.end)
    for loader, epoch, kind, begin, end in np.column_stack(columns).tolist():
        span = passes.setdefault(loader, {}).setdefault(epoch, [begin, end, 0])
        span[1] = max(span[1], end)
        span[2] += kind == WAIT
        batches[loader] = batches.get(loader, 0) + (kind == WAIT)

    # Loaders with fewest passes first; one whose passes overlap those before has no epochs.
    most = max(batches.values(), default=0)
    given = {k: [p for p in found.values() if p[2]] for k, found in passes.items()}
    order = sorted(given, key=lambda k: (2 * batches[k] < most, len(given[k]), k))
    epochs: list[list[int]] = []
    for loader in order:
        apart = [p for p in given[loader] if not any(p[0] < e[1] and e[0] < p[1] for e in epochs)]
        if len(apart) == len(given[loader]):
            epochs += apart
    epochs.sort()
    number = np.arange(len(epochs))
    start, end = (np.array([epoch[k] for epoch in epochs], np.int64) for k in (0, 1))
    names = tuple(f"epoch {k}" for k in number.tolist())
    return _Block(SpanKind.EPOCH, start, end, number, number, names)


def _join_blocks(
    blocks: tuple[_Block, ...],
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


def _to_count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
