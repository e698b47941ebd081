"""The pipelines of a run as they were recorded, and what causes take of each of their batches.

A rank's chain is all its waits that took a batch: of those whose fetch was recorded the fetch of a
worker, else the wait itself. What causes take of a fetch is what its process did meanwhile, of a
wait what the training thread did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.causes import (
    BLOCKED,
    DELIVERY,
    INPUT_CPU,
    STORAGE,
    TOO_FEW_CORES,
    WORKERS,
)
from vanidl.breakdown.input_wait import Served, has_workers
from vanidl.breakdown.rerun import PREFETCH_FACTOR, Fetched
from vanidl.breakdown.windows import INPUT_WAIT, Tiles, tile_rank
from vanidl.breakdown.without import Gain, Share, Sum, Where, Without
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import find_distinct
from vanidl.model.states import SampledThread
from vanidl.model.trace import Fetches, SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

LOST, OWN = -2, -1
"""Instead of the name of a loader: waits of which the fetch is not known; those without workers."""

_ALL = 1 << 62  # ns: whatever there is
_OF_FETCHES = (INPUT_CPU, BLOCKED, TOO_FEW_CORES)
_ON_CORES = (INPUT_CPU, TOO_FEW_CORES)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One loader of one rank."""

    fetched: Fetched
    name: int  # index into Fetches.names, or LOST, or OWN
    process: Int64Array  # of each batch: who fetched it, an index into Trace.processes; -1 unknown
    row: Int64Array  # in Trace.fetches, -1 for none
    trains: NDArray[np.bool_]  # which batches a training step waited for, of several of a step each


def record_pipelines(trace: Trace) -> list[Pipeline]:
    """All loaders of all ranks with steps and waits; empty without."""
    pipelines: list[Pipeline] = []
    meetings: list[_Meetings] = []
    for position, spans in enumerate(trace.spans_by_rank()) if len(trace.spans) else ():
        tiles = tile_rank(trace, position, spans)
        if tiles is not None and tiles.waits_known:
            # The pipelines of one rank; where their steps are those of the last one before, as one
            # array. Mostly all ranks have the same steps, and then there are as many numbers as in
            # one of them.
            of_rank = _gather_rank_pipelines(trace, position, tiles)
            last = pipelines[-1].fetched.step if pipelines else None
            pipelines += [
                replace(pipeline, fetched=replace(pipeline.fetched, step=last))
                if last is not None
                and pipeline.fetched.step is not None
                and np.array_equal(pipeline.fetched.step, last)
                else pipeline
                for pipeline in of_rank
            ]
            if len(trace.ranks) > 1:
                meetings.append(_find_meetings(spans, tiles))
    return _add_peer_waits(pipelines, meetings)


def _gather_rank_pipelines(trace: Trace, position: int, tiles: Tiles) -> list[Pipeline]:
    """The loaders of one rank; of several waits in a step the last one ends with it."""
    trainer = trace.ranks[position]
    rows = np.flatnonzero(trace.fetches.trainer == trainer)
    took = _select_taken_fetches(trace.fetches, rows, tiles)
    fetches = trace.fetches.pick(took)
    if len(took):
        # A wait that took no batch made the first one late that was taken without a pause after
        # it: an iterator was made, workers were started.
        end = np.minimum(fetches.wait_end, tiles.end[-1])
        whole = tiles.wait_start[np.searchsorted(tiles.wait_start, end - 1, side="right") - 1]
        start = np.maximum(whole, np.append(tiles.start[0], end[:-1]))
        loader = np.where(fetches.worker >= 0, fetches.name, OWN)
    else:
        in_step = (tiles.wait >= 0) & (tiles.step >= 0) & (tiles.part == INPUT_WAIT)
        waits = find_distinct(tiles.wait[in_step])
        start, end = tiles.wait_start[waits], tiles.wait_end[waits]
        has_others = has_workers(trace, trainer, trace.fetches.pick(rows))
        loader = np.full(len(waits), LOST if has_others else OWN)
    if not len(start):
        return []
    tile = np.searchsorted(tiles.start, np.maximum(end - 1, start), side="right") - 1
    step = np.where(tiles.part[tile] == INPUT_WAIT, tiles.step[tile], -1)
    trains = step >= 0
    last = step != np.append(step[1:], -1)
    number = np.where(trains & last, tiles.number[step] if _is_ascending(tiles) else step, -1)
    end_ns = int(tiles.end[tiles.step >= 0].max())
    pipelines = []
    for name in find_distinct(loader).tolist():
        chosen = loader == name
        of_loader = fetches.pick(chosen) if len(took) else fetches
        fetched = replace(
            _build_fetched(of_loader, start[chosen], end[chosen], name),
            rank=position,
            step=number[chosen],
            last_end_ns=end_ns,
        )
        nobody, itself = (np.broadcast_to(np.int64(p), len(fetched)) for p in (-1, trainer))
        process = of_loader.process if name >= 0 else itself if name == OWN else nobody
        row = took[chosen] if len(took) else nobody
        pipelines.append(Pipeline(fetched, name, process, row, trains[chosen]))
    return pipelines


