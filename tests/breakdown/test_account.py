"""Laws of the account of time, over recorded runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import vanidl
from tests import DATA, ROOT
from tests.makers.results import EXAMPLES
from vanidl.analyses.results import analyse
from vanidl.breakdown import Breakdown, assumptions, attribute_time
from vanidl.breakdown.account import PHASE, RUN, STEP, STEP_PART, WAIT, Column
from vanidl.breakdown.attribution import open_gains
from vanidl.breakdown.causes import CAUSES, STORAGE, STORAGE_PARTS, narrow_bounds
from vanidl.breakdown.rank_accounts import attribute_ranks, divide_rank
from vanidl.breakdown.windows import Tiles, tile_rank
from vanidl.model import intervals
from vanidl.model.selection import select
from vanidl.model.trace import READ, SpanKind
from vanidl.run import Run, open_run

RUNS = ("ddp_two_hosts", "torch_fetches", "torch_late_workers", "torch_pfs_workers0",
        "torch_pfs_workers4")  # fmt: skip


@cache
def run_of(name: str) -> Run:
    return open_run(ROOT / "tests" / "data" / name)


@cache
def account_of(name: str) -> Breakdown:
    return run_of(name).breakdown


def tiles_of(name: str, position: int = 0) -> Tiles:
    run = run_of(name)
    tiles = tile_rank(select(run.trace, run.selection), position)
    assert tiles is not None
    return tiles


@pytest.mark.parametrize("name", RUNS)
def test_tiles_fill_the_run_exactly(name: str) -> None:
    run = run_of(name)
    for position in range(len(run.trace.ranks)):
        tiles = tiles_of(name, position)
        assert tiles.start[0] == run.trace.job.start_ns
        assert tiles.end[-1] == run.trace.job.end_ns
        assert (tiles.start[1:] == tiles.end[:-1]).all()
        assert (tiles.length > 0).all()
        assert set(np.unique(tiles.step).tolist()) == {-1, *range(tiles.steps)}


@pytest.mark.parametrize("name", RUNS)
def test_causes_fill_each_window(name: str) -> None:
    account = account_of(name)
    for window in (RUN, STEP, WAIT):
        for who in ("mean", *map(str, range(len(account.ranks)))):
            length = account.length_ns(window, who)
            cells = [account.cell(f"{who}/{window}/{cause}") for cause in CAUSES]
            assert sum(cell.low_ns for cell in cells) <= length + len(cells)
            assert sum(cell.high_ns for cell in cells) >= length - len(cells)
            assert all(0 <= cell.low_ns <= cell.high_ns <= length + 1 for cell in cells)


@pytest.mark.parametrize("name", RUNS)
def test_parts_of_storage_lie_within_it(name: str) -> None:
    account = account_of(name)
    for window in (RUN, STEP, WAIT):
        total = account.columns[f"{window}/{STORAGE}"]
        parts = [
            account.columns[key]
            for part in STORAGE_PARTS
            if part != "exchange" and (key := f"{window}/{STORAGE}.{part}") in account.columns
        ]
        assert (sum(part.low for part in parts) <= total.high + len(parts)).all()
        assert (sum(part.high for part in parts) >= total.low - len(parts)).all()


@pytest.mark.parametrize("name", RUNS)
def test_waits_lie_in_steps_and_steps_in_the_run(name: str) -> None:
    account = account_of(name)
    for cause in CAUSES:
        wait, step, run = (account.columns.get(f"{window}/{cause}") for window in (WAIT, STEP, RUN))
        if wait is not None and step is not None and run is not None:
            assert (wait.low <= step.high).all()
            assert (step.low <= run.high + 1).all()
    parts = [c for key, c in account.columns.items() if key.startswith(f"{STEP_PART}/")]
    assert (sum(part.low for part in parts) == account.columns[f"{STEP}/"].low).all()
    phases = [c for key, c in account.columns.items() if key.startswith(f"{PHASE}/")
              and key.count("/") == 1]  # fmt: skip
    assert (sum(phase.low for phase in phases) <= account.window_ns).all()
    assert (sum(phase.high for phase in phases) >= account.window_ns).all()


def test_reads_of_a_loop_without_workers_are_those_of_plain_loops() -> None:
    """Every read of the training process in a wait of a step, operation by operation."""
    run = run_of("torch_pfs_workers0")
    trace, tiles = run.trace, tiles_of("torch_pfs_workers0")
    waits = [(a, b) for a, b, w, s in
             zip(tiles.start, tiles.end, tiles.wait, tiles.step, strict=True)
             if w >= 0 and s >= 0]  # fmt: skip
    spent = 0
    for part in trace.io:
        mine = part.op == READ
        reads = intervals.union(part.start[mine], part.end[mine])
        for a, b in zip(reads.start.tolist(), reads.end.tolist(), strict=True):
            spent += sum(max(min(b, high) - max(a, low), 0) for low, high in waits)
    cell = account_of("torch_pfs_workers0").cell(f"0/{WAIT}/{STORAGE}.read")
    assert cell.low_ns == spent
    assert cell.high_ns - cell.low_ns <= 0.05 * account_of("torch_pfs_workers0").length_ns(WAIT)


def test_a_mean_step_is_the_mean_of_its_steps_alone() -> None:
    """Waits between steps, as those at the ends of epochs, are in no step."""
    tiles = tiles_of("torch_fetches")
    steps = np.bincount(tiles.step[tiles.step >= 0], tiles.length[tiles.step >= 0])
    account = account_of("torch_fetches")
    assert account.length_ns(STEP) == pytest.approx(steps.mean(), abs=1)
    spans = run_of("torch_fetches").trace.spans
    waited = int((spans.end - spans.start)[spans.kind == SpanKind.INPUT_WAIT].sum())
    assert account.length_ns(WAIT) < waited


def test_settling_leaves_no_room_that_others_take() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        truth = rng.integers(0, 100, (3, 5))
        length = truth.sum(axis=0)
        low = {str(k): np.maximum(t - rng.integers(0, 40, 5), 0) for k, t in enumerate(truth)}
        high = {str(k): t + rng.integers(0, 40, 5) for k, t in enumerate(truth)}
        lows, highs = narrow_bounds(length, low, high)
        for k, value in enumerate(truth):
            name = str(k)
            assert (lows[name] <= value).all()
            assert (value <= highs[name]).all()
            assert (lows[name] >= low[name]).all()
            assert (highs[name] <= np.minimum(high[name], length)).all()
            others = sum(lows[n] for n in low if n != name)
            assert (highs[name] <= length - sum(low[n] for n in low if n != name)).all()
            del others


def test_a_key_without_its_rank_or_window_is_refused() -> None:
    account = account_of("torch_fetches")
    assert account.cell("mean/step/copy").high_ns == 0
    with pytest.raises(KeyError):
        account.cell("mean/nowhere/storage")


def test_counters_alone_account_for_whole_runs() -> None:
    run = run_of("torch_pfs_workers0")
    trace = select(run.trace, run.selection)
    assert attribute_time(trace, run.results).cell(f"mean/{RUN}/{STORAGE}").high_ns


@pytest.mark.parametrize("name", RUNS)
def test_every_window_of_a_rank_fills_it_and_adds_up_to_its_cells(name: str) -> None:
    run, account = run_of(name), account_of(name)
    trace = select(run.trace, run.selection)
    for position in range(len(trace.ranks)):
        rows = divide_rank(trace, run.results, position)
        assert rows is not None
        assert rows.length_ns.sum() == account.window_ns
        of_steps = rows.step >= 0
        assert len(np.unique(rows.step[of_steps])) == account.steps[position]
        for cause in CAUSES:
            column = account.columns.get(f"{STEP}/{cause}")
            if column is not None and cause != STORAGE:
                assert rows.low[cause][of_steps].sum() <= column.low[position]
                assert rows.high[cause][of_steps].sum() >= column.high[position]


def test_the_frame_has_both_ends_of_every_cell() -> None:
    run = run_of("torch_fetches")
    frame = run.frame("breakdown")
    waits = frame[frame["part"] == "input_wait"]
    account = account_of("torch_fetches")
    assert waits["window_s"].sum() * 1e9 == pytest.approx(account.length_ns(WAIT))
    assert sorted(frame["epoch"].dropna().unique()) == [0, 1, 2]
    assert (frame["storage_at_least_s"] <= frame["storage_at_most_s"]).all()
    assert run_of("torch_fetches").select(run.selection).frame("breakdown").equals(frame)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("what", sorted(assumptions.ALL))
def test_a_cell_that_rests_on_an_assumption_names_it(name: str, what: str) -> None:
    """Without the assumption it is another; without a cell that names it nothing changes."""
    run, account = run_of(name), account_of(name)
    trace = select(run.trace, run.selection)
    other = attribute_time(trace, run.results, assumptions.ALL - {what})
    if what == assumptions.FOLLOWS:  # without it the windows are others
        return
    # Calls that came one at a time but for a thousandth are in two parts that much.
    twice = account.columns[f"{RUN}/{STORAGE}"].high // 1000
    for key in account.columns.keys() & other.columns.keys():
        column, without = account.columns[key], other.columns[key]
        same = (column.low == without.low).all() and (column.high == without.high).all()
        assert same or what in column.assumed, key
        assert what not in without.assumed
        assert (without.low <= column.low + twice).all(), key
        assert (without.high + twice >= column.high).all(), key


def test_epochs_add_up_to_what_lies_in_them() -> None:
    account = account_of("torch_fetches")
    frame = run_of("torch_fetches").frame("breakdown")
    for epoch in range(3):
        mine = frame[frame["epoch"] == epoch]
        assert account.cell(f"0/epoch/{epoch}/").low_ns == pytest.approx(
            mine["window_s"].sum() * 1e9, abs=10
        )
        waits = mine[(mine["part"] == "input_wait") & (mine["step"] >= 0)]
        cell = account.cell(f"mean/epoch/{epoch}/{WAIT}/{STORAGE}")
        assert cell.low_ns == pytest.approx(waits["storage_at_least_s"].sum() * 1e9, abs=100)
        assert account.cell(f"0/epoch/{epoch}/{WAIT}/").low_ns == pytest.approx(
            waits["window_s"].sum() * 1e9, abs=100
        )
    start, stop = (account.cell(f"0/{RUN}/workers.{part}") for part in ("start", "stop"))
    whole = account.cell(f"0/{RUN}/workers")
    assert start.low_ns + stop.low_ns <= whole.high_ns
    assert 0 < stop.high_ns < start.high_ns <= whole.high_ns


def test_counters_alone_bound_the_storage_of_steps_and_what_is_gained_without() -> None:
    """No call was traced: storage of all waits is no more than what a rank's counters add up to."""
    run = vanidl.open_run(DATA / "torch_pfs_workers0")
    counted = replace(run.trace, io=(), metadata_calls={}, calls={}, layers_traced=())
    results = analyse(counted)
    account = attribute_time(counted, results)
    spent_s = sum(
        table.seconds[name].sum()
        for table in run.trace.counters.values()
        for name in table.seconds
        if name.endswith(("_F_READ_TIME", "_F_WRITE_TIME", "_F_META_TIME"))
    )
    (low_s, high_s), (true_s, _) = (
        each.cell("mean/input_wait/storage").range_s for each in (account, run.breakdown)
    )
    assert low_s <= true_s <= high_s <= spent_s + 1e-6 < account.length_ns("input_wait") / 1e9
    gains = open_gains(counted, results, account)
    assert gains is not None
    gain, true = gains.without("storage"), run.gains.without("storage")
    assert gain.low_ns <= true.low_ns <= true.high_ns <= gain.high_ns <= spent_s * 1e9 + 1e3


