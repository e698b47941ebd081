"""Two recorded runs of one program, one of them with batches from memory -> `Ceiling`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import nextafter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.formatting.names import elided
from vanidl.formatting.units import plural
from vanidl.model.run_facts import Ceiling
from vanidl.model.student_t import t_above
from vanidl.model.trace import SpanKind
from vanidl.readers import discover
from vanidl.readers.steps import FORMAT
from vanidl.readers.steps.journal import REPLAY, WAIT, Journal, read_journal
from vanidl.readers.steps.loop import build_profile
from vanidl.schema.dataclass import dataclass

# The steps of one process, and which of them had all their batches from memory.

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankSteps:
    """One entry per step in every array.

    `replayed`: with batches from memory alone; `profiled`: under the profiler of `--profile`, or
    just after it. `begins`: which pass and which place in it its first batch has, -1 without one.
    """

    rank: int
    length_s: NDArray[np.float64]
    copying_s: NDArray[np.float64]
    replayed: NDArray[np.bool_]
    profiled: NDArray[np.bool_]
    begins: Int64Array  # of shape (steps, 2)


def steps_of(journal: Journal) -> RankSteps:
    """The steps of a journal, in order; none where no loop was recorded."""
    spans = build_profile(journal)
    mine = spans.kind == SpanKind.STEP
    start, end = spans.start_ns[mine], spans.end_ns[mine]
    # Batches that came from memory, and how long copying them took, by step.
    events = journal.events
    handed = events.pick(events.kind == REPLAY)
    of_step = _find_step(handed.begin, start, end)
    copying = np.bincount(of_step + 1, handed.end - handed.begin, len(start) + 1)[1:]
    # A step is free where each batch that it asked for came from memory.
    asked_for = events.pick(events.kind == WAIT)
    waits = _find_step(asked_for.begin, start, end)
    many = np.bincount(of_step + 1, minlength=len(start) + 1)[1:]
    asked = np.bincount(waits + 1, minlength=len(start) + 1)[1:]
    # The first batch of each step: which pass it is of, and its place in it.
    begins = np.full((len(start), 2), -1)
    steps, rows = np.unique(waits, return_index=True)
    inside = steps >= 0
    batches = np.column_stack((asked_for.epoch, asked_for.place))
    begins[steps[inside]] = batches[rows[inside]]
    # Steps under the profiler, and the one after it.
    total = len(start)
    profiled = np.zeros(total, bool)
    for text in journal.profiled:
        first, count = text.get("first"), text.get("steps")
        if type(first) is type(count) is int and 0 <= first <= total and 0 <= count <= total:
            profiled[max(first - 1, 0) : first + count + 2] = True
    return RankSteps(
        spans.rank or 0,
        (end - start) / 1e9,
        copying / 1e9,
        (many > 0) & (many >= asked),
        profiled,
        begins,
    )


def _find_step(at: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """For each time its step, -1 for none."""
    if not len(start):
        return np.full(len(at), -1)
    step = np.searchsorted(start, at, side="right") - 1
    inside: Int64Array = np.where((step >= 0) & (at < end[step]), step, -1)
    return inside


# What was kept in memory in a ceiling run, and which loaders stayed real.

_MOST_NBYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Kept:
    """Over all processes. `remarks` name loaders whose batches stayed real, and say why."""

    loaders: int
    batches: int
    nbytes: int
    remarks: tuple[str, ...]


def kept(journals: Sequence[Journal]) -> Kept:
    """What the journals of a ceiling run say of its loaders."""
    texts = [(text, handed) for journal in journals for text, handed in _list_replayed(journal)]
    on = [text for text, handed in texts if handed]
    real = Counter(_describe_real_loader(text) for text, handed in texts if not handed)
    return Kept(
        len(on),
        sum(_bound_number(text.get("kept")) for text in on),
        sum(_bound_number(text.get("nbytes")) for text in on),
        tuple(f"{text}{f' ({count} times)' if count > 1 else ''}" for text, count in real.items()),
    )


def _list_replayed(journal: Journal) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What became of each loader, and whether any batch of it came from memory."""
    events = journal.events
    handed = set(events.number[events.kind == REPLAY].tolist())
    yield from ((text, text["replay"] in handed) for text in journal.replayed)


