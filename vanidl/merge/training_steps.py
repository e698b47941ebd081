"""Which spans of a profile are training steps.

Where nothing marked any, a step lasts from the end of one wait that got a batch to the end of the
next, and the last one to the end of the wait that found the loader at its end. Of marked and
derived steps two kinds do not train: a last one in which nothing was computed (the loop had ended,
and its marker was still open), and those of validation, without a backward pass where others
have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.merge.process_table import ProcessTable
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import FROM_WAITS, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers.operator_names import BACKWARD, SAMPLING
from vanidl.readers.records import ProfileTrace, freeze

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NO_WORK = 0.05  # of the operations between two waits: what creating a loader's iterator takes
_STUB = 0.1  # of the usual compute, or of the shortest step
_FEWEST_STEPS = 3  # before the last one says anything about it
_COLUMNS = ("start_ns", "end_ns", "step", "kind", "thread", "name")


@dataclass(frozen=True, slots=True)
class Settled:
    """Profiles whose STEP spans are training steps, and what to say of it."""

    profiles: list[ProfileTrace]
    notices: tuple[Notice, ...]


def settle(profiles: Sequence[ProfileTrace], processes: ProcessTable) -> Settled:
    """The profiles with steps found, and those that do not train left out.

    A profile without marks gets none where another source marked steps of its process.
    """
    marked = {
        processes.of_profile[k] for k, p in enumerate(profiles) if (p.kind == SpanKind.STEP).any()
    }
    found = [
        p if processes.of_profile[k] in marked else from_waits(p) for k, p in enumerate(profiles)
    ]
    trained = [without_validation(without_stub(p)) for p in found]
    return Settled(trained, tuple(_notices(found, trained)))


def from_waits(profile: ProfileTrace) -> ProfileTrace:
    """The profile with a step from each wait's end to the next one's."""
    borders = _borders(profile)
    steps = len(borders) - 1
    if steps < 1:
        return profile
    more = {
        "start_ns": borders[:-1],
        "end_ns": borders[1:],
        "step": np.arange(steps, dtype=np.int32),
        "kind": np.full(steps, SpanKind.STEP, np.uint8),
        "thread": np.full(steps, -1, np.int32),
        "name": np.full(steps, len(profile.names), np.int32),
    }
    names = (*profile.names, "step between input waits")
    both = {c: np.concatenate([getattr(profile, c), own]) for c, own in more.items()}
    order = np.argsort(both["start_ns"], kind="stable")
    return _with(replace(profile, names=names, steps_from=FROM_WAITS), both, order)


def _borders(profile: ProfileTrace) -> Int64Array:
    """Ends of the waits that got a batch, and of the one after them that got none."""
    start, end = _outermost(profile)
    batch = got_batch(profile, start, end)
    borders = end[batch]
    after = end[~batch][end[~batch] > borders[-1]] if len(borders) else borders
    return np.append(borders, after[:1])


def _outermost(profile: ProfileTrace) -> tuple[Int64Array, Int64Array]:
    """Waits that lie in no other one, in order."""
    mine = profile.kind == SpanKind.INPUT_WAIT
    start, end = profile.start_ns[mine], profile.end_ns[mine]
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    return start[start >= before], end[start >= before]


def got_batch(profile: ProfileTrace, start: Int64Array, end: Int64Array) -> Mask:
    """Which waits got a batch: after one that found the loader at its end nothing is computed.

    All of them where no computing was recorded.
    """
    sampling = np.array([bool(SAMPLING.fullmatch(name)) for name in profile.names] or [False])
    work = np.isin(profile.kind, (SpanKind.OP, SpanKind.KERNEL)) & ~sampling[profile.name]
    begun = profile.start_ns[work]
    until = np.append(start[1:], np.iinfo(np.int64).max)
    operations = np.searchsorted(begun, until) - np.searchsorted(begun, end)
    usual = float(np.median(operations[operations > 0])) if operations.any() else 0.0
    return operations >= _NO_WORK * usual


def without_stub(profile: ProfileTrace) -> ProfileTrace:
    """The profile without a last step that alone computed nothing, or did next to nothing."""
    rows = np.flatnonzero(profile.kind == SpanKind.STEP)
    seen = np.isin(profile.kind, (SpanKind.INPUT_WAIT, SpanKind.OP, SpanKind.KERNEL)).any()
    if profile.steps_from or profile.marks_loop or len(rows) <= _FEWEST_STEPS or not seen:
        return profile  # an event file has nothing beside its steps, a recorded loop no marker
    start, end = profile.start_ns[rows], profile.end_ns[rows]
    computed = intervals.covered_within(_compute(profile), start, end)
    length = end - start
    usual = float(np.median(computed[:-1]))
    # Where the step before it computed nothing either, the device's times end early: no stub.
    idle = usual > 0 and computed[-1] < _STUB * usual <= computed[-2]
    if not idle and length[-1] >= _STUB * length[:-1].min():
        return profile
    kept = np.ones(len(profile.kind), bool)
    kept[rows[-1]] = False
    return _with(profile, {c: getattr(profile, c) for c in _COLUMNS}, np.flatnonzero(kept))


def _compute(profile: ProfileTrace) -> Intervals:
    """When a device computed, or where no kernel was recorded the CPU outside input waits."""

    def when(kind: SpanKind) -> Intervals:
        mine = profile.kind == kind
        return intervals.union(profile.start_ns[mine], profile.end_ns[mine])

    kernels = when(SpanKind.KERNEL)
    if len(kernels.start):
        return kernels
    return intervals.subtract(when(SpanKind.OP), when(SpanKind.INPUT_WAIT))


def without_validation(profile: ProfileTrace) -> ProfileTrace:
    """The profile with steps that have no backward pass, where others have one, as validation.

    A reader that knows validation by its marks has said so already.
    """
    if (profile.kind == SpanKind.EVALUATION).any():
        return profile
    backward = np.array([bool(BACKWARD.match(name)) for name in profile.names] or [False])
    begun = profile.start_ns[(profile.kind == SpanKind.OP) & backward[profile.name]]
    rows = np.flatnonzero(profile.kind == SpanKind.STEP)
    first = np.searchsorted(begun, profile.start_ns[rows])
    trains = np.searchsorted(begun, profile.end_ns[rows]) > first
    if trains.all() or not trains.any():
        return profile
    kind, step = profile.kind.copy(), profile.step.copy()
    kind[rows[~trains]] = SpanKind.EVALUATION
    step[rows[~trains]] = -1
    if profile.steps_from:
        step[rows[trains]] = np.arange(trains.sum())
    return replace(profile, kind=freeze(kind), step=freeze(step))


def _notices(found: Sequence[ProfileTrace], trained: Sequence[ProfileTrace]) -> Iterator[Notice]:
    derived = [p for p in trained if p.steps_from == FROM_WAITS]
    if derived:
        yield Notice(
            "steps_from_waits",
            f"{_paths(derived)}: no training step is marked in it, so steps are from the end of "
            f"one of its {plural(_count(derived, SpanKind.INPUT_WAIT), 'input wait')} to the end "
            "of the next. Mark them where a step is something else: prof.step() after each batch, "
            "jax.profiler.StepTraceAnnotation around it.",
            "info",
        )
    validation = [p for p in trained if (p.kind == SpanKind.EVALUATION).any()]
    if validation:
        steps = _count(validation, SpanKind.EVALUATION)
        yield Notice(
            "validation_steps",
            f"{_paths(validation)}: {plural(steps, 'step')} without a backward pass, or marked as "
            "validation, are not counted as training steps.",
            "info",
        )
    ended = [
        (a, b)
        for a, b in zip(found, trained, strict=True)
        if _count([a], SpanKind.STEP) > _count([b], SpanKind.STEP, SpanKind.EVALUATION)
    ]
    if ended:
        yield Notice(
            "last_step_empty",
            f"{_paths([a for a, _ in ended])}: the last marked step computed next to nothing (the "
            "loop had ended, and the profiler marks a step until it stops): it is not counted.",
            "info",
        )


def _paths(profiles: Sequence[ProfileTrace]) -> str:
    more = f" and {len(profiles) - 1} more" if len(profiles) > 1 else ""
    return f"{profiles[0].path}{more}"


def _count(profiles: Sequence[ProfileTrace], *kinds: SpanKind) -> int:
    return sum(int(np.isin(p.kind, kinds).sum()) for p in profiles)


def _with(
    profile: ProfileTrace, columns: Mapping[str, NDArray[Any]], rows: Int64Array
) -> ProfileTrace:
    """The profile with these rows of these columns."""
    picked: dict[str, Any] = {name: freeze(column[rows]) for name, column in columns.items()}
    return replace(profile, **picked)
