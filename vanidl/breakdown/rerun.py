"""Runs a recorded pipeline again under other settings: loaders, their queues, steps and ranks.

Batches are asked of workers, each of which fetches one after another; a batch is handed over when
it was fetched and delivered, in order or not, and taking it asks for the next one
(`torch.utils.data.DataLoader`: batch k of an epoch is asked as batch k - workers x prefetch_factor
is taken, of the next worker in turn; with in_order=False, of the worker whose batch was taken).
What the training process does between two waits takes as long as it did, less what it waited for
slower ranks; steps of several ranks end with the slowest.

So all times follow from durations by sums and maxima. In a block of batches that do not depend on
each other but through the training process, that is one cumulative maximum: a block costs the
same calls for one rank and for hundreds, for one change and for many.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Rows = NDArray[np.integer]
Mask = NDArray[np.bool_]
Values = NDArray[Any]  # single or double precision, or truth
Array = NDArray[np.float64]

PREFETCH_FACTOR = 2
"""Batches asked ahead of each worker unless the loader's `prefetch_factor` is set."""

_NEAR_NS = 2_000_000  # a batch asked so close to the end of a wait was asked by its taking
_IN_TIME = 2.0  # times the usual wait for a batch that lay ready: more is a late one
_CELLS = 1 << 18  # of a chunk of columns: its arrays stay in the cache
_MANY = 1 << 21  # durations; more are kept in single precision, 60 ns of a second
_LONGEST_BLOCK = 4096
_AT_ONCE = 40  # batches that take as long one by one as a block does at once
_LONG_AGO = -(1 << 62)
_LINKS = ("previous", "after", "queue_of")
_DURATIONS = ("ask", "lag", "fetch", "delivery", "hold", "before", "until")


@dataclass(frozen=True, slots=True)
class Fetched:
    """The batches of one loader of one rank, by the order in which they were taken.

    Arrays have one entry a batch; times are ns on one clock.
    """

    worker: Int64Array  # who fetched it; -1: the training process, in the wait itself
    asked_ns: Int64Array  # when it was asked of the worker; -1: not known
    begin_ns: Int64Array  # of the fetch
    end_ns: Int64Array
    ready_ns: Int64Array  # when the training process could have it; -1: not known
    wait_begin_ns: Int64Array  # of the wait that took it
    wait_end_ns: Int64Array
    epoch: Int64Array  # of the iterator: each starts with an empty queue
    workers: int
    prefetch: int = PREFETCH_FACTOR  # batches asked ahead of each worker
    in_order: bool = True
    rank: int = 0
    step: Int64Array | None = None
    """Batches of the same number are of one step, which all ranks end together; numbers ascend;
    -1: of none, as in an evaluation. None: the k-th batch of each rank is of step k."""
    met_ns: Int64Array | None = None
    """When the ranks had met in the batch's step; None: as the next wait begins."""
    peers_ns: Int64Array | None = None
    """How long the rank waited there for slower ones; None: the step takes the same on all."""
    last_end_ns: int = -1  # of the last batch's step; -1: with its wait

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the run is to differ; the defaults change nothing."""

    workers: int | Sequence[int | None] | None = None  # of all pipelines, or each; None: as it was
    prefetch: int | Sequence[int | None] | None = None
    in_order: bool | None = None
    fetch_ns: Sequence[Array] | None = None  # for each pipeline how long its fetches take instead

    @property
    def queues_change(self) -> bool:
        """Whether batches are asked for in another way."""
        return any(each is not None for each in (self.workers, self.prefetch, self.in_order))


def _get_setting(each: int | Sequence[int | None] | None, pipeline: int, as_it_was: int) -> int:
    """A setting of one pipeline."""
    own = each if each is None or isinstance(each, int) else each[pipeline]
    return as_it_was if own is None else own


@dataclass(frozen=True, slots=True)
class Rerun:
    """What comes of it: ns since the first wait of the run; arrays as those of the pipelines."""

    total_ns: float
    wait_begin_ns: tuple[Array, ...]
    wait_end_ns: tuple[Array, ...]

    @property
    def wait_ns(self) -> float:
        """All waits of all pipelines."""
        ends = zip(self.wait_begin_ns, self.wait_end_ns, strict=True)
        return float(sum((end - begin).sum() for begin, end in ends))


class Columns(Protocol):
    """An array by column, or what makes parts of one as they are asked for."""

    def __getitem__(self, columns: slice, /) -> Values:
        """Some columns."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """Durations less what is taken away, made slice by slice: a large run has gigabytes of them."""

    own: Columns
    less: Columns

    def __getitem__(self, columns: slice) -> Values:
        """What is left of some columns, none below 0."""
        left: Values = np.maximum(self.own[columns] - self.less[columns], 0)
        return left


@dataclass(frozen=True, slots=True)
class Change:
    """How long parts of a recorded run take instead, and what is never waited for.

    `parts`: name of a duration of `Chain` -> for each chain an array, by column; others stay.
    """

    parts: Mapping[str, Sequence[Columns]] = field(default_factory=dict)
    unwaited: Sequence[Values] | None = None  # batches that lie ready, whatever was before


@dataclass(frozen=True, slots=True)
class Queue:
    """An iterator: how its batches are asked for and handed over."""

    workers: int
    places: int  # workers x prefetch
    in_order: bool
    asked: tuple[int, ...] = ()  # columns as they were asked for, where not taken in that order


@dataclass(frozen=True, slots=True)
class Chain:
    """One rank's run as durations in ns; arrays have an entry a column, see `Machine`.

    A batch is asked for `ask` after the wait `after` has ended (or begun: `at_begin`), begun `lag`
    after its worker is free for it, and handed over `fetch` + `delivery` later. Its wait begins
    `before` after the meeting before it, ends `hold` after the batch is there, and `until` later
    the rank is ready to meet.
    """

    ask: Values
    lag: Values
    fetch: Values
    delivery: Values
    hold: Values
    before: Values
    until: Values
    has_worker: Mask  # False: the fetch is in the wait
    previous: Rows  # column of the worker's batch before; -1: none
    after: Rows  # column of the wait; -1: none
    at_begin: Mask
    rest: float  # from the last meeting to the end of the last step
    queue_of: Rows  # of each column, -1: no batch
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A recorded run that can be run again.

    Batches of all ranks lie in columns: those of a step that ranks end together in the same one.
    """

    chains: tuple[Chain, ...]  # one a rank
    meets: Mask  # columns that the ranks end together
    columns_of: tuple[Rows, ...]  # of each pipeline's batches
    chain_of: tuple[int, ...]  # of each pipeline
    recorded_ns: float  # from the first wait to the end of the last step
    blocks: tuple[int, ...]  # columns at which blocks begin, and their number
    agree: bool  # whether batches of a column wait for the same ones on all ranks

    @property
    def in_order(self) -> bool:
        """Whether all loaders hand over batches as they were asked for."""
        return all(queue.in_order for chain in self.chains for queue in chain.queues)

    def by_column(self, values: Sequence[Values | None]) -> list[Values]:
        """Values of the batches of each pipeline (None: 0) as one array a chain."""
        columns = len(self.meets)
        kinds = {own.dtype for own in values if own is not None}
        kind = np.bool_ if kinds == {np.dtype(np.bool_)} else np.float64
        laid: list[Values] = [np.zeros(0)] * len(self.chains)
        for chain, rows, own in zip(self.chain_of, self.columns_of, values, strict=True):
            if own is not None and len(own) == columns:
                laid[chain] = own
                continue
            if not len(laid[chain]):
                laid[chain] = np.zeros(columns, kind)
            if own is not None:
                laid[chain][rows] = own
        return laid