def _bound_number(value: object) -> int:
    return value if type(value) is int and 0 <= value < _MOST_NBYTES else 0


def _describe_real_loader(text: Mapping[str, Any]) -> str:
    data = text.get("dataset")
    of_data = f" ({data})" if isinstance(data, str) and data != "NoneType" else ""
    name = elided(f"{text.get('class', 'a loader')}{of_data}", limit=80)
    if text["state"] == "refused":
        why = elided(str(text.get("why", "")), limit=200)
        return f"{name} stayed real: its batches cannot be copied ({why})"
    if text["state"] == "unsupported":
        return f"{name} stayed real: {elided(str(text.get('why', '')), limit=200)}"
    return f"{name} stayed real: {_explain_no_batch(text)}"


def _explain_no_batch(text: Mapping[str, Any]) -> str:
    """Why no batch of a loader came from memory that could be kept."""
    length, needed = _bound_number(text.get("length")), _bound_number(text.get("needed"))
    if length == 1:
        return (
            "its passes have one batch, and none began after one whose end was asked for, which "
            "is when a batch is kept"
        )
    if length > needed + 1 or text.get("endless"):
        return f"no pass over it got past the warm-up of {plural(needed, 'batch', 'batches')}"
    if length:
        return (
            f"its one pass has {length} batches, no more than the warm-up of {needed}: where data "
            "are made again for each pass, as Keras's predict and evaluate do in each call, each "
            f"has a warm-up of its own (--warm-up {max(length // 2, 1)} leaves batches for memory)"
        )
    return (
        "how many batches a pass has is not known before one has ended, and none began after that "
        "(--epoch-batches N says it)"
    )


FEWEST = 8
"""Steps of a rank: of fewer there is no interval to speak of."""

