"""Events of the training loop -> spans of steps, input waits and epochs; see `spans`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import ITERABLE, MAP, DeviceTime, SpanKind
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps import spans
from vanidl.readers.steps.journal import DEVICE, WAIT, Events, Journal
from vanidl.readers.steps.loaders import Int64Array, Loaders, is_call, loader_name, roles_of

SOURCE = "vanidl-record"
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


def profile(journal: Journal) -> ProfileTrace:
    """The spans of the thread that trains; without any where no loop was recorded."""
    events = _of_training(journal.events)
    loaders = Loaders.of(events, roles_of(journal.loaders))
    blocks = (
        _steps(events, loaders),
        _other_steps(events),
        _waits(events, loaders, journal.loaders),
        _epochs(events, loaders),
    )
    start, end, step, kind, name, names = _joined(blocks)
    process = journal.process
    return ProfileTrace(
        path=journal.path,
        source=f"{SOURCE}, steps marked by {MARKED}" if loaders.is_marked else SOURCE,
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
        threads=_threads(events, process),
        device=_device(journal.events),
        dataset_kind=_dataset_kind(journal.loaders.get(loaders.main, {})),
    )


def _dataset_kind(loader: Mapping[str, Any]) -> str:
    kind = loader.get("data")
    return kind if kind in (MAP, ITERABLE) else ""


def _threads(events: Events, process: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of the thread that trains: the journal has those of the main thread."""
    numbers = process.get("thread")
    if not len(events) or events.thread[0] != spans.MAIN_THREAD or not isinstance(numbers, list):
        return ()
    return tuple(number for number in numbers if type(number) is int and number > 0)


def _device(events: Events) -> DeviceTime | None:
    mine = events.pick(events.kind == DEVICE)
    if not len(mine):
        return None
    return DeviceTime(len(mine), int((mine.end - mine.begin).sum()), int(mine.number.sum()))


def _of_training(events: Events) -> Events:
    thread = spans.training_thread(spans.count_threads(events))
    return spans.outermost(spans.of_training(events, thread))


def _steps(events: Events, loaders: Loaders) -> _Block:
    found = spans.find_steps(events, loaders)
    return _Block.of(SpanKind.STEP, found, np.arange(len(found.start)), "step")


def _other_steps(events: Events) -> _Block:
    """Those that the program marks as validation, or anything else."""
    found = spans.find_other_steps(events)
    return _Block.of(SpanKind.EVALUATION, found, np.full(len(found.start), -1), "validation step")


def _waits(events: Events, loaders: Loaders, described: Mapping[int, Mapping[str, Any]]) -> _Block:
    found = spans.find_waits(events)
    used, name = np.unique(events.loader[found.row], return_inverse=True)
    names = tuple(loader_name(k, described.get(k, {}), loaders.role(k)) for k in used.tolist())
    number = np.full(len(found.start), -1, np.int64)
    return _Block(
        SpanKind.INPUT_WAIT, found.start, found.end, number, name.ravel().astype(np.int64), names
    )


def loader_names(journal: Journal) -> dict[int, str]:
    """Number -> name of each loader that something was asked of."""
    loaders = Loaders.of(_of_training(journal.events), roles_of(journal.loaders))
    used = np.unique(journal.events.loader[journal.events.kind == WAIT]).tolist()
    return {k: loader_name(k, journal.loaders.get(k, {}), loaders.role(k)) for k in used}


def _epochs(events: Events, loaders: Loaders) -> _Block:
    """Each pass over the main loader that gave a batch, from its first call to its last."""
    mine = events.pick((events.loader == loaders.main) & is_call(events))
    mine = mine.pick(np.isin(mine.epoch, mine.epoch[mine.kind == WAIT]))
    epoch, first, of_event = np.unique(mine.epoch, return_index=True, return_inverse=True)
    start, end = mine.begin[first], np.zeros(len(first), np.int64)
    np.maximum.at(end, of_event, mine.end)
    number = np.arange(len(epoch))
    names = tuple(f"epoch {k}" for k in number.tolist())
    return _Block(SpanKind.EPOCH, start, end, number, number, names)


def _joined(
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


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
