"""The replay against laws of queues, and its predictions against runs that were measured."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vanidl
from tests.makers.examples import OFTEN
from tests.makers.runs import analysed
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.advice.capacity import CoreLoad, Throughput
from vanidl.advice.changes import NO_GAIN, STARTING_S, Change, make_loader_call
from vanidl.advice.facts import Facts, Seen
from vanidl.advice.request_costs import collect_reads
from vanidl.advice.what_if import (
    Batches,
    _bracket_step_s,
    _Limits,
    _make_fetches,
    _predict_step_s,
    extract_batches,
    step_lengths,
)
from vanidl.analyses.results import analyse
from vanidl.breakdown import attribute_time
from vanidl.breakdown.rerun import Fetched
from vanidl.errors import UsageError
from vanidl.model import states
from vanidl.report.html import render_html
from vanidl.report.summary import summary_json, summary_text

times = st.lists(st.floats(0.001, 2), min_size=1, max_size=30)


def steps(load, compute, workers, ahead=2, first=None):
    load, compute = np.array(load), np.array(compute)
    first = np.zeros(len(load), bool) if first is None else np.array(first)
    return step_lengths([load], [compute], first, [(workers, ahead)])


@given(times, st.floats(0.001, 2))
def test_without_workers_a_step_is_loading_and_compute(load, compute):
    both = steps(load, [compute] * len(load), 0)
    assert both == pytest.approx(np.array(load) + compute)


@given(times, st.floats(0.001, 2), st.integers(1, 6), st.integers(1, 4))
def test_more_workers_or_places_never_slow_a_run_of_equal_batches(load, compute, workers, ahead):
    equal = [float(np.mean(load))] * len(load)
    computes = [compute] * len(load)
    total = steps(equal, computes, workers, ahead).sum()
    assert steps(equal, computes, workers + 1, ahead).sum() <= total + 1e-9
    assert steps(equal, computes, workers, ahead + 1).sum() <= total + 1e-9
    assert compute * len(load) <= total <= sum(equal) + compute * len(load) + 1e-9


@st.composite
def runs(draw):
    """Whole seconds, so that both ways of adding them up are exact."""
    ranks, count = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    columns = st.lists(st.integers(0, 9), min_size=count, max_size=count)
    first = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    loaders = [draw(st.tuples(st.integers(0, 3), st.integers(1, 3))) for _ in range(ranks)]
    load, compute = ([draw(columns) for _ in range(ranks)] for _ in range(2))
    return load, compute, first, loaders


@OFTEN
@given(runs())
def test_the_replay_is_what_the_rules_of_the_loader_say(drawn):
    """Batch by batch from its definition: when it may begin, is ready, is asked for, is handed."""
    load, compute, first, loaders = drawn
    asked = [0]  # when each step begins, of all ranks
    handed: list[list[int]] = [[] for _ in loaders]
    ready: list[list[int]] = [[] for _ in loaders]
    epoch = 0
    for k in range(len(first)):
        epoch = k if first[k] else epoch
        for rank, (workers, ahead) in enumerate(loaders):
            before = [asked[epoch]]
            if not workers:
                before.append(asked[k])
            elif k - workers >= epoch:
                before.append(ready[rank][k - workers])
            if workers and k - workers * ahead >= epoch:
                before.append(handed[rank][k - workers * ahead])
            ready[rank].append(max(before) + load[rank][k])
            handed[rank].append(max(ready[rank][k], asked[k]))
        asked.append(max(handed[r][k] + compute[r][k] for r in range(len(loaders))))
    arrays = ([np.array(one, float) for one in each] for each in (load, compute))
    found = step_lengths(*arrays, np.array(first), loaders)
    assert found.tolist() == np.diff(asked).tolist()


def test_one_worker_is_bound_by_the_slower_of_loading_and_compute():
    assert steps([3.0] * 40, [1.0] * 40, 1)[1:] == pytest.approx(3.0)
    assert steps([1.0] * 40, [3.0] * 40, 1)[1:] == pytest.approx(3.0)


def test_workers_start_anew_with_an_epoch():
    first = [False] * 5 + [True] + [False] * 4
    lengths = steps([2.0] * 10, [3.0] * 10, 4, first=first)
    assert lengths[[0, 5]] == pytest.approx([5.0, 5.0])
    assert np.delete(lengths, [0, 5]) == pytest.approx(3.0)


def test_ranks_wait_for_the_slowest():
    slow, fast = np.full(4, 2.0), np.full(4, 0.5)
    lengths = step_lengths([slow, fast], [np.ones(4)] * 2, np.zeros(4, bool), [(0, 2), (0, 2)])
    assert lengths == pytest.approx(3.0)


@pytest.mark.parametrize("name", ["torch_pfs_workers0", "torch_hdf5_workers0"])
def test_replay_of_reads_in_the_process_gives_back_what_was_measured(shared, name):
    found = vanidl.open_run(shared / "data/recorded" / name).what_if
    assert found.replayed_s == pytest.approx(found.step_s, rel=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "workers"),
    [
        ("torch_pfs_workers0", "torch_pfs_workers4", 4),
        ("torch_hdf5_workers0", "torch_hdf5_workers2", 2),
    ],
)
def test_predicted_change_is_within_20_percent_of_the_measured_one(shared, before, after, workers):
    run, other = (vanidl.open_run(shared / "data/recorded" / n) for n in (before, after))
    measured = run.steps.mean_s - other.steps.mean_s
    predicted = run.steps.mean_s - run.predict(Change(workers=workers)).step_s
    assert predicted == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("read_us", [2_000, 20_000, 60_000])
def test_prediction_of_synthetic_workers_is_what_these_workers_do(workers, read_us):
    base = Recipe(workers=0, read_us=read_us, epochs=1, steps=40)
    made = Recipe(workers=workers, read_us=read_us, epochs=1, steps=40)
    before, after = (trace_of(recipe) for recipe in (base, made))
    found = analysed(before).predict(Change(workers=workers))
    assert found.step_s == pytest.approx(analyse(after).steps.mean_s, rel=0.02)


RECORDED = Recipe(workers=1, read_us=20_000, delivery_us=500, epochs=2, steps=20)
"""A run whose fetches were recorded."""


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (RECORDED, {"workers": 2}, replace(RECORDED, workers=2)),
        (replace(RECORDED, workers=2), {"workers": 1}, RECORDED),
        (RECORDED, {"bandwidth": 2, "latency": 0.5}, replace(RECORDED, read_us=10_000)),
        (replace(RECORDED, ranks=2), {"workers": 2}, replace(RECORDED, ranks=2, workers=2)),
    ],
)
def test_recorded_fetches_are_run_again(before, change, after):
    trace, other = trace_of(before), trace_of(after)
    run = analysed(trace)
    assert (
        extract_batches(trace, run.results, run.breakdown, collect_reads(trace))[0].fetched
        is not None
    )
    found = run.predict(Change(**change))
    assert found.step_s == pytest.approx(analyse(other).steps.mean_s, rel=0.005)
    assert run.what_if.replayed_s == pytest.approx(run.steps.mean_s, rel=0.001)


def test_fetches_that_steps_did_not_take_are_not_run_again():
    """Fetches of two loaders, or of fewer steps than there are, are laid out from reads."""
    trace = trace_of(RECORDED)
    fetches = trace.fetches
    few = replace(trace, fetches=fetches.pick(np.arange(len(fetches)) % 2 == 0))
    two = replace(fetches, name=np.arange(len(fetches)) % 2, names=("a", "b"))
    for other in (few, replace(trace, fetches=two)):
        account = analysed(other).breakdown
        assert (
            extract_batches(other, analyse(trace), account, collect_reads(other))[0].fetched is None
        )


def test_faster_storage_and_decoding_scale_their_own_part():
    trace = trace_of(Recipe(workers=0, read_us=6_000, decode_us=4_000))
    run = analysed(trace)
    half_io = run.predict(Change(bandwidth=2, latency=0.5)).step_s
    half_decode = run.predict(Change(decode=2)).step_s
    assert [half_io, half_decode] == pytest.approx([0.068, 0.072], rel=0.01)


SHARED = Recipe(workers=0, ranks=2, fresh=False, epochs=3, steps=8, read_us=6_000)


def predicted(recipe: Recipe, **change) -> float:
    trace = trace_of(recipe)
    return analysed(trace).predict(Change(**change)).step_s


def test_partial_local_shuffling_reads_its_part_once_and_eight_at_a_time():
    """One epoch's loading in the first step, an eighth of it long; then compute alone."""
    trace = trace_of(SHARED)
    run = analysed(trace)
    load_s = SHARED.batch * SHARED.read_us / 1e6
    steps, compute_s = SHARED.epochs * SHARED.steps, SHARED.compute_us / 1e6
    expected = compute_s + SHARED.steps * load_s / 8 / steps
    found = run.predict(Change(exchanged=0.3)).step_s
    assert found == pytest.approx(expected, rel=0.02)


