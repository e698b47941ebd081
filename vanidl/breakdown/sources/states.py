"""What sampled states of threads say of the windows of a rank.

Samples come at random distances, so that the share of them in which a thread was in storage is the
share of its time, within a binomial interval. Outside of input waits they are those of the training
thread. A wait for a batch of a worker belongs to what the worker did since the batch was asked of
it: its samples weigh as much as the waits carry of that time, (wait carried) / (length worked), and
count as n = (sum w)^2 / sum w^2. All windows of a kind are pooled, never single fetches.

Which of the time in which a thread ran was in calls that the page cache served, samples do not
tell: at most the kernel's share of its CPU (less 10 % of the user's, which is counted in ticks),
and, assumed, 1 ns a byte and 5 us a call of all that its process read and wrote, unless it was seen
in calls of metadata, which nothing counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Calls
from vanidl.breakdown import assumptions, windows
from vanidl.breakdown.assumptions import (
    ASKED_AS_IT_WAITED,
    CACHE_SERVES,
    LOCK_IS_STORAGE,
    MODEL_COMPUTES,
    ONE_CLOCK,
)
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    DELIVERY,
    FAULT,
    HOST_CPU,
    INPUT_CPU,
    METADATA,
    OBJECT,
    READ,
    STORAGE,
    SYNC,
    TOO_FEW_CORES,
    WAITING_FOR_PEERS,
    WORKERS,
    WRITE,
)
from vanidl.breakdown.input_wait import (
    fetch_of_waits,
    find_request_times,
    find_shift,
    has_workers,
    is_complete,
    unite_calls_of_threads,
)
from vanidl.breakdown.windows import Tiles
from vanidl.model import intervals, states
from vanidl.model.intervals import Intervals
from vanidl.model.states import SampledThread
from vanidl.model.trace import OBJECT as OBJECT_LAYER
from vanidl.model.trace import Fetches, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]

EVIDENCE = states.SAMPLED
_BEARS_ON = {
    CACHE_SERVES: (STORAGE, INPUT_CPU, COMPUTE, HOST_CPU), LOCK_IS_STORAGE: (STORAGE, BLOCKED),
    MODEL_COMPUTES: (COMPUTE,),
}  # fmt: skip
"""Causes that an assumption bears on; others bear on all."""
_Z = 2.326  # of a two-sided interval of 98 %
_CACHED_NS_A_BYTE, _CACHED_NS_A_CALL = 1.0, 5000.0
_LEAST_TICKS = states.TICKS_PER_S  # a second of CPU: of shorter sums chance is said
_OF_USER = 0.9
_IDLE = (states.SLEEP, states.CHILD)
"""What a child is at that neither reads, nor works, nor waits for work, nor for object storage."""

_FOUND_NS = 40_000_000  # after it began, at most, a thread is sampled, where no log says less
_SAME_NS = 1_500_000  # samples of two threads that lie closer were taken in one round
_MOSTLY = 0.9
_LATE = -1  # the kind of samples that say nothing

_PARTS = {
    states.READ: READ,
    states.WRITE: WRITE,
    states.METADATA: METADATA,
    states.SYNC: SYNC,
    states.FAULT: FAULT,
}
_BLOCKS = {
    states.LOCK: "lock",
    states.NETWORK: "network",
    states.SLEEP: "sleep",
    states.CHILD: "child",
}
_OF_MODEL = (windows.FORWARD, windows.BACKWARD, windows.OPTIMIZER)
_ANYTHING = (
    COMPUTE, COMMUNICATION, WAITING_FOR_PEERS, STORAGE, INPUT_CPU, HOST_CPU, TOO_FEW_CORES,
    BLOCKED, DELIVERY, WORKERS,
    *(f"{STORAGE}.{part}" for part in (*_PARTS.values(), OBJECT)),
    *(f"{BLOCKED}.{part}" for part in ("lock", "network", "sleep", "child", "other")),
)  # fmt: skip


@dataclass(frozen=True)
class SampledBound:
    """At least and at most of a cell, ns, and what is assumed for it."""

    low_ns: int
    high_ns: int
    assumed: tuple[str, ...] = ()


@dataclass
class _Stratum:
    """Some time of a rank, and samples that stand for it.

    `sure` and `perhaps` say of each sample how much of it is a cause for sure, and at most.
    """

    length_ns: float
    weight: Floats
    sure: dict[str, Floats] = field(default_factory=dict)
    perhaps: dict[str, Floats] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)


def bound_by_states(
    trace: Trace,
    position: int,
    tiles: Tiles,
    *,
    device: bool,
    assume: frozenset[str] = assumptions.ALL,
    calls: Calls | None = None,
) -> dict[str, SampledBound]:
    """Cells of one rank with steps, by "window/cause[.part]"; none where it was not sampled.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        tiles: the windows of its training thread.
        device: whether work of a device was recorded: who waits then may wait for that.
        assume: what may be assumed.
        calls: of its processes, where all that they made were traced.
    """
    process = trace.processes[trace.ranks[position]]
    if not len(trace.states) or process.pid is None:
        return {}
    look = _Look(trace, calls, position, process.pid, assume)
    if look.main is None:
        return {}
    # What else a thread that is blocked may wait for: a device, other ranks, an object store.
    profiled = device
    device = device or bool((look.main.samples.kind == states.DEVICE).any())
    open_blocks = device or len(trace.ranks) > 1
    on_objects = OBJECT_LAYER in trace.counters
    strata = [
        *_own_strata(trace, position, tiles, look, open_blocks, on_objects),
        *_wait_strata(trace, position, tiles, look, on_objects),
    ]
    found: dict[str, SampledBound] = {}
    if profiled:  # what of waits a device was busy in is its own, which samples cannot tell
        strata = [
            (names, _Stratum(each.length_ns, np.empty(0)) if "input_wait" in names else each)
            for names, each in strata
        ]
    # Pooled by window: a window is filled by its strata.
    for window in dict.fromkeys(name for names, _ in strata for name in names):
        mine = [stratum for names, stratum in strata if window in names]
        for cause, bound in _combine_strata(mine).items():
            found[f"{window}/{cause}"] = bound
    if found and not profiled:
        _limit_by_whole_run(found, trace, position, tiles, look, open_blocks, on_objects)
    return found


def _limit_by_whole_run(
    found: dict[str, SampledBound],
    trace: Trace,
    position: int,
    tiles: Tiles,
    look: _Look,
    open_blocks: bool,
    on_objects: bool,
) -> None:
    """Lowers what storage of a run may be to what all samples together say, without workers.

    What the page cache served in waits bounds no other time; what it served in all bounds the sum.
    """
    main, trainer = look.main, trace.ranks[position]
    if main is None or _may_have_workers(trace, trainer, look):
        return

    # All samples within the run as one stratum.
    length_ns = float(tiles.length.sum())
    inside = (main.samples.time >= tiles.start[0]) & (main.samples.time < tiles.end[-1])
    chosen = np.flatnonzero(inside)
    stratum = _Stratum(length_ns, _spread(length_ns, main, chosen))
    _tell(stratum, look, main, chosen, on_objects, blocks=not open_blocks, piped=False)
    cached = _bound_cached_share(main, None, assume=look.assume)
    _attribute_running(stratum, main, chosen, cached, (COMPUTE, HOST_CPU, INPUT_CPU))
    for cause, bound in _combine_strata([stratum]).items():
        name = f"run/{cause}"
        had = found.get(name)
        # The upper end alone is lowered, and no further than the lower one.
        if had is not None and cause.startswith(STORAGE) and bound.high_ns < had.high_ns:
            high_ns = max(bound.high_ns, had.low_ns)
            assumed = tuple(dict.fromkeys((*had.assumed, *bound.assumed)))
            found[name] = SampledBound(had.low_ns, high_ns, assumed)


class _Look:
    """The threads of one process of a rank, on the rank's host.

    `main` is the thread that it began with, None where it was not sampled.
    """

    def __init__(
        self,
        trace: Trace,
        calls: Calls | None,
        position: int,
        pid: int,
        assume: frozenset[str],
    ) -> None:
        self.assume = assume
        self._of = trace, calls, position
        of, host = trace.states, trace.processes[trace.ranks[position]].host
        self.threads = of.of_process(host, pid)
        first = [each for each in self.threads if each.is_first and len(each.samples)]
        self.main: SampledThread | None = max(first, key=lambda t: len(t.samples), default=None)
        self.others = [t for t in self.threads if t is not self.main and len(t.samples)]
        children = [t for t in of.threads if t.parent_pid == pid and t.host == host]
        self.has_children = bool(children)
        self.children = [t for t in children if len(t.samples)]
        self._pid = pid

    @cached_property
    def called(self) -> Intervals | None:
        """When any of its threads was in a traced call of storage.

        None where such calls may have been missed, or their clock is open.
        """
        trace, calls, position = self._of
        if calls is None or any((t.samples.kind == states.FAULT).any() for t in self.others):
            return None
        called = None
        for process in np.flatnonzero(trace.family == position).tolist():
            one = trace.processes[process]
            closed = find_shift(trace, process, ONE_CLOCK in self.assume) == (0, 0)
            if one.pid == self._pid and one.log and closed:
                called = unite_calls_of_threads(trace, calls, process)
        return called

    def of_worker(self, pid: int) -> _Look:
        """The same of another process of the rank."""
        return _Look(*self._of, pid, self.assume)

    def is_missing_one(self, times: Int64Array) -> NDArray[np.bool_]:
        """At which of some times a thread may have run that was first sampled a moment later."""
        first = np.array([int(thread.samples.time[0]) for thread in self.others], np.int64)
        missed = np.array([thread.missed for thread in self.others], np.int64)
        since = first - _FOUND_NS
        if self.main is not None and len(first):
            rounds = self.main.samples.time
            place = np.searchsorted(rounds, first - _SAME_NS) - missed
            since = np.where(missed > 0, rounds[np.clip(place, 0, len(rounds) - 1)], since)
            since = np.where(missed == 0, first, since)
        return _is_inside(intervals.union(np.minimum(since, first), first), times)

    def in_storage_meanwhile(
        self, times: Int64Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """At which of some times another thread was in storage, and at which one may have been.

        Where all calls were traced they say it; samples know no thread that was just started.
        """
        seen = self.meanwhile(times, states.IN_FILES)
        if not len(times):
            return seen, seen
        if self.called is not None:
            return seen | _is_inside(self.called, times), np.zeros(len(times), bool)
        return seen, self.is_missing_one(times) & ~seen

    def meanwhile(
        self,
        times: Int64Array,
        kinds: Sequence[int],
        threads: Sequence[SampledThread] | None = None,
    ) -> NDArray[np.bool_]:
        """At which of some times another thread, or one of these, was of one of these kinds."""
        found = np.zeros(len(times), bool)
        for thread in self.others if threads is None else threads:
            samples = thread.samples
            place = np.searchsorted(samples.time, times)
            for near in (place - 1, place):
                at = np.clip(near, 0, len(samples) - 1)
                same = np.abs(samples.time[at] - times) < _SAME_NS
                found |= same & np.isin(samples.kind[at], kinds)
        return found


def _find_idle_children(look: _Look, times: Int64Array) -> NDArray[np.bool_]:
    """At which of some times processes that it started were seen, and all of them only waited.

    Who waits for such a process waits for a child, and for nothing that it reads or works at.
    """
    idle = look.meanwhile(times, _IDLE, look.children)
    others = [kind for kind in range(states.OTHER + 1) if kind not in _IDLE]
    return idle & ~look.meanwhile(times, others, look.children)


def _may_have_workers(trace: Trace, trainer: int, look: _Look) -> bool:
    """Whether batches of a training process may come from workers.

    Not where no process that it started was seen: whatever fetches, it is no worker.
    """
    fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
    if not look.has_children and not len(fetches):
        return False
    return has_workers(trace, trainer, fetches)


def _own_strata(
    trace: Trace,
    position: int,
    tiles: Tiles,
    look: _Look,
    open_blocks: bool,
    on_objects: bool,
) -> Iterator[tuple[tuple[str, ...], _Stratum]]:
    """What the training thread did outside of waits for workers, by kind of window."""
    main = look.main
    if main is None:
        return
    rows = _match_worker_fetches(trace, position, tiles)
    of_worker = (tiles.wait >= 0) & (rows[np.maximum(tiles.wait, 0)] >= 0) if len(rows) else (
        np.zeros(len(tiles.start), bool)
    )  # fmt: skip
    with_workers = _may_have_workers(trace, trace.ranks[position], look)
    tile = np.searchsorted(tiles.start, main.samples.time, side="right") - 1
    inside = (tile >= 0) & (main.samples.time < tiles.end[np.maximum(tile, 0)])
    waited = Intervals(tiles.wait_start, tiles.wait_end)
    cached = _bound_cached_share(main, None if with_workers else waited, assume=look.assume)
    key = (tiles.phase * len(windows.PART_NAMES) + tiles.part) * 2 + (tiles.step >= 0)
    for code in np.unique(key[~of_worker]).tolist():
        mine = (key == code) & ~of_worker
        length_ns = float(tiles.length[mine].sum())
        chosen = np.flatnonzero(inside & mine[np.maximum(tile, 0)])
        first = int(np.flatnonzero(mine)[0])
        waiting = tiles.part[first] == windows.INPUT_WAIT
        if with_workers and not tiles.waits_known:
            # Any time may be a wait, for whatever a worker did meanwhile.
            yield _name_windows(tiles, first), _Stratum(length_ns, np.empty(0))
            continue
        stratum = _Stratum(length_ns, _spread(length_ns, main, chosen))
        if waiting and not with_workers:
            _tell_fetch(stratum, look, main, chosen, cached, on_objects)
        elif waiting or tiles.part[first] == windows.EPOCH_END:
            _tell(stratum, look, main, chosen, on_objects, blocks=False, piped=True)
            # Running time that may be of any cause.
            running = (main.samples.kind[chosen] == states.RUNNING).astype(float)
            for cause in _ANYTHING:
                _add(stratum, cause, None, running)
        else:
            _tell(
                stratum, look, main, chosen, on_objects,
                blocks=not open_blocks, piped=with_workers,
            )  # fmt: skip
            _attribute_running(stratum, main, chosen, cached, _name_running(tiles, first, look))
            if tiles.part[first] in _OF_MODEL and MODEL_COMPUTES in look.assume:
                stratum.assumed[MODEL_COMPUTES] = None
        yield _name_windows(tiles, first), stratum


def _name_running(tiles: Tiles, tile: int, look: _Look) -> tuple[str, ...]:
    """What running time of the training thread may be, by the part of the step that it is in."""
    part = tiles.part[tile]
    if part in _OF_MODEL and MODEL_COMPUTES in look.assume:
        return (COMPUTE,)
    if part in (windows.PREPARE, windows.REST):
        return (HOST_CPU,)
    return (COMPUTE, HOST_CPU, INPUT_CPU)


def _name_windows(tiles: Tiles, tile: int) -> tuple[str, ...]:
    """The windows that a tile is part of, as keys of cells name them."""
    names = ["run"]
    if tiles.step[tile] >= 0:
        names.append("step")
        if tiles.part[tile] == windows.INPUT_WAIT:
            names.append("input_wait")
    phase = windows.PHASE_NAMES[int(tiles.phase[tile])]
    return (*names, f"phase/{phase}") if phase else tuple(names)


def _spread(length_ns: float, thread: SampledThread, chosen: Int64Array) -> Floats:
    """How much of a time each of the samples in it stands for."""
    distances = _measure_distances(thread)[chosen]
    return distances * (length_ns / max(float(distances.sum()), 1.0))


def _measure_distances(thread: SampledThread) -> Floats:
    """Of each sample the time since the one before it.

    Where cores are short the sampler comes late, and less often: mostly while threads run.
    """
    distances = np.diff(thread.samples.time).astype(np.float64)
    return np.append(np.median(distances) if len(distances) else 1.0, distances)


def _match_worker_fetches(trace: Trace, position: int, tiles: Tiles) -> Int64Array:
    """Of each wait the row of the worker fetch it took, in `_select_taken`; -1 for none."""
    taken = _select_taken(trace, position)
    row = fetch_of_waits(taken, tiles.wait_start, tiles.wait_end)
    if len(taken):
        row = np.where((row >= 0) & (taken.worker[np.maximum(row, 0)] >= 0), row, -1)
    return row


def _select_taken(trace: Trace, position: int) -> Fetches:
    fetches = trace.fetches
    mine = (fetches.trainer == trace.ranks[position]) & (fetches.wait_end > fetches.wait_begin)
    return fetches.pick(mine)


def _wait_strata(
    trace: Trace, position: int, tiles: Tiles, look: _Look, on_objects: bool
) -> Iterator[tuple[tuple[str, ...], _Stratum]]:
    """Waits for batches of workers: until the fetch ended, and from then on."""
    main, row = look.main, _match_worker_fetches(trace, position, tiles)
    if main is None or not (row >= 0).any():
        return
    taken = _select_taken(trace, position)
    fetches = trace.fetches.pick(trace.fetches.trainer == trace.ranks[position])
    # When each batch was asked for, and the tile in which its wait begins.
    asked, is_known = find_request_times(taken, tiles.wait_start, row, complete=True)
    told = is_complete(fetches) & (is_known | (ASKED_AS_IT_WAITED in look.assume))
    first_tile = np.full(len(row), -1)
    held = np.flatnonzero(tiles.wait >= 0)[::-1]
    first_tile[tiles.wait[held]] = held
    ready = np.clip(taken.end[np.maximum(row, 0)], tiles.wait_start, tiles.wait_end)
    known = np.flatnonzero((row >= 0) & (first_tile >= 0))
    # Waits of the same windows together.
    kind = np.array([hash(_name_windows(tiles, int(t))) for t in first_tile[known]])
    for one in np.unique(kind).tolist():
        waits = known[kind == one]
        names = _name_windows(tiles, int(first_tile[waits[0]]))
        untold = (ready - tiles.wait_start)[waits[~told[waits]]].sum()
        if untold:
            yield names, _Stratum(float(untold), np.empty(0))
        # Until the fetch ended: what its worker did.
        for pid in np.unique(taken.pid[row[waits]]).tolist():
            mine = waits[(taken.pid[row[waits]] == pid) & told[waits]]
            late = (ready - tiles.wait_start)[mine]
            yield from _build_late_strata(
                names, look.of_worker(pid), fetches, pid, late,
                np.minimum(asked[mine], tiles.wait_start[mine]), taken.end[row[mine]], on_objects,
            )  # fmt: skip
        # From then on: what the training thread itself did.
        delivered = Intervals(ready[waits], tiles.wait_end[waits])
        length_ns = float((tiles.wait_end - ready)[waits].sum())
        if length_ns:
            chosen = np.flatnonzero(_is_inside(delivered, main.samples.time))
            stratum = _Stratum(length_ns, _spread(length_ns, main, chosen))
            running = main.samples.kind[chosen] == states.RUNNING
            _add(stratum, DELIVERY, running.astype(float), np.ones(len(chosen)))
            for cause in _ANYTHING:
                if cause not in (COMPUTE, COMMUNICATION, WAITING_FOR_PEERS, HOST_CPU, DELIVERY):
                    _add(stratum, cause, None, (~running).astype(float))
            yield names, stratum


def _build_late_strata(
    names: tuple[str, ...],
    look: _Look,
    fetches: Fetches,
    pid: int,
    late: Int64Array,
    since: Int64Array,
    until: Int64Array,
    on_objects: bool,
) -> Iterator[tuple[tuple[str, ...], _Stratum]]:
    """The waits for one worker until its fetches ended, by the samples of all that it did."""
    mine = fetches.pid == pid
    at_work = intervals.union(fetches.begin[mine], fetches.end[mine])
    until = np.maximum(until, since)
    worked = intervals.covered_within(at_work, since, until)
    first = int(at_work.start[0])
    starting = np.clip(first - since, 0, None) * (since < first)
    did = worked + np.minimum(starting, until - since)
    length_ns = float(late.sum())
    carried = late * (worked / np.maximum(did, 1))
    if starting.any() and length_ns > carried.sum():
        # The part of waits in which the worker was being started: what that is, others say.
        yield names, _Stratum(length_ns - float(carried.sum()), np.empty(0))
    length_ns = float(carried.sum())
    thread = look.main
    if thread is None or not length_ns:
        if length_ns:
            yield names, _Stratum(length_ns, np.empty(0))
        return
    times = thread.samples.time
    chosen = np.flatnonzero(_is_inside(at_work, times))
    # How much each sample carries: the waits whose batch was asked for before it and made after.
    density = carried / np.maximum(worked, 1)
    edges = np.concatenate([since, until])
    change = np.concatenate([density, -density])
    order = np.argsort(edges, kind="stable")
    level = np.concatenate([[0.0], np.cumsum(change[order])])
    weight = level[np.searchsorted(edges[order], times[chosen], side="right")]
    kept = weight > 1e-12
    chosen, weight = chosen[kept], weight[kept] * _measure_distances(thread)[chosen[kept]]
    stratum = _Stratum(length_ns, weight * (length_ns / max(float(weight.sum()), 1e-12)))
    cached = _bound_cached_share(thread, at_work, assume=look.assume)
    _tell_fetch(stratum, look, thread, chosen, cached, on_objects)
    yield names, stratum


def _is_inside(of: Intervals, times: Int64Array) -> NDArray[np.bool_]:
    place = np.searchsorted(of.start, times, side="right") - 1
    return (place >= 0) & (times < of.end[np.maximum(place, 0)]) if len(of.start) else (
        np.zeros(len(times), bool)
    )  # fmt: skip


def _add(stratum: _Stratum, cause: str, sure: Floats | None, perhaps: Floats | None = None) -> None:
    """Adds to what a cause has of each sample."""
    none = np.zeros(len(stratum.weight))
    sure = none if sure is None else sure
    stratum.sure[cause] = stratum.sure.get(cause, none) + sure
    stratum.perhaps[cause] = stratum.perhaps.get(cause, none) + (
        sure if perhaps is None else perhaps
    )


def _tell(
    stratum: _Stratum,
    look: _Look,
    thread: SampledThread,
    chosen: Int64Array,
    on_objects: bool,
    *,
    blocks: bool,
    piped: bool,
) -> None:
    """What samples of a sleeping thread are.

    Args:
        stratum: takes it.
        look: the process of the thread.
        thread: the thread.
        chosen: of its samples.
        on_objects: sockets may be those of object storage.
        blocks: who is blocked is blocked for sure, and waits neither for a device nor for peers.
        piped: who reads a pipe may wait for a loader's worker.
    """
    late = thread.samples.late[chosen]
    kind = np.where(late, _LATE, thread.samples.kind[chosen].astype(np.int64))
    for code, part in _PARTS.items():
        mine = (kind == code).astype(float)
        _add(stratum, STORAGE, mine)
        _add(stratum, f"{STORAGE}.{part}", mine)

    # A lock is where the thread is that holds it: in storage, where others mostly are there.
    locked, times = np.flatnonzero(kind == states.LOCK), thread.samples.time[chosen]
    behind, unseen = np.zeros((2, len(chosen)))
    behind[locked], unseen[locked] = look.in_storage_meanwhile(times[locked])
    seen = len(locked) - unseen.sum()
    mostly = seen > 0 and behind.sum() >= _MOSTLY * seen
    if mostly and LOCK_IS_STORAGE in look.assume:
        stratum.assumed[LOCK_IS_STORAGE] = None
        _add(stratum, STORAGE, behind)
        kind = np.where(behind > 0, _LATE, kind)
    else:
        _add(stratum, STORAGE, None, behind)
    _add(stratum, STORAGE, None, unseen)
    for part in _PARTS.values():
        _add(stratum, f"{STORAGE}.{part}", None, behind + unseen)

    # Sleep and children are what they are; the rest may be for peers, devices and workers.
    for code, part in _BLOCKS.items():
        perhaps = (kind == code).astype(float)
        known = blocks or code in (states.SLEEP, states.CHILD)
        if code == states.NETWORK and on_objects:
            known = False
            _add(stratum, STORAGE, None, perhaps)
            _add(stratum, f"{STORAGE}.{OBJECT}", None, perhaps)
        sure = perhaps * known * (1 - behind) * (1 - unseen)
        _add(stratum, BLOCKED, sure, perhaps)
        _add(stratum, f"{BLOCKED}.{part}", sure, perhaps)
    pipes = (kind == states.PIPE).astype(float)
    if piped and len(read := np.flatnonzero(pipes)):
        idle = np.zeros(len(chosen))
        idle[read] = _find_idle_children(look, times[read])
        for name in (BLOCKED, f"{BLOCKED}.child"):
            _add(stratum, name, idle)
        pipes -= idle
    part = "child" if look.has_children and not piped else "other"
    for name in (BLOCKED, f"{BLOCKED}.{part}"):
        _add(stratum, name, pipes * (blocks and not piped), pipes)
    rest = np.isin(kind, (states.OTHER, states.DEVICE)).astype(float)
    for name in (BLOCKED, f"{BLOCKED}.other", STORAGE):
        _add(stratum, name, None, rest)
    waits = rest + pipes + np.isin(kind, (states.LOCK, states.NETWORK))
    for cause in () if blocks else (COMPUTE, COMMUNICATION, WAITING_FOR_PEERS):
        _add(stratum, cause, None, waits)
    for cause in _ANYTHING:
        _add(stratum, cause, None, late + (pipes if piped else 0.0))


def _tell_fetch(
    stratum: _Stratum,
    look: _Look,
    thread: SampledThread,
    chosen: Int64Array,
    cached: tuple[float, tuple[str, ...]],
    on_objects: bool,
) -> None:
    """What samples inside of fetches are: who runs decodes, waits for a core, or copies."""
    _tell(stratum, look, thread, chosen, on_objects, blocks=True, piped=False)
    _attribute_running(stratum, thread, chosen, cached, (INPUT_CPU,))


def _attribute_running(
    stratum: _Stratum,
    thread: SampledThread,
    chosen: Int64Array,
    cached: tuple[float, tuple[str, ...]],
    causes: tuple[str, ...],
) -> None:
    """What running time is: waiting for a core, the cache that serves calls, one of some causes."""
    running = (thread.samples.kind[chosen] == states.RUNNING) & ~thread.samples.late[chosen]
    queued = _measure_queued_share(thread)[chosen]
    on_cpu = running - queued
    share, assumed = cached
    _add(stratum, TOO_FEW_CORES, queued)
    for name in (STORAGE, f"{STORAGE}.{READ}", f"{STORAGE}.{WRITE}", f"{STORAGE}.{METADATA}"):
        _add(stratum, name, None, share * on_cpu.clip(0))
    only = len(causes) == 1
    for cause in causes:
        _add(stratum, cause, (1 - share) * on_cpu if only else None, on_cpu.clip(0))
    stratum.assumed.update(dict.fromkeys(assumed))


def _measure_queued_share(thread: SampledThread) -> Floats:
    """Of the time before each sample the share in which its thread waited for a core."""
    samples = thread.samples
    if len(samples) < 2:
        return np.zeros(len(samples))
    waited = np.diff(thread.spread_queue_ns())
    passed = np.maximum(np.diff(samples.time), 1)
    return np.concatenate([[0.0], np.clip(waited / passed, 0.0, 1.0)])


def _bound_cached_share(
    thread: SampledThread, at_work: Intervals | None, *, assume: frozenset[str]
) -> tuple[float, tuple[str, ...]]:
    """At most which share of a thread's running time were calls that the page cache served."""
    share, assumed = 1.0, tuple[str, ...]()
    first, last = (0, 1 << 62) if at_work is None or not len(at_work.start) else (
        int(at_work.start[0]), int(at_work.end[-1])
    )  # fmt: skip
    # The cache serves in the kernel: by the ticks of user and kernel time.
    ticks = _select_around(thread.ticks, first, last)
    cpu_ns = 0.0
    if len(ticks) > 1:
        user, kernel = (ticks[-1, 1:] - ticks[0, 1:]).tolist()
        cpu_ns = (user + kernel) * 1e9 / states.TICKS_PER_S
        in_user = user / max(user + kernel, 1)
        if user + kernel < _LEAST_TICKS:  # few ticks are few samples
            in_user = compute_wilson_interval(in_user, user + kernel)[0]
        share = 1.0 - _OF_USER * in_user
    # By the bytes and calls that were counted: those of metadata are not.
    uncounted = bool((thread.samples.kind == states.METADATA).any())
    if len(thread.moved) and cpu_ns and CACHE_SERVES in assume and not uncounted:
        spent_ns = 0.0
        for what, each_ns in (
            (states.RCHAR, _CACHED_NS_A_BYTE), (states.WCHAR, _CACHED_NS_A_BYTE),
            (states.SYSCR, _CACHED_NS_A_CALL), (states.SYSCW, _CACHED_NS_A_CALL),
        ):  # fmt: skip
            counted = _select_around(thread.moved[thread.moved[:, 1] == what], first, last)
            spent_ns += each_ns * float(counted[-1, 2] - counted[0, 2]) if len(counted) else 0.0
        if spent_ns < share * cpu_ns:
            share, assumed = spent_ns / cpu_ns, (CACHE_SERVES,)
    return share, assumed