@dataclass(frozen=True, slots=True)
class Times:
    """When waits begin and end, shape (columns, ranks), ns since the first wait of the run."""

    began: Array
    took: Array


def rerun(pipelines: Sequence[Fetched], settings: Settings) -> Rerun:
    """The run of these pipelines, which are all loaders of all ranks, under other settings."""
    machine = measure(pipelines, settings)
    change = Change()
    if settings.fetch_ns is not None:
        change = Change({"fetch": machine.by_column(settings.fetch_ns)})
    shape = len(machine.meets), len(machine.chains)
    times = Times(np.zeros(shape), np.zeros(shape))
    total = replay(machine, [change], times)[0]
    places = list(zip(machine.columns_of, machine.chain_of, strict=True))
    began = tuple(times.began[columns, chain] for columns, chain in places)
    took = tuple(times.took[columns, chain] for columns, chain in places)
    return Rerun(float(total), began, took)


# --- From times to durations ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """All batches of one rank, in the order in which they were taken."""

    fetched: Fetched
    workers: Int64Array  # of the batch's loader
    places: Int64Array
    in_order: Mask
    source: Int64Array  # which of the rank's pipelines


@dataclass(frozen=True, slots=True)
class _Links:
    """What each batch of a run waits for, as rows of other batches."""

    previous: Rows
    after: Rows
    at_begin: Mask
    ask: Int64Array
    queue_of: Rows
    queues: tuple[Queue, ...]


def measure(pipelines: Sequence[Fetched], settings: Settings | None = None) -> Machine:
    """The machine of a recorded run: what its parts took, and what each of them waits for.

    Args:
        pipelines: all loaders of all ranks, none of them empty.
        settings: workers, places and order of the queues, where they are to be others.
    """
    settings = settings or Settings()
    # The loaders of each rank as one sequence, and the columns that its batches lie in.
    ranks = sorted({pipeline.rank for pipeline in pipelines})
    mine = [[i for i, p in enumerate(pipelines) if p.rank == rank] for rank in ranks]
    runs = [_merge([pipelines[i] for i in rows]) for rows in mine]
    columns, meets = _align(runs)
    start_ns = min(int(run.fetched.wait_begin_ns[0]) for run in runs)
    precision = np.float32 if len(meets) * len(runs) > _MANY else np.float64
    common = _measure_common_steps(runs, columns, meets)

    # The chain of each rank, without what it waited for others.
    chains, recorded_ns = [], 0.0
    iterators = _Iterators.of(runs[0].fetched.epoch)
    for run, column, rows in zip(runs, columns, mine, strict=True):
        if not np.array_equal(iterators.epoch, run.fetched.epoch):
            iterators = _Iterators.of(run.fetched.epoch)
        chain = _measure_durations(run, _link(run, iterators), start_ns)
        chain = _subtract_peer_waits(chain, run, meets, common, column)
        if settings.queues_change:
            chain = _apply_settings(chain, run.source, iterators, settings, rows)
        chains.append(_place_in_columns(chain, column, meets, precision))
        recorded_ns = max(recorded_ns, _end_ns(run.fetched) - start_ns)

    # Where the batches of each pipeline are in the machine.
    rows_of = {
        i: column if len(rows) == 1 else column[run.source == which]
        for rows, run, column in zip(mine, runs, columns, strict=True)
        for which, i in enumerate(rows)
    }
    chain_of = {i: chain for chain, rows in enumerate(mine) for i in rows}
    count = range(len(pipelines))
    return Machine(
        chains=tuple(chains),
        meets=meets,
        columns_of=tuple(rows_of[i] for i in count),
        chain_of=tuple(chain_of[i] for i in count),
        recorded_ns=recorded_ns,
        blocks=_find_blocks(chains, meets),
        agree=all(
            np.array_equal(getattr(chain, name), getattr(chains[0], name))
            for name in ("previous", "after", "at_begin", "has_worker")
            for chain in chains[1:]
        ),
    )