def test_partial_local_shuffling_is_bound_by_storage_and_by_its_link():
    nbytes = SHARED.batch * SHARED.sample_nbytes
    steps, compute_s = SHARED.epochs * SHARED.steps, SHARED.compute_us / 1e6
    first_s = SHARED.steps * SHARED.ranks * nbytes / 100e6
    slow = predicted(SHARED, exchanged=0.3, total_bytes_per_s=100e6)
    assert slow == pytest.approx(compute_s + first_s / steps, rel=0.02)
    carried_s = 0.5 * nbytes / 50e6  # longer than a step computes
    assert carried_s > compute_s
    linked = predicted(SHARED, exchanged=0.5, link_bytes_per_s=50e6)
    assert linked == pytest.approx(carried_s, rel=0.06)
    assert predicted(SHARED, exchanged=0.5, link_bytes_per_s=50e9) == pytest.approx(
        predicted(SHARED, exchanged=0.0)
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_blocks_take_their_part_of_the_time(ranks):
    same = replace(SHARED, ranks=ranks, who_reads="same", decode_us=1_000, epochs=1, steps=16)
    now = same.batch * (same.read_us + same.decode_us) / 1e6
    found = predicted(same, divided=ranks)
    assert found == pytest.approx(same.compute_us / 1e6 + now / ranks, rel=0.02)


def test_blocks_of_what_one_rank_read_are_bound_by_storage():
    one = replace(SHARED, ranks=4, who_reads="one", epochs=1, steps=16)
    nbytes = one.batch * one.sample_nbytes  # of a step, for all
    found = predicted(one, divided=4, total_bytes_per_s=200e6)
    assert found == pytest.approx(one.compute_us / 1e6 + nbytes / 200e6, rel=0.05)


def rows(recipe: Recipe) -> dict[str, float]:
    trace = trace_of(recipe)
    return {r.name: r.gain_at_most_s for r in analysed(trace).what_if.rows}


@pytest.mark.parametrize(
    ("recipe", "word"),
    [
        (SHARED, "pls"),
        (replace(SHARED, who_reads="same"), "spatial"),
        (replace(SHARED, ranks=1), None),
    ],
)
def test_the_table_names_what_several_ranks_can_do(recipe, word):
    named = {w for name in rows(recipe) for w in ("pls", "spatial") if w in name}
    assert named == ({word} if word else set())


LOADERS = {"kept": "scheduled", "exchanged": "pls", "divided": "spatial", "decode": "decoded"}
"""What makes a change; all other changes are arguments of the loader at hand, or hardware."""


@pytest.mark.parametrize("recipe", [SHARED, replace(SHARED, who_reads="same"), Recipe(workers=0)])
def test_a_row_names_the_loader_that_makes_the_change_and_its_command(recipe):
    """In JSON, text and page, as the loaders' own command line understands it."""
    pytest.importorskip("torch")
    from vanidl_loaders.cli import _make_parser as loaders_parser

    trace = trace_of(recipe)
    run = analysed(trace)
    content = json.loads(summary_json(run))["what_if"]["rows"]
    text = " ".join(summary_text(run).replace("\\\n", "").split())  # lines as a shell joins them
    page = html.unescape(re.sub("<(?!/figure).*?>", "", render_html(run).split('id="what-if"')[1]))
    for row in content:
        assert (row["loader"] or {}).get("name") == LOADERS.get(row["lever"]), row
        if row["loader"] is None:
            continue
        command = row["loader"]["command"]
        assert command in text
        assert command in page.split("</figure>")[0]
        assert ("torchrun --nproc-per-node" in command) == (recipe.ranks > 1)
        words = shlex.split(command.partition("vanidl_loaders ")[2])
        options = vars(loaders_parser(words).parse_args(words))
        assert options["loader"] == row["loader"]["name"]
        share = {"kept": "buffer_fraction", "exchanged": "exchange_fraction"}.get(row["lever"])
        assert share is None or options[share] == row["amount"]
    assert any(row["loader"] for row in content)


@pytest.mark.parametrize(
    "recipe", [Recipe(), Recipe(workers=0), SHARED, Recipe(read_us=1, decode_us=0)]
)
def test_a_change_that_gains_nothing_is_no_row(recipe):
    """Rounding gives gains of 1e-13 s; a row has one of 0.1 % of the steps at least."""
    trace = trace_of(recipe)
    found = analysed(trace).what_if
    steps = recipe.epochs * recipe.steps
    assert all(r.gain_at_most_s >= NO_GAIN * found.step_s * steps for r in found.rows)
    assert all(r.step_s < found.replayed_s for r in found.rows)


def test_no_gain_is_said_as_zero():
    trace = trace_of(Recipe(workers=0, decode_us=0))
    run = analysed(trace)
    assert run.predict(Change(bandwidth=1 + 1e-12)).gain_at_most_s == 0
    assert run.predict(Change(bandwidth=0.5)).gain_at_most_s == 0


def test_request_cost_finds_latency_and_bandwidth():
    trace = trace_of(Recipe(workers=0))
    assert collect_reads(trace).cost is None  # one size tells nothing
    part = trace.io[0]
    data = np.flatnonzero(part.nbytes > 8000)
    nbytes = part.nbytes.copy()
    nbytes[data] = np.random.default_rng(1).integers(1_000, 4_000_000, len(data))
    end = part.end.copy()
    end[data] = part.start[data] + 500_000 + nbytes[data]
    cost = collect_reads(replace(trace, io=(replace(part, nbytes=nbytes, end=end),))).cost
    assert cost.latency_s == pytest.approx(500e-6, rel=1e-3)
    assert cost.s_per_byte == pytest.approx(1e-9, rel=1e-3)


def test_results_of_a_part_of_the_time_are_not_replayed(shared):
    run = vanidl.open_run(shared / "data/recorded/torch_pfs_workers0")
    assert run.what_if is not None
    assert run.select(vanidl.Selection(from_s=10.0, to_s=20.0)).what_if is None


@pytest.mark.parametrize(
    "recipe", [Recipe(profiled=False), Recipe(wait_spans=False), Recipe(shift_s=60.0)]
)
def test_a_run_without_waits_is_not_replayed(recipe):
    trace = trace_of(recipe)
    run = analysed(trace)
    assert run.what_if is None
    with pytest.raises(UsageError, match="expected profiled steps"):
        run.predict(Change())


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 0},
        {"kept": 1.5},
        {"workers": -1},
        {"ahead": 0},
        {"divided": 0},
        {"exchanged": 1.1},
        {"link_bytes_per_s": 0.0},
        {"total_bytes_per_s": -1.0},
    ],
)
def test_impossible_changes_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        Change(**wrong)


