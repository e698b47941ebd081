"""Cells from sampled states: against runs of which every microsecond is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb

import numpy as np
import pytest

from tests.makers.results import EXAMPLES
from vanidl.analyses.operations import Calls
from vanidl.analyses.results import analyse
from vanidl.breakdown import rank_accounts, whole_runs, windows
from vanidl.breakdown.account import CellTable
from vanidl.breakdown.assumptions import ALL, MODEL_COMPUTES
from vanidl.breakdown.attribution import attribute_time, open_gains
from vanidl.breakdown.sources.states import SampledBound, bound_by_states, compute_wilson_interval
from vanidl.model import intervals, states
from vanidl.model.counter_tables import CounterTable
from vanidl.model.states import SampledThread, Samples, States
from vanidl.model.trace import NO_FETCHES, Process, Profile, SpanKind, Spans, Trace, make_fetches

US = 1000
MS = 1000 * US
HOST, TRAINER, WORKER = "h", 10, 20
NO_TABLE = np.empty((0, 3), np.int64)
BLOCKS = {states.LOCK: "lock", states.NETWORK: "network", states.SLEEP: "sleep"}


@dataclass
class Timeline:
    """What a thread is doing: kinds from each of some times on, in us."""

    start: np.ndarray
    kind: np.ndarray

    def at(self, times: np.ndarray) -> np.ndarray:
        return self.kind[np.searchsorted(self.start, times, side="right") - 1]

    def spent(self, kind: int, low: int, high: int) -> int:
        """us of a kind within [low, high)."""
        edges = np.append(self.start, 1 << 60)
        first, last = np.clip(edges[:-1], low, high), np.clip(edges[1:], low, high)
        return int((last - first)[self.kind == kind].sum())


def sampled(
    timeline: Timeline, pid: int, end_us: int, rng: np.random.Generator, tid: int = 0
) -> SampledThread:
    """200 samples a second at random distances; nobody waits for a core."""
    distances = rng.integers(2500, 7501, end_us // 2500)
    times = np.cumsum(distances)
    times = times[times < end_us]
    kinds = timeline.at(times).astype(np.uint8)
    samples = Samples(
        times * US, kinds, np.full(len(times), -1, np.int32), np.zeros(len(times), np.uint32),
        np.zeros(len(times), bool),
    )  # fmt: skip
    # 1 s of CPU, all of it in user mode, and nothing moved by calls.
    ticks = np.array([[0, 0, 0], [end_us * US, 100, 0]], np.int64)
    moved = np.array([[0, states.RCHAR, 0], [end_us * US, states.RCHAR, 0]], np.int64)
    return SampledThread(HOST, pid, tid or pid, 1, samples, (), ticks, moved)


def run_of(
    waits: np.ndarray, fetches: dict[str, np.ndarray], threads: list[SampledThread], end_us: int
) -> Trace:
    """One rank whose every step is a wait and some work."""
    base = EXAMPLES["one_rank"]().trace
    begin, end = waits.T
    next_begin = np.append(begin[1:], end_us)
    count = len(waits)
    spans = Spans(
        start=np.concatenate([begin, begin]) * US,
        end=np.concatenate([end, next_begin]) * US,
        process=np.zeros(2 * count, np.int32),
        step=np.concatenate([np.full(count, -1), np.arange(count)]).astype(np.int32),
        kind=np.repeat([SpanKind.INPUT_WAIT, SpanKind.STEP], count).astype(np.uint8),
        thread=np.zeros(2 * count, np.int32),
        name=np.zeros(2 * count, np.int32),
        source=np.zeros(2 * count, np.int32),
        names=("",),
    )
    order = np.argsort(spans.start, kind="stable")
    table = {name: np.asarray(column, np.int64) for name, column in fetches.items()}
    return replace(
        base,
        job=replace(base.job, start_ns=0, end_ns=end_us * US),
        processes=(Process(HOST, TRAINER, rank=0, trainer=0, start_ns=0, end_ns=end_us * US),),
        spans=spans.pick(order),
        profiles=(Profile("loop", "vanidl", 0, has_wait_spans=True, marks_loop=True),),
        io=(), counters={}, metadata_calls={}, layers_traced=(),
        fetches=make_fetches(table, ("loader",)),
        states=States(tuple(threads)),
    )  # fmt: skip


def bounds_of(trace: Trace, device: bool = False) -> Mapping[str, SampledBound]:
    tiles = windows.tile_rank(trace, 0)
    assert tiles is not None
    return bound_by_states(trace, 0, tiles, device=device)


def with_worker(
    seed: int, mix: tuple[float, ...], kinds: tuple[int, ...]
) -> tuple[Trace, dict[int, float], float]:
    """A run with one worker whose fetches are `kinds` in about these shares, and its truth.

    Truth: seconds of waits by kind, each wait divided by what the worker did since the batch was
    asked of it, one batch ahead.
    """
    rng = np.random.default_rng(seed)
    at, starts, marks, fetch_begin, fetch_end, wait, asked = 0, [0], [states.PIPE], [], [], [], []
    trained = 0
    for _ in range(300):
        asked.append(at)
        fetch_begin.append(at)
        for share, kind in zip(rng.dirichlet(np.array(mix) * 20), kinds, strict=True):
            starts.append(at)
            marks.append(kind)
            at += max(int(share * 20_000), 1)
        fetch_end.append(at)
        waited = max(trained, 0), max(at + 50, trained)
        wait.append(waited)
        trained = waited[1] + 12_000
        starts.append(at)
        marks.append(states.PIPE)
        at = max(at, waited[1])
    end_us = trained + 1000
    worker = Timeline(np.array(starts), np.array(marks))
    waits = np.array(wait)
    own = np.sort(np.concatenate([[0], *waits]))
    running = np.array([states.RUNNING, states.PIPE])
    trainer = Timeline(own, running[(np.searchsorted(waits[:, 0], own, side="right") > 0) * 1])
    n = len(waits)
    fetches = {
        "trainer": np.zeros(n), "process": np.full(n, -1), "worker": np.zeros(n),
        "name": np.zeros(n), "epoch": np.zeros(n), "batch": np.arange(n), "samples": np.ones(n),
        "begin": np.array(fetch_begin) * US, "collate": np.array(fetch_end) * US,
        "end": np.array(fetch_end) * US, "wait_begin": waits[:, 0] * US,
        "wait_end": waits[:, 1] * US, "ahead": np.ones(n), "in_order": np.ones(n),
        "pid": np.full(n, WORKER),
    }  # fmt: skip
    threads = [sampled(trainer, TRAINER, end_us, rng), sampled(worker, WORKER, end_us, rng)]
    truth = dict.fromkeys(kinds, 0.0)
    for k, (low, _) in enumerate(wait):
        late = max(fetch_end[k] - low, 0)
        since, until = min(asked[k], low), fetch_end[k]
        did = sum(worker.spent(kind, since, until) for kind in kinds)
        for kind in kinds:
            truth[kind] += late * worker.spent(kind, since, until) / max(did, 1)
    return run_of(waits, fetches, threads, end_us), truth, float((waits[:, 1] - waits[:, 0]).sum())


CAUSES = {
    states.READ: "storage.read",
    states.METADATA: "storage.metadata",
    states.FAULT: "storage.fault",
    states.RUNNING: "input_cpu",
    states.SLEEP: "blocked.sleep",
    states.LOCK: "blocked.lock",
    states.NETWORK: "blocked.network",
}


def test_waits_are_divided_as_their_workers_were_seen() -> None:
    inside, widths, found = 0, [], 0
    for seed in range(12):
        kinds = (states.READ, states.RUNNING, (states.SLEEP, states.LOCK, states.FAULT)[seed % 3])
        trace, truth, waited_us = with_worker(seed, (0.6, 0.3, 0.1), kinds)
        cells = bounds_of(trace)
        for kind, spent_us in truth.items():
            cell = cells[f"input_wait/{CAUSES[kind]}"]
            slack = 0.1 * truth[states.RUNNING] if kind == states.READ else 0.0
            found += 1
            inside += cell.low_ns / US <= spent_us <= cell.high_ns / US
            widths.append(((cell.high_ns - cell.low_ns) / US - slack) / waited_us)
    assert inside >= 0.95 * found
    assert np.median(widths) < 0.15


@pytest.mark.parametrize("kind", BLOCKS)
def test_what_is_blocked_is_no_storage(kind: int) -> None:
    """Each fetch has one cached read in it, which runs."""
    trace, truth, waited_us = with_worker(5, (0.9, 0.1), (kind, states.RUNNING))
    cells = bounds_of(trace)
    named = cells[f"input_wait/blocked.{BLOCKS[kind]}"]
    assert named.low_ns / US <= truth[kind] <= named.high_ns / US
    assert named.low_ns / US > 0.8 * waited_us
    assert cells["input_wait/storage"].high_ns / US < 0.1 * waited_us
    others = [part for code, part in BLOCKS.items() if code != kind]
    assert all(cells[f"input_wait/blocked.{part}"].low_ns == 0 for part in others)


@pytest.mark.parametrize(("kind", "kernels"), [(states.READ, 0.0), (states.METADATA, 0.55)])
def test_the_processor_time_of_metadata_calls_is_not_counted(kind: int, kernels: float) -> None:
    """Reads are: none ran, so what ran decoded. Of 1 s of CPU half was in the kernel."""
    trace, truth, _ = with_worker(3, (0.4, 0.6), (kind, states.RUNNING))
    ran_s = truth[states.RUNNING] / 1e6
    threads = [
        replace(t, ticks=np.array([[*t.ticks[0, :1], 0, 0], [*t.ticks[-1, :1], 50, 50]], np.int64))
        for t in trace.states.threads
    ]
    before = bounds_of(trace)["input_wait/input_cpu"]
    cell = bounds_of(replace(trace, states=States(tuple(threads))))["input_wait/input_cpu"]
    assert cell.high_ns == before.high_ns
    assert cell.low_ns / 1e9 == pytest.approx((1 - kernels) * ran_s, rel=0.15)


@pytest.mark.parametrize(("user", "kernel"), [(8, 2), (80, 20)])
def test_of_few_ticks_the_kernels_share_may_be_larger_by_chance(user: int, kernel: int) -> None:
    """Calls of metadata, so that nothing counts what was served; nine tenths of user ticks are."""
    trace, truth, _ = with_worker(3, (0.4, 0.6), (states.METADATA, states.RUNNING))
    threads = [
        replace(
            t, ticks=np.array([[t.ticks[0, 0], 0, 0], [t.ticks[-1, 0], user, kernel]], np.int64)
        )
        for t in trace.states.threads
    ]
    cell = bounds_of(replace(trace, states=States(tuple(threads))))["input_wait/input_cpu"]
    # The least share of which so many ticks are one in a hundred (Clopper and Pearson 1934).
    total, share = user + kernel, 0.8
    while total < 100 and chance_of_at_least(user, total, share) > 0.01:
        share -= 0.001
    assert cell.low_ns / 1e9 == pytest.approx(0.9 * share * truth[states.RUNNING] / 1e6, rel=0.15)


def chance_of_at_least(successes: int, total: int, share: float) -> float:
    return sum(
        comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(successes, total + 1)
    )


def test_fewer_samples_leave_more_open_and_none_leave_all() -> None:
    trace, _, waited_us = with_worker(3, (0.6, 0.4), (states.READ, states.RUNNING))
    widths = []
    for keep in (1, 4, 16):
        threads = [
            replace(t, samples=Samples(*(getattr(t.samples, n)[::keep] for n in Samples.__slots__)))
            for t in trace.states.threads
        ]
        cell = bounds_of(replace(trace, states=States(tuple(threads))))["input_wait/storage"]
        widths.append(cell.high_ns - cell.low_ns)
    assert widths[0] < widths[1] < widths[2] <= waited_us * US
    assert bounds_of(replace(trace, states=States())) == {}


def test_late_samples_say_nothing() -> None:
    trace, truth, waited_us = with_worker(4, (0.5, 0.5), (states.READ, states.SLEEP))
    late = np.random.default_rng(0).random(10_000) < 0.3

    def hurt(t: SampledThread) -> SampledThread:
        return replace(t, samples=replace(t.samples, late=late[: len(t.samples)]))

    before = bounds_of(trace)["input_wait/storage"]
    after = bounds_of(replace(trace, states=States(tuple(hurt(t) for t in trace.states.threads))))[
        "input_wait/storage"
    ]
    assert after.low_ns < truth[states.READ] * US < after.high_ns
    assert after.high_ns - after.low_ns > before.high_ns - before.low_ns + 0.2 * waited_us * US


def alone(kinds: list[int], other: list[int] | None = None) -> Trace:
    """Waits of 10 ms without workers, in which the thread is of one kind after another."""
    count = 300
    waits = np.stack([np.arange(count) * 20_000, np.arange(count) * 20_000 + 10_000], axis=1)
    end_us = count * 20_000
    rng = np.random.default_rng(1)
    starts = np.sort(waits.ravel())
    marks = np.empty(2 * count, int)
    marks[::2] = np.resize(kinds, count)
    marks[1::2] = states.RUNNING
    threads = [sampled(Timeline(starts, marks), TRAINER, end_us, rng)]
    if other is not None:
        second = marks.copy()
        second[::2] = np.resize(other, count)
        first = threads[0].samples
        kind = Timeline(starts, second).at(first.time // US).astype(np.uint8)
        threads.append(replace(threads[0], tid=11, samples=replace(first, kind=kind)))
    return run_of(waits, own_fetches(waits), threads, end_us)


def own_fetches(waits: np.ndarray) -> dict[str, np.ndarray]:
    """Without workers: each fetch is its wait."""
    n = len(waits)
    return {
        "trainer": np.zeros(n), "process": np.zeros(n), "worker": np.full(n, -1),
        "name": np.zeros(n), "epoch": np.zeros(n), "batch": np.arange(n), "samples": np.ones(n),
        "begin": waits[:, 0] * US, "collate": waits[:, 1] * US, "end": waits[:, 1] * US,
        "wait_begin": waits[:, 0] * US, "wait_end": waits[:, 1] * US, "pid": np.full(n, TRAINER),
    }  # fmt: skip


def test_without_workers_a_wait_is_what_the_thread_itself_was_seen_at() -> None:
    cells = bounds_of(alone([states.READ, states.READ, states.SLEEP]))
    waited_ns = 300 * 10 * MS
    assert (
        cells["input_wait/storage"].low_ns < waited_ns * 2 / 3 < cells["input_wait/storage"].high_ns
    )
    assert cells["input_wait/blocked.sleep"].low_ns < waited_ns / 3
    assert cells["input_wait/blocked.sleep"].high_ns > waited_ns / 3
    # Between waits the thread runs: whether it computes, samples do not tell.
    assert cells["step/compute"].low_ns == 0
    assert cells["step/compute"].high_ns >= 300 * 10 * MS


@pytest.mark.parametrize(
    ("other", "stored", "locked"),
    [
        ([states.READ], (0.9, 1.0), (0.0, 0.1)),  # whom it waits for is in storage
        ([states.SLEEP], (0.0, 0.1), (0.9, 1.0)),
        ([states.READ, states.SLEEP], (0.0, 0.6), (0.4, 1.0)),  # half of the time: open
    ],
)
def test_a_lock_is_where_the_thread_is_that_holds_it(other, stored, locked) -> None:
    cells = bounds_of(alone([states.LOCK], other))
    waited_ns = 300 * 10 * MS
    for name, (least, most) in (("storage", stored), ("blocked.lock", locked)):
        cell = cells[f"input_wait/{name}"]
        assert cell.low_ns <= most * waited_ns
        assert cell.high_ns >= least * waited_ns
        assert cell.high_ns - cell.low_ns <= (most - least + 0.05) * waited_ns
        assert cell.low_ns >= (least - 0.1) * waited_ns


@pytest.mark.parametrize(("missed", "certain"), [(-1, 0.1), (0, 1.0), (1, 0.5), (9, 0.1)])
def test_a_thread_that_was_not_yet_sampled_may_hold_the_lock(missed: int, certain: float) -> None:
    """Each wait has one, sampled first in its middle: what rounds before it show is open then."""
    trace = alone([states.LOCK])
    (main,) = trace.states.threads
    times = main.samples.time
    others = []
    for k in range(300):
        place = int(np.searchsorted(times, (20 * k + 5) * MS))
        one = np.array([times[place]])
        samples = Samples(
            one, np.array([states.LOCK], np.uint8), np.full(1, -1, np.int32),
            np.zeros(1, np.uint32), np.zeros(1, bool),
        )  # fmt: skip
        others.append(replace(main, tid=100 + k, samples=samples, ticks=NO_TABLE, missed=missed))
    cells = bounds_of(replace(trace, states=States((main, *others))))
    waited_ns = 300 * 10 * MS
    lock = cells["input_wait/blocked.lock"]
    assert lock.low_ns == pytest.approx(certain * waited_ns, abs=0.15 * waited_ns)
    assert lock.high_ns >= 0.98 * waited_ns


@pytest.mark.parametrize(("called", "stored"), [(1.0, 0.9), (0.5, 0.0), (0.0, 0.0)])
def test_a_lock_is_where_traced_calls_of_other_threads_are(called: float, stored: float) -> None:
    """Whether samples know the thread that makes them or not; half of the time leaves it open."""
    trace = alone([states.LOCK])
    process = replace(trace.processes[0], log="calls")
    at = np.arange(300) * 20 * MS
    reads = intervals.union(at, at + int(called * 10 * MS))
    tiles = windows.tile_rank(trace, 0)
    assert tiles is not None
    traced = replace(trace, processes=(process,))
    cells = bound_by_states(traced, 0, tiles, device=False, calls=Calls(elsewhere={0: reads}))
    waited_ns = 300 * 10 * MS
    assert cells["input_wait/storage"].low_ns >= stored * waited_ns
    assert cells["input_wait/storage"].low_ns <= called * waited_ns
    assert cells["input_wait/storage"].high_ns <= (called + 0.08) * waited_ns
    assert cells["input_wait/blocked.lock"].high_ns >= (1 - called) * waited_ns


@pytest.mark.parametrize("batches", [1, 4])
def test_what_samples_say_of_waits_holds_however_many_a_step_has(batches: int) -> None:
    """With gradients accumulated a step waits for several batches: all of them are training's."""
    trace = alone([states.RUNNING, states.RUNNING, states.SLEEP])
    spans = trace.spans
    is_step = spans.kind == SpanKind.STEP
    # Of the steps of one wait each, every so many are one.
    first = np.flatnonzero(is_step)[::batches]
    end = spans.end.copy()
    end[first] = spans.end[np.flatnonzero(is_step)[batches - 1 :: batches]]
    step = np.where(is_step, spans.step // batches, spans.step).astype(np.int32)
    kept = ~is_step
    kept[first] = True
    trace = replace(trace, spans=replace(spans, end=end, step=step).pick(kept))
    results = analyse(trace)
    account = attribute_time(trace, results)
    assert account.steps.tolist() == [300 // batches]
    gains = open_gains(trace, results, account)
    assert gains is not None
    worked_ns, waited_ns = 300 * 10 * MS * 2 / 3, 300 * 10 * MS
    gain = gains.without("input_cpu")
    assert 0.8 * worked_ns < gain.low_ns < worked_ns < gain.high_ns <= waited_ns


@pytest.mark.parametrize(
    ("child", "is_named"),
    [([states.CHILD], True), ([states.SLEEP], True), ([states.CHILD, states.RUNNING], False),
     ([states.READ], False), ([states.PIPE], False), ([states.NETWORK], False)],
)  # fmt: skip
def test_who_reads_a_pipe_of_a_child_that_only_waits_waits_for_the_child(
    child: list[int], is_named: bool
) -> None:
    """What it works at may be a loader's work; where no fetch was marked nobody knows which."""
    trace = alone([states.PIPE], child)
    own, other = trace.states.threads
    started = replace(other, pid=WORKER, tid=WORKER, parent_pid=TRAINER)
    cells = bounds_of(replace(trace, fetches=NO_FETCHES, states=States((own, started))))
    waited_ns = 300 * 10 * MS
    assert (cells["input_wait/blocked.child"].low_ns > 0.9 * waited_ns) == is_named
    assert (cells["input_wait/storage"].high_ns < 0.1 * waited_ns) == is_named


def test_who_waits_beside_a_device_may_wait_for_it() -> None:
    trace = alone([states.READ])
    main = trace.states.threads[0]
    kind = main.samples.kind.copy()
    between = main.samples.time // US % 20_000 >= 10_000
    kind[between] = states.LOCK
    seen = replace(trace, states=States((replace(main, samples=replace(main.samples, kind=kind)),)))
    assert bounds_of(seen)["step/blocked.lock"].low_ns > 0
    beside = bounds_of(seen, device=True)
    assert beside["step/blocked.lock"].low_ns == 0
    assert beside["step/compute"].high_ns > 0
    assert "input_wait/storage" not in beside  # a device may have been busy meanwhile


@pytest.mark.parametrize(("share", "count"), [(0.1, 60), (0.5, 200), (0.9, 550), (0.02, 550)])
def test_the_interval_of_a_share_holds_it_in_98_of_100_drawings(share: float, count: int) -> None:
    """By the binomial distribution itself, all outcomes weighted by how likely they are."""
    covered = 0.0
    for k in range(count + 1):
        low, high = compute_wilson_interval(k / count, count)
        if low <= share <= high:
            covered += comb(count, k) * share**k * (1 - share) ** (count - k)
    assert covered > 0.965
    assert compute_wilson_interval(0.5, 550)[1] - compute_wilson_interval(0.5, 550)[0] < 0.1
    assert compute_wilson_interval(0.3, 0) == (0.0, 1.0)


def test_time_in_the_run_queue_lies_before_it_is_counted() -> None:
    """The kernel counts a wait for a core as it ends: of a long one most lies samples earlier."""
    rng = np.random.default_rng(3)
    edges = np.cumsum(rng.choice([1, 2, 8, 30], 400)) * MS  # turns of running, and of waiting
    queued = np.arange(len(edges) + 1) % 2 == 1
    begin, end = np.append(0, edges[:-1]), edges
    times = np.cumsum(rng.integers(2_500_000, 7_500_001, int(edges[-1]) // 7_500_000))
    counted = [int((end - begin)[queued[:-1] & (end <= at)].sum()) // US for at in times]
    thread = sampled(Timeline(np.array([0]), np.array([states.RUNNING])), 10, 1_000, rng)
    samples = Samples(
        times, np.zeros(len(times), np.uint8), np.full(len(times), -1, np.int32),
        np.array(counted, np.uint32), np.zeros(len(times), bool),
    )  # fmt: skip
    thread = replace(thread, samples=samples)
    total_ns = (counted[-1] - counted[0]) * US
    spread_ns = thread.spread_queue_ns()
    assert spread_ns[-1] == pytest.approx(total_ns, rel=0.02)
    assert (np.diff(spread_ns) <= np.diff(times) + 1).all()
    # Window by window at most two of its samples' distances off; raw counts are off by whole waits.
    for first, last in ((0, 20), (7, 31), (40, 44), (100, len(times) - 1)):
        low, high = times[first], times[last]
        true_ns = (np.minimum(end, high) - np.maximum(begin, low)).clip(0)[queued[:-1]].sum()
        found_ns = int(thread.queued_ns(np.array([low]), np.array([high]))[0])
        assert abs(found_ns - true_ns) <= 30 * MS
        assert abs(found_ns - true_ns) <= 16 * MS or high == times[-1] or low == times[0]


def test_calls_that_no_tracer_saw_make_what_it_traced_a_lower_bound(monkeypatch) -> None:
    """As those of `stat` of which Darshan sees none: threads were in them all the same."""
    trace = alone([states.METADATA, states.METADATA, states.RUNNING])
    trace = replace(trace, processes=(replace(trace.processes[0], log="a.darshan"),))
    monkeypatch.setattr(whole_runs, "bound_untraced_ns", lambda *_: 0)
    monkeypatch.setattr(whole_runs, "is_whole", lambda *_: True)
    wait_s = 300 * 0.010
    low, high = attribute_time(trace, analyse(trace)).cell("mean/input_wait/storage").range_s
    assert low < 2 / 3 * wait_s < high
    assert high - low < 0.2 * wait_s
    # Without samples the trace is believed.
    unsampled = replace(trace, states=states.NO_STATES)
    cell = attribute_time(unsampled, analyse(unsampled)).cell("mean/input_wait/storage")
    assert cell.range_s == (0.0, 0.0)


def test_page_faults_are_storage_beside_what_counters_have() -> None:
    """No call is made for them: no counter can hold them."""
    trace = alone([states.READ, states.FAULT, states.RUNNING])
    third_s = 300 * 0.010 / 3
    counted = CounterTable(
        "POSIX", np.zeros(1, np.int32), np.zeros(1, np.int32),
        {"POSIX_READS": np.array([100]), "POSIX_BYTES_READ": np.array([100 << 20])},
        {"POSIX_F_READ_TIME": np.array([third_s]), "POSIX_F_WRITE_TIME": np.zeros(1),
         "POSIX_F_META_TIME": np.zeros(1)},
    )  # fmt: skip
    trace = replace(trace, counters={"POSIX": counted}, job=replace(trace.job, counts_apart=True))
    account = attribute_time(trace, analyse(trace))
    low, high = account.cell("mean/run/storage").range_s
    assert account.unseen == {0}
    assert low < 2 * third_s < high
    assert high >= third_s + account.cell("mean/run/storage.fault").range_s[1] - 1e-6
    # Counters bound what samples leave open where nothing was seen in a fault.
    trace = replace(trace, states=alone([states.READ, states.RUNNING, states.RUNNING]).states)
    account = attribute_time(trace, analyse(trace))
    assert account.unseen == frozenset()
    assert account.cell("mean/run/storage").range_s[1] == pytest.approx(third_s, abs=1e-6)


def test_where_samples_and_traces_cannot_both_be_neither_is_taken_for_exact() -> None:
    table = CellTable(1, 1000)
    table.observed[:] = True
    table.add("input_wait/", 0, 1000, 1000)
    for cause, low, high in (("storage", 0, 300), ("input_cpu", 0, 1000), ("blocked", 0, 1000)):
        table.add(f"input_wait/{cause}", 0, low, high)
    said = {"storage": (600, 700), "input_cpu": (50, 200), "blocked": (0, 150)}
    rank_accounts._narrow_by_samples(
        table, 0, {f"input_wait/{cause}": SampledBound(*ends) for cause, ends in said.items()}
    )
    columns = table.columns(np.array([1]), None)
    for cause, (low, high) in said.items():
        cell = columns[f"input_wait/{cause}"]
        assert cell.low[0] < cell.high[0]
        if cause != "storage":
            assert cell.low[0] <= low
            assert cell.high[0] >= high


def test_who_runs_in_the_model_computes_and_beside_it_is_the_loop() -> None:
    trace = alone([states.READ])
    spans, count = trace.spans, 300
    # Of each step 2 ms before the model, 3 forward, 3 backward, 1 optimizer, 1 behind it.
    begin = np.arange(count) * 20_000 + 10_000
    more = [(SpanKind.FORWARD, 2, 5), (SpanKind.BACKWARD, 5, 8), (SpanKind.OPTIMIZER, 8, 9)]
    columns = {
        name: np.tile(getattr(spans, name)[:1], 3 * count)
        for name in ("process", "step", "thread", "name", "source")
    }
    model = Spans(
        start=np.concatenate([(begin + 1000 * first) * US for _, first, _ in more]),
        end=np.concatenate([(begin + 1000 * last) * US for _, _, last in more]),
        kind=np.repeat([kind for kind, _, _ in more], count).astype(np.uint8),
        names=spans.names, **columns,
    )  # fmt: skip
    joined = {
        name: np.concatenate([getattr(each, name) for each in (spans, model)])
        for name in ("start", "end", "kind", *columns)
    }
    both = Spans(names=spans.names, **joined)
    trace = replace(trace, spans=both.pick(np.argsort(both.start, kind="stable")))
    cells = bounds_of(trace)
    for cause, spent_ms in (("compute", 7), ("host_cpu", 3)):
        cell = cells[f"step/{cause}"]
        assert cell.low_ns <= count * spent_ms * MS <= cell.high_ns
        assert cell.high_ns - cell.low_ns < 0.2 * count * 10 * MS
        assert (MODEL_COMPUTES in cell.assumed) == (cause == "compute")
    # Without the assumption the model may have done anything.
    tiles = windows.tile_rank(trace, 0)
    assert tiles is not None
    fewer = bound_by_states(trace, 0, tiles, device=False, assume=ALL - {MODEL_COMPUTES})
    assert fewer["step/compute"].low_ns == 0


def test_the_loaders_work_is_split_by_the_marks_of_its_fetches() -> None:
    """Three quarters of each fetch are its samples, a quarter collates: so are the waits for it."""
    trace, _, waited_us = with_worker(2, (1.0,), (states.RUNNING,))
    fetches = trace.fetches
    collate = fetches.begin + (fetches.end - fetches.begin) * 3 // 4
    trace = replace(trace, fetches=replace(fetches, collate=collate))
    account_of = attribute_time(trace, analyse(trace))
    whole, *parts = (
        account_of.cell(f"mean/input_wait/input_cpu{part}")
        for part in ("", ".samples", ".collate", ".sampler")
    )
    waited_ns, delivered_ns = waited_us * US, 300 * 50 * US
    for cell, share in zip(parts, (0.75, 0.25, 0.0), strict=True):
        assert cell.low_ns <= share * waited_ns <= cell.high_ns + delivered_ns
        assert cell.high_ns <= share * waited_ns + delivered_ns
    # The thread was seen running: what the others cannot have had is of its samples.
    samples, collated, sampler = parts
    assert samples.low_ns >= whole.low_ns - collated.high_ns - sampler.high_ns > 0
    # Without marks of fetches each may be all of it.
    trace = replace(trace, fetches=NO_FETCHES)
    unmarked = attribute_time(trace, analyse(trace))
    for part in ("samples", "collate", "sampler"):
        assert (
            unmarked.cell(f"mean/input_wait/input_cpu.{part}").high_ns
            == unmarked.cell("mean/input_wait/input_cpu").high_ns
        )


def test_a_sampler_that_is_starved_while_threads_run_does_not_make_them_read() -> None:
    """It comes late then, and four times less often: what it missed is unknown, no reading."""
    rng = np.random.default_rng(5)
    edges = np.arange(0, 8_000_000, 200_000)  # by turns it reads, and runs
    kinds = np.resize([states.READ, states.RUNNING], len(edges))
    thread = sampled(Timeline(edges, kinds), TRAINER, 8_000_000, rng)
    every = thread.samples
    starved = (every.kind == states.RUNNING) & (rng.random(len(every)) < 0.8)
    kept = np.flatnonzero(~starved)
    late = np.diff(every.time[kept], prepend=every.time[kept[0]]) > 7_500_000
    fewer = Samples(
        every.time[kept], every.kind[kept], every.file[kept], every.delay_us[kept], late
    )
    waits = np.stack([edges, edges + 199_900], axis=1)
    seen = run_of(waits, own_fetches(waits), [replace(thread, samples=fewer)], 8_000_000)
    cell = bounds_of(seen)["input_wait/storage"]
    assert cell.low_ns < 8_000_000 * US / 2 < cell.high_ns
