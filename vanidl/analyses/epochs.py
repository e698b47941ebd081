"""Where epochs begin, by whatever evidence the run holds.

Kinds of evidence, strongest first: spans that name an epoch; the training loop's loader made
again (PyTorch's loader ends an epoch with one wait more, in which it raises StopIteration);
worker processes started again; the dataset read again. A profile shows the borders within it, the
others those of the whole run. Without any, there are no epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import passes
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.steps import rank_spans
from vanidl.analyses.worker_groups import Files, WorkerLife, files_read, groups_of_trainers
from vanidl.formatting.units import plural, times
from vanidl.model.trace import SpanKind, Spans, Trace

Int64Array = NDArray[np.int64]

_NUMBER = re.compile(r"(?<!\d)(\d+)\s*$")  # from the first digit: in linear time
_WHOLE_WINDOW = 0.8  # a profile must cover this share of the dataset's reads to number epochs
_SAME_FILES = 0.25  # of the smaller of two sets
_SHORT = 0.02  # of the longest pass over the dataset
_AGAIN = 1.2  # times the unique bytes
_LITTLE = 0.01  # of the bytes read from the largest file: a description, not samples


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """Starts in ns, ascending, and the evidence in words. Empty: why there is none."""

    starts: tuple[int, ...]
    evidence: str


@dataclass(frozen=True, slots=True)
class Borders:
    """Where epochs begin, but for the first, as profiles show it; ns.

    `first` is the beginning of the first epoch, None where profiles began within one. Borders are
    `complete` where the program named them.
    """

    borders: tuple[int, ...]
    window: tuple[int, int] = (0, 0)  # what the profiles saw
    first: int | None = None
    complete: bool = False


NO_BORDERS = Borders(())


def epoch_starts(trace: Trace, data: Dataset | None) -> EpochStarts:
    """All starts that the evidence shows, and which evidence shows all or some of them.

    Inside a profile those of the profile count, unless the rest of the run shows more there: then
    some borders do not show in it. Named epochs are never added to.
    """
    seen = [(name, rule(trace, data)) for name, rule in IN_PROFILES]
    whole = [(name, starts) for name, rule in IN_RUN if len(starts := rule(trace, data)) > 1]
    named = next(((name, found) for name, found in seen if found.borders), None)
    starts = whole[0][1] if whole else ()
    if named is not None:
        starts = _joined(named[1], starts)
    if len(starts) < 2:
        return EpochStarts((), _unnumbered(seen, data))
    shown = [(name, len(found.borders)) for name, found in seen if found.borders]
    shown += [(name, len(found) - 1) for name, found in whole]
    borders = len(starts) - 1
    full = [name for name, count in shown if count == borders]
    part = [f"{name} ({count} of {borders} borders)" for name, count in shown if count < borders]
    return EpochStarts(starts, "; also ".join([*full, *part]))


def _joined(seen: Borders, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Borders that a profile shows, and those of the whole run where it does not look."""
    low, high = seen.window
    inside = [start for start in whole[1:] if low <= start < high]
    if len(inside) > len(seen.borders) and not seen.complete:
        return whole
    outside = [start for start in whole[1:] if not low <= start < high]
    first = seen.first if seen.first is not None else next(iter(whole), None)
    if first is None:
        return ()
    first = min(first, *whole[:1]) if whole else first
    return (first, *sorted({*seen.borders, *outside} - {first}))


def _unnumbered(seen: Sequence[tuple[str, Borders]], data: Dataset | None) -> str:
    """Why no epochs are shown."""
    for name, found in seen:
        if found.borders:
            count = plural(len(found.borders), "border")
            return f"{name}: {count} within the profile, and nothing shows those outside of it"
    factor = 1.0 if data is None else data.reread_factor or 1.0
    if factor >= _AGAIN:
        return (
            f"the dataset was read {times(factor)} over, but not in whole passes that "
            "can be told apart: samples are drawn at random, or parts read again within an epoch"
        )
    return "nothing in the run marks the border between two epochs"


def first_read_ns(trace: Trace, data: Dataset | None) -> int | None:
    """When the first dataset file was first read, None where no such read was traced."""
    return _extreme(trace, [f.first_s for f in data.files] if data else [], min)


def last_read_ns(trace: Trace, data: Dataset | None) -> int | None:
    """When the last read of a dataset file ended, None where no such read was traced."""
    return _extreme(trace, [f.last_s for f in data.files] if data else [], max)


def _extreme(
    trace: Trace, values: Sequence[float | None], pick: Callable[[list[float]], float]
) -> int | None:
    known = [v for v in values if v is not None]
    return trace.job.start_ns + round(pick(known) * 1e9) if known else None


def _by_annotation(trace: Trace, data: Dataset | None) -> Borders:
    del data
    spans = trace.spans.pick(trace.spans.kind == SpanKind.EPOCH)
    first: dict[int, int] = {}
    for name, start in zip(spans.name.tolist(), spans.start.tolist(), strict=True):
        match = _NUMBER.search(spans.names[name])
        number = int(match[1]) if match else -1
        first[number] = min(first.get(number, start), start)
    starts = sorted(first.values())
    if len(starts) < 2:
        return NO_BORDERS
    window = (starts[0], int(spans.end.max()))
    return Borders(tuple(starts[1:]), window, starts[0], complete=True)