def test_imbalance_is_the_slowest_less_the_mean():
    exactly = np.array([10, 50, 30])
    assert Column(exactly, exactly, 30, 30).bound_imbalance_ns() == pytest.approx((20, 20))
    assert Column(exactly[:1], exactly[:1], 10, 10).bound_imbalance_ns() == (0, 0)
    random = np.random.default_rng(3)
    low, high = exactly - random.integers(10, size=3), exactly + random.integers(10, size=3)
    least, most = Column(low, high, low.mean(), high.mean()).bound_imbalance_ns()
    for _ in range(100):
        drawn = low + random.random(3) * (high - low)
        assert least <= drawn.max() - drawn.mean() <= most


@pytest.mark.parametrize("name", ["counters_only", "untraced", "imbalanced-io.darshan"])
def test_a_run_of_counters_has_the_account_that_going_through_its_ranks_gives(
    name: str, request: pytest.FixtureRequest
) -> None:
    if name in EXAMPLES:
        run = EXAMPLES[name]().run
    else:
        shared, opened = (request.getfixturevalue(each) for each in ("shared", "opened"))
        run = opened(shared / "data" / "public" / "darshan_logs" / name)
    account = attribute_time(run.trace, run.results)
    by_ranks = attribute_ranks(run.trace, run.results, assumptions.ALL)
    assert account.columns.keys() == by_ranks.columns.keys()
    for key, column in account.columns.items():
        other = by_ranks.columns[key]
        assert np.array_equal(column.low, other.low), key
        assert np.array_equal(column.high, other.high), key
        assert (column.mean_low, column.mean_high) == (other.mean_low, other.mean_high), key
        assert (column.evidence, column.assumed) == (other.evidence, other.assumed), key
    beside = ("labels", "ranks", "window_ns", "layers", "outermost", "overlap", "phases",
              "step_records", "served", "hosts_apart", "unseen")  # fmt: skip
    assert [getattr(account, each) for each in beside] == [
        getattr(by_ranks, each) for each in beside
    ]
    assert dict(account.fates) == dict(by_ranks.fates) == {}