def _select_taken_fetches(fetches: Fetches, rows: Int64Array, tiles: Tiles) -> Int64Array:
    """Of these fetches those that waits inside the run took, by wait; of one wait the last."""
    begin, end = fetches.wait_begin[rows], fetches.wait_end[rows]
    rows = rows[(end > begin) & (end > tiles.start[0]) & (begin < tiles.end[-1])]
    rows = rows[np.lexsort((fetches.end[rows], fetches.wait_end[rows]))]
    end = fetches.wait_end[rows]
    taken: Int64Array = rows[np.diff(end, append=0) != 0]
    return taken


def _is_ascending(tiles: Tiles) -> bool:
    return bool((np.diff(tiles.number) > 0).all() and (tiles.number >= 0).all())


def _build_fetched(fetches: Fetches, start: Int64Array, end: Int64Array, name: int) -> Fetched:
    """Batches of one loader, by the waits that took them."""
    unknown = np.broadcast_to(np.int64(-1), len(start))
    # No fetch was recorded: the wait itself stands for it.
    if name < 0:
        return Fetched(
            worker=unknown,
            asked_ns=unknown,
            begin_ns=start,
            end_ns=end,
            ready_ns=unknown,
            wait_begin_ns=start,
            wait_end_ns=end,
            epoch=np.broadcast_to(np.int64(0), len(start)),
            workers=0,
        )
    workers, ahead = int(fetches.worker.max()) + 1, int(fetches.ahead.max())
    return Fetched(
        worker=fetches.worker,
        asked_ns=unknown,
        begin_ns=fetches.begin,
        end_ns=fetches.end,
        ready_ns=unknown,
        wait_begin_ns=start,
        wait_end_ns=end,
        epoch=fetches.epoch,
        workers=workers,
        prefetch=max(ahead // workers, 1) if ahead > 0 else PREFETCH_FACTOR,
        in_order=bool((fetches.in_order != 0).all()),
    )


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Collectives of one rank under no compute: how long in each step. None: not recorded."""

    number: Int64Array
    bare_ns: Int64Array | None
    by_number: bool  # whether batches name their steps by it, else by its place


def _find_meetings(spans: Spans, tiles: Tiles) -> _Meetings:
    joined = {
        kind: intervals.union(spans.start[spans.kind == kind], spans.end[spans.kind == kind])
        for kind in (SpanKind.COMMUNICATION, SpanKind.OP, SpanKind.KERNEL)
    }
    if not len(joined[SpanKind.COMMUNICATION].start):
        return _Meetings(tiles.number, None, by_number=False)
    work = intervals.merge(joined[SpanKind.OP], joined[SpanKind.KERNEL])
    alone = intervals.subtract(joined[SpanKind.COMMUNICATION], work)
    in_step = tiles.step >= 0
    covered = intervals.covered_within(alone, tiles.start[in_step], tiles.end[in_step])
    bare = np.bincount(tiles.step[in_step], covered, minlength=len(tiles.number))
    return _Meetings(tiles.number, bare.astype(np.int64), _is_ascending(tiles))


def _add_peer_waits(pipelines: list[Pipeline], meetings: Sequence[_Meetings]) -> list[Pipeline]:
    """With how long each step waited for slower ranks: in collectives beyond the shortest.

    As they are where collectives were not recorded, or ranks have other steps.
    """
    # The same steps of every rank, with their collectives.
    bare = [each.bare_ns for each in meetings if each.bare_ns is not None]
    if len(bare) < max(len(meetings), 2):
        return pipelines
    first = meetings[0]
    if any(not np.array_equal(each.number, first.number) for each in meetings):
        return pipelines
    # The rank that came last waited for nobody: its collective is the shortest.
    least = np.min(bare, axis=0)
    ranks = sorted({pipeline.fetched.rank for pipeline in pipelines})
    if len(ranks) != len(bare):
        return pipelines
    found = []
    for pipeline in pipelines:
        step = pipeline.fetched.step
        if step is not None:
            row = np.searchsorted(first.number, step) if first.by_number else step
            row = np.clip(row, 0, len(least) - 1)
            peers_ns = (bare[ranks.index(pipeline.fetched.rank)] - least)[row]
            fetched = replace(pipeline.fetched, peers_ns=np.where(step >= 0, peers_ns, 0))
            found.append(replace(pipeline, fetched=fetched))
    return found


@dataclass(frozen=True, slots=True)
class Queues:
    """How long threads that had work waited for a core, at most, of each batch of a pipeline, ns.

    Who takes no core from others any more may take these with it.
    """

    in_storage: Int64Array  # within calls of the fetch
    beside: Int64Array  # in the training process, from the wait's end to the next one
    delivery: Int64Array  # in it, and in the worker, from the fetch's end to the wait's


def measure_queues(
    trace: Trace, pipelines: Sequence[Pipeline], of_process: Mapping[int, Served]
) -> list[Queues | None]:
    """For each pipeline the run queues of its processes; None where nobody looked at them."""
    if not len(trace.states):
        return [None] * len(pipelines)
    return [_measure_pipeline_queues(trace, each, of_process) for each in pipelines]


def _measure_pipeline_queues(
    trace: Trace, pipeline: Pipeline, of_process: Mapping[int, Served]
) -> Queues | None:
    f, trainer = pipeline.fetched, trace.processes[trace.ranks[pipeline.fetched.rank]]
    own = () if trainer.pid is None else trace.states.of_process(trainer.host, trainer.pid)
    if not own:
        return None

    def add_up(threads: Sequence[SampledThread], begin: Int64Array, end: Int64Array) -> Int64Array:
        """Of several threads together, which is no more than the time itself."""
        spent = 0 * begin
        for each in threads:
            spent = spent + each.most_queued_ns(begin, end)
        least: Int64Array = np.minimum(spent, end - begin)
        return least

    # Beside the waits, and in the delivery, the threads of the training process.
    order = np.argsort(f.wait_begin_ns, kind="stable")
    until = np.empty_like(f.wait_end_ns)
    until[order] = np.append(f.wait_begin_ns[order][1:], max(f.last_end_ns, int(f.wait_end_ns[-1])))
    beside = add_up(own, f.wait_end_ns, np.maximum(until, f.wait_end_ns))
    ready = np.minimum(f.end_ns, f.wait_end_ns)
    delivery = add_up(own, ready, f.wait_end_ns)
    in_storage = np.zeros(len(f), np.int64)
    # Worker by worker: its threads in the delivery, its first one in calls.
    pids = trace.fetches.pid[pipeline.row] if pipeline.name >= 0 else np.full(len(f), trainer.pid)
    for process, pid in np.unique(np.stack([pipeline.process, pids]), axis=1).T.tolist():
        mine = (pipeline.process == process) & (pids == pid)
        threads = trace.states.of_process(trainer.host, pid)
        if pid != trainer.pid:
            more = add_up(threads, ready[mine], f.wait_end_ns[mine])
            delivery[mine] = np.minimum(delivery[mine] + more, f.wait_end_ns[mine] - ready[mine])
        first = [each for each in threads if each.is_first]
        served = of_process.get(process)
        for _, times in () if served is None or not first else served.parts:
            for each in first if len(times.start) else ():
                queued = np.concatenate([[0], np.cumsum(each.queued_ns(times.start, times.end))])
                from_ns = np.searchsorted(times.end, f.begin_ns[mine], side="right")
                to_ns = np.searchsorted(times.start, f.end_ns[mine])
                in_storage[mine] += queued[np.maximum(to_ns, from_ns)] - queued[from_ns]
    return Queues(np.minimum(in_storage, f.end_ns - f.begin_ns), beside, delivery)


def bound_shares(
    pipelines: Sequence[Pipeline],
    of_process: Mapping[int, Served],
    queues: Sequence[Queues | None] | None = None,
) -> list[dict[str, Share]]:
    """For each pipeline what causes take of its batches, at least and at most.

    Args:
        pipelines: of the run.
        of_process: the calls of storage of each process that trains or fetches.
        queues: what threads of each waited for cores; None: cores are taken to have been enough.
    """
    shares = [_bound_pipeline_shares(pipeline, of_process) for pipeline in pipelines]
    # What uses cores may take with it what others wait for one.
    for own, queued in zip(shares, queues or (), strict=bool(queues)):
        if queued is None:
            continue
        for cause in _ON_CORES:
            own[cause] = replace(
                own[cause],
                along_ns=queued.in_storage,
                beside_ns=queued.beside,
                delivery_ns=queued.delivery,
            )
    return shares


def _bound_pipeline_shares(
    pipeline: Pipeline, of_process: Mapping[int, Served]
) -> dict[str, Share]:
    f = pipeline.fetched
    length = f.end_ns - f.begin_ns
    least = {STORAGE: np.zeros(len(f), np.int64)}
    most = {STORAGE: np.zeros(len(f), np.int64)}
    slack = length.copy()
    sums: dict[str, list[Sum]] = {}
    for process in find_distinct(pipeline.process).tolist():
        served, mine = of_process.get(process), pipeline.process == process
        if served is None:
            continue
        for name, times in served.parts:
            sides = served.within(times, f.begin_ns[mine], f.end_ns[mine])
            sides = (0 * sides[0], sides[1]) if name in served.unsure else sides
            for side, within in zip((least, most), sides, strict=True):
                side.setdefault(name, np.zeros(len(f), np.int64))[mine] = within
                side[STORAGE][mine] += within
        slack[mine] = np.maximum(length[mine] - most[STORAGE][mine], 0)
        if served.whole and not served.is_threaded:  # what else there was is known in all, not when
            slack[mine] = np.minimum(slack[mine], served.slack_ns)
            for name in least if served.early_ns == served.late_ns == 0 else ():
                known = float(least[name][mine].sum())
                sums.setdefault(name, []).append(Sum(mine, known, known + served.slack_ns))
    storage = least[STORAGE]
    nothing = np.broadcast_to(np.int64(0), len(f))
    # One array for all of which nothing is known.
    slack = length if np.array_equal(slack, length) else slack
    shares = {}
    for name, own in least.items():
        called = most[name].any()
        low, high = (own, np.minimum(most[name] + slack, length)) if called else (nothing, slack)
        shares[name] = Share(low, high, sums=sums.get(name, ()))
    left = np.maximum(length - storage, 0) if storage.any() else length
    for cause in _OF_FETCHES:
        shares[cause] = Share(nothing, left)
    if f.workers:
        # While its worker was idle a batch was on its way; busy, the worker may have held it up.
        busy = np.zeros(len(f), np.int64)
        for worker in np.unique(f.worker).tolist():
            mine = f.worker == worker
            at_work = intervals.union(f.begin_ns[mine], f.end_ns[mine])
            busy[mine] = intervals.covered_within(at_work, f.end_ns[mine], f.wait_end_ns[mine])
        idle = np.maximum(f.wait_end_ns - f.end_ns - busy, 0)
        shares[DELIVERY] = Share(idle, nothing + _ALL, part="delivery")
        order = np.lexsort((f.begin_ns, f.worker, f.epoch))
        first = np.zeros(len(f), np.bool_)
        first[order] = (np.diff(f.epoch[order], prepend=-1) != 0) | (
            np.diff(f.worker[order], prepend=-1) != 0
        )
        starting = np.where(first, _ALL, 0)
        shares[WORKERS] = Share(starting, starting, part="start")
    return shares


@dataclass(frozen=True, slots=True)
class Gains:
    """What a run gains without a cause: bounds of any of them, anywhere in it."""

    pipelines: tuple[Pipeline, ...]
    shares: tuple[Mapping[str, Share], ...]
    machine: Without
    _known: dict[tuple[str, Where], Gain] = field(default_factory=dict, repr=False)

    def without(self, cause: str, where: Where | None = None) -> Gain:
        """Bounds of the gain, ns of the run's wall time.

        Args:
            cause: or cause and part, as "storage.read".
            where: of which batches; None: of all.
        """
        asked = cause, where or Where()
        if asked not in self._known:
            shares = [each.get(cause) for each in self.shares]
            self._known[asked] = self.machine.gain(shares, asked[1])
        return self._known[asked]

    def knowing(self, waits: Mapping[int, Mapping[str, tuple[float, float]]]) -> Gains:
        """The same, where samples say how much of all the waits of a rank went to causes.

        Waits are divided as what the worker did, so its fetches hold a cause in the same
        proportion. Nothing is added for a rank with several loaders: it is not known of which.

        Args:
            waits: of ranks, as places in Trace.ranks: cause -> at least and at most, ns.
        """
        shares: list[Mapping[str, Share]] = []
        ranks = [pipeline.fetched.rank for pipeline in self.pipelines]
        for pipeline, own in zip(self.pipelines, self.shares, strict=True):
            f, rows = pipeline.fetched, pipeline.trains
            waited = float((f.wait_end_ns - f.wait_begin_ns)[rows].sum())
            if f.rank not in waits or ranks.count(f.rank) > 1 or not waited:
                shares.append(own)
                continue
            scale = float((f.end_ns - f.begin_ns)[rows].sum()) / waited
            more = dict(own)
            # Who waits for a core meanwhile does not once the cause is gone.
            queued_ns = waits[f.rank].get(TOO_FEW_CORES, (0.0, 0.0))[1]
            for cause, (low_ns, high_ns) in waits[f.rank].items():
                share = more.get(cause, own.get(BLOCKED))
                if share is not None and share.part == "fetch":
                    most_ns = high_ns + queued_ns * (cause != TOO_FEW_CORES)
                    known = Sum(rows, low_ns * scale, most_ns * scale)
                    more[cause] = replace(share, sums=(*share.sums, known))
            shares.append(more)
        return Gains(self.pipelines, tuple(shares), self.machine)

    def without_times(
        self, times: Mapping[int, Intervals], low_share: float, high_share: float
    ) -> Gain:
        """Bounds of the gain without what a rank does at some times that are no input waits.

        Within the loop the run is run again, with what lies between two waits so much shorter:
        waits may grow, where workers went on meanwhile. What lies before its first wait or behind
        its last step is gained as it is.

        Args:
            times: of each rank, as a place in Trace.ranks.
            low_share: of them, how much is taken away at least.
            high_share: and at most.
        """
        inside_ns: list[Int64Array] = []
        outside_ns = dict.fromkeys(times, 0.0)
        for pipeline in self.pipelines:
            f = pipeline.fetched
            # A wait of the batch lasts until the next one of the rank, of whichever loader.
            waits = np.sort(
                np.concatenate(
                    [p.fetched.wait_begin_ns for p in self.pipelines if p.fetched.rank == f.rank]
                )
            )
            following = np.searchsorted(waits, f.wait_end_ns)
            ends = np.append(waits, max(f.last_end_ns, int(f.wait_end_ns[-1])))
            own = times.get(f.rank, intervals.EMPTY)
            spent = intervals.covered_within(
                own, f.wait_end_ns, np.maximum(ends[following], f.wait_end_ns)
            )
            inside_ns.append(spent)
            if f.rank in times:
                outside_ns[f.rank] -= float(spent.sum())
        # What lies outside of that is gained as it is.
        for rank, own in times.items():
            outside_ns[rank] = max(outside_ns[rank] + own.length, 0.0)
        return self.machine.shorten_steps(
            inside_ns, low_share, high_share, max(outside_ns.values(), default=0.0)
        )


def open_gains(
    trace: Trace, pipelines: Sequence[Pipeline], of_process: Mapping[int, Served]
) -> Gains:
    """The run, ready to be run again: its loaders, with what is known of the calls of processes."""
    shares = bound_shares(pipelines, of_process, measure_queues(trace, pipelines, of_process))
    return Gains(tuple(pipelines), tuple(shares), Without([p.fetched for p in pipelines]))