def _end_ns(fetched: Fetched) -> int:
    return max(fetched.last_end_ns, int(fetched.wait_end_ns[-1]))


def _merge(pipelines: Sequence[Fetched]) -> _Run:
    """The loaders of one rank as one sequence of waits; each iterator has a number of its own."""
    if len(pipelines) == 1:
        (p,) = pipelines
        alike = (0, p.workers, p.workers * p.prefetch, p.in_order)
        source, workers, places, in_order = (np.broadcast_to(v, len(p)) for v in alike)
        return _Run(p, workers, places, in_order, source)
    # Batches in the order of their waits.
    counts = [len(p) for p in pipelines]
    source = np.repeat(np.arange(len(counts)), counts)
    workers = np.repeat([p.workers for p in pipelines], counts)
    places = workers * np.repeat([p.prefetch for p in pipelines], counts)
    in_order = np.repeat([p.in_order for p in pipelines], counts)
    order = np.argsort(np.concatenate([p.wait_begin_ns for p in pipelines]), kind="stable")

    def joined(columns: Sequence[Int64Array]) -> Int64Array:
        return np.concatenate(columns)[order]

    # Epochs are numbered on from loader to loader.
    epochs, steps, until = [], [], 0
    for p in pipelines:
        epochs.append(p.epoch - p.epoch.min() + until)
        until = int(epochs[-1].max()) + 1
        steps.append(np.arange(len(p)) if p.step is None else p.step)
    begins, end_ns = joined([p.wait_begin_ns for p in pipelines]), max(map(_end_ns, pipelines))
    peers = None
    if all(p.peers_ns is not None for p in pipelines):
        peers = joined([p.peers_ns for p in pipelines if p.peers_ns is not None])
    # Where it was not recorded when ranks met, they met as the next wait began.
    met = [np.full(len(p), -1) if p.met_ns is None else p.met_ns for p in pipelines]
    together = joined(met)
    fetched = Fetched(
        worker=joined([p.worker for p in pipelines]),
        asked_ns=joined([p.asked_ns for p in pipelines]),
        begin_ns=joined([p.begin_ns for p in pipelines]),
        end_ns=joined([p.end_ns for p in pipelines]),
        ready_ns=joined([p.ready_ns for p in pipelines]),
        wait_begin_ns=begins,
        wait_end_ns=joined([p.wait_end_ns for p in pipelines]),
        epoch=joined(epochs),
        workers=0,
        rank=pipelines[0].rank,
        step=joined(steps),
        met_ns=np.where(together >= 0, together, np.append(begins[1:], end_ns)),
        peers_ns=peers,
        last_end_ns=end_ns,
    )
    return _Run(fetched, workers[order], places[order], in_order[order], source[order])


def _align(runs: Sequence[_Run]) -> tuple[list[Rows], Mask]:
    """For each run the columns of its batches; which columns the ranks end together."""
    if len(runs) == 1:
        length = len(runs[0].fetched)
        return [np.arange(length)], np.zeros(length, np.bool_)
    if all(r.fetched.step is None and len(r.fetched) == len(runs[0].fetched) for r in runs):
        length = len(runs[0].fetched)
        return [np.arange(length)] * len(runs), np.ones(length, np.bool_)
    steps = [np.arange(len(r.fetched)) if r.fetched.step is None else r.fetched.step for r in runs]
    if all(len(s) == len(steps[0]) and (s == steps[0]).all() for s in steps):
        return [np.arange(len(steps[0]))] * len(steps), steps[0] >= 0
    numbers = np.unique(np.concatenate([s[s >= 0] for s in steps]))
    # Before each common step there is room for what any rank does alone: each batch comes behind
    # the latest step so far.
    latest = [np.maximum.accumulate(s) for s in steps]
    alone = [np.searchsorted(numbers, s, side="right") for s in latest]
    room = np.zeros(len(numbers) + 1, np.int64)
    for s, place in zip(steps, alone, strict=True):
        room = np.maximum(room, np.bincount(place[s < 0], minlength=len(room)))
    first = np.append(0, np.cumsum(room[:-1] + 1))  # column of what comes before each step
    columns = []
    for s, place in zip(steps, alone, strict=True):
        own = s < 0
        count = np.cumsum(own) - 1
        begun = np.append(0, np.cumsum(np.bincount(place[own], minlength=len(room))))[place]
        together = first[np.searchsorted(numbers, s)] + room[np.searchsorted(numbers, s)]
        columns.append(np.where(own, first[place] + count - begun, together))
    meets = np.zeros(int(first[-1] + room[-1]), np.bool_)
    meets[first[:-1] + room[:-1]] = True
    return columns, meets


@dataclass(frozen=True, slots=True)
class _Iterators:
    """The iterators of a run, and for each batch which is its own and where in it it stands."""

    epoch: Int64Array
    order: Rows  # rows, iterator by iterator
    start: Rows  # of each row: where its iterator begins in `order`
    place: Rows
    number: Rows
    begins: Rows  # of each iterator, in `order`
    sizes: Rows

    @classmethod
    def of(cls, epoch: Int64Array) -> _Iterators:
        length = len(epoch)
        order = np.arange(length)
        if (np.diff(epoch) < 0).any():
            order = np.argsort(epoch, kind="stable")
        begins = np.flatnonzero(np.diff(epoch[order], prepend=epoch[order[0]] - 1))
        sizes = np.diff(begins, append=length)
        start, number, place = np.empty((3, length), np.intp)
        start[order] = np.repeat(begins, sizes)
        number[order] = np.repeat(np.arange(len(begins)), sizes)
        place[order] = np.arange(length) - np.repeat(begins, sizes)
        return cls(epoch, order, start, place, number, begins, sizes)

    def back(self, places: Int64Array) -> Rows:
        """Row of the batch so many places before in the same iterator; -1: none."""
        exists = (self.place >= places) & (places > 0)
        before = np.maximum(self.start + self.place - places, 0)
        rows: Rows = np.where(exists, self.order[before], -1)
        return rows


