"""Each kind of evidence alone, and what they say together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.clock_cases import CASES, MS, SECOND, Loop, alone, drawn, inputs_of, with_workers
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.merge.clocks import align, known_files, reads_in_waits, worker_order
from vanidl.merge.clocks.evidence import AlignmentInputs, make_interval
from vanidl.model.trace import SpanKind
from vanidl.readers.records import EventRecords

ANY = make_interval(-(2**61), 2**61)


def drawn_inputs(loop=alone, seed: int = 5, **how) -> tuple[AlignmentInputs, int]:
    draw = drawn(np.random.default_rng(seed), loop(np.random.default_rng(seed)), **how)
    return inputs_of(draw.logs, draw.profiles)[0], draw.truth_ns[0]


def holds(offsets, truth: int) -> bool:
    return bool(((offsets.start <= truth) & (truth < offsets.end)).any())


def test_an_absolute_clock_is_known_by_the_error_of_the_logs_start():
    inputs, truth = drawn_inputs(hidden=False)
    found = align.find_absolute(inputs)
    assert found.offsets == make_interval(-MS, MS)
    assert holds(found.offsets, truth)
    under_mpi = replace(inputs.own.log, start_error_ns=10 * MS)
    wider = replace(inputs, own=replace(inputs.own, log=under_mpi))
    assert align.find_absolute(wider).offsets == make_interval(-10 * MS, 10 * MS)
    whole = replace(inputs.own.log, start_resolution_ns=SECOND)
    coarse = replace(inputs, own=replace(inputs.own, log=whole))
    assert align.find_absolute(coarse).offsets == make_interval(-SECOND - MS, MS)


def test_a_clock_that_counts_from_elsewhere_is_not_absolute():
    inputs, _ = drawn_inputs()
    assert align.find_absolute(inputs) is None


def test_reads_of_the_waiting_process_give_the_offset():
    inputs, truth = drawn_inputs()
    found = reads_in_waits.find_reads_in_waits(inputs, inputs.lifetime)
    assert holds(found.offsets, truth)
    assert "lies in its" in found.reason


def test_reads_of_workers_are_never_matched_to_waits():
    inputs, _ = drawn_inputs(with_workers)
    assert inputs.workers
    assert reads_in_waits.find_reads_in_waits(inputs, inputs.lifetime) is None


def test_reads_beside_the_waits_are_no_evidence():
    """A tenth of the reads lies outside the waits, at any offset."""
    starts = np.cumsum(np.random.default_rng(2).integers(80, 120, 40)) * MS
    spans = [Span(SpanKind.INPUT_WAIT, int(a), int(a) + 20 * MS) for a in starts]
    inside = [Io(int(a) + 5 * MS, int(a) + 14 * MS, 0, 9) for a in starts]
    beside = [Io(int(a) + 40 * MS, int(a) + 41 * MS, 0, 9) for a in starts]
    logs = (darshan_log(inside),), (darshan_log([*inside, *beside]),)
    seen = (profile(spans),)
    (clean,), (mixed,) = (inputs_of(log, seen) for log in logs)
    assert holds(reads_in_waits.find_reads_in_waits(clean, clean.lifetime).offsets, 0)
    assert reads_in_waits.find_reads_in_waits(mixed, mixed.lifetime) is None


def test_the_order_of_worker_reads_gives_the_offset():
    inputs, truth = drawn_inputs(with_workers)
    assert holds(worker_order.find_worker_order(inputs, inputs.lifetime).offsets, truth)


def test_a_wrong_mapping_leaves_no_offset_open():
    """With one call of `__next__` missing in the middle, nothing fits any more."""
    for seed in range(12):
        inputs, truth = drawn_inputs(with_workers, seed)
        before = worker_order.find_worker_order(inputs, inputs.lifetime)
        if before is None or len(before.offsets.start) != 1:
            continue
        rows = np.flatnonzero(inputs.profile.kind == SpanKind.INPUT_WAIT)
        kept = np.delete(np.arange(len(inputs.profile.kind)), rows[len(rows) // 2])
        columns = ("start_ns", "end_ns", "step", "kind", "thread", "name")
        cut = {name: getattr(inputs.profile, name)[kept] for name in columns}
        after = worker_order.find_worker_order(
            replace(inputs, profile=replace(inputs.profile, **cut)), inputs.lifetime
        )
        assert after is None or holds(after.offsets, truth)


def counted_loop(workers: int):
    """Workers under a loop that counts its batches: no wait finds the end of an epoch."""

    def make(random: np.random.Generator) -> Loop:
        loop = with_workers(random, workers)
        begins = {begin for begin, _ in loop.steps}
        return replace(loop, waits=[w for w in loop.waits if w[0] in begins])

    return make


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loop_that_counts_its_batches_contradicts_no_clock(workers):
    known = 0
    for seed in range(12):
        inputs, truth = drawn_inputs(counted_loop(workers), seed, hidden=False)
        found = worker_order.find_worker_order(inputs, inputs.lifetime)
        assert found is None or holds(found.offsets, truth)
        known += found is not None
        assert align.align_profile(inputs).notices == ()
    assert known >= 8


def test_logs_in_whole_seconds_of_several_processes_share_no_axis():
    inputs, _ = drawn_inputs(with_workers, coarse=True, hidden=False)
    assert not inputs.one_axis
    clock = align.align_profile(inputs)
    assert clock.method == "absolute"
    assert (clock.low_ns, clock.high_ns) == (-SECOND - MS, MS)


def events_of(inputs: AlignmentInputs, lags_ns, sizes=None) -> tuple[AlignmentInputs, EventRecords]:
    """The inputs with an event file whose records were written so much later."""
    n = len(lags_ns)
    sizes = sizes or [42] * n
    wall = JOB_START_NS + 2 * SECOND + 50 * MS * np.arange(n, dtype=np.int64)
    writes = [Io(int(w + lag - JOB_START_NS), int(w + lag - JOB_START_NS) + 1000, 0, 42, 7, 1)
              for w, lag in zip(wall, lags_ns, strict=True)]  # fmt: skip
    log = darshan_log(writes, names={7: "/tb/events.out.tfevents.1.node01.100.0"})
    path = "tb/events.out.tfevents.1.node01.100.0"
    records = EventRecords(path, "node01", 100, wall, np.array(sizes, np.int64))
    seen = profile([Span(SpanKind.STEP, 2 * SECOND, 3 * SECOND, 1)])
    return inputs_of((log,), (seen,), (records,))[0], records


def test_no_record_was_written_before_its_time():
    inputs, records = events_of(None, [3 * MS, *[9 * MS] * 11, 400 * MS])
    found = known_files.find_by_events(inputs, inputs.lifetime)
    assert found.offsets == make_interval(-2 * MS, 3 * MS)
    start = inputs.own.operations(1).start
    lags = known_files.measure_record_lags(records, start, np.full(13, 42, np.int64))
    assert lags.min() == 3 * MS


def test_records_and_writes_of_other_sizes_are_no_evidence():
    inputs, _ = events_of(None, [3 * MS] * 12, [42] * 11 + [43])
    assert known_files.find_by_events(inputs, inputs.lifetime) is None


def test_records_in_blocks_only_bound_the_offset_from_above():
    inputs, _ = events_of(None, [3 * MS] * 12)
    records = inputs.events[0]
    halves = replace(
        records,
        wall_ns=np.repeat(records.wall_ns, 2),
        nbytes=np.repeat(records.nbytes // 2, 2),
    )
    found = known_files.find_by_events(replace(inputs, events=(halves,)), ANY)
    assert int(found.offsets.end[-1]) - 1 == 3 * MS
    assert int(found.offsets.start[0]) < -(2**60)


def test_the_profile_is_written_after_its_last_step():
    seen = profile([Span(SpanKind.STEP, 2 * SECOND, 3 * SECOND, 1)])
    seen = replace(seen, written_as="/tmp/x/trace.json")
    log = darshan_log([Io(4 * SECOND, 4 * SECOND + 9, 0, 9, 3, 1)], names={3: "/tmp/y/trace.json"})
    (inputs,) = inputs_of((log,), (seen,))
    found = known_files.find_by_profile(inputs, ANY)
    assert int(found.offsets.end[-1]) - 1 == SECOND


def test_what_was_observed_wins_over_what_the_clocks_claim_and_that_is_said():
    inputs, truth = drawn_inputs(hidden=False)
    skewed = replace(
        inputs.profile,
        start_ns=inputs.profile.start_ns + 700 * MS,
        end_ns=inputs.profile.end_ns + 700 * MS,
    )
    clock = align.align_profile(replace(inputs, profile=skewed))
    assert clock.low_ns <= truth - 700 * MS <= clock.high_ns
    assert "absolute" not in clock.method
    assert [n.code for n in clock.notices] == ["clock_contradiction"]


def test_a_profile_of_an_unknown_process_is_not_moved_onto_a_look_alike():
    inputs, _ = drawn_inputs(hidden=False)
    skewed = replace(inputs.profile, pid=None, start_ns=inputs.profile.start_ns + 5 * MS,
                     end_ns=inputs.profile.end_ns + 5 * MS)  # fmt: skip
    clock = align.align_profile(replace(inputs, profile=skewed))
    assert -MS <= clock.low_ns <= clock.high_ns <= MS or not clock.aligned


def test_nothing_to_go_by_is_not_aligned():
    inputs, _ = drawn_inputs()
    no_waits = replace(inputs.profile, kind=np.full_like(inputs.profile.kind, SpanKind.STEP))
    clock = align.align_profile(replace(inputs, profile=no_waits))
    assert not clock.aligned
    assert [n.code for n in clock.notices] == ["clock_unverified"]


def test_a_loop_that_repeats_itself_exactly_fits_in_several_places():
    spans = [Span(SpanKind.INPUT_WAIT, k * 100 * MS, k * 100 * MS + 20 * MS) for k in range(10, 20)]
    ios = [Io(k * 100 * MS + 5 * MS, k * 100 * MS + 14 * MS, 0, 9) for k in range(5, 60)]
    seen = profile(spans, base_ns=0)
    (inputs,) = inputs_of((darshan_log(ios),), (seen,))
    clock = align.align_profile(inputs)
    assert not clock.aligned
    assert "places fit" in clock.notices[0].message


def test_a_given_offset_overrides():
    inputs, truth = drawn_inputs()
    clock = align.align_profile(inputs, truth + 30 * MS)
    assert (clock.method, clock.offset_ns) == ("given offset", truth + 30 * MS)
    assert not align.align_profile(inputs, truth + 10**12).aligned


def test_hosts_of_a_shared_log_may_differ():
    """Two ranks of one MPI log; the clock of the second one's host is 0.4 s ahead."""
    random = np.random.default_rng(8)
    rows, profiles = [], []
    for rank, skew in enumerate((0, 400 * MS)):
        starts = np.cumsum(random.integers(80, 140, 40)) * MS + SECOND
        rows += [Io(int(a) + MS, int(a) + 19 * MS, 0, 9, rank=rank) for a in starts]
        spans = [Span(SpanKind.INPUT_WAIT, int(a), int(a) + 20 * MS) for a in starts]
        spans += [Span(SpanKind.STEP, int(a), int(a) + 60 * MS, k) for k, a in enumerate(starts)]
        seen = profile(spans, pid=10 + rank, rank=rank, world_size=2, host=f"node0{rank}",
                       base_ns=JOB_START_NS + skew)  # fmt: skip
        profiles.append(replace(seen, path=f"rank{rank}"))
    log = replace(darshan_log(rows, pid=None, nprocs=2), host="")
    tables = tuple(replace(t, record_host=("node00", "node01")) for t in log.operations)
    log = replace(log, operations=tables)
    found = [align.align_profile(i) for i in inputs_of((log,), tuple(profiles))]
    assert found[0].low_ns <= 0 <= found[0].high_ns
    assert found[1].low_ns <= -400 * MS <= found[1].high_ns
    assert [n.code for n in found[1].notices] == ["clock_contradiction"]


@pytest.mark.parametrize("case", CASES)
def test_draws_are_deterministic(case):
    first, second = (CASES[case](np.random.default_rng(3)) for _ in range(2))
    assert first.truth_ns == second.truth_ns
    assert (first.profiles[0].start_ns == second.profiles[0].start_ns).all()