AHEAD = Recipe(workers=1, thread=True, read_us=4_000, decode_us=1_000, compute_us=30_000)
"""A thread of the training process reads 20 ms for each step of 30 ms."""


@pytest.mark.parametrize("recipe", [AHEAD, replace(AHEAD, read_us=12_000), replace(AHEAD, ranks=2)])
def test_a_thread_that_reads_ahead_is_refused_in_words(recipe):
    trace = trace_of(recipe)
    run = analysed(trace)
    found = run.what_if
    assert (found.rows, found.replayed_s) == ((), None)
    assert "a thread of the training process reads ahead" in found.refused
    with pytest.raises(UsageError, match="reads ahead"):
        run.predict(Change(bandwidth=2))


@pytest.mark.parametrize("changes", [{"workers": 0}, {"workers": 1}, {"workers": 2}])
def test_loaders_without_such_a_thread_are_replayed(changes):
    trace = trace_of(replace(AHEAD, thread=False, **changes))
    assert not analysed(trace).what_if.refused


def test_a_refusal_is_in_text_page_and_json():
    trace = trace_of(AHEAD)
    run = analysed(trace)
    page = html.unescape(render_html(run))
    for output in (" ".join(summary_text(run).split()), summary_json(run), page):
        assert "a thread of the training process reads ahead" in output
    assert "gains at most" not in page.split('id="what-if"')[1].split("</figure>")[0]