_SHORT = (
    "train for more steps, or less --warm-up, or say with --epoch-batches N how many batches a "
    "pass has over data that do not know it"
)
_BLOCKS = 20  # of steps, whose means are compared: neighbouring steps are not independent
_LEVEL = 0.98  # of the interval, as in comparisons

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Steps that both runs have; arrays of shape (ranks, steps), in seconds."""

    taken: FloatArray
    free: FloatArray
    copying: FloatArray
    remarks: tuple[str, ...]


def measure(run: Path, ceiling_run: Path) -> Ceiling:
    """The ceiling of a recorded run.

    Args:
        run: as it trains.
        ceiling_run: the same command with batches from memory after a warm-up.

    Raises:
        InputError: in one of them no steps were recorded, or no batch came from memory.
    """
    taken, free = _read_journals(run), _read_journals(ceiling_run)
    memory = kept(free)
    compared = _compare_steps(
        _divide_by_rank(taken, run), _divide_by_rank(free, ceiling_run), memory
    )
    taken_s, free_s, copying_s = compared.taken, compared.free, compared.copying
    # Copying from memory is the measurement's own: the upper bound is without it.
    cost, low, _ = cost_of(taken_s.mean(axis=0), free_s.mean(axis=0))
    _, _, high = cost_of(taken_s.mean(axis=0), (free_s - copying_s).mean(axis=0))
    return Ceiling(
        ranks=len(taken_s),
        steps=taken_s.shape[1],
        step_s=float(taken_s.mean()),
        free_s=float(free_s.mean()),
        median_step_s=float(np.median(taken_s)),
        median_free_s=float(np.median(free_s)),
        copying_s=float(copying_s.mean()),
        cost=cost,
        low=min(low, cost),
        high=min(max(high, cost), nextafter(1.0, 0.0)),
        replayed=memory.loaders,
        kept=memory.batches,
        kept_nbytes=memory.nbytes,
        remarks=compared.remarks,
    )


def _read_journals(folder: Path) -> list[Journal]:
    found = discover.find(folder).of(FORMAT)
    paths = next((paths for kind, paths in found.items() if kind.name == "steps"), ())
    return [read_journal(path) for path in paths]


def _divide_by_rank(journals: list[Journal], folder: Path) -> dict[int, RankSteps]:
    """The steps of each rank; of a process without one it is 0."""
    by_rank: dict[int, RankSteps] = {}
    for journal in journals:
        steps = steps_of(journal)
        rank = steps.rank
        # Of several processes of a rank (a validation beside the training) the one with most steps.
        if len(steps.length_s) > len(by_rank[rank].length_s if rank in by_rank else ()):
            by_rank[rank] = steps
    if not by_rank:
        raise InputError(
            f"{folder}: expected steps recorded by vanidl record, found none: the program must "
            "take batches from a loader that vanidl knows (docs/recording.md), or one named with "
            "--wait, and --no-steps must not be set"
        )
    return by_rank


def _compare_steps(
    taken: Mapping[int, RankSteps], free: Mapping[int, RankSteps], memory: Kept
) -> _Compared:
    ranks = sorted(taken.keys() & free.keys())
    if not ranks or taken.keys() != free.keys():
        raise InputError(
            f"expected the same ranks in both runs, found {sorted(taken)} and, with batches from "
            f"memory, {sorted(free)}: run both on as many processes"
        )
    # Steps are compared up to where the runs part: behind that they did other work.
    fewest = min(len(steps.length_s) for steps in (*taken.values(), *free.values()))
    pairs = [(taken[rank], free[rank]) for rank in ranks]
    alike = min(_count_alike(*pair, fewest) for pair in pairs)
    parted = [pair for pair in pairs if _count_alike(*pair, fewest) == alike < fewest]
    where = tuple(_describe_parting(*pair, alike) for pair in parted[:1])
    # And only those that count on every rank: ranks wait for each other.
    # Their batches all came from memory, and no profiler of ours slowed them.
    usable = np.stack([free.replayed[:alike] & ~taken.profiled[:alike] for taken, free in pairs])
    steps = np.flatnonzero(usable.all(axis=0))
    if len(steps) < FEWEST:
        why = "; ".join((*where, *(memory.remarks or (_SHORT,))))
        raise InputError(
            f"expected at least {FEWEST} steps with batches from memory, found "
            f"{plural(len(steps), 'step')}: {why}"
        )
    return _Compared(
        np.stack([taken[rank].length_s[steps] for rank in ranks]),
        np.stack([free[rank].length_s[steps] for rank in ranks]),
        np.stack([free[rank].copying_s[steps] for rank in ranks]),
        (*where, *memory.remarks),
    )


def _count_alike(taken: RankSteps, free: RankSteps, count: int) -> int:
    """How many steps the runs have in common: which take the same batches of the same passes."""
    differs = np.flatnonzero((taken.begins[:count] != free.begins[:count]).any(axis=1))
    return int(differs[0]) if len(differs) else count


def _describe_parting(taken: RankSteps, free: RankSteps, step: int) -> str:
    """Where the runs part."""
    real, memory = (
        "no batch" if first[0] < 0 else f"batch {first[1] + 1} of pass {first[0] + 1}"
        for first in (taken.begins[step].tolist(), free.begins[step].tolist())
    )
    return (
        f"{plural(step, 'step')} can be compared at most: the next one takes {real} in the run as "
        f"it trains, {memory} with batches from memory; data that end before a pass should, such "
        "as a finite generator with steps_per_epoch, do not end from memory"
    )


def cost_of(taken: FloatArray, free: FloatArray) -> tuple[float, float, float]:
    """1 - sum(free) / sum(taken), and its 98 % interval.

    Jackknife over blocks of neighbouring steps, as steps follow from each other: Student's t with
    one degree of freedom less than there are blocks. It says nothing of another pair of runs.
    """
    blocks = min(_BLOCKS, len(taken) // 2)
    edges = np.linspace(0, len(taken), blocks + 1).astype(int)[:-1]
    t, f = np.add.reduceat(taken, edges), np.add.reduceat(free, edges)
    cost = 1 - float(f.sum() / t.sum())
    without = 1 - (f.sum() - f) / (t.sum() - t)
    error = float(np.sqrt((blocks - 1) / blocks * ((without - without.mean()) ** 2).sum()))
    reach = error * t_above((1 - _LEVEL) / 2, blocks - 1)
    return cost, cost - reach, cost + reach
