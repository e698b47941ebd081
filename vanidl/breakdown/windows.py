"""The wall time of a rank's training thread as tiles: phases, steps and parts of steps.

Tiles fill the run exactly. A step reaches from the end of the step before to its own end; a save,
a load or a validation inside it is cut out, as a tile of its own phase. Waits that took no batch
(an iterator is set up or taken down, the end of the data is found) are ends of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown import assumptions
from vanidl.breakdown.causes import PHASES
from vanidl.model import intervals
from vanidl.model.intervals import EMPTY, Intervals, find_gap, span_each
from vanidl.model.ordering import find_distinct, sum_by_group
from vanidl.model.trace import INFERENCE as FOR_INFERENCE
from vanidl.model.trace import SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

(START_UP, COMPILE, TRAINING, VALIDATION, CHECKPOINT, LOAD, INFERENCE, SKIPPED, OTHER, TAIL,
 UNOBSERVED) = range(11)  # fmt: skip
PHASE_NAMES = (*PHASES, "")
"""By code; of unobserved time nobody knows which phase it belongs to."""

(NO_PART, INPUT_WAIT, WORK, EPOCH_END, PREPARE, FORWARD, BACKWARD, OPTIMIZER, REST,
 PREPARE_FORWARD, UNTIL_OPTIMIZER) = range(11)  # fmt: skip
PART_NAMES = (
    "", "input_wait", "prepare+forward+backward+optimizer+rest", "epoch_end", "prepare", "forward",
    "backward", "optimizer", "rest", "prepare+forward", "prepare+forward+backward",
)  # fmt: skip
"""By code. Where the parts between two waits cannot be told they are one."""
BETWEEN_WAITS = (WORK, *range(PREPARE, UNTIL_OPTIMIZER + 1))
BESIDE_THE_MODEL = (PREPARE, REST)
"""Nothing of the model lies in these."""


_CUT_OUT = frozenset(
    {SpanKind.PHASE, SpanKind.EVALUATION, SpanKind.VALIDATION, SpanKind.CHECKPOINT, SpanKind.LOAD}
)
"""Spans that are windows of their own, wherever they lie."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Consecutive windows [start, end) of one rank's training thread, ns since the epoch.

    `step` is the row of the step that a tile belongs to, by start, -1 for none; its number is
    `number[step]`. `wait` is the row of the input wait that it is part of, -1 for none.
    """

    start: Int64Array
    end: Int64Array
    phase: Int64Array
    part: Int64Array
    step: Int64Array
    wait: Int64Array
    number: Int64Array
    wait_start: Int64Array
    wait_end: Int64Array
    waits_known: bool
    epoch: Int64Array
    """The epoch that each tile lies in, as its loop numbers them; -1 where nothing says."""
    follows: NDArray[np.bool_]
    """Which tiles are taken for a part of the step after them: nothing says so."""
    is_plain: bool = False
    """Whether there is no epoch, and every step is its wait and what follows, one after another."""

    @property
    def length(self) -> Int64Array:
        """Of each tile, ns."""
        return self.end - self.start

    @property
    def steps(self) -> int:
        """How many training steps there are."""
        return len(self.number)

    def measure_waits_ns(self) -> Int64Array:
        """How long the input wait of each training step was."""
        if self.is_plain:
            return self.wait_end - self.wait_start
        waits = np.flatnonzero((self.step >= 0) & (self.part == INPUT_WAIT))
        return sum_by_group(self.step[waits], self.length[waits], self.steps)


def tile_rank(
    trace: Trace,
    position: int,
    spans: Spans | None = None,
    assume: frozenset[str] = assumptions.ALL,
    steps: Spans | None = None,
) -> Tiles | None:
    """The tiles of one rank; None where no step of it was recorded.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        spans: what profilers saw of it, where that was looked up.
        assume: what may be assumed.
        steps: the steps among them, where they were picked.
    """
    if spans is None:
        spans = trace.spans_of(position)
    if steps is None:
        steps = spans.of_kind(SpanKind.STEP)
    low, high = trace.job.start_ns, trace.job.end_ns
    if not len(steps) or high <= low:
        return None
    sources = steps.sources
    whole = all(trace.profiles[source].marks_loop for source in sources)
    waits_known = all(trace.profiles[source].has_wait_spans for source in sources)

    # Where steps begin and end, and with what else windows do.
    if (steps.start[1:] < steps.start[:-1]).any():  # spans are in order, but where made by hand
        steps = steps.pick(np.argsort(steps.start, kind="stable"))
    begin, end = _clip_in_turn(steps.start, steps.end, low, high)
    waits = _pick_disjoint(spans, SpanKind.INPUT_WAIT, low, high)
    kinds = spans.kinds
    marked = [] if kinds.isdisjoint(_CUT_OUT) else _cut_out(spans, low, high)
    model = _find_model(trace, spans, low, high) if SpanKind.BACKWARD in kinds else _NO_MODEL
    for_inference = all(trace.profiles[source].purpose == FOR_INFERENCE for source in sources)
    own = INFERENCE if for_inference else TRAINING
    # Where waits are not marked, the end of an epoch may lie behind the last step.
    before_all = START_UP if whole else UNOBSERVED
    behind_all = TAIL if whole and waits_known else UNOBSERVED
    number = steps.step.astype(np.int64)
    is_plain = not len(model.start) and not any(len(times.start) for _, times in marked)
    if is_plain and _is_plain_loop(begin, end, waits):
        tiles = _lay_plain_loop((low, high), begin, end, waits, (own, before_all, behind_all))
        tiles = replace(tiles, number=number, waits_known=waits_known)
        epoch = _find_epochs(trace, position, spans, tiles.start)
        return replace(tiles, epoch=epoch, is_plain=False) if (epoch >= 0).any() else tiles
    edges = _collect_edges((low, high), begin, end, model, waits, *(times for _, times in marked))

    # The step and the wait that each tile lies in.
    start, stop = edges[:-1], edges[1:]
    step = np.searchsorted(begin, start, side="right") - 1  # that began last
    inside = (step >= 0) & (start < end[step])
    wait = _find_waits(start, step, begin, waits)
    waiting = wait >= 0

    # What lies between two steps of one loop belongs to the second.
    before, behind = start < begin[0], start >= end[-1]
    between = ~inside & ~before & ~behind
    gaps = _find_gaps(trace, spans, steps, begin, end)
    next_step = np.minimum(step + 1, len(begin) - 1)
    taken = gaps.follows | (gaps.may_follow & (assumptions.FOLLOWS in assume))
    given = between & taken[next_step] & ~waiting
    follows = given & ~gaps.follows[next_step]
    step = np.where(inside, step, np.where(given, step + 1, -1))
    ends_epoch = ~inside & ~given & waiting

    # Phases: before the first step, behind the last, and between steps that do not follow at once.
    phase = np.full(len(start), own)
    phase[before], phase[behind] = before_all, behind_all
    phase[between & ~given] = OTHER if whole and waits_known else UNOBSERVED
    phase[between & gaps.lost[next_step]] = UNOBSERVED
    phase[ends_epoch] = own

    # Parts of steps; saves, loads and validations are windows of their own.
    part = np.where(waiting, INPUT_WAIT, WORK)
    part = np.where(ends_epoch, EPOCH_END, np.where(inside | given, part, NO_PART))
    if len(model.start):
        work = (part == WORK) & (step >= 0)
        part[work] = _find_model_parts(model, waits, start[work], step[work], begin, end)
    for to, times in marked:
        _cut(phase, part, step, start, times, to)
    epoch = _find_epochs(trace, position, spans, start)
    return Tiles(start, stop, phase, part, step, wait, number, waits.start, waits.end, waits_known,
                 epoch, follows & (step >= 0))  # fmt: skip


def _find_waits(
    start: Int64Array, step: Int64Array, begin: Int64Array, waits: Intervals
) -> Int64Array:
    """The wait that each tile lies in; -1 for none.

    Args:
        start: of each tile.
        step: that began last before each tile.
        begin: of each step.
        waits: in order, and disjoint.
    """
    if not len(waits.start):
        return np.full(len(start), -1)
    same = np.array_equal(waits.start, begin)  # mostly each step begins with its wait
    wait = step if same else np.searchsorted(waits.start, start, side="right") - 1
    return np.where((wait >= 0) & (start < waits.end[np.maximum(wait, 0)]), wait, -1)


def _is_plain_loop(begin: Int64Array, end: Int64Array, waits: Intervals) -> bool:
    """Whether steps follow at once, and each begins with its wait and goes on after it."""
    return (
        np.array_equal(waits.start, begin)
        and np.array_equal(begin[1:], end[:-1])
        and bool((waits.end < end).all())
    )


def _lay_plain_loop(
    run: tuple[int, int],
    begin: Int64Array,
    end: Int64Array,
    waits: Intervals,
    phases: tuple[int, int, int],
) -> Tiles:
    """The tiles of a plain loop; its steps are numbered from 0, and in no epoch.

    Args:
        run: from when to when the rank ran.
        begin: of each step.
        end: of each step.
        waits: one of each.
        phases: of the loop, and of what lies before and behind it.
    """
    low, high = run
    labels = _label_plain_loop(int(begin[0] > low), len(begin), int(end[-1] < high), phases)
    start = np.empty(len(labels.step), np.int64)
    start[0], start[-1] = low, end[-1]
    # Of each step its wait and the rest; what lies before and behind the loop is a tile each.
    in_loop = slice(labels.first, labels.first + 2 * len(begin))
    start[in_loop][::2], start[in_loop][1::2] = begin, waits.end
    return Tiles(
        start=start,
        end=np.append(start[1:], high),
        phase=labels.phase,
        part=labels.part,
        step=labels.step,
        wait=labels.wait,
        number=labels.step[in_loop][::2],
        wait_start=waits.start,
        wait_end=waits.end,
        waits_known=True,
        epoch=labels.no_epoch,
        follows=labels.nothing,
        is_plain=True,
    )


@dataclass(frozen=True, slots=True)
class _Labels:
    """What the tiles of a plain loop are, whenever they begin; `first`: how many lie before it."""

    first: int
    phase: Int64Array
    part: Int64Array
    step: Int64Array
    wait: Int64Array
    no_epoch: Int64Array
    nothing: NDArray[np.bool_]


@lru_cache(maxsize=1)  # mostly all ranks of a run have as many steps
def _label_plain_loop(first: int, steps: int, behind: int, phases: tuple[int, int, int]) -> _Labels:
    """The labels of a plain loop; nobody can write to them.

    Args:
        first: how many tiles lie before the loop.
        steps: of the loop.
        behind: how many tiles lie behind it.
        phases: of the loop, and of what lies before and behind it.
    """
    own, phase_before, phase_behind = phases
    in_loop, count = slice(first, first + 2 * steps), first + 2 * steps + behind
    phase, part = np.full(count, phase_behind), np.full(count, NO_PART)
    phase[:first], phase[in_loop] = phase_before, own
    part[in_loop][::2], part[in_loop][1::2] = INPUT_WAIT, WORK
    step, wait = np.full(count, -1), np.full(count, -1)
    step[in_loop], wait[in_loop][::2] = np.repeat(np.arange(steps), 2), np.arange(steps)
    labels = _Labels(first, phase, part, step, wait, np.full(count, -1), np.zeros(count, bool))
    for each in (phase, part, step, wait, labels.no_epoch, labels.nothing):
        each.setflags(write=False)
    return labels


def merge_tiles_of_a_kind(tiles: Tiles) -> Tiles:
    """One tile of each kind, as long as all of that kind together, in no order.

    For cells that are as long as their tile or nothing: their sums are the same, to the ns.
    Tiles are of a kind where phase, part and epoch are the same, and whether they belong to a
    step and to a wait. `number` stays, so that there are as many steps.
    """
    rows: slice | NDArray[np.intp] = slice(None)
    length = tiles.length
    if tiles.is_plain:
        rows, length = _sum_plain_loop(tiles)
    # The kind of each tile as one number: epoch, phase, part, and three flags.
    parts, epochs = len(PART_NAMES), tiles.epoch[rows] + 1
    kind = (tiles.phase[rows] * parts + tiles.part[rows]) * 8 + tiles.follows[rows]
    kind += 4 * (tiles.step[rows] >= 0) + 2 * (tiles.wait[rows] >= 0)
    kinds = 8 * parts * len(PHASE_NAMES)
    if epochs.any():
        kind += kinds * epochs
    # How long each kind is in all, one behind another; and what its number stands for.
    each = np.flatnonzero(np.bincount(kind))
    length = sum_by_group(kind, length, int(each[-1]) + 1)[each]
    end = int(tiles.start[0]) + np.cumsum(length)
    start = end - length
    epoch, kind = np.divmod(each, kinds)
    place, flags = np.divmod(kind, 8)
    phase, part = np.divmod(place, parts)
    waiting = flags & 2 > 0
    return Tiles(
        start=start,
        end=end,
        phase=phase,
        part=part,
        step=np.where(flags & 4 > 0, 0, -1),
        wait=np.where(waiting, np.cumsum(waiting) - 1, -1),
        number=tiles.number,
        wait_start=start[waiting],
        wait_end=end[waiting],
        waits_known=tiles.waits_known,
        epoch=epoch - 1,
        follows=flags & 1 > 0,
    )


def _sum_plain_loop(tiles: Tiles) -> tuple[NDArray[np.intp], Int64Array]:
    """Of a plain loop without epochs one row of each kind, and how long all of that kind are."""
    first, steps = int(tiles.step[0] < 0), tiles.steps
    behind = first + 2 * steps
    rows = np.array([*range(first), first, first + 1, *range(behind, len(tiles.step))])
    length = tiles.length[rows]
    waited = int(tiles.measure_waits_ns().sum())
    loop_ns = int(tiles.end[behind - 1] - tiles.start[first])
    length[first], length[first + 1] = waited, loop_ns - waited
    return rows, length


def join_tiles(of_ranks: Sequence[Tiles]) -> Tiles:
    """The tiles of some ranks behind one another, each wait with the number that it has then.

    `number` is that of the first rank.
    """
    names = ("start", "end", "phase", "part", "step", "wait", "wait_start", "wait_end", "epoch",
             "follows")  # fmt: skip
    joined = {name: np.concatenate([getattr(tiles, name) for tiles in of_ranks]) for name in names}
    waiting = joined["wait"] >= 0
    joined["wait"] = np.where(waiting, np.cumsum(waiting) - 1, -1)
    return replace(of_ranks[0], **joined)  # type: ignore[arg-type]


def measure_hosts_apart(trace: Trace) -> int:
    """Nanoseconds of the longest host where hosts have no moment in common; 0 where they have."""
    known = [
        (process.host, process.start_ns, process.end_ns)
        for process in trace.processes
        if process.host and process.start_ns is not None and process.end_ns is not None
    ]
    spans = span_each(known)
    if len(known) < len(trace.processes) or find_gap(spans) is None:
        return 0
    return max(end - start for start, end in spans.values())


@dataclass(frozen=True, slots=True)
class _Model:
    """What the model did, by start: forward and backward passes, steps of the optimizer."""

    start: Int64Array
    end: Int64Array
    part: Int64Array  # FORWARD, BACKWARD, OPTIMIZER


_NO_MODEL = _Model(*(np.empty(0, np.int64) for _ in range(3)))


def _collect_edges(
    run: tuple[int, int], begin: Int64Array, end: Int64Array, *others: Intervals | _Model
) -> Int64Array:
    """Every instant at which a tile begins or ends."""
    both = [side for each in others for side in (each.start, each.end)]
    # Mostly steps follow at once, and begin with a wait: what is there already is not sorted.
    alone = end[np.append(end[:-1] != begin[1:], True)]
    both = [side for side in both if not np.array_equal(side, begin)]
    return find_distinct(np.concatenate([np.array(run, np.int64), begin, alone, *both]))


def _find_model(trace: Trace, spans: Spans, low: int, high: int) -> _Model:
    marked = np.array([profile.marks_loop for profile in trace.profiles] or [False], bool)

    def covered(kind: SpanKind) -> Intervals:
        mine = np.flatnonzero(spans.kind == kind)
        mine = mine[marked[spans.source[mine]]]
        return intervals.clipped(intervals.union(spans.start[mine], spans.end[mine]), low, high)

    found = [(part, covered(kind)) for part, kind in (
        (FORWARD, SpanKind.FORWARD), (BACKWARD, SpanKind.BACKWARD),
        (OPTIMIZER, SpanKind.OPTIMIZER))]  # fmt: skip
    # Without a backward pass the parts of the step are not known.
    if not len(found[1][1].start):
        return _NO_MODEL
    start, end = (np.concatenate([getattr(t, s) for _, t in found]) for s in ("start", "end"))
    part = np.repeat([part for part, _ in found], [len(times.start) for _, times in found])
    order = np.argsort(start, kind="stable")
    return _Model(start[order], end[order], part[order].astype(np.int64))


def _find_model_parts(
    model: _Model,
    waits: Intervals,
    at: Int64Array,
    step: Int64Array,
    begin: Int64Array,
    end: Int64Array,
) -> Int64Array:
    """The part of instants in steps outside of waits, by what the model did before and after.

    Behind a backward pass and before the optimizer's step lies what is done to gradients:
    `optimizer`. Before a forward pass lies `prepare`; what nothing follows in its step is `rest`.

    Args:
        model: what it did.
        waits: input waits.
        at: the instants.
        step: row of the step of each.
        begin: of each step.
        end: of each step.
    """
    # Waits and the model in one order; a forward pass with a wait in it began for another batch.
    waited = np.searchsorted(waits.start, model.end) - np.searchsorted(waits.start, model.start)
    kept = (model.part != FORWARD) | (waited == 0)
    start = np.concatenate([model.start[kept], waits.start])
    stop = np.concatenate([model.end[kept], waits.end])
    kind = np.concatenate([model.part[kept], np.full(len(waits.start), INPUT_WAIT)])
    order = np.lexsort((-stop, start))
    start, stop, kind = start[order], stop[order], kind[order]
    place = np.searchsorted(start, at, side="right") - 1
    before, after = np.maximum(place, 0), np.minimum(place + 1, len(start) - 1)
    first = np.append(begin[0], np.maximum(begin[1:], end[:-1]))[step]
    last_kind = np.where((place >= 0) & (start[before] >= first), kind[before], NO_PART)
    next_kind = np.where(
        (place + 1 < len(start)) & (start[after] < end[step]), kind[after], NO_PART
    )

    # Gaps first, then what lies inside of something.
    begun = np.isin(last_kind, (FORWARD, BACKWARD, OPTIMIZER))
    ends = np.isin(next_kind, (NO_PART, INPUT_WAIT))
    unknown = np.where(last_kind == NO_PART, REST, WORK)
    part = np.where(begun, REST, unknown)
    part = np.where(~begun & (next_kind == INPUT_WAIT) & (last_kind == INPUT_WAIT), PREPARE, part)
    part = np.where(~ends & (next_kind == FORWARD), PREPARE, part)
    part = np.where(~ends & (next_kind == BACKWARD), PREPARE_FORWARD, part)
    optimizes = np.where(begun, OPTIMIZER, UNTIL_OPTIMIZER)
    part = np.where(~ends & (next_kind == OPTIMIZER), optimizes, part)
    inside = (place >= 0) & (at < stop[before])
    part = np.where(inside & (kind[before] != INPUT_WAIT), kind[before], part)
    optimizer = model.part == OPTIMIZER
    if optimizer.any():  # a closure calls the model within the optimizer's step
        opened = np.searchsorted(model.start[optimizer], at, side="right") - 1
        within = (opened >= 0) & (at < model.end[optimizer][np.maximum(opened, 0)])
        part = np.where(
            within & ~(inside & np.isin(kind[before], (FORWARD, BACKWARD))), OPTIMIZER, part
        )
    return part


def _cut_out(spans: Spans, low: int, high: int) -> list[tuple[int, Intervals]]:
    """What is cut out of steps, by phase, each over those before it: a save may lie in others."""
    named = {name: code for code, name in enumerate(PHASES)}
    of_name = np.array([named.get(name, OTHER) for name in spans.names] or [OTHER], np.int64)
    phases = spans.of_kind(SpanKind.PHASE)
    code = of_name[phases.name]
    found = [
        *((int(each), phases.pick(code == each)) for each in find_distinct(code)),
        (VALIDATION, spans.of_kind(SpanKind.EVALUATION, SpanKind.VALIDATION)),
        (CHECKPOINT, spans.of_kind(SpanKind.CHECKPOINT)),
        (LOAD, spans.of_kind(SpanKind.LOAD)),
    ]
    return [
        (to, intervals.clipped(intervals.union(mine.start, mine.end), low, high))
        for to, mine in found
    ]


def _cut(
    phase: Int64Array,
    part: Int64Array,
    step: Int64Array,
    start: Int64Array,
    cut: Intervals,
    to: int,
) -> None:
    """Makes the tiles inside of some intervals a phase of their own, outside of any step."""
    if len(cut.start):
        place = np.searchsorted(cut.start, start, side="right") - 1
        mine = (place >= 0) & (start < cut.end[np.maximum(place, 0)])
        phase[mine], part[mine], step[mine] = to, NO_PART, -1


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Of each step whether the time since the end of the one before is its own.

    It is where both come from one source that marks them all, with numbers that follow, and no
    epoch begins between. `may_follow`: a profiler, which pauses between its windows, left a gap
    shorter than a step. `lost`: a step lay there of which nothing is known but its number.
    """

    follows: NDArray[np.bool_]
    may_follow: NDArray[np.bool_]
    lost: NDArray[np.bool_]


