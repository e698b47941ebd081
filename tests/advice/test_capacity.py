"""What storage and cores give at most: on reads that are made by hand, and on simulated steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.labeled import made
from vanidl.advice.capacity import CoreLoad, fit_throughput, measure_core_load
from vanidl.analyses.profiled_steps import group_rank_spans
from vanidl.model.states import TICKS_PER_S, SampledThread, Samples, States
from vanidl.model.trace import READ, Part, Trace

MS, SIZE = 1_000_000, 1 << 20


def trace_of_reads(rows: list[tuple[int, int]]) -> Trace:
    """A run whose only operations are reads of the first dataset file, from start to end in ms."""
    trace = made("healthy").trace
    part: Part = trace.io[0]
    order = np.array(sorted(rows), np.int64) * MS
    code = int(np.flatnonzero(trace.files.is_data)[0])
    count = len(rows)
    values = {
        "start": order[:, 0], "end": order[:, 1], "nbytes": np.full(count, SIZE),
        "op": np.full(count, READ, part.op.dtype), "file": np.full(count, code),
    }  # fmt: skip
    columns = {
        name: np.zeros(count, getattr(part, name).dtype)
        for name in part.__dataclass_fields__
        if isinstance(getattr(part, name), np.ndarray) and name not in values
    }
    return replace(trace, io=(replace(part, **columns, **values),))


def one_after_another(count: int, each_ms: int, from_ms: int) -> list[tuple[int, int]]:
    return [(from_ms + k * each_ms, from_ms + (k + 1) * each_ms) for k in range(count)]


@pytest.mark.parametrize(("each_ms", "saturated"), [(40, True), (10, False)])
def test_a_storage_is_saturated_where_four_readers_get_what_one_gets(each_ms, saturated):
    """A reader alone takes 10 ms for each MiB; four at once as long, or four times as long."""
    alone = one_after_another(200, 10, 0)
    together = [row for _ in range(4) for row in one_after_another(100, each_ms, 2_000)]
    found = fit_throughput(trace_of_reads(alone + together))
    assert found.saturated is saturated
    rate = SIZE / 0.010 * (1 if saturated else 4)
    assert found.peak_bytes_per_s == pytest.approx(rate, rel=0.01)
    assert SIZE / 0.010 * 0.99 <= found.busy_bytes_per_s <= found.peak_bytes_per_s * 1.01


@pytest.mark.parametrize(
    ("three_ms", "spread_ms", "saturated"),
    [(30, 3, True), (20, 3, None), (23, 3, None), (30, 100, None)],
)
def test_two_and_three_readers_tell_of_a_limit_where_chance_does_not(
    three_ms, spread_ms, saturated
):
    """Two at once take 20 ms each; three take so long, more or less."""
    random = np.random.default_rng(4)
    rows, at = list[tuple[int, int]](), 0
    for readers, each_ms in ((2, 20), (3, three_ms)):
        for _ in range(120):
            lasted = (each_ms + random.integers(0, spread_ms, readers)).tolist()
            rows += [(at, at + ms) for ms in lasted]
            at += max(lasted)
    found = fit_throughput(trace_of_reads(rows))
    assert found.saturated is saturated
    assert (found.limit_bytes_per_s is None) == (saturated is None)


def test_with_as_many_reads_at_all_times_nothing_is_known_of_more():
    found = fit_throughput(trace_of_reads(one_after_another(200, 10, 0)))
    assert found.saturated is None
    assert found.mean_depth == pytest.approx(1.0)
    assert fit_throughput(trace_of_reads(one_after_another(20, 10, 0))) is None


@pytest.mark.parametrize("rivals", [0.0, 1.0, 6.0])
def test_no_number_of_threads_gets_more_than_the_cores_nor_fewer_than_one_thread(rivals):
    load = CoreLoad(2.0, 0.012, rivals)
    got = [load.get_cores(threads) for threads in range(1, 20)]
    assert got == sorted(got)
    assert got[-1] <= 2.0
    assert got[0] == pytest.approx(min(1.0, 2 / (1 + rivals)))
    if not rivals:
        assert got[1:] == [2.0] * 18  # more threads than cores get no more


@pytest.mark.parametrize("rivals", [0.0, 1.0, 6.0])
def test_others_may_be_gone_so_that_at_best_all_cores_are_the_runs_own(rivals):
    load = CoreLoad(2.0, 0.012, rivals)
    assert [load.least_step_s(threads) for threads in (1, 2, 3)] == [0.012, 0.006, 0.006]
    assert load.bound_step_s(3, 0.0) == pytest.approx(0.012 / (3 * min(2 / (3 + rivals), 1)))


@pytest.mark.parametrize(("workers", "others"), [(0, 3.0), (1, 3.0), (1, 0.0), (2, 1.0)])
def test_others_are_those_that_keep_training_waiting_beyond_the_runs_own_workers(workers, others):
    """All threads always want one of two cores, and a fair scheduler gives them as much."""
    run = made("in_process_slow_storage")
    spans = group_rank_spans(run.trace)[0]
    trainer = run.trace.processes[run.trace.ranks[0]]
    begin, end = int(spans.steps.start.min()), int(spans.steps.end.max())
    share = min(2 / (1 + workers + others), 1.0)
    pids = [trainer.pid, *(7_000_000 + k for k in range(workers))]
    rows = [(begin, 0, 0), (end, round(share * (end - begin) / 1e9 * TICKS_PER_S), 0)]
    samples = Samples(
        np.array([begin, end]), np.zeros(2, np.uint8), np.full(2, -1, np.int32),
        np.array([0, (1 - share) * (end - begin) / 1e3], np.uint32), np.zeros(2, bool),
    )  # fmt: skip
    threads = tuple(
        SampledThread(trainer.host, pid, pid, 1, samples, (), np.array(rows), np.empty((0, 3)))
        for pid in pids
    )
    own = tuple(replace(trainer, role="worker", pid=pid, trainer=run.trace.ranks[0])
                for pid in pids[1:])  # fmt: skip
    trace = replace(run.trace, processes=(*run.trace.processes, *own), states=States(threads),
                    cores=2.0)  # fmt: skip
    load = measure_core_load(trace)
    assert load is not None
    assert load.rivals == pytest.approx(others if share < 0.9 else 0.0, abs=0.1)


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=12), st.floats(0.1, 5), st.integers(1, 4))
def test_greedy_sharing_of_a_step_lies_between_its_bounds(parts, alone_s, cores):
    """List scheduling of the parts of a step beside what is in a row, as a simulation does it."""
    load = CoreLoad(float(cores), alone_s + sum(parts))
    free = np.zeros(cores)
    free[0] = alone_s  # the training thread
    for part in parts:
        free[free.argmin()] += part
    longest = max(alone_s, *parts)
    threads = len(parts) + 1
    if threads >= cores:
        assert load.least_step_s(threads) <= free.max() * (1 + 1e-9)
        assert free.max() <= load.bound_step_s(threads, longest) * (1 + 1e-9)


def test_reads_of_each_mount_are_looked_at_apart():
    """Two reads at once of two mounts are no two reads at once of either."""
    trace = trace_of_reads([*one_after_another(200, 10, 0), *one_after_another(200, 10, 5)])
    part = trace.io[0]
    codes = np.flatnonzero(trace.files.is_data)[:2]
    part = replace(part, file=codes[np.arange(len(part.start)) % 2].astype(part.file.dtype))
    mounts = list(trace.files.mount)
    for code, mount in zip(codes.tolist(), ("/a", "/b"), strict=True):
        mounts[code] = mount
    apart = fit_throughput(
        replace(trace, io=(part,), files=replace(trace.files, mount=tuple(mounts)))
    )
    assert apart.mount in ("/a", "/b")
    assert apart.mean_depth == pytest.approx(1.0)
    assert fit_throughput(replace(trace, io=(part,))).mean_depth > 1.9


@pytest.mark.parametrize("each_ms", [40, 15, 10])
def test_the_limit_of_a_storage_is_no_less_than_what_it_delivered(each_ms):
    alone = one_after_another(200, 10, 0)
    together = [row for _ in range(4) for row in one_after_another(100, each_ms, 2_000)]
    found = fit_throughput(trace_of_reads(alone + together))
    if each_ms == 10:  # four are served as one: no limit is seen
        assert found.limit_bytes_per_s is None or found.limit_bytes_per_s > 1e11
    else:
        assert found.limit_bytes_per_s >= found.peak_bytes_per_s
        # A read takes `alone` and so much more for every other: fitted by hand of two points.
        each_s = (each_ms - 10) / 3 / 1e3
        assert found.limit_bytes_per_s == pytest.approx(
            max(SIZE / each_s, found.peak_bytes_per_s), rel=0.02
        )