def _link(run: _Run, iterators: _Iterators) -> _Links:
    """Whom each batch waits for, by the loader's rules; asking as it was recorded, where it was."""
    f, heads = run.fetched, iterators.order[iterators.begins]
    if int(f.worker.max()) < 0:
        nobody = np.broadcast_to(np.int64(-1), len(f))
        queues = [Queue(0, 0, in_order=True) for _ in heads]
        none = nobody == 0
        return _Links(nobody, nobody, none, nobody + 1, iterators.number, tuple(queues))
    # In turn, by the rules of a loader that hands batches over in order.
    previous, after = iterators.back(run.workers), iterators.back(run.places)
    if ((f.worker[previous] != f.worker) & (previous >= 0)).any() or not run.in_order.all():
        order = np.lexsort((f.begin_ns, f.worker, iterators.number))
        same = (np.diff(iterators.number[order]) == 0) & (np.diff(f.worker[order]) == 0)
        previous = np.full(len(f), -1, np.intp)
        previous[order[1:]] = np.where(same & (f.worker[order[1:]] >= 0), order[:-1], -1)
    # Where it does not, by the order in which they were asked for.
    queues = []
    for head, begin, size in zip(heads.tolist(), iterators.begins, iterators.sizes, strict=True):
        queue = Queue(int(run.workers[head]), int(run.places[head]), bool(run.in_order[head]))
        if not queue.in_order and queue.workers:
            rows = iterators.order[begin : begin + size]
            # Rows as they were asked for, where they were not taken in that order. At first workers
            # get theirs in turn; then taking a batch gives its worker the next one.
            own: dict[int, list[int]] = {}
            for row in rows[np.argsort(f.begin_ns[rows], kind="stable")][::-1].tolist():
                own.setdefault(int(f.worker[row]), []).append(row)
            turns = [k % queue.workers for k in range(queue.places)]
            asked = [
                left.pop()
                for worker in (*turns, *f.worker[rows].tolist())
                if (left := own.get(worker))
            ]
            requests = (*asked, *(row for left in own.values() for row in left[::-1]))
            queue = replace(queue, asked=requests)
            by_asking, ahead = np.array(queue.asked, np.intp), min(queue.places, size)
            after[by_asking[:ahead]] = -1
            after[by_asking[ahead:]] = rows[: size - ahead]
        queues.append(queue)
    after[f.worker < 0] = -1
    after, at_begin, ask = _find_requests(f, after, iterators)
    return _Links(previous, after, at_begin, ask, iterators.number, tuple(queues))


def _find_requests(f: Fetched, after: Rows, iterators: _Iterators) -> tuple[Rows, Mask, Int64Array]:
    """When each batch was asked for: (row of a wait, by its beginning or end, ns from there)."""
    has_worker, asked = f.worker >= 0, f.asked_ns.copy()
    unknown = has_worker & (after < 0) & (asked < 0)
    if unknown.any():  # an iterator was born before its first batch was begun, and waited for
        birth = f.wait_begin_ns[iterators.order[iterators.begins]]
        np.minimum.at(birth, iterators.number, f.begin_ns)
        asked[unknown] = birth[iterators.number[unknown]]
    known = has_worker & ((asked >= 0) | unknown)
    ask = np.where(known & (after >= 0), asked - f.wait_end_ns[after], 0)
    rows = np.flatnonzero(known & ((after < 0) | (np.abs(ask) > _NEAR_NS)))
    wait = np.minimum(np.searchsorted(f.wait_end_ns, asked[rows]), rows)
    inside = (f.wait_begin_ns[wait] <= asked[rows]) & (wait < rows) & (after[rows] >= 0)
    ask[rows] = asked[rows] - np.where(inside, f.wait_end_ns[wait], f.wait_begin_ns[wait])
    at_begin = np.zeros(len(f), np.bool_)
    after[rows], at_begin[rows] = wait, ~inside
    return after, at_begin, ask


def _measure_durations(run: _Run, links: _Links, start_ns: int) -> Chain:
    """What each part of a run took, by its own rows; `before` and `until` as if it met no one."""
    # What the training process did around its waits.
    f = run.fetched
    wait = f.wait_end_ns - f.wait_begin_ns
    fetch = f.end_ns - f.begin_ns
    until = np.diff(f.wait_begin_ns, append=_end_ns(f)) - wait
    before = np.zeros(len(f))
    before[0] = f.wait_begin_ns[0] - start_ns
    # How the fetch came into the wait: in it, or ahead of it by a worker.
    has_worker = f.worker >= 0
    if not has_worker.any():
        nothing = np.broadcast_to(0.0, len(f))
        fetch, has_worker = np.minimum(fetch, wait), nothing > 0
        lag, delivery, hold = nothing, nothing, wait - fetch
        hold = hold if hold.any() else nothing
    else:
        fetch = np.where(has_worker, fetch, np.minimum(fetch, wait))
        # When the worker could have begun: asked for the batch, and done with the one before.
        since = np.where(links.at_begin, f.wait_begin_ns[links.after], f.wait_end_ns[links.after])
        asked = np.where(links.after >= 0, since + links.ask, _LONG_AGO)
        free = np.where(links.previous >= 0, f.end_ns[links.previous], _LONG_AGO)
        lag = np.where(has_worker, np.maximum(f.begin_ns - np.maximum(asked, free), 0), 0)
        # When the batch lay ready: as recorded, else as it must have been.
        ready = f.ready_ns
        if (ready[has_worker] < 0).any():
            ready = np.where(ready >= 0, ready, _guess_ready(f, has_worker))
        ready = np.clip(ready, f.end_ns, np.maximum(f.wait_end_ns, f.end_ns))
        hold = np.maximum(f.wait_end_ns - np.maximum(f.wait_begin_ns, ready), 0)
        hold = np.where(has_worker, hold, wait - fetch)
        delivery = np.where(has_worker, ready - f.end_ns, 0)
    return Chain(
        ask=links.ask,
        lag=lag,
        fetch=fetch,
        delivery=delivery,
        hold=hold,
        before=before,
        until=until,
        has_worker=has_worker,
        previous=links.previous,
        after=links.after,
        at_begin=links.at_begin,
        rest=0.0,
        queue_of=links.queue_of,
        queues=links.queues,
    )