@pytest.mark.parametrize(("ranks", "hosts"), [(1, 1), (4, 1), (4, 2), (6, 3), (3, 2)])
def test_the_command_of_a_loader_starts_all_ranks_of_all_hosts(ranks, hosts):
    """A job of two hosts is not started as one of all its ranks on a single host."""
    words = shlex.split(make_loader_call("scheduled", ranks=ranks, hosts=hosts).command)
    options = dict(pairwise(words))
    started = int(options.get("--nnodes", 1)) * int(options.get("--nproc-per-node", 1))
    assert started == ranks
    assert ("--rdzv-endpoint" in options) == (int(options.get("--nnodes", 1)) > 1)
    assert int(options.get("--nnodes", 1)) == (hosts if ranks % hosts == 0 else 1)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_a_step_of_several_batches_takes_as_long_as_all_of_them(workers):
    """Gradients that are accumulated over four batches: a step is four of those of one batch."""
    load_s, compute_s, first = np.full(40, 0.010), np.full(40, 0.005), np.zeros(40, bool)
    (fetched,) = _make_fetches([load_s], [compute_s], first)
    length_s = load_s + compute_s
    one = Batches(
        io_s=np.zeros(40), decode_s=load_s, compute_s=compute_s, wait_s=load_s, step_s=length_s,
        first=first, again=np.zeros(40), workers=0, nbytes=np.zeros(40), latency_share=None,
        fetched=fetched,
    )  # fmt: skip
    four = replace(one, step_s=4 * length_s, a_step=4.0)
    change = Change(workers=workers)
    assert _predict_step_s((four,), change) == pytest.approx(4 * _predict_step_s((one,), change))
    assert four.steps == 10