def _find_gaps(
    trace: Trace, spans: Spans, steps: Spans, begin: Int64Array, end: Int64Array
) -> _Gaps:
    # Steps with consecutive numbers follow one another, unless an epoch begins between them.
    same = np.append(False, steps.source[1:] == steps.source[:-1])
    distance = np.append(1, np.diff(steps.step))
    next_one = same & (distance == 1)
    epochs = np.sort(spans.of_kind(SpanKind.EPOCH).start)
    if len(epochs):
        begun = np.searchsorted(epochs, begin, side="right")
        next_one[1:] &= begun[1:] == begun[:-1]
    gap = np.append(0, begin[1:] - end[:-1])
    marked = np.array([profile.marks_loop for profile in trace.profiles], bool)[steps.source]
    may_follow = next_one & ~marked
    if may_follow.any():
        may_follow &= gap < float(np.median(end - begin))
    return _Gaps(
        follows=next_one & (marked | (gap == 0)),
        # Where nothing marks the loop, a gap shorter than a usual step may be part of the next one.
        may_follow=may_follow,
        lost=same & (distance > 1),
    )


def _find_epochs(trace: Trace, position: int, spans: Spans, at: Int64Array) -> Int64Array:
    """The epoch of each instant: that begun last, by its marks or by the fetches of its batches."""
    marked = spans.of_kind(SpanKind.EPOCH)
    begin, end, number = marked.start, marked.end, marked.step.astype(np.int64)
    # Where no epochs are marked, batches that were waited for tell them.
    if not len(begin) and len(trace.fetches):
        fetches = trace.fetches.pick(trace.fetches.trainer == trace.ranks[position])
        taken = fetches.pick(fetches.wait_end > fetches.wait_begin)
        order = np.argsort(taken.wait_begin, kind="stable")
        begin, number = taken.wait_begin[order], taken.epoch[order]
        end = np.full(len(begin), np.iinfo(np.int64).max)
    if not len(begin):
        return np.full(len(at), -1)
    order = np.argsort(begin, kind="stable")
    place = np.searchsorted(begin[order], at, side="right") - 1
    inside = (place >= 0) & (at < end[order][np.maximum(place, 0)])
    return np.where(inside, number[order][np.maximum(place, 0)], -1)


def _pick_disjoint(spans: Spans, kind: SpanKind, low: int, high: int) -> Intervals:
    """The spans of one kind, disjoint: one that begins inside another begins at its end."""
    mine = np.flatnonzero(spans.kind == kind)
    start, end = spans.start[mine], spans.end[mine]
    if not len(mine):
        return EMPTY
    if (start[1:] < start[:-1]).any():  # spans are in order, but where made by hand
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    start, end = _clip_in_turn(start, end, low, high)
    kept = start < end
    return Intervals(start, end) if kept.all() else Intervals(start[kept], end[kept])


def _clip_in_turn(
    start: Int64Array, end: Int64Array, low: int, high: int
) -> tuple[Int64Array, Int64Array]:
    """Spans by start, each within the run and behind those before it; some may be empty."""
    in_turn = (start[1:] >= end[:-1]).all() and (start <= end).all()
    if in_turn and start[0] >= low and end[-1] <= high:  # mostly they are that already
        return start, end
    end = np.maximum.accumulate(np.clip(end, low, high))
    return np.maximum(np.clip(start, low, high), np.append(low, end[:-1])), end