def _guess_ready(f: Fetched, has_worker: Mask) -> Int64Array:
    """When batches were there: of late ones before the usual end of a wait, of others in time.

    The wait for a batch that lies ready is what taking it costs; of a late one that much is no
    delivery. One that lay ready was as long on its way as late ones are, if there was the time.
    Where a wait was long though the fetch had ended, the batch was still on its way, unless that
    had taken longer than that of any late one.
    """
    wait = f.wait_end_ns - f.wait_begin_ns
    late = has_worker & (f.end_ns > f.wait_begin_ns)
    lay_there = has_worker & ~late
    usual = int(np.median(wait[lay_there])) if lay_there.any() else 0
    on_the_way = np.maximum(f.wait_end_ns - f.end_ns - usual, 0)[late]
    typical, longest = (int(np.median(on_the_way)), int(on_the_way.max())) if late.any() else (0, 0)
    lay_there &= (wait <= _IN_TIME * usual) | (f.end_ns + longest <= f.wait_begin_ns)
    arrival = np.minimum(f.end_ns + typical, f.wait_begin_ns)
    guessed: Int64Array = np.where(lay_there, arrival, f.wait_end_ns - np.minimum(usual, wait))
    return guessed


@dataclass(frozen=True, slots=True)
class _Common:
    """Of each column: the least that any rank took after its wait; when its last wait ended."""

    least_ns: Int64Array
    last_ns: Int64Array


def _measure_common_steps(runs: Sequence[_Run], columns: Sequence[Rows], meets: Mask) -> _Common:
    least, last = np.full(len(meets), -_LONG_AGO), np.full(len(meets), _LONG_AGO)
    if meets.any() and any(run.fetched.peers_ns is None for run in runs):
        for run, column in zip(runs, columns, strict=True):
            f = run.fetched
            between = np.append(f.wait_begin_ns[1:], _end_ns(f)) - f.wait_end_ns
            least[column] = np.minimum(least[column], between)
            last[column] = np.maximum(last[column], f.wait_end_ns)
    return _Common(least, last)


def _subtract_peer_waits(
    chain: Chain, run: _Run, meets: Mask, common: _Common, column: Rows
) -> Chain:
    """With what a rank waited for others left out: `until` ends, and `before` begins, as they met.

    Where it is not known, the step took each rank as long as the one that waited least.
    """
    if not meets.any():
        return chain
    f, here = run.fetched, meets[column]

    # Until when, and how long, the step lasted without waiting for others.
    following = np.append(f.wait_begin_ns[1:], _end_ns(f))
    if f.peers_ns is None:
        met = common.last_ns[column] + common.least_ns[column]
        alone, afterwards = common.least_ns[column], np.maximum(following - met, 0)
    else:
        met = following if f.met_ns is None else np.clip(f.met_ns, f.wait_end_ns, following)
        alone, afterwards = np.maximum(met - f.wait_end_ns - f.peers_ns, 0), following - met
    if not here.all():
        alone, afterwards = np.where(here, alone, chain.until), np.where(here, afterwards, 0)
    before = np.append(chain.before[0], afterwards[:-1])
    return replace(chain, before=before, until=alone, rest=float(afterwards[-1]))


def _apply_settings(
    chain: Chain, source: Rows, iterators: _Iterators, settings: Settings, pipelines: list[int]
) -> Chain:
    """With other workers, places or order; what is asked for then is begun and handed over at once.

    Where there were workers before, fetches begin as late after they could, and are as long on
    their way, as they did and were.
    """
    # The queues under the new settings.
    queues = []
    first_rows = iterators.order[iterators.begins]
    for queue, which in zip(chain.queues, source[first_rows].tolist(), strict=True):
        ahead = queue.places // queue.workers if queue.workers else PREFETCH_FACTOR
        workers = _get_setting(settings.workers, pipelines[which], queue.workers)
        ahead = _get_setting(settings.prefetch, pipelines[which], ahead)
        in_order = queue.in_order if settings.in_order is None else settings.in_order
        queues.append(Queue(workers, workers * ahead, in_order, queue.asked if workers else ()))
    # After which batches each one is asked for and begun then.
    number = iterators.number
    has_worker = np.array([queue.workers > 0 for queue in queues])[number]
    previous = iterators.back(np.array([queue.workers for queue in queues])[number])
    after = iterators.back(np.array([queue.places for queue in queues])[number])

    # The first batches: asked for as in the recorded run, or else as the first wait begins.
    heads = first_rows[number]
    first, born = has_worker & (after < 0), chain.has_worker[heads]
    by_birth = first & born
    kept = has_worker & chain.has_worker
    return replace(
        chain,
        ask=np.where(by_birth, chain.ask[heads], 0.0),
        after=np.where(first, np.where(born, chain.after[heads], heads), after),
        at_begin=first & (~born | chain.at_begin[heads]),
        previous=previous,
        lag=np.where(kept, chain.lag, 0.0),
        delivery=np.where(kept, chain.delivery, 0.0),
        hold=np.where(kept | ~(has_worker | chain.has_worker), chain.hold, 0.0),
        has_worker=has_worker,
        queues=tuple(queues),
    )


