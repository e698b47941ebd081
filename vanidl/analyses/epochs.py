"""Where epochs begin, by whatever evidence the run holds.

Kinds of evidence, strongest first: spans that name an epoch; the training loop's loader made
anew (PyTorch's loader ends an epoch with one wait more, in which it raises StopIteration);
worker processes started anew; the dataset read again. Without any, there are no epochs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataset import Dataset
from vanidl.analyses.steps import rank_spans
from vanidl.analyses.visits import Visits
from vanidl.model.trace import SpanKind, Trace

Int64Array = NDArray[np.int64]

_NUMBER = re.compile(r"(\d+)\s*$")
_WHOLE_WINDOW = 0.8  # a profile must cover this share of the dataset's reads to number epochs
_SAME_FILES = 0.5
_LITTLE = 0.01  # of the bytes read from the largest file: a description, not samples


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """Starts in ns, ascending, and the evidence in words. Empty: why there is none."""

    starts: tuple[int, ...]
    evidence: str


def epoch_starts(trace: Trace, data: Dataset | None) -> EpochStarts:
    """The starts by the strongest evidence, and which other evidence agrees or differs."""
    found = [(name, rule(trace, data)) for name, rule in EVIDENCE]
    known = [(name, starts) for name, starts in found if len(starts) > 1]
    if not known:
        reason = "nothing in the run marks the border between two epochs"
        return EpochStarts((), reason)
    name, starts = known[0]
    agree = [n for n, s in known[1:] if len(s) == len(starts)]
    differ = [f"{n}: {len(s)}" for n, s in known[1:] if len(s) != len(starts)]
    words = name + (f"; also {', '.join(agree)}" if agree else "")
    return EpochStarts(starts, words + (f"; against it {', '.join(differ)}" if differ else ""))


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


def _by_annotation(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    del data
    spans = trace.spans.pick(trace.spans.kind == SpanKind.EPOCH)
    first: dict[int, int] = {}
    for name, start in zip(spans.name.tolist(), spans.start.tolist(), strict=True):
        match = _NUMBER.search(spans.names[name])
        number = int(match[1]) if match else -1
        first[number] = min(first.get(number, start), start)
    return tuple(sorted(first.values()))


def _by_loader(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """Steps with one wait more than the others: the first of them ended the epoch before."""
    first, last = _samples_read(trace, data)
    ranks = rank_spans(trace)
    borders, begin, end = [], [], []
    for position in ranks:
        mine = trace.spans.pick(trace.family[trace.spans.process] == position)
        waits, steps = mine.pick(mine.kind == SpanKind.INPUT_WAIT), ranks[position].steps
        borders.append(_extra_waits(waits.start, waits.end, steps.start, steps.end))
        begin.append(int(steps.start.min()))
        end.append(int(steps.end.max()))
    if not borders or not borders[0] or len({len(b) for b in borders}) > 1:
        return ()
    if first is not None and last is not None:
        seen = min(max(end), last) - max(min(begin), first)
        if seen < _WHOLE_WINDOW * (last - first):
            return ()
    start = min(begin) if first is None else min(first, min(begin))
    return (start, *(min(column) for column in zip(*borders, strict=True)))


def _samples_read(trace: Trace, data: Dataset | None) -> tuple[int | None, int | None]:
    """First and last read of samples: what describes them may be read long before training."""
    files = data.files if data else ()
    most = max((f.bytes_read for f in files), default=0)
    files = tuple(f for f in files if f.bytes_read >= _LITTLE * most)
    return (
        _extreme(trace, [f.first_s for f in files], min),
        _extreme(trace, [f.last_s for f in files], max),
    )


def _extra_waits(
    wait_start: Int64Array, wait_end: Int64Array, start: Int64Array, end: Int64Array
) -> list[int]:
    """Ends of the first wait in each step that has two where other steps have one."""
    low = np.searchsorted(wait_start, start)
    counts = np.searchsorted(wait_start, end) - low
    double = np.flatnonzero(counts == 2)
    if (counts == 1).sum() < 0.8 * len(counts):
        return []
    return [int(wait_end[low[i]]) for i in double]


def _by_workers(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """Generations of worker processes that read the dataset, over all ranks that have workers."""
    if data is None or data.visits is None:
        return ()
    files = _files_of_workers(trace, data.visits)
    workers = _workers_of(trace, files)
    borders = [
        starts
        for trainer in trace.ranks
        if (starts := _generations(workers.get(trainer, []), files)) is not None
    ]
    if not borders or len({len(b) for b in borders}) > 1:
        return ()
    return tuple(min(column) for column in zip(*borders, strict=True))


def _files_of_workers(trace: Trace, visits: Visits) -> dict[int, set[int]]:
    """Worker process -> the dataset files that it read."""
    is_worker = np.array([p.role == "worker" for p in trace.processes], bool)
    mine = is_worker[visits.process]
    files: dict[int, set[int]] = {}
    for process, file in zip(
        visits.process[mine].tolist(), visits.file[mine].tolist(), strict=True
    ):
        files.setdefault(process, set()).add(file)
    return files


_Life = tuple[int, int, int]  # start and end in ns, process


def _workers_of(trace: Trace, files: dict[int, set[int]]) -> dict[int, list[_Life]]:
    """Trainer -> its workers that read data, by start."""
    found: dict[int, list[_Life]] = {}
    for i, p in enumerate(trace.processes):
        known = p.start_ns is not None and p.end_ns is not None
        if p.role == "worker" and p.trainer is not None and i in files and known:
            found.setdefault(p.trainer, []).append((p.start_ns or 0, p.end_ns or 0, i))
    return {trainer: sorted(lives) for trainer, lives in found.items()}


def _generations(workers: list[_Life], files: dict[int, set[int]]) -> list[int] | None:
    """Starts of a trainer's generations of workers; None without workers that read data.

    A worker that starts after one of the generation has ended belongs to the next one. Those
    that read other files than the largest (validation) are no epochs.
    """
    groups: list[list[_Life]] = []
    for worker in workers:
        if not groups or worker[0] >= min(w[1] for w in groups[-1]):
            groups.append([])
        groups[-1].append(worker)
    if not groups:
        return None
    read = [set().union(*(files[w[2]] for w in group)) for group in groups]
    most = max(read, key=len)
    return [
        group[0][0]
        for group, mine in zip(groups, read, strict=True)
        if len(mine & most) >= _SAME_FILES * len(mine | most)
    ]


def _by_visits(trace: Trace, data: Dataset | None) -> tuple[int, ...]:
    """The dataset read again by the same processes: most files as often, and the same bytes."""
    if data is None or data.visits is None or not len(data.visits):
        return ()
    found = data.visits
    key = found.process * len(trace.files) + found.file
    _, at, counts = np.unique(key, return_index=True, return_counts=True)
    times, agreeing = Counter(counts.tolist()).most_common(1)[0]
    reread = data.reread_factor
    if times < 2 or agreeing < 0.8 * len(counts) or reread is None:
        return ()
    if reread < 1 + 0.5 * (times - 1):
        return ()
    usual = np.isin(key, key[at][counts == times])
    since = trace.job.start_ns
    return tuple(since + int(found.start[usual & (found.ordinal == k)].min()) for k in range(times))


EVIDENCE: tuple[tuple[str, Callable[[Trace, Dataset | None], tuple[int, ...]]], ...] = (
    ("epochs named in the profile", _by_annotation),
    ("the loader was made anew (one more wait a border)", _by_loader),
    ("worker processes were started anew", _by_workers),
    ("the dataset was read again", _by_visits),
)
