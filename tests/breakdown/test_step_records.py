"""What happened during each step, against a plain loop and the laws of the totals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vanidl
from tests.analyses.test_laws import operations, spans, steps, trace_of
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.makers.runs import analysed
from tests.makers.sameness import same
from vanidl.analyses.profiled_steps import StepTable
from vanidl.analyses.reducing import collect_rows, reduce_parts
from vanidl.analyses.results import list_reductions
from vanidl.breakdown.phases import Phase, Phases
from vanidl.breakdown.step_records import classify_steps, mean_by_kind
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import SpanKind

MS, SECOND = 1_000_000, 1_000_000_000
SPLIT = ("in_wait_s", "hidden_s", "behind_communication_s", "other_s")


@given(operations(), spans)
def test_every_step_splits_exactly_and_steps_add_up_to_the_window(ios, seen):
    results = analysed(trace_of(ios, seen))
    each, rank = results.perstep, results.overlap.per_rank[0]
    if not ios:
        assert each.reads is None
        assert np.isnan(each.hidden_s).all()
        return
    for name in (*SPLIT, "input_wait_s", "input_wait_io_s"):
        total = getattr(rank, name)
        values = getattr(each, name)
        assert np.isnan(values).all() if total is None else values.sum() == pytest.approx(total)
    assert each.busy_s.sum() == pytest.approx(rank.io_s - rank.unobserved_s)
    if rank.other_s is not None:
        split = sum(getattr(each, name) for name in SPLIT)
        assert np.round(split * 1e9).astype(int).tolist() == np.round(each.busy_s * 1e9).tolist()


@given(operations())
def test_amounts_agree_with_a_plain_loop(ios):
    each = analysed(trace_of(ios)).perstep
    if not ios:
        return
    for k, step in enumerate(steps()):
        started = [io for _, io in ios if step.start <= io.start < step.end]
        assert each.reads[k] == sum(io.op == 0 for io in started)
        assert each.writes[k] == sum(io.op == 1 for io in started)
    for op, moved in enumerate((each.bytes_read, each.bytes_written)):
        for k, step in enumerate(steps()):
            expected = sum(share(io, step) for _, io in ios if io.op == op)
            assert moved[k] == expected


def share(io: Io, step: Span) -> int:
    """Bytes of an operation that fall into a step, in proportion to time."""
    length = io.end - io.start
    if not length:
        return io.nbytes if step.start <= io.start < step.end else 0
    low, high = (min(max(t - io.start, 0), length) for t in (step.start, step.end))
    return io.nbytes * high // length - io.nbytes * low // length


@given(operations())
def test_slowest_files_are_those_with_most_time_in_the_step(ios):
    trace = trace_of(ios)
    each = analysed(trace).perstep
    for k, step in enumerate(steps()):
        spent: dict[str, int] = {}
        for _, io in ios:
            inside = max(0, min(io.end, step.end) - max(io.start, step.start))
            path = f"/data/part-{io.file}.h5"
            spent[path] = spent.get(path, 0) + inside
        wanted = sorted(((s, p) for p, s in spent.items() if s), key=lambda row: (-row[0], row[1]))
        assert [round(s * 1e9) for _, s in each.slowest[k]] == [s for s, _ in wanted[:3]]
        assert all(spent[path] == round(s * 1e9) for path, s in each.slowest[k])


@settings(max_examples=30)
@given(operations(), st.randoms(use_true_random=False))
def test_any_order_of_parts_gives_the_same_bits(ios, random):
    trace = trace_of(ios, max_part_rows=3)
    reduction = list_reductions(trace)["step_sums"]
    parts = list(trace.io)
    whole = reduce_parts({"step_sums": reduction}, parts, trace)["step_sums"]
    random.shuffle(parts)
    shuffled = reduction.NOTHING
    for part in parts:
        shuffled = reduction.combine(
            reduction.partial(collect_rows([part], trace), trace), shuffled
        )
    assert same(shuffled, whole)


def looped(first_step: int = 0):
    """Two epochs of five steps; the profile sees all from `first_step` on, one checkpoint."""
    seen, ios = [], []
    for k in range(10):
        at = SECOND + k * 100 * MS
        if k >= first_step:
            seen += [Span(SpanKind.STEP, at, at + 100 * MS, k),
                     Span(SpanKind.INPUT_WAIT, at, at + 20 * MS)]  # fmt: skip
        if k == 5 and first_step <= 5:
            seen.append(Span(SpanKind.INPUT_WAIT, at + 25 * MS, at + 30 * MS))
        ios.append(Io(at + MS, at + 15 * MS, 0, 4096))
    save = SECOND + 780 * MS
    ios.append(Io(save, save + 10 * MS, 0, 2_000_000, 2, 1))
    names = {1: "/data/part.h5", 2: "/out/model.pt"}
    log = darshan_log(ios, names=names)
    return analysed(assemble(Group((log,), (profile(seen, base_ns=JOB_START_NS),)), {}))


def test_first_steps_of_epochs_and_checkpoint_steps_stand_apart():
    results = looped()
    assert results.perstep.kind.tolist() == [
        "first of epoch", "", "", "", "", "first of epoch", "", "checkpoint", "", ""
    ]  # fmt: skip
    kinds = mean_by_kind(results.steps.table, results.perstep)
    assert [(k.kind, k.steps) for k in kinds] == [
        ("ordinary", 7), ("first of epoch", 2), ("checkpoint", 1)
    ]  # fmt: skip
    assert kinds[2].bytes_written == pytest.approx(2_000_000)


def timed(*, epoch_ms: float, save_ms: tuple[float, float]):
    """Ten steps of 100 ms from 1 s on, epochs that begin at 1 s and `epoch_ms`, one checkpoint."""
    starts = [1.0 + k / 10 for k in range(10)]
    durations = np.full(10, 0.1)
    table = StepTable(
        np.zeros(10, np.int32), np.arange(10, dtype=np.int32), np.array(starts),
        np.array(starts) + durations, durations * 0, durations * 0,
    )  # fmt: skip

    def phase(name: str, low_s: float, high_s: float) -> Phase:
        return Phase(name, low_s, high_s, "", None, None, None, None, None)

    epochs = (phase("epoch 1", 1, epoch_ms / 1e3), phase("epoch 2", epoch_ms / 1e3, 2))
    saved = (phase("checkpoint 1", save_ms[0] / 1e3, save_ms[1] / 1e3),)
    return classify_steps(table, Phases((), epochs, saved, "")).tolist()


@pytest.mark.parametrize(("epoch_ms", "step"), [(1499, 5), (1500, 5), (1540, 5), (1560, 6)])
def test_an_epoch_begins_in_the_step_that_has_most_of_its_beginning(epoch_ms, step):
    kinds = timed(epoch_ms=epoch_ms, save_ms=(1.95, 1.96))
    assert [k for k, kind in enumerate(kinds) if kind == "first of epoch"] == [0, step]


@pytest.mark.parametrize(
    ("save_ms", "steps"),
    [
        ((1795, 1880), [8]),  # begins at the border
        ((1750, 1804), [7]),
        ((1740, 1960), [7, 8, 9]),  # fills most of three
        ((1799, 1801), [7]),  # half and half: the earlier
    ],
)
def test_a_checkpoint_is_of_the_step_with_most_of_it(save_ms, steps):
    kinds = timed(epoch_ms=1500, save_ms=save_ms)
    assert [k for k, kind in enumerate(kinds) if kind == "checkpoint"] == steps


def test_a_profile_that_begins_within_an_epoch_holds_no_first_step_of_it():
    kinds = looped(first_step=2).perstep.kind.tolist()
    assert kinds[0] == ""
    assert kinds.count("first of epoch") <= 1


def test_steps_without_times_have_no_row_and_say_so(shared):
    run = vanidl.open_run(shared / "data/public/vanidl_cosmictagger")
    assert run.perstep is None
    assert run.frame("steps")[["start", "kind", "slowest_files"]].isna().all(axis=None)


@pytest.mark.parametrize("name", ["torch_pfs_workers0", "torch_pfs_workers4"])
def test_frame_and_parquet_hold_every_step(shared, tmp_path, name):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    from vanidl.export.registry import export

    run = vanidl.open_run(shared / "data/recorded" / name)
    export(run, "parquet", tmp_path / "out")
    frame = parquet.read_table(tmp_path / "out/steps.parquet").to_pandas()
    rank = run.overlap.per_rank[0]
    between = rank.window_s - frame.duration_s.sum()  # time between steps is in none of them
    assert 0 <= between < 0.1 * rank.window_s
    for column in (*SPLIT, "input_wait_s", "input_wait_io_s"):
        total = getattr(rank, column)
        assert total - between - 1e-9 <= frame[column].sum() <= total + 1e-9, column
    assert sum(frame[column] for column in SPLIT).to_numpy() == pytest.approx(frame.busy_s)
    assert {len(files) for files in frame.slowest_files} <= {0, 1, 2, 3}
    assert set(frame.kind) == {"", "checkpoint"} or "first of epoch" in set(frame.kind)