def _place_in_columns(chain: Chain, column: Rows, meets: Mask, precision: type) -> Chain:
    """The chain with its rows in the columns of the machine; in others nothing happens."""
    # A rank that fills every column keeps its rows as they are.
    length = len(meets)
    if len(column) == length:
        kept: dict[str, Any] = {}
        for name in (*_DURATIONS, *_LINKS):
            values = getattr(chain, name)
            if values.strides != (0,):  # one value for all columns takes no memory
                kept[name] = values.astype(precision if name in _DURATIONS else np.int32)
        return replace(chain, **kept)

    def spread(values: NDArray[Any], empty: NDArray[Any]) -> NDArray[Any]:
        empty[column] = values
        return empty

    def place(rows: Rows) -> Rows:
        return spread(np.where(rows >= 0, column[rows], -1), np.full(length, -1))

    # Of others rows are spread over the columns.
    laid: dict[str, Any] = {
        n: spread(getattr(chain, n), np.zeros(length, precision)) for n in _DURATIONS
    }
    elsewhere = meets.copy()
    elsewhere[column] = False
    laid["until"][elsewhere] = -np.inf  # a rank without a batch in a step delays nobody
    queues = tuple(
        replace(queue, asked=tuple(column[list(queue.asked)].tolist())) for queue in chain.queues
    )
    return replace(
        chain,
        **laid,
        previous=place(chain.previous),
        after=place(chain.after),
        at_begin=spread(chain.at_begin, np.zeros(length, np.bool_)),
        has_worker=spread(chain.has_worker, np.ones(length, np.bool_)),
        queue_of=spread(chain.queue_of, np.full(length, -1)),
        queues=queues,
    )


def _find_blocks(chains: Sequence[Chain], meets: Mask) -> tuple[int, ...]:
    """Where blocks of columns begin that wait for no other column of their own."""
    latest = np.full(len(meets), -1, np.int64)
    for chain in chains:
        np.maximum(latest, chain.previous, out=latest)
        np.maximum(latest, chain.after - chain.at_begin, out=latest)
    begins, start = [0], 0
    turns = np.diff(meets, prepend=meets[0]).tolist()
    for column, (needs, turn) in enumerate(zip(latest.tolist(), turns, strict=True)):
        if needs >= start or turn or column - start >= _LONGEST_BLOCK:
            begins.append(column)
            start = column
    return (*begins, len(meets))


# --- Playing ----------------------------------------------------------------------------------


def replay(machine: Machine, changes: Sequence[Change], times: Times | None = None) -> Array:
    """How long the run takes under each change, in ns, shape (changes,).

    Args:
        machine: of the recorded run.
        changes: any number of them.
        times: filled with the waits of the first change.
    """
    if any(q.asked or not q.in_order for chain in machine.chains for q in chain.queues):
        each = ((c, None if i else times) for i, c in enumerate(changes))
        return np.array([_replay_in_steps(machine, *one) for one in each])
    alike = len(machine.chains) == 1 or bool(machine.meets.all())
    if times is None and alike and not any(c.has_worker.any() for c in machine.chains):
        return np.array([_replay_without_queues(machine, change) for change in changes])
    durations = len(machine.meets) * len(machine.chains) * len(changes)
    if durations <= _AT_ONCE * len(machine.blocks):
        each = ((c, None if i else times) for i, c in enumerate(changes))
        return np.array([_replay_in_turn(machine, *one) for one in each])
    return _replay_in_blocks(machine, changes, times)


def _replay_without_queues(machine: Machine, change: Change) -> float:
    """Where every fetch is in its wait, each step is as long as that of the slowest rank."""
    steps = np.full(len(machine.meets), -np.inf)
    for i, chain in enumerate(machine.chains):
        hold, fetch, until = (
            change.parts[name][i][:] if name in change.parts else getattr(chain, name)
            for name in ("hold", "fetch", "until")
        )
        alone = hold + fetch
        if change.unwaited is not None:
            alone[change.unwaited[i]] = 0
        alone += until
        alone += chain.before
        np.maximum(steps, alone, out=steps)
    return float(steps.sum()) + max(chain.rest for chain in machine.chains)


def _replay_in_turn(machine: Machine, change: Change, times: Times | None) -> float:
    """Batch by batch with plain numbers: of few ranks faster than arrays of few elements."""
    # The durations of each rank under the change, as plain numbers.
    ranks = []
    for i, chain in enumerate(machine.chains):
        parts = {
            name: np.asarray(change.parts[name][i][:] if name in change.parts else own, float)
            for name in _DURATIONS
            for own in [getattr(chain, name)]
        }
        # Without a worker the fetch is part of the wait; what lies ready has neither.
        hold = np.where(chain.has_worker, parts["hold"], parts["hold"] + parts["fetch"])
        work = parts["lag"] + parts["fetch"]
        if change.unwaited is not None:
            work = np.where(change.unwaited[i], -np.inf, work)
            hold = np.where(change.unwaited[i], 0, hold)
        rows = zip(
            *(p.tolist() for p in (parts["before"], parts["ask"], work, parts["delivery"])),
            *(p.tolist() for p in (hold, parts["until"])),
            *(p.tolist() for p in (chain.after, chain.at_begin, chain.previous)),
            strict=True,
        )
        ranks.append((i, rows, list[float](), list[float](), list[float]()))
    # Column by column; where ranks meet, all go on with the last of them.
    now = [0.0] * len(ranks)
    for meets in machine.meets.tolist():
        for i, rows, began, ends, took in ranks:
            before, ask, work, delivery, hold, until, after, at_begin, previous = next(rows)
            begin = end = now[i] + before
            began.append(begin)
            ready = -np.inf
            if after >= 0:
                ready = (began if at_begin else took)[after] + ask
                if previous >= 0 and ends[previous] > ready:
                    ready = ends[previous]
                ready += work
                ends.append(ready)
                ready += delivery
            else:
                ends.append(ready)
            end = (ready if ready > begin else begin) + hold
            took.append(end)
            now[i] = end + until
        if meets:
            now = [max(now)] * len(now)
    if times is not None:
        for i, _, began, _, took in ranks:
            times.began[:, i], times.took[:, i] = began, took
    return max(n + chain.rest for n, chain in zip(now, machine.chains, strict=True))