def _select_around(table: Int64Array, first: int, last: int) -> Int64Array:
    """The rows of a time that hold all between two times: one before and one behind, if there."""
    begun = max(int(np.searchsorted(table[:, 0], first, side="right")) - 1, 0)
    return table[begun : int(np.searchsorted(table[:, 0], last)) + 1]


def _combine_strata(strata: Sequence[_Stratum]) -> Mapping[str, SampledBound]:
    """Cells of a window that these strata fill."""
    sampled = [each for each in strata if len(each.weight)]
    # Time without samples may be anything.
    unknown_ns = sum(each.length_ns for each in strata if not len(each.weight))
    length_ns = sum(each.length_ns for each in sampled)
    if not sampled or not length_ns:
        return {}
    # Weights that differ count for fewer samples (Kish 1965).
    squares = sum(float((each.weight**2).sum()) for each in sampled)
    count = length_ns**2 / squares
    assumed = tuple(dict.fromkeys(text for each in sampled for text in each.assumed))
    bounds = {}
    for cause in _ANYTHING:
        least, most = (
            sum(float((side(each)[cause] * each.weight).sum()) for each in sampled
                if cause in side(each)) / length_ns
            for side in (attrgetter("sure"), attrgetter("perhaps"))
        )  # fmt: skip
        low = compute_wilson_interval(min(max(least, 0.0), 1.0), count)[0] * length_ns
        high = compute_wilson_interval(min(max(most, 0.0), 1.0), count)[1] * length_ns + unknown_ns
        used = tuple(
            text
            for text in assumed
            if cause.partition(".")[0] in _BEARS_ON.get(text, (cause.partition(".")[0],))
        )
        bounds[cause] = SampledBound(int(low), int(np.ceil(high)), used)
    return bounds


def compute_wilson_interval(share: float, count: float) -> tuple[float, float]:
    """The interval of 98 % of a share that was found in so many samples (Wilson 1927)."""
    if count <= 0:
        return 0.0, 1.0
    square = _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * np.sqrt(
        share * (1 - share) / count + square / (4 * count * count)
    )  # fmt: skip
    return float(max(middle - half, 0.0)), float(min(middle + half, 1.0))