def of_a_worker_that_hands_over_late(held_s: float, ready: bool) -> tuple[Batches, ...]:
    """One worker fetches for 10 ms a batch, which arrives `held_s` after that; steps take 2 ms.

    Between, it fetches the next batch: a thread of it hands over what lies there.
    """
    count, fetch_s, step_s = 60, 0.010, 0.002
    end = (np.arange(1, count + 1) * fetch_s * 1e9).astype(np.int64)
    arrives = end + round(held_s * 1e9)
    wait_end = arrives + 1000
    wait_begin = np.concatenate([[0], wait_end[:-1] + round(step_s * 1e9)])
    known = arrives if ready else np.full(count, -1)
    fetched = Fetched(
        worker=np.zeros(count, np.int64), asked_ns=np.full(count, -1), begin_ns=end - round(1e7),
        end_ns=end, ready_ns=known, wait_begin_ns=wait_begin, wait_end_ns=wait_end,
        epoch=np.zeros(count, np.int64), workers=1,
    )  # fmt: skip
    spent = np.full(count, fetch_s)
    return (
        Batches(
            io_s=np.zeros(count), decode_s=spent, compute_s=np.full(count, step_s),
            wait_s=(wait_end - wait_begin) / 1e9, step_s=np.diff(wait_end, prepend=0) / 1e9,
            first=np.zeros(count, bool), again=np.zeros(count), workers=1,
            nbytes=np.zeros(count), latency_share=None, fetched=fetched,
        ),
    )  # fmt: skip


