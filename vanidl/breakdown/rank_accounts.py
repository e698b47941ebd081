"""The account of ranks whose steps or calls have a place in time, window by window.

Rank by rank its training thread is divided into windows and these by cause; what became of the
I/O, the phases and the single steps come from the same spans and cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Operations
from vanidl.analyses.profiled_steps import RankSpans, gather_rank_spans
from vanidl.analyses.results import Results
from vanidl.breakdown import (
    assumptions,
    input_wait,
    overlap,
    step_records,
    windows,
)
from vanidl.breakdown.account import (
    CALLS,
    EPOCH,
    EPOCH_END,
    FETCHED,
    MARKED,
    PHASE,
    PROFILED,
    RUN,
    STEP,
    STEP_PART,
    TIMED,
    TRACED,
    WAIT,
    Breakdown,
    CellTable,
)
from vanidl.breakdown.causes import (
    BLOCKED,
    CAUSES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DELIVERY,
    DEVICE_IDLE,
    FAULT,
    INPUT_CPU,
    METADATA,
    QUEUED,
    READ,
    STORAGE,
    TOO_FEW_CORES,
    TRACING,
    WAITING_FOR_PEERS,
    WORKERS,
    WRITE,
)
from vanidl.breakdown.input_wait import Served
from vanidl.breakdown.overlap import FatesByRank, RankOverlap
from vanidl.breakdown.phases import Measured, find_borders, measure_rank, summarize_phases
from vanidl.breakdown.rank_cells import (
    Evidence,
    Mask,
    RankCells,
    Windows,
    divide_tiles,
    find_activity,
    gather_windows,
)
from vanidl.breakdown.sources.collectives import find_waits_for_peers
from vanidl.breakdown.sources.states import SampledBound, bound_by_states
from vanidl.breakdown.step_records import StepTimes
from vanidl.breakdown.whole_runs import Sources, attribute_runs, make_account
from vanidl.breakdown.windows import Tiles
from vanidl.model import intervals
from vanidl.model.counter_totals import prefix_of
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import find_distinct, sum_by_group
from vanidl.model.states import SAMPLED
from vanidl.model.trace import SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

_ROUNDED_NS = 1000  # by which times of counters may be
_SHORT_OF_CORES = 0.01  # of a window: from there on calls are longer for want of a core
_UNSEEN = 0.02  # of a window: by which samples of calls must be beyond what was recorded
_MOST_EPOCHS = 256  # that have cells of their own, each; of more only the run has
_TELLING_KINDS = frozenset(
    {SpanKind.KERNEL, SpanKind.OP, SpanKind.COMMUNICATION, SpanKind.COPY, SpanKind.WORKERS}
)
"""Spans that say what some time went to, beside those that say which window it belongs to."""

_SEEN_IN_CALLS = (STORAGE, *(f"{STORAGE}.{part}" for part in (READ, WRITE, METADATA)))
_MOVING = (f"{STORAGE}.{READ}", f"{STORAGE}.{WRITE}")


def attribute_ranks(trace: Trace, results: Results, assume: frozenset[str]) -> Breakdown:
    """The account of a run of which steps or single calls were recorded.

    Args:
        trace: the run, as its selection sees it.
        results: its analyses: reductions over its operations, and its coverage.
        assume: what may be assumed; cells that rest on it name it.
    """
    ranks = len(trace.ranks)
    sources = _RankSources(trace, results, assume)
    table = CellTable(ranks, sources.window_ns)
    steps = np.zeros(ranks, np.int64)
    beside, alike = _Beside(trace, results), _Alike(sources)

    # Rank by rank: of each only sums are kept, and what is said of single steps. Not in threads:
    # arrays of one rank are too short for numpy to let others run, and changing hands costs more.
    by_rank = enumerate(trace.spans_by_rank()) if len(trace.spans) else ()
    for position, spans in by_rank:
        if not (spans.kind == SpanKind.STEP).any():
            continue
        seen = gather_rank_spans(trace, spans)
        of_rank = _attribute_rank(table, sources, alike, position, spans, seen)
        if of_rank is not None:
            steps[position] = len(of_rank.number)
            sources.served |= of_rank.known.of_process
            if of_rank.known.of_process[trace.ranks[position]].is_threaded:
                sources.threaded.add(position)
        beside.add(position, spans, seen, of_rank)
    for positions, cells in alike.divide():
        _add_up(table, positions, cells)
    table.observed = steps > 0
    attribute_runs(table, sources)
    for position in np.flatnonzero(~table.observed).tolist() if len(trace.spans) else ():
        _attribute_device_time(table, trace, position, trace.spans_of(position))
    account = make_account(table, sources, steps)
    return beside.complete(account, sources.served)


@dataclass(frozen=True, slots=True)
class _RankAccount:
    """What is known of one rank; of each step its number, its wait, and what of that is storage."""

    known: Evidence
    number: Int64Array
    waited: Int64Array  # ns
    in_storage: Int64Array  # at least, ns


def _attribute_rank(
    table: CellTable,
    sources: _RankSources,
    alike: _Alike,
    position: int,
    spans: Spans,
    seen: RankSpans,
) -> _RankAccount | None:
    """Adds the cells of one rank to the table, or its tiles to the ranks like it.

    None where it has no tiles.

    Args:
        table: takes its cells.
        sources: what is known of the run.
        alike: takes its tiles, where nothing else tells it from other ranks.
        position: of the rank in Trace.ranks.
        spans: what profilers saw of it.
        seen: its steps and waits among these.
    """
    trace = sources.trace
    tiles = windows.tile_rank(trace, position, spans, sources.assume, seen.steps)
    if tiles is None:
        return None
    sampled, known = _find_evidence(sources, position, spans, tiles)
    in_storage = np.zeros(tiles.steps, np.int64)
    if not sampled and _tells_none_apart(trace, position, spans, tiles, known):
        alike.add(position, tiles, known)
    else:
        cells = divide_tiles(trace, position, tiles, spans, known)
        _add_up(table, np.array([position]), cells)
        if known.whole and _saw_unseen_calls(table, position, sampled):
            # Threads were in calls that no tracer or counter has: these are a lower bound.
            sources.unseen.add(position)
            known = sources.of_rank(position, spans, whole=False)
            cells = divide_tiles(trace, position, tiles, spans, known)
            _add_up(table, np.array([position]), cells)
        _narrow_by_samples(table, position, sampled)
        waits = np.flatnonzero((tiles.step >= 0) & (tiles.part == windows.INPUT_WAIT))
        stored = cells.low[STORAGE][waits]
        in_storage = sum_by_group(tiles.step[waits], stored, tiles.steps)
    return _RankAccount(known, tiles.number, tiles.measure_waits_ns(), in_storage)


class _Alike:
    """Ranks that nothing but the lengths of their windows tells apart, divided together."""

    def __init__(self, sources: _RankSources) -> None:
        self._trace = sources.trace
        self._groups: dict[tuple[object, ...], list[tuple[int, Tiles]]] = {}
        self._known: dict[tuple[object, ...], Evidence] = {}

    def add(self, position: int, tiles: Tiles, known: Evidence) -> None:
        """One rank more, of which `_tells_none_apart` holds."""
        trace, of_kinds = self._trace, windows.merge_tiles_of_a_kind(tiles)
        # Ranks with the same kinds of windows, and evidence of the same form, are divided at once.
        kinds = (of_kinds.phase, of_kinds.part, of_kinds.step, of_kinds.wait, of_kinds.follows)
        key = (
            *(each.tobytes() for each in kinds),
            of_kinds.waits_known,
            known.whole,
            known.slack_ns,
            bool(trace.processes[trace.ranks[position]].log),
            input_wait.has_open_clock(trace, position),
            *((served.whole, served.slack_ns, served.unsure, served.one_thread)
              for served in known.of_process.values()),
        )  # fmt: skip
        self._groups.setdefault(key, []).append((position, of_kinds))
        self._known.setdefault(key, known)

    def divide(self) -> Iterator[tuple[Int64Array, RankCells]]:
        """The positions of ranks that are alike, and their cells, one rank behind another."""
        nothing = self._trace.spans.pick(slice(0, 0))
        for key, members in self._groups.items():
            tiles = windows.join_tiles([of_kinds for _, of_kinds in members])
            cells = divide_tiles(self._trace, members[0][0], tiles, nothing, self._known[key])
            yield np.array([position for position, _ in members]), cells


def _tells_none_apart(
    trace: Trace, position: int, spans: Spans, tiles: Tiles, known: Evidence
) -> bool:
    """Whether nothing but marks says anything of single windows of a rank, which was not sampled.

    Then each cell of a tile is as long as the tile, or nothing, and so are their sums: no calls
    were traced, nothing was profiled, no fetch was marked, no worker may have been at work in some
    waits only, and calls at unknown times are none, or of any length. Storage has nothing for sure.
    """
    trainer = trace.ranks[position]
    if trainer in trace.queued or trainer in trace.workers_of or (tiles.epoch >= 0).any():
        return False
    profiled = not spans.kinds.isdisjoint(_TELLING_KINDS)
    in_part = any(trace.profiles[source].device_in_part for source in spans.sources)
    if profiled or in_part or (trace.fetches.trainer == trainer).any():
        return False
    for served in known.of_process.values():
        times = (served.beside, *(times for _, times in served.parts))
        if any(len(each.start) for each in times) or (served.whole and served.slack_ns):
            return False
    return True


class _Beside:
    """What the account says beside its cells: what became of the I/O, phases, step by step.

    It is gathered from the same spans and cells, while those of a rank are at hand.
    """

    def __init__(self, trace: Trace, results: Results) -> None:
        self._trace, self._results = trace, results
        self._missing_ns = _bound_missing_moves_ns(trace, results.operations)
        self._basis = overlap.find_basis(trace)
        self._borders = find_borders(trace, results)
        self._phases: list[Measured] = []
        self._rows: list[Callable[[Breakdown], RankOverlap]] = []
        self._slowest = overlap.SlowestWaits()
        dated = results.steps is not None and results.steps.table.undated_s is None
        self._times = StepTimes(results.steps.table) if results.steps and dated else None

    def add(
        self, position: int, mine: Spans, seen: RankSpans, of_rank: _RankAccount | None
    ) -> None:
        """One rank more, in order: what profilers saw of it, and its steps where it has tiles."""
        trace, reduced = self._trace, self._results.operations
        if self._borders is not None:
            self._phases.append(measure_rank(self._borders, seen))
        if of_rank is None or self._times is None:
            return
        # Of calls that move data, which are the ones that it looks at.
        unsure = {*_MOVING} & of_rank.known.of_process[trace.ranks[position]].unsure
        split = overlap.split_rank(
            trace, reduced, position, mine, seen, self._basis, threads_known=not unsure
        )
        missing_ns = int(self._missing_ns[position])
        row = overlap.measure_rank_overlap(trace, reduced, position, split, self._basis, missing_ns)
        waited_ns = float(of_rank.waited.sum()) if seen.waits_known else None
        self._slowest.add(of_rank.number, of_rank.waited)
        self._times.add(position, step_records.measure_steps(split, of_rank.in_storage))
        traced = split.in_wait is not None
        self._rows.append(partial(_add_input_waits, row, position, waited_ns, traced))

    def complete(self, account: Breakdown, served: Mapping[int, Served]) -> Breakdown:
        """The account with all of it."""
        trace, results = self._trace, self._results
        rows = [row(account) for row in self._rows]
        phases = None
        if self._borders is not None:
            phases = summarize_phases(trace, results, self._borders, self._phases)
        steps_ns = account.steps_ns * len(rows)
        lost_s = self._slowest.total_s
        records = None
        if self._times is not None and rows:
            records = step_records.record_steps(trace, results, self._times, phases)
        return replace(
            account,
            overlap=overlap.summarize_overlap(rows, self._basis, lost_s, steps_ns),
            fates=FatesByRank(trace, results.operations),
            phases=phases,
            step_records=records,
            served=served,
        )


def _add_input_waits(
    row: RankOverlap, position: int, waited_ns: float | None, traced: bool, account: Breakdown
) -> RankOverlap:
    """The row with its input waits, and with what they went to where single calls were traced."""
    if waited_ns is None:
        return row
    storage, metadata, computed, copied = (
        account.cell(f"{position}/{WAIT}/{cause}")
        for cause in (STORAGE, f"{STORAGE}.{METADATA}", COMPUTE, COPY)
    )
    # Training starves while its device has nothing to do, either.
    starving_ns = max(waited_ns - computed.low_ns - copied.low_ns, 0.0)
    row = replace(row, input_wait_s=waited_ns / 1e9, starving_wait_s=starving_ns / 1e9)
    if not traced:
        return row
    return replace(
        row,
        input_wait_io_s=storage.low_ns / 1e9,
        input_wait_io_at_most_s=storage.high_ns / 1e9,
        input_wait_metadata_s=metadata.low_ns / 1e9,
        input_wait_metadata_at_most_s=metadata.high_ns / 1e9,
        input_wait_rest_s=(waited_ns - storage.high_ns) / 1e9,
        input_wait_rest_at_most_s=(waited_ns - storage.low_ns) / 1e9,
    )


def divide_rank(
    trace: Trace, results: Results, position: int, assume: frozenset[str] = assumptions.ALL
) -> Windows | None:
    """Every window of one rank by cause; None where no step of it was recorded.

    Args:
        trace: the run, as its selection sees it.
        results: its analyses.
        position: of the rank in Trace.ranks.
        assume: what may be assumed.
    """
    spans = trace.spans_of(position)
    tiles = windows.tile_rank(trace, position, spans, assume)
    if tiles is None:
        return None
    _, known = _find_evidence(_RankSources(trace, results, assume), position, spans, tiles)
    return gather_windows(divide_tiles(trace, position, tiles, spans, known))


class _RankSources(Sources):
    """With what is known of the single processes of a rank."""

    def __init__(self, trace: Trace, results: Results, assume: frozenset[str]) -> None:
        super().__init__(trace, results, assume)
        self.peers = find_waits_for_peers(trace)
        self.served: dict[int, Served] = {}

    def of_rank(self, position: int, spans: Spans, *, whole: bool = True) -> Evidence:
        """What is known of the processes of one rank, with what profilers saw of it.

        `whole`: nothing shows that some of its storage is in no recorded call.
        """
        trace, slack_ns = self.trace, self.slack_ns(position)
        whole = self.whole and whole
        mine = np.flatnonzero(spans.kind == SpanKind.INPUT_WAIT)
        waits = intervals.union(spans.start[mine], spans.end[mine])
        of_process = {
            process: input_wait.collect_storage_calls(
                trace,
                self.results.calls,
                process,
                whole and bool(trace.processes[process].log),
                slack_ns,
                self.assume,
                waits,
            )
            for process in np.flatnonzero(trace.family == position).tolist()
        }
        peers = self.peers.get(trace.ranks[position])
        traced = self.whole and slack_ns <= _ROUNDED_NS
        return Evidence(of_process, whole, slack_ns, self.maps_unseen, self.assume, peers, traced)


def _find_evidence(
    sources: _RankSources, position: int, spans: Spans, tiles: Tiles
) -> tuple[Mapping[str, SampledBound], Evidence]:
    """What samples say of the windows of one rank, and what is known of its processes."""
    by_device = bool((spans.kind == SpanKind.KERNEL).any())
    sampled = bound_by_states(
        sources.trace,
        position,
        tiles,
        device=by_device,
        assume=sources.assume,
        calls=sources.results.calls if sources.whole else None,
    )
    faults = sampled.get(f"{RUN}/{STORAGE}.{FAULT}")
    # What is read of mapped files is in no call, neither traced nor counted.
    has_faults = faults is not None and faults.low_ns > 0
    if faults is not None and has_faults:
        sources.faults_ns[position] = faults.high_ns
    return sampled, sources.of_rank(position, spans, whole=not has_faults)


_ROUNDED = 0.001  # of the time of calls: by so much counters may differ from it


def _bound_missing_moves_ns(trace: Trace, reduced: Operations) -> Int64Array:
    """How much longer each rank read and wrote by counters than by its traced calls, at most.

    Darshan counts fsync as writing; times of a few calls round.
    """
    missing_ns = np.zeros(len(trace.ranks), np.int64)
    layer = next((part.layer for part in trace.io), "")
    table = trace.counters.get(layer)
    if table is None:
        return missing_ns
    names = (f"{prefix_of(layer)}_F_{what}_TIME" for what in ("READ", "WRITE"))
    spent_s = sum((table.seconds[n].clip(0) for n in names if n in table.seconds), np.zeros(1))
    spent_ns = np.broadcast_to(spent_s * 1e9, len(table.process)).astype(np.int64)
    position = np.append(trace.family, -1)[table.process]
    own = (table.process >= 0) & (position >= 0)
    np.add.at(missing_ns, position[own], spent_ns[own])
    missing_ns += int(spent_ns[table.process < 0].sum())  # of all ranks: of any of them, perhaps
    for place, total in reduced.totals.items():
        if place >= 0:
            missing_ns[place] -= total.sum_ns
            missing_ns[place] *= missing_ns[place] > _ROUNDED * total.sum_ns
    return missing_ns.clip(0)


def _add_up(table: CellTable, at: Int64Array, cells: RankCells) -> None:
    """The cells of all tiles summed by window: of one rank, or of ranks with one tile of a kind.

    Args:
        table: takes the sums.
        at: positions of the ranks; the tiles of each are behind those of the one before.
        cells: of their tiles.
    """
    tiles = cells.tiles
    # Tiles of the same phase and part are summed once, whatever windows they are in.
    parts = len(windows.PART_NAMES)
    code = (2 * (tiles.phase * parts + tiles.part) + (tiles.step >= 0)).astype(np.int16)
    code = code[: len(code) // len(at)]
    order = np.argsort(code, kind="stable")
    sorted_code = code[order]
    first = np.flatnonzero(np.append(True, sorted_code[1:] != sorted_code[:-1]))
    kind, within = np.divmod(sorted_code[first].astype(np.int64), 2)
    phase, part = np.divmod(kind, parts)
    within = within == 1

    def by_kind(values: Int64Array | Mask) -> Int64Array:
        """Of each rank and kind."""
        if not values.any():
            return np.zeros((len(at), len(first)), np.int64)
        of_ranks = values.reshape(len(at), len(order))[:, order]
        return np.add.reduceat(of_ranks, first, axis=1, dtype=np.int64)

    lengths = by_kind(tiles.length)
    chosen = {
        RUN: np.ones(len(first), bool),
        STEP: within,
        WAIT: within & (part == windows.INPUT_WAIT),
        **{
            f"{STEP_PART}/{windows.PART_NAMES[code]}": within & (part == code)
            for code in windows.BESIDE_THE_MODEL
        },
    } | _add_phases(table, at, lengths, phase)
    for window, mine in (
        (STEP, within), (WAIT, chosen[WAIT]), (EPOCH_END, part == windows.EPOCH_END)
    ):  # fmt: skip
        total = lengths[:, mine].sum(axis=1)
        table.add(f"{window}/", at, total, total, (MARKED,))

    # Cause by rank and kind, times kind by window.
    each = {id(values): values for side in (cells.low, cells.high) for values in side.values()}
    sums = {key: by_kind(values) for key, values in each.items()}
    of_windows = np.stack(list(chosen.values()), axis=1).astype(np.int64)
    low, high = (
        np.stack([sums[id(side[name])] for name in cells.low]) @ of_windows
        for side in (cells.low, cells.high)
    )
    free, free_parts = (by_kind(each) @ of_windows for each in (cells.free, cells.free_parts))
    if cells.slack_ns is not None:
        for row, name in enumerate(cells.low):
            if name.startswith(STORAGE):
                beside = free if name == STORAGE else free_parts
                high[row] = np.minimum(high[row], low[row] + cells.slack_ns + beside)
    assumed = {
        what: (by_kind(where) @ of_windows).sum(axis=0) for what, where in cells.assumed.items()
    }
    shown = high.max(axis=1)
    for column, window in enumerate(chosen):
        rests_on = tuple(what for what, count in assumed.items() if count[column])
        for row, name in enumerate(cells.low):
            if shown[row, column] or window == RUN:
                sides = low[row, :, column], high[row, :, column]
                table.add(f"{window}/{name}", at, *sides, (_pick_evidence(name),), rests_on)
    _add_parts(table, at, tiles.waits_known, lengths * within, part)
    _add_loader_parts(table, at, cells, sums, part == windows.EPOCH_END)
    _add_epochs(table, at, cells)


def _add_loader_parts(
    table: CellTable, at: Int64Array, cells: RankCells, sums: Mapping[int, Int64Array], ends: Mask
) -> None:
    """Of the run what starting workers took, and what stopping them at ends of epochs."""
    if WORKERS not in cells.low:
        return
    low, high = sums[id(cells.low[WORKERS])], sums[id(cells.high[WORKERS])]
    start = low[:, ~ends].sum(axis=1), high.sum(axis=1)
    stop = low[:, ends].sum(axis=1), high[:, ends].sum(axis=1)
    for name, (least, most) in (("start", start), ("stop", stop)):
        table.add(f"{RUN}/{WORKERS}.{name}", at, least, most, (FETCHED,))


def _add_epochs(table: CellTable, at: Int64Array, cells: RankCells) -> None:
    """The cells of every epoch of one rank, and of its input waits; ranks together have none."""
    tiles = cells.tiles
    # Tiles of each epoch, those in input waits beside the others.
    numbers = find_distinct(tiles.epoch[tiles.epoch >= 0])
    if not 0 < len(numbers) <= _MOST_EPOCHS:
        return
    waiting = (tiles.part == windows.INPUT_WAIT) & (tiles.step >= 0)
    row = np.where(tiles.epoch >= 0, np.searchsorted(numbers, tiles.epoch), len(numbers))
    code = 2 * row + waiting

    def by_epoch(values: Int64Array | Mask) -> Int64Array:
        """Of each epoch all of it, and its input waits."""
        total = np.bincount(code, values, 2 * len(numbers) + 2).astype(np.int64)
        rest, waits = total[0:-2:2], total[1:-1:2]
        return np.stack([rest + waits, waits])

    # Sums; causes that nothing tells apart share arrays, which are summed once.
    assumed = {what: by_epoch(where) for what, where in cells.assumed.items()}
    length = by_epoch(tiles.length)
    causes = [cause for cause in CAUSES if cause in cells.low]
    each = {id(side[cause]): side[cause] for side in (cells.low, cells.high) for cause in causes}
    sums = {key: by_epoch(values) for key, values in each.items()}
    # The cells of each epoch and of its input waits.
    for place, number in enumerate(numbers.tolist()):
        for kind, window in enumerate((f"{EPOCH}/{number}", f"{EPOCH}/{number}/{WAIT}")):
            spent = int(length[kind, place])
            table.add(f"{window}/", at, spent, spent, (MARKED,))
            rests_on = tuple(what for what, of in assumed.items() if of[kind, place])
            for cause in causes:
                if most := int(sums[id(cells.high[cause])][kind, place]):
                    least = int(sums[id(cells.low[cause])][kind, place])
                    evidence = (_pick_evidence(cause),)
                    table.add(f"{window}/{cause}", at, least, most, evidence, rests_on)


def _saw_unseen_calls(table: CellTable, position: int, sampled: Mapping[str, SampledBound]) -> bool:
    """Whether a rank was seen in storage for longer than its calls can have taken."""
    for name, bound in sampled.items():
        window, _, cause = name.rpartition("/")
        if cause in _SEEN_IN_CALLS:
            most, length_ns = (
                int(ns[position]) for ns in (table.of(name)[1], table.length_ns(window))
            )
            if bound.low_ns > most + _UNSEEN * length_ns:
                return True
    return False


def _narrow_by_samples(
    table: CellTable, position: int, sampled: Mapping[str, SampledBound]
) -> None:
    """Narrows the cells of a rank by what samples say; where both cannot be, samples give way.

    A call lasts until its thread has a core again: where cores were short, what samples saw of that
    may be a part of traced calls, and is none of storage.
    """
    # Waiting for a core: what samples saw of it may lie inside traced calls of storage.
    for name, bound in sampled.items():
        window, _, cause = name.rpartition("/")
        low, high = (int(side[position]) for side in table.of(name))
        length_ns = int(table.length_ns(window)[position])
        if cause == TOO_FEW_CORES and bound.low_ns > _SHORT_OF_CORES * length_ns:
            inside_ns = bound.high_ns
            high = min(max(high, bound.high_ns), length_ns)
            table.add(name, position, low, high, (SAMPLED,))
            for key in (STORAGE, *(f"{STORAGE}.{part}" for part in CALLS)):
                least, most = (int(side[position]) for side in table.of(f"{window}/{key}"))
                if least:
                    lower = max(least - inside_ns, 0)
                    table.add(f"{window}/{key}", position, lower, most, (SAMPLED,))
    # Every other cause is narrowed to what both allow.
    before: dict[str, tuple[int, int]] = {}
    for name, bound in sampled.items():
        window, _, cause = name.rpartition("/")
        had_low, had_high = (int(side[position]) for side in table.of(name))
        part = cause.partition(".")[2]
        if part and (part == FAULT or cause.startswith(BLOCKED)) and not had_high:
            had_high = int(table.of(f"{window}/{cause.partition('.')[0]}")[1][position])
        # A thread in the tracer was seen running, or in a call.
        traced_ns = int(table.of(f"{window}/{TRACING}")[1][position])
        low, high = max(had_low, bound.low_ns - traced_ns), min(had_high, bound.high_ns)
        if low <= high and (low, high) != (had_low, had_high):
            before[name] = had_low, had_high
            table.add(name, position, low, high, (SAMPLED,), bound.assumed)
    # Where that does not fill a window, one of both is wrong somewhere: either may hold.
    for window in {name.rpartition("/")[0] for name in before}:
        ends = [table.of(f"{window}/{cause}") for cause in CAUSES]
        least, most = (
            sum(int(side[position]) for side in sides) for sides in zip(*ends, strict=True)
        )
        if least <= int(table.length_ns(window)[position]) <= most:
            continue
        for name, (had_low, had_high) in before.items():
            if name.rpartition("/")[0] == window:
                low, high = min(had_low, sampled[name].low_ns), max(had_high, sampled[name].high_ns)
                table.add(name, position, low, high)


def _add_phases(
    table: CellTable, at: Int64Array, lengths: Int64Array, phase: Int64Array
) -> dict[str, Mask]:
    """How long the phases of some ranks are; of those with time, which kinds are theirs."""
    unobserved = lengths[:, phase == windows.UNOBSERVED].sum(axis=1)
    theirs = {}
    for number, name in enumerate(windows.PHASE_NAMES[: windows.UNOBSERVED]):
        mine = phase == number
        spent = lengths[:, mine].sum(axis=1)
        table.add(f"{PHASE}/{name}", at, spent, spent + unobserved, (MARKED,))
        if spent.any():
            theirs[f"{PHASE}/{name}"] = mine
    return theirs


def _add_parts(
    table: CellTable, at: Int64Array, waits_known: bool, lengths: Int64Array, part: Int64Array
) -> None:
    """How long the parts of all steps of some ranks are."""
    spent_ns = {
        code: lengths[:, part == code].sum(axis=1)
        for code in (*windows.BETWEEN_WAITS, windows.INPUT_WAIT)
    }
    of_model = (windows.FORWARD, windows.BACKWARD, windows.OPTIMIZER)
    # Where waits are not known any time may be one in which the model does nothing.
    total = lengths.sum(axis=1) - sum(spent_ns[code] for code in of_model)
    for code in sorted(spent_ns):
        spent = spent_ns[code]
        if not spent.any() and code not in (windows.INPUT_WAIT, windows.WORK):
            continue
        exact = waits_known or code in of_model
        low_ns, high_ns = (spent, spent) if exact else (np.zeros_like(spent), total)
        evidence = (MARKED,) if exact or code != windows.INPUT_WAIT else ()
        name = f"{STEP_PART}/{windows.PART_NAMES[code]}"
        table.add(name, at, low_ns, high_ns, evidence)


def _pick_evidence(name: str) -> str:
    """The source that a cell of a rank with steps mostly rests on."""
    cause = name.partition(".")[0]
    if cause == STORAGE:
        return TRACED
    if cause in (COMPUTE, COMMUNICATION, WAITING_FOR_PEERS, COPY, DEVICE_IDLE):
        return PROFILED
    if cause == TRACING:
        return TIMED
    return FETCHED if cause in (INPUT_CPU, DELIVERY, WORKERS) else MARKED


def _attribute_device_time(table: CellTable, trace: Trace, position: int, spans: Spans) -> None:
    """What the devices of a rank without steps did, where a profile recorded any work of them."""
    nothing = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    did = find_activity(spans, None, nothing)
    if not did.by_device:
        return
    low, high = trace.job.start_ns, trace.job.end_ns

    # What no profiler saw may have been any of these.
    unseen = max(table.window_ns - intervals.clipped(did.seen, low, high).length, 0)
    busy = 0
    for cause, times in (
        (COMPUTE, did.compute),
        (COMMUNICATION, did.communication),
        (COPY, did.copy),
    ):
        spent = intervals.clipped(times, low, high).length
        busy += spent
        if spent or cause != COPY:
            table.add(f"{RUN}/{cause}", position, spent, spent + unseen, (PROFILED,))
    idle = table.window_ns - busy
    table.add(f"{RUN}/{DEVICE_IDLE}", position, 0, idle, (PROFILED,))
    if (queued := trace.queued.get(trace.ranks[position])) is not None:
        part = min(intervals.clipped(queued, low, high).length, idle)
        table.add(f"{RUN}/{DEVICE_IDLE}.{QUEUED}", position, 0, part, (PROFILED,))


def collect_calls(trace: Trace, results: Results) -> dict[int, Served]:
    """Process -> its calls of storage, of all ranks, as far as anything is known of them."""
    sources = _RankSources(trace, results, assumptions.ALL)
    served: dict[int, Served] = {}
    for position, spans in enumerate(trace.spans_by_rank()):
        served |= sources.of_rank(position, spans).of_process
    return served