def _by_loader(trace: Trace, data: Dataset | None) -> Borders:
    """Steps with more waits than the others: the first of them ended the epoch before."""
    found, begin, end = list[list[int]](), [], []
    for position, own in rank_spans(trace).items():
        if not len(own.windows.start):  # steps of no length, which only damage makes
            return NO_BORDERS
        mine = trace.spans_of(position)
        waits = mine.pick(mine.kind == SpanKind.INPUT_WAIT)
        order = np.argsort(own.steps.start, kind="stable")
        steps = own.steps.pick(order)
        until = np.append(steps.start[1:], _last_end(trace, steps))
        found.append(_extra_waits(waits.start, waits.end, steps.start, until))
        if not found[0] or len(found[-1]) != len(found[0]):
            return NO_BORDERS
        begin.append(int(own.windows.start[0]))
        end.append(int(own.windows.end[-1]))
    if not found:
        return NO_BORDERS
    window = (min(begin), max(end))
    borders = tuple(min(column) for column in zip(*found, strict=True))
    return Borders(borders, window, _first_ns(trace, data, window))


def _first_ns(trace: Trace, data: Dataset | None, window: tuple[int, int]) -> int | None:
    """The beginning of the first epoch, where a profile saw (nearly) all of the run's reads."""
    first, last = _samples_read(trace, data)
    low, high = window
    if first is None or last is None:
        return low
    covered = min(high, last) - max(low, first)
    return min(first, low) if covered >= _WHOLE_WINDOW * (last - first) else None


def _samples_read(trace: Trace, data: Dataset | None) -> tuple[int | None, int | None]:
    """First and last read of samples: what describes them may be read long before training."""
    files = data.files if data else ()
    most = max((f.bytes_read for f in files), default=0)
    files = tuple(f for f in files if f.bytes_read >= _LITTLE * most)
    return (
        _extreme(trace, [f.first_s for f in files], min),
        _extreme(trace, [f.last_s for f in files], max),
    )


def _last_end(trace: Trace, steps: Spans) -> int:
    """Until when waits belong to the last step.

    A step that was found by waits may hold those of a validation after training: only another
    step after it would show that an epoch began.
    """
    derived = trace.profiles[int(steps.source[-1])].steps_from
    return int(steps.start[-1] if derived else steps.end[-1])


def _extra_waits(
    wait_start: Int64Array, wait_end: Int64Array, start: Int64Array, until: Int64Array
) -> list[int]:
    """Ends of the first wait wherever there are several until the next step, and usually one.

    Several are those of a loader that ended and of the one that follows, with those of a
    validation between them.
    """
    low = np.searchsorted(wait_start, start)
    counts = np.searchsorted(wait_start, until) - low
    if (counts == 1).sum() < 0.8 * len(counts):
        return []
    return [int(wait_end[low[i]]) for i in np.flatnonzero(counts > 1)]


def _by_workers(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """Generations of worker processes that read the dataset, over all ranks that have workers."""
    if data is None or data.visits is None or all(p.role != "worker" for p in trace.processes):
        return ()
    visits, first_read = data.visits, dict[int, int]()
    starts = (visits.start + trace.job.start_ns).tolist()
    for process, start in zip(visits.process.tolist(), starts, strict=True):
        first_read[process] = min(first_read.get(process, start), start)
    files = files_read(visits)
    groups = groups_of_trainers(trace, first_read, visits)
    generations = [groups[trainer] for trainer in trace.ranks if trainer in groups]
    if not generations or len({len(each) for each in generations}) > 1:
        return ()
    return _epochs_of([list(side) for side in zip(*generations, strict=True)], files)


def _epochs_of(generations: list[list[list[WorkerLife]]], files: Files) -> tuple[int, ...]:
    """Starts of generations of workers, each of all trainers: ranks may share files out again.

    Those that read other files than the largest (validation) are no epochs.
    """
    read = [
        frozenset[int]().union(*(files[worker.process] for group in each for worker in group))
        for each in generations
    ]
    most = max(read, key=len)
    return tuple(
        min(group[0].begin for group in each)
        for each, mine in zip(generations, read, strict=True)
        if len(mine & most) >= _SAME_FILES * min(len(mine), len(most))
    )


def _by_visits(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """The dataset read again, as `passes` finds."""
    if data is None or not data.files:
        return ()
    starts = passes.pass_starts(trace)
    since = tuple(start - trace.job.start_ns for start in starts)
    return starts if len(starts) > 1 and _is_pass_each(since, data) else ()


def _is_pass_each(starts: tuple[int, ...], data: Dataset) -> bool:
    """Whether no visit is so short beside the others that it only looked at what files hold."""
    ends = [f.last_s for f in data.files if f.last_s is not None]
    borders = [*starts, round(max(ends, default=0.0) * 1e9)]
    lengths = [after - before for before, after in pairwise(borders)]
    return min(lengths) >= _SHORT * max(lengths)


IN_PROFILES: tuple[tuple[str, Callable[[Trace, Dataset | None], Borders]], ...] = (
    ("epochs named in the profile", _by_annotation),
    ("the loader was created again (one more wait per border)", _by_loader),
)
IN_RUN: tuple[tuple[str, Callable[[Trace, Dataset | None], tuple[int, ...]]], ...] = (
    ("worker processes were started again", _by_workers),
    ("the dataset was read again", _by_visits),
)