def test_who_sleeps_in_waits_has_batches_that_are_on_their_way():
    two = Change(workers=2)
    ranks = of_a_worker_that_hands_over_late(0.009, ready=False)
    asleep, awake = (
        _bracket_step_s(ranks, two, _Limits(None, None, sleeps)) for sleeps in (True, False)
    )
    known_s = _bracket_step_s(
        of_a_worker_that_hands_over_late(0.009, ready=True), two, _Limits(None, None, False)
    )[0]
    # As if it were known: two workers halve what one takes, whoever hands over; else it may stay.
    assert asleep[0] == pytest.approx(known_s, rel=0.02)
    assert asleep[0] < 0.8 * awake[0]
    assert asleep[1] == awake[1]


@pytest.mark.parametrize("workers", [5, 8, 12, 16])
def test_storage_at_its_limit_is_never_idle_at_best(workers):
    """50 batches of 1 MB by four workers, of which a saturated storage delivers 25 MB a second.

    However many fetch, the last ones share it with fewer others: no more than all bytes take.
    """
    count, size, limit = 50, 1e6, 25e6
    io_s = np.full(count, 4 * size / limit)
    compute_s, first, none = np.full(count, 0.001), np.zeros(count, bool), np.zeros(count)
    length_s = np.full(count, size / limit)
    batch = Batches(
        io_s=io_s, decode_s=none, compute_s=compute_s, wait_s=length_s - compute_s,
        step_s=length_s, first=first, again=none, workers=4, nbytes=np.full(count, size),
        latency_share=None,
    )  # fmt: skip
    storage = Throughput("/data", limit, limit, None, 4.0, True)
    best_s, worst_s = _bracket_step_s((batch,), Change(workers=workers), _Limits(storage, None))
    started_s = STARTING_S[0] / count
    assert size / limit <= best_s <= size / limit * 1.001 + started_s
    assert worst_s >= best_s


@pytest.mark.parametrize(("stalls", "stays"), [(1, True), (2, True), (80, False)])
def test_what_few_fetches_wait_for_in_storage_stays_at_worst_beside_the_work_of_cores(
    stalls, stays
):
    """80 batches of 12 ms of work, 100 ms of storage in one of them, in two, or the same in all."""
    count, whole_s = 80, 0.1
    decode_s, compute_s = np.full(count, 0.012), np.full(count, 0.006)
    io_s = np.zeros(count)
    io_s[:stalls] = whole_s / stalls
    first = np.zeros(count, bool)
    (fetched,) = _make_fetches([io_s + decode_s], [compute_s], first)
    batch = Batches(
        io_s=io_s, decode_s=decode_s, compute_s=compute_s, wait_s=io_s + decode_s,
        step_s=io_s + decode_s + compute_s, first=first, again=np.zeros(count), workers=0,
        nbytes=np.zeros(count), latency_share=None, fetched=fetched,
    )  # fmt: skip
    cores, two = CoreLoad(2.0, 0.018), Change(workers=2)
    _, worst_s = _bracket_step_s((batch,), two, _Limits(None, cores))
    even = replace(batch, io_s=np.zeros(count))
    _, without_s = _bracket_step_s((even,), two, _Limits(None, cores))
    assert worst_s - without_s == pytest.approx(whole_s / count if stays else 0.0)
    # Work of few fetches cores share with nothing else: half of it is in the work as such.
    works = replace(batch, decode_s=io_s + decode_s, io_s=np.zeros(count))
    _, worked_s = _bracket_step_s((works,), two, _Limits(None, cores))
    assert worked_s - without_s == pytest.approx(whole_s / count / 2 if stays else 0.0)


@pytest.mark.parametrize(("running", "sleeps"), [(0.49, True), (0.51, False), (None, False)])
def test_training_sleeps_in_its_waits_where_it_runs_less_than_half_of_them(
    monkeypatch, running, sleeps
):
    seen = None if running is None else Seen(1.0, 100, {states.RUNNING: running}, 0.0)
    monkeypatch.setattr(Facts, "look_at_part", lambda self, part: seen)
    trace = trace_of(Recipe())
    results = analyse(trace)
    assert _Limits.of(trace, results, attribute_time(trace, results)).sleeps == sleeps