def _replay_in_blocks(machine: Machine, changes: Sequence[Change], times: Times | None) -> Array:
    count = len(changes), len(machine.chains)
    history = _History.of(machine, count)
    now: Array = np.zeros((count[0], 1))
    for begins in _group_blocks(machine.blocks, max(_CELLS // (count[0] * count[1]), 1)):
        chunk = _Chunk.of(machine, changes, slice(begins[0], begins[-1]), history.size)
        for begin, end in pairwise(begins):
            now = _advance(chunk, slice(begin - begins[0], end - begins[0]), history, begin, now)
            if times is not None:
                # The history holds the latest batches only.
                ring = np.arange(begin, end) % history.size
                times.took[begin:end] = history.times[ring, 0]
                times.began[begin:end] = history.times[ring + history.size, 0]
    rest = np.array([chain.rest for chain in machine.chains])
    total: Array = (now + rest).max(1)
    return total


def _group_blocks(blocks: Sequence[int], most: int) -> Iterator[list[int]]:
    """The bounds of blocks, as many at a time as have about so many columns."""
    chunk = [blocks[0]]
    for end in blocks[1:]:
        if end - chunk[0] > most and len(chunk) > 1:
            yield chunk
            chunk = [chunk[-1]]
        chunk.append(end)
    yield chunk


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Durations of some columns, shape (columns, changes or 1, ranks).

    `previous` and `after` are rows of the history: shape (columns,) where all ranks agree.
    """

    ask: Values
    work: Values  # lag + fetch
    delivery: Values
    hold: Values
    before: Values
    alone: Values  # before + hold + until
    then: Values  # delivery + hold + until
    previous: Rows
    after: Rows
    meets: Mask
    has_worker: bool

    @classmethod
    def of(cls, machine: Machine, changes: Sequence[Change], columns: slice, size: int) -> _Chunk:
        chains = machine.chains

        def laid(arrays: Sequence[Columns]) -> Values:
            return np.ascontiguousarray(np.array([a[columns] for a in arrays]).T)

        def stacked(name: str) -> Values:
            """A column of the chains, of each change its own where one of them has another."""
            own: Sequence[Values] = [getattr(chain, name) for chain in chains]
            if any(name in change.parts for change in changes):
                return np.stack([laid(change.parts.get(name, own)) for change in changes], 1)
            if all(a.strides == (0,) and not a[0] for a in own):
                return np.zeros((1, 1, 1))
            return laid(own)[:, None]

        # Durations of every change; without workers the fetch is in its wait.
        hold, fetch, before = stacked("hold"), stacked("fetch"), stacked("before")
        delivery, work = stacked("delivery"), fetch + stacked("lag")
        agreeing = chains[:1] if machine.agree else chains
        has_worker = laid([c.has_worker for c in agreeing])[:, None]
        if not has_worker.all():
            hold = hold + np.where(has_worker, 0, fetch)
        # Batches that are not waited for are ready at once.
        if any(change.unwaited is not None for change in changes):
            ready = np.zeros((len(work), len(changes), len(chains)), np.bool_)
            for i, change in enumerate(changes):
                if change.unwaited is not None:
                    ready[:, i] = laid(change.unwaited)
            hold, work = np.where(ready, 0, hold), np.where(ready, -np.inf, work)
        # Links, as places in the ring of times; one column where ranks agree.
        previous, after, at_begin = (
            laid([getattr(c, name) for c in agreeing]) for name in ("previous", "after", "at_begin")
        )
        step, meets = hold + stacked("until"), machine.meets[columns]
        alone = before + step
        return cls(
            ask=stacked("ask"),
            work=work,
            delivery=delivery,
            hold=hold,
            before=before,
            alone=alone,
            then=delivery + step,
            previous=_merge_equal_columns(np.where(previous >= 0, previous % size, size)),
            after=_merge_equal_columns(
                np.where(after >= 0, after % size + at_begin * size, 2 * size)
            ),
            meets=meets,
            has_worker=bool((after >= 0).any()),
        )


def _merge_equal_columns(rows: Rows) -> Rows:
    return rows[:, 0] if rows.shape[1] == 1 or (rows == rows[:, :1]).all() else rows


@dataclass(frozen=True, slots=True)
class _History:
    """The last columns of all ranks, by column modulo `size`; the last row: never waited for.

    `ends` of fetches; `times` when waits ended, and `size` rows later when they began.
    """

    size: int
    ends: Array
    times: Array

    @classmethod
    def of(cls, machine: Machine, count: tuple[int, int]) -> _History:
        back = int(np.diff(machine.blocks).max())
        rows = np.arange(len(machine.meets))
        for chain in machine.chains:
            for earlier in (chain.previous, chain.after):
                back = max(back, int(np.where(earlier >= 0, rows - earlier, 0).max()))
        size = back + int(np.diff(machine.blocks).max()) + 1
        ends, times = (np.full((rows, *count), -np.inf) for rows in (size + 1, 2 * size + 1))
        return cls(size, ends, times)

    def at(self, history: Array, rows: Rows) -> Array:
        """What is in some rows, of each rank its own where they do not agree."""
        if rows.ndim == 1:
            return history[rows]
        _, changes, ranks = history.shape
        found: Array = history[rows[:, None], np.arange(changes)[:, None], np.arange(ranks)]
        return found


def _advance(chunk: _Chunk, rows: slice, history: _History, column: int, now: Array) -> Array:
    """Plays a block from `now` on, shape (changes, 1 or ranks), and returns when it is over.

    The ranks meet at max(max over ranks of (the meeting before + before + step), max over ranks
    of (ready + step)), which is a cumulative maximum once the sums of the first are taken off.
    """
    length, size = rows.stop - rows.start, history.size
    ring = np.arange(column, column + length) % size
    before = _slice_rows(chunk.before, rows)
    history.times[size + ring[0]] = now + before[0]  # some are asked for by then
    alone = _slice_rows(chunk.alone, rows)
    # When batches are ready, and the ranks would meet because of them.
    ready: Array | float = -np.inf
    if chunk.has_worker:
        asked = history.at(history.times, chunk.after[rows])
        asked += _slice_rows(chunk.ask, rows)
        ready = np.maximum(asked, history.at(history.ends, chunk.previous[rows]), out=asked)
        ready += chunk.work[rows]
        history.ends[ring] = ready
        late = ready + _slice_rows(chunk.then, rows)
        ready += _slice_rows(chunk.delivery, rows)
    else:
        late = np.full((length, *history.times.shape[1:]), -np.inf)
    # When they meet: the cumulative maximum.
    late[0] = np.maximum(late[0], now + alone[0])
    if chunk.meets[rows.start]:
        late, alone = late.max(2, keepdims=True), alone.max(2, keepdims=True)
    if length > 1:
        sums = np.cumsum(alone, axis=0, dtype=np.float64)
        late -= sums
        np.maximum.accumulate(late, axis=0, out=late)
        late += sums
    # When waits began and ended, for the batches that are asked for then.
    began = np.empty((length, *history.times.shape[1:]))
    began[0] = now + before[0]
    if length > 1:
        began[1:] = late[:-1] + before[1:]
    history.times[ring + size] = began
    np.maximum(began, ready, out=began)
    began += chunk.hold[rows]
    history.times[ring] = began
    over: Array = late[-1]
    return over


def _slice_rows(values: Values, rows: slice) -> Values:
    """Some rows, or the single one that is all of them."""
    return (
        values[rows]
        if len(values) > 1
        else np.broadcast_to(values, (rows.stop - rows.start, *values.shape[1:]))
    )


def _replay_in_steps(machine: Machine, change: Change, times: Times | None) -> float:
    """The same batch by batch, for loaders that hand over whatever comes first."""
    chains = [_Stepper(machine, i, change) for i in range(len(machine.chains))]
    now = [0.0] * len(chains)
    for column, meets in enumerate(machine.meets.tolist()):
        for i, chain in enumerate(chains):
            began, took, now[i] = chain.next(column, now[i])
            if times is not None:
                times.began[column, i], times.took[column, i] = began, took
        if meets:
            now = [max(now)] * len(chains)
    return max(n + chain.rest for n, chain in zip(now, machine.chains, strict=True))


class _Stepper:
    """One rank, batch by batch."""

    def __init__(self, machine: Machine, rank: int, change: Change) -> None:
        chain = machine.chains[rank]
        self.chain = chain
        self.columns = {name: getattr(chain, name).tolist() for name in _DURATIONS}
        for name, arrays in change.parts.items():
            self.columns[name] = np.asarray(arrays[rank][:]).tolist()
        self.unwaited = [] if change.unwaited is None else change.unwaited[rank].tolist()
        self.took, self.began = [0.0] * len(machine.meets), [0.0] * len(machine.meets)
        self.open: dict[int, _OpenQueue] = {}

    def next(self, column: int, now: float) -> tuple[float, float, float]:
        """When the wait begins and ends, and when the rank is ready to meet."""
        c, number = self.columns, int(self.chain.queue_of[column])
        began = self.began[column] = now + c["before"][column]
        if number < 0 or (self.unwaited and self.unwaited[column]):
            self.took[column] = began
        elif not self.chain.queues[number].workers:
            self.took[column] = began + c["fetch"][column] + c["hold"][column]
        else:
            if number not in self.open:
                self.open[number] = _OpenQueue(self, number)
            batch, ready = self.open[number].pop()
            self.took[column] = max(began, ready) + c["hold"][batch]
            self.open[number].ask_next(batch, self.took[column])
        return began, self.took[column], self.took[column] + c["until"][column]


class _OpenQueue:
    """One iterator while it is played."""

    def __init__(self, stepper: _Stepper, number: int) -> None:
        chain = stepper.chain
        self.queue, self.columns = chain.queues[number], stepper.columns
        own = self.queue.asked or np.flatnonzero(chain.queue_of == number).tolist()
        self.left = list(own)[::-1]
        self.free = [-np.inf] * self.queue.workers
        self.worker: dict[int, int] = {}
        self.made: list[tuple[float, int, float]] = []  # (order, batch, ready)
        self.asked = 0
        for _ in range(min(self.queue.places, len(self.left))):
            batch = self.left[-1]
            since = stepper.began if chain.at_begin[batch] else stepper.took
            asked = since[int(chain.after[batch])] + self.columns["ask"][batch]
            self._ask(asked, self.asked % self.queue.workers)

    def pop(self) -> tuple[int, float]:
        """The batch that is handed over next, and when it is there."""
        _, batch, ready = heapq.heappop(self.made)
        return batch, ready

    def ask_next(self, taken: int, took: float) -> None:
        """A batch was taken: another one is asked for."""
        if self.left:
            in_turn = self.asked % self.queue.workers
            self._ask(took, in_turn if self.queue.in_order else self.worker[taken])

    def _ask(self, asked: float, worker: int) -> None:
        batch = self.left.pop()
        end = max(asked, self.free[worker]) + self.columns["lag"][batch]
        self.free[worker] = end = end + self.columns["fetch"][batch]
        ready = end + self.columns["delivery"][batch]
        order = float(self.asked) if self.queue.in_order else ready
        heapq.heappush(self.made, (order, batch, ready))
        self.worker[batch] = worker
        self.asked += 1
