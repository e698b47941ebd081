"""Workers' logs that are late, each by its own: the truth lies in what is said of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.makers.clock_cases import FORKED_NS, MS, SECOND, log_outcomes, one, with_workers
from tests.makers.records import Io, darshan_log
from vanidl.merge.clocks import log_clock
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.parts import PackedPart, Store
from vanidl.model.trace import COLUMNS, POSIX, READ, SpanKind
from vanidl.readers.records import CounterFile, CounterRecords

DATA = Path(__file__).parents[2] / "data/torch_late_workers"


def test_the_truth_lies_in_the_interval_of_every_log():
    found = []
    for seed in range(25):
        random = np.random.default_rng([11, seed])
        found += log_outcomes(one(with_workers, hidden=False)(random))
    assert len(found) > 90
    assert all(o.inside and o.error_ns <= o.uncertainty_ns for o in found)
    by_order = [o for o in found if o.method == "order of worker reads"]
    assert len(by_order) >= 0.5 * len(found)
    assert np.median([o.error_ns for o in by_order]) < MS


def late_log(first_ns=20 * MS, last_ns=5 * SECOND, length_ns=10 * SECOND):
    ios = [Io(first_ns, first_ns + MS, 0, 9), Io(last_ns - MS, last_ns, 0, 9)]
    log = darshan_log(ios, parent=99, length_ns=length_ns)
    return replace(log, start_late_ns=FORKED_NS)


def recorded_alone(log, counted=None):
    (clock,) = log_clock.read_log_clocks([log], {log.path: counted} if counted else {})
    return clock


def test_a_forked_process_is_late_by_no_more_than_its_first_operation():
    clock = recorded_alone(late_log())
    assert (clock.low_ns, clock.offset_ns, clock.high_ns) == (-21 * MS, 0, MS)
    assert recorded_alone(late_log(first_ns=2 * SECOND)).low_ns == -FORKED_NS - MS


def test_an_open_comes_before_the_first_read_and_says_more():
    seconds = {"POSIX_F_OPEN_START_TIMESTAMP": np.array([0.0, 0.012])}
    one_file, none = np.zeros(2, np.uint64), np.zeros(2, np.int64)
    counted = CounterFile((CounterRecords(POSIX, one_file, none, {}, seconds),))
    assert recorded_alone(late_log(), counted).low_ns == -13 * MS


def test_no_operation_ends_after_its_process_did():
    """As logged the last one does, by 8 ms: that much late it is at least."""
    clock = recorded_alone(late_log(last_ns=SECOND, length_ns=SECOND - 8 * MS))
    assert (clock.low_ns, clock.high_ns) == (-21 * MS, -7 * MS)
    assert clock.offset_ns == clock.high_ns


def test_a_process_that_was_not_forked_is_not_late():
    clock = recorded_alone(replace(late_log(), start_late_ns=0))
    assert clock == log_clock.LogClock(0, -MS, MS)


@pytest.mark.parametrize("rows", [1, 3, 1 << 18])
def test_many_logs_leave_open_what_each_does(rows, monkeypatch):
    monkeypatch.setattr(log_clock, "_TOGETHER_ROWS", rows)
    silent = replace(late_log(), operations=())
    logs = [late_log(), silent, replace(late_log(), start_late_ns=0), late_log(first_ns=3 * MS)]
    each = [recorded_alone(log) for log in logs]
    assert log_clock.read_log_clocks(logs, {}) == each
    assert len({clock.low_ns for clock in each}) == 4


@pytest.fixture(scope="module")
def recorded():
    return vanidl.open_run(DATA)


@pytest.fixture(scope="module")
def truth() -> dict[int, Intervals]:
    """Pid -> when the process read, or waited, by its own clock."""
    return {int(p.stem): spans(p) for p in (DATA / "truth").glob("*.json")}


def spans(path: Path) -> Intervals:
    return Intervals(*np.array(json.loads(path.read_text()), np.int64).T)


def reads_of(trace, number: int) -> np.ndarray:
    mine = [p.rows((p.op == READ) & (p.nbytes == 1 << 22)) for p in trace.io
            if p.process == number and p.layer == POSIX]  # fmt: skip
    return np.sort(np.concatenate([part.start for part in mine]))


def errors_ns(trace, truth) -> dict[int, tuple[int, int]]:
    """Worker -> (how late its reads are as logged, and as they were laid on the clock)."""
    found = {}
    for number, process in enumerate(trace.processes):
        if process.role == "worker":
            late = int(np.median(reads_of(trace, number) - np.sort(truth[process.pid].start)))
            found[number] = (late - process.clock_offset_ns, late)
    return found


def test_recorded_logs_are_late_and_each_interval_holds_by_how_much(recorded, truth):
    errors = errors_ns(recorded.trace, truth)
    assert len(errors) == 6
    as_logged = np.array([late for late, _ in errors.values()])
    assert as_logged.max() > 20 * MS > 10 * as_logged.min()  # one shift for all is far off
    for number, (late, _) in errors.items():
        process = recorded.trace.processes[number]
        assert process.clock_low_ns <= -late <= process.clock_high_ns
    left = np.array([abs(error) for _, error in errors.values()])
    assert left.mean() < 0.4 * as_logged.mean()


def true_in_wait(run, truth, late_ns) -> float:
    """Seconds of reads in waits, by the times that the program wrote; reads that much later."""
    trace = run.trace
    waits = truth[trace.processes[trace.ranks[0]].pid]
    workers = {n: truth[trace.processes[n].pid] for n in late_ns}
    moved = [shifted(reads, late_ns[n]) for n, reads in workers.items()]
    start, end = (np.concatenate([getattr(r, name) for r in moved]) for name in ("start", "end"))
    steps = trace.spans.kind == SpanKind.STEP
    low, high = int(trace.spans.start[steps].min()), int(trace.spans.end[steps].max())
    reads = intervals.clipped(intervals.union(start, end), low, high)
    return intervals.intersect(reads, waits).length / 1e9


def test_the_true_time_in_waits_lies_in_its_range_and_is_nearer_than_as_logged(recorded, truth):
    errors = errors_ns(recorded.trace, truth)
    true = true_in_wait(recorded, truth, dict.fromkeys(errors, 0))
    as_logged, laid = (
        true_in_wait(recorded, truth, {n: e[k] for n, e in errors.items()}) for k in (0, 1)
    )
    assert abs(laid - true) < 0.5 * abs(as_logged - true)
    (rank,) = recorded.overlap.per_rank
    assert rank.in_wait_at_least_s <= true <= rank.in_wait_at_most_s
    assert rank.in_wait_at_least_s <= rank.in_wait_s <= rank.in_wait_at_most_s
    assert rank.in_wait_s == pytest.approx(laid, rel=0.05)
    assert recorded.steps.clock.workers_uncertainty_s > 0.02


def shifted(reads: Intervals, ns: int) -> Intervals:
    return Intervals(reads.start + ns, reads.end + ns)


def test_the_profile_of_late_workers_is_not_moved(recorded):
    (profile,) = recorded.trace.profiles
    assert profile.clock_offset_ns == 0
    known = [reason.offsets for reason in recorded.steps.clock.evidence]
    assert "at most 201 ms" in known  # in three digits, as all offsets below a second
    assert not [w for w in recorded.coverage.warnings if w.code == "clock_contradiction"]


def test_parts_on_disk_are_shifted_like_those_in_memory():
    part = vanidl.open_run(DATA).trace.io[0]
    both = []
    for spilled in (False, True):
        store = Store.for_rows(len(part), spilled=spilled)
        columns = {name: getattr(part, name) for name in COLUMNS}
        store.add(PackedPart.of(part.process, part.layer, columns))
        both.append(store.finished().shifted({part.process: -5}).shifted({part.process: 2})[0])
    for moved in both:
        assert (moved.start == part.start - 3).all()
        assert (moved.end == part.end - 3).all()
        assert not moved.start.flags.writeable
