"""A part of `make laws`: recorded runs without some of their evidence, a few removals of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import ROOT, SHARED
from tests.breakdown.laws import (
    ASSUMED,
    Found,
    account_for,
    check_nested,
    check_removals,
    open_known,
)
from tests.breakdown.removals import REMOVALS
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.breakdown import assumptions
from vanidl.breakdown.causes import COMMUNICATION, COMPUTE, STORAGE, WORKERS
from vanidl.breakdown.rank_accounts import divide_rank
from vanidl.breakdown.rank_cells import Windows
from vanidl.breakdown.whole_runs import find_serial_processes
from vanidl.model.trace import NO_FETCHES, LogState, SpanKind, Trace


@pytest.mark.parametrize("name", ["torch_fetches", "torch_pfs_workers4", "torch_late_workers"])
def test_without_evidence_cells_widen(name: str) -> None:
    found = check_removals(open_known(ROOT / "tests/data" / name), 3, seed=43)
    assert found.nested > 1000
    assert not found.broken, found.examples


@pytest.mark.parametrize(
    ("name", "removed"),
    [("applications/cosmoflow", "traced calls"), ("ddp_two_hosts", "clocks")],
)
def test_where_calls_lie_moves_neither_the_start_of_workers_nor_collectives(
    name: str, removed: str
) -> None:
    """Calls while a worker starts are its start's, and those within operators no collective's."""
    known, found = open_known(ROOT / "tests/data" / name), Found()
    for seed in range(8):
        trace = REMOVALS[removed](known.trace, np.random.default_rng(seed))
        for position, windows in account_for(trace, known.assume)[0].items():
            whole = known.windows[position]
            check_nested(found, whole, windows, removed, moved=removed == "clocks")
            assert (whole.low[WORKERS].sum() > 0) or (whole.low[COMMUNICATION].sum() > 0)
    assert found.nested > 1000
    assert not found.broken, found.examples


@pytest.mark.parametrize("name", ["tf_tfrecord", "torch_hdf5_workers0", "torch_hdf5_workers2"])
def test_without_evidence_cells_of_logs_at_hand_widen(name: str) -> None:
    path = SHARED / "data/recorded" / name
    if not path.is_dir():
        pytest.skip("no shared logs here")
    found = check_removals(open_known(path), 4, seed=0)
    assert not found.broken, found.examples


@pytest.mark.parametrize(("workers", "is_felt"), [(0, True), (2, False)])
def test_calls_beside_workers_are_felt_only_where_waits_are_marked(
    workers: int, is_felt: bool
) -> None:
    """In a wait that nothing marks they would be of what its worker was late for."""
    trace = trace_of(replace(RECIPE, workers=workers, delivery_us=500 * (workers > 0)))
    trace = replace(trace, io=[replace(part, process=0) for part in trace.io])
    found = windows_of(REMOVALS["waits"](trace, np.random.default_rng(0)))
    assert (found.low[STORAGE].sum() > 0) == is_felt
    assert found.high[STORAGE].sum() > 0


def test_calls_of_other_threads_leave_no_more_to_compute_than_operators_took() -> None:
    """Reads go on behind waits for 10 ms, before the first operator of the step."""
    trace = trace_of(replace(RECIPE, workers=0, delivery_us=0))
    spans = trace.spans
    late = np.where(spans.kind == SpanKind.OP, (spans.end - spans.start) // 2, 0)
    trace = replace(trace, spans=replace(spans, start=spans.start + late))
    crossing = replace(trace, io=[part.shifted(10_000_000) for part in trace.io])
    found, without_calls = windows_of(crossing), windows_of(replace(trace, io=[]))
    assert found.low[STORAGE].sum() == 0
    assert found.high[STORAGE].sum() > 0
    assert (found.high[COMPUTE] <= without_calls.high[COMPUTE]).all()


@pytest.mark.parametrize(("whole", "counts"), [(True, True), (False, False)])
def test_only_a_whole_log_shows_that_calls_come_one_at_a_time(whole: bool, counts: bool) -> None:
    trace = trace_of(replace(RECIPE, workers=0, delivery_us=0))
    trace = replace(trace, logs=(LogState(trace.processes[0].log, "3.41", whole),))
    assert bool(find_serial_processes(trace, analyse(trace))[0]) == counts


def windows_of(trace: Trace, assume: frozenset[str] = ASSUMED) -> Windows:
    found = divide_rank(trace, analyse(trace), 0, assume)
    assert found is not None
    return found


RECIPE = Recipe(workers=2, read_us=20_000, delivery_us=500)
LATE = replace(RECIPE, workers=1, read_us=40_000)
"""One worker that does not keep up."""


def ahead_of(trace: Trace, batches: int) -> Trace:
    ahead = np.full(len(trace.fetches), batches, np.int64)
    return replace(trace, fetches=replace(trace.fetches, ahead=ahead))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("marked", [True, False])
def test_a_clock_that_is_known_less_well_leaves_the_truth_inside(
    seed: int, workers: int, marked: bool
) -> None:
    """Calls of a process lie elsewhere by up to 20 ms, and its clock says by how much at most."""
    trace = trace_of(replace(RECIPE, workers=workers, delivery_us=500 * (workers > 0)))
    if not marked:
        trace = replace(trace, fetches=NO_FETCHES)
    assume = ASSUMED | {assumptions.SOME_WORKER}
    truth = windows_of(trace, assume)
    found = windows_of(REMOVALS["clocks"](trace, np.random.default_rng(seed)), assume)
    assert (found.low[STORAGE] <= truth.high[STORAGE] + 1).all()
    assert (found.high[STORAGE] >= truth.low[STORAGE] - 1).all()
    assert (found.high[STORAGE] - found.low[STORAGE]).sum() > 0


@pytest.mark.parametrize(("open_ns", "moves"), [(1_000_000, False), (1_000_001, True)])
def test_clocks_that_are_known_to_a_millisecond_are_one(open_ns: int, moves: bool) -> None:
    trace = trace_of(replace(RECIPE, workers=0, delivery_us=0))
    first = replace(trace.processes[0], clock_low_ns=-open_ns, clock_high_ns=open_ns)
    trace = replace(trace, processes=(first, *trace.processes[1:]))
    as_one = windows_of(trace_of(replace(RECIPE, workers=0, delivery_us=0)))
    found, strict = windows_of(trace), windows_of(trace, ASSUMED - {assumptions.ONE_CLOCK})
    assert (found.high[STORAGE] > as_one.high[STORAGE]).any() == moves
    assert (strict.high[STORAGE] > as_one.high[STORAGE]).any()
    assert found.assumed[assumptions.ONE_CLOCK].all()
    assert assumptions.ONE_CLOCK not in strict.assumed


def test_a_fetch_that_is_missing_leaves_open_what_its_worker_was_at() -> None:
    """It lies before the wait that is looked at: the worker was not idle then."""
    trace = ahead_of(trace_of(LATE), 2)
    whole = windows_of(trace)
    lost = np.flatnonzero(trace.fetches.batch == 6)
    kept = np.setdiff1d(np.arange(len(trace.fetches)), lost)
    found = windows_of(replace(trace, fetches=trace.fetches.pick(kept)))
    assert (found.low[STORAGE] <= whole.low[STORAGE]).all()
    assert (found.high[STORAGE] >= whole.high[STORAGE]).all()
    assert (found.low[STORAGE] < whole.low[STORAGE]).any()


def test_a_step_whose_mark_is_lost_leaves_time_of_no_known_phase() -> None:
    trace = trace_of(RECIPE)
    steps = np.flatnonzero(trace.spans.kind == 0)
    kept = np.setdiff1d(np.arange(len(trace.spans)), steps[5:6])
    found = windows_of(replace(trace, spans=trace.spans.pick(kept)))
    assert 5 not in found.step
    assert {4, 6} <= set(found.step.tolist())
