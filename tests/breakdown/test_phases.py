"""Phases add up, and epochs follow the evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.analyses.test_laws import operations, spans, trace_of
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.makers.runs import analysed
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import SpanKind

MS = 1_000_000
SECOND = 1000 * MS


def phases_of(ios, seen=None, **more):
    profiles = () if seen is None else (profile(seen),)
    return analysed(assemble(Group((darshan_log(ios, **more),), profiles), {})).phases


def reads(at: int, *, pieces: int = 10) -> list[Io]:
    """One pass over a file, a piece each 10 ms."""
    return [Io(at + i * 10 * MS, at + i * 10 * MS + MS, i * 100, 100) for i in range(pieces)]


def steps(first: int, count: int, at: int, *, double: int | None = None) -> list[Span]:
    """Steps of 100 ms with a wait of 10 ms; step `double` has one wait more."""
    found = []
    for i in range(count):
        start = at + i * 100 * MS
        found += [
            Span(SpanKind.STEP, start, start + 100 * MS, first + i),
            Span(SpanKind.INPUT_WAIT, start, start + 10 * MS),
        ]
        if first + i == double:
            found.append(Span(SpanKind.INPUT_WAIT, start + 20 * MS, start + 30 * MS))
    return found


@given(operations(), spans)
def test_stages_follow_on_one_another_and_fill_the_run(ios, seen):
    trace = trace_of(ios, seen)
    phases = analysed(trace).phases
    bounds = [(round(p.start_s * 1e9), round(p.end_s * 1e9)) for p in phases.stages]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == trace.job.end_ns - trace.job.start_ns
    assert [end for _, end in bounds[:-1]] == [start for start, _ in bounds[1:]]
    data = analysed(trace).dataset
    inside = sum(p.bytes_read for p in phases.stages if p.bytes_read is not None)
    late = sum(io.nbytes for _, io in ios if io.start == trace.job.end_ns - trace.job.start_ns)
    assert inside + late >= (data.bytes_read if data else 0) >= inside


@pytest.mark.parametrize("slow", [0, 2])
@pytest.mark.parametrize("late_ms", [(0,), (4, 0, 1), (0, 45, 90), (90, 90, 0, 30)])
def test_a_step_that_all_ranks_are_in_is_of_training_on_each(late_ms, slow):
    """Whichever rank begins it first: leading slow steps alone are of the warm-up."""
    profiles = []
    for rank, late in enumerate(late_ms):
        at = 2 * SECOND + late * MS
        seen = [Span(SpanKind.STEP, at + i * 300 * MS, at + (i + 1) * 300 * MS, i)
                for i in range(slow)]  # fmt: skip
        first = at + slow * 300 * MS
        seen += [s for s in steps(slow, 9, first) if s.kind == SpanKind.STEP]
        profiles.append(profile(seen, pid=100 + rank, rank=rank))
    logs = tuple(darshan_log(reads(SECOND), pid=100 + rank) for rank in range(len(late_ms)))
    stages = analysed(assemble(Group(logs, tuple(profiles)), {})).phases.stages
    counted = {phase.name: phase.steps or 0 for phase in stages}
    assert (counted["warm-up"], counted["training"]) == (slow, 9)


def test_a_dataset_read_again_is_an_epoch():
    phases = phases_of([*reads(SECOND), *reads(2 * SECOND), *reads(3 * SECOND)])
    assert [p.start_s for p in phases.epochs] == [1, 2, 3]
    assert [p.bytes_read for p in phases.epochs] == [1000, 1000, 1000]
    assert "read again" in phases.epochs[0].evidence


def test_a_header_read_again_is_no_epoch():
    ios = [*reads(SECOND), Io(2 * SECOND, 2 * SECOND + MS, 0, 8)]
    assert phases_of(ios).epochs == ()


def test_one_pass_shows_no_epochs_and_says_so():
    phases = phases_of(reads(SECOND))
    assert phases.epochs == ()
    assert phases.no_epochs


def test_one_wait_more_is_the_end_of_an_epoch():
    phases = phases_of(reads(SECOND, pieces=100), steps(0, 12, SECOND, double=6))
    assert [p.start_s for p in phases.epochs] == pytest.approx([1, 1.61])
    assert "created again" in phases.epochs[0].evidence
    assert phases.epochs[0].input_wait_s == pytest.approx(0.07)


def test_validation_between_epochs_is_one_border():
    """Between two training steps: the loader's end, waits of validation, the next first one."""
    seen = [span for span in steps(0, 12, SECOND) if span.step not in (4, 5)]
    between = range(SECOND + 410 * MS, SECOND + 590 * MS, 40 * MS)
    seen += [Span(SpanKind.INPUT_WAIT, at, at + 10 * MS) for at in between]
    phases = phases_of(reads(SECOND, pieces=100), seen)
    assert len(phases.epochs) == 2


def generations(count: int):
    """A trainer whose two workers are started again for each of `count` epochs of 2 s."""
    trainer = darshan_log(
        [Io(0, MS, 0, 10, op=1)], names={1: "/data/log.txt"}, length_ns=40 * SECOND
    )
    return trainer, *(
        worker(200 + 10 * g + i, (g * 2 + 1) * SECOND + i * MS, SECOND)
        for g in range(count)
        for i in range(2)
    )


def test_a_profile_of_a_part_adds_to_what_the_workers_show():
    """Six epochs by the workers; the profile saw the borders of two, and counts no fewer."""
    seen = [*steps(0, 5, 4_500 * MS), *steps(5, 15, 5 * SECOND, double=5)]
    seen += steps(20, 15, 6_500 * MS)
    seen += steps(35, 10, 8 * SECOND) + steps(45, 3, 9 * SECOND, double=45)
    trace = assemble(Group(generations(6), (profile(seen),)), {})
    phases = analysed(trace).phases
    assert len(phases.epochs) == 6
    assert "2 of 5 borders" in phases.epochs[0].evidence
    assert "against" not in phases.epochs[0].evidence


def test_files_that_workers_share_out_anew_are_epochs():
    """Persistent workers, a file a sample, shuffled: each file is read once per epoch by any."""
    order = np.random.default_rng(3)
    logs = []
    passes = [order.permutation(40) for _ in range(3)]
    for i in range(2):
        ios = [
            Io(
                (e * 2_000 + k * 20 + half) * MS,
                (e * 2_000 + k * 20 + half + 1) * MS,
                half * 4096,
                4096,
                1 + int(f),
            )
            for e, files in enumerate(passes)
            for k, f in enumerate(files[i::2])
            for half in range(2)
        ]
        names = {n: f"/data/sample-{n}.bin" for n in range(1, 41)}
        start = JOB_START_NS + SECOND + i * MS
        logs.append(darshan_log(ios, pid=200 + i, parent=100, start_ns=start, names=names))
    trainer = darshan_log([Io(0, MS, 0, 10, op=1)], names={1: "/data/log.txt"})
    phases = analysed(assemble(Group((trainer, *logs), ()), {})).phases
    assert [p.start_s for p in phases.epochs] == pytest.approx([1, 3, 5], abs=0.01)


def test_ranks_that_read_the_same_side_by_side_are_no_epochs():
    """Two ranks read every file once, at the same time: one epoch."""
    logs = [
        darshan_log(
            [Io(k * 20 * MS, (k * 20 + 1) * MS, 0, 4096, 1 + k) for k in range(40)],
            pid=100 + rank, names={n: f"/data/sample-{n}.bin" for n in range(1, 41)},
        )
        for rank in range(2)
    ]  # fmt: skip
    assert analysed(assemble(Group(tuple(logs), ()), {})).phases.epochs == ()


def test_a_short_profile_does_not_number_epochs():
    assert phases_of(reads(SECOND, pieces=600), steps(0, 12, SECOND, double=6)).epochs == ()


def test_epochs_named_in_the_profile_come_first():
    seen = [*steps(0, 12, SECOND, double=6),
            *(Span(SpanKind.EPOCH, SECOND + k * 400 * MS, SECOND + (k + 1) * 400 * MS)
              for k in range(3))]  # fmt: skip
    names = ("epoch 0", "epoch 1", "epoch 2")
    made = profile(seen)
    order = iter(range(3))
    codes = [next(order) if k == SpanKind.EPOCH else 0 for k in made.kind.tolist()]
    made = replace(made, names=names, name=made.name + codes)
    phases = analysed(
        assemble(Group((darshan_log(reads(SECOND, pieces=100)),), (made,)), {})
    ).phases
    assert [p.start_s for p in phases.epochs] == pytest.approx([1, 1.4, 1.8])
    assert "1 of 2 borders" in phases.epochs[0].evidence


def worker(pid: int, start: int, length: int):
    ios = [io._replace(start=io.start, end=io.end) for io in reads(MS)]
    return darshan_log(ios, pid=pid, parent=100, start_ns=JOB_START_NS + start, length_ns=length)


def test_workers_started_anew_are_epochs():
    trainer = darshan_log([Io(0, MS, 0, 10, op=1)], names={1: "/data/log.txt"})
    generations = [
        worker(200 + 10 * g + i, (g * 2 + 1) * SECOND + i * MS, SECOND)
        for g in range(3)
        for i in range(2)
    ]
    phases = analysed(assemble(Group((trainer, *generations), ()), {})).phases
    assert [p.start_s for p in phases.epochs] == [1, 3, 5]
    assert "workers" in phases.epochs[0].evidence or "worker" in phases.epochs[0].evidence


def test_checkpoints_are_bursts_of_writes():
    saves = [Io(at + i * MS, at + i * MS + MS, i * 10, 10, file=2, op=1)
             for at in (SECOND, 2 * SECOND) for i in range(5)]  # fmt: skip
    phases = phases_of([*reads(0), *saves], names={1: "/data/train.h5", 2: "/run/model.ckpt"})
    assert [(p.start_s, p.end_s, p.bytes_written) for p in phases.checkpoints] == [
        (1.0, pytest.approx(1.005), 50),
        (2.0, pytest.approx(2.005), 50),
    ]
    assert "model.ckpt" in phases.checkpoints[0].evidence


@pytest.mark.parametrize("writing", [1, 2, 4])
def test_a_checkpoint_takes_what_its_busiest_rank_spends(writing):
    """However many ranks write at once; the mean is over all of them."""
    saves = [
        Io(
            SECOND + i * 10 * MS,
            SECOND + i * 10 * MS + (9 - rank) * MS,
            i * 10,
            10,
            2 + rank,
            1,
            rank,
        )
        for i in range(5)
        for rank in range(writing)
    ]
    names = {1: "/data/train.h5"} | {2 + rank: f"/run/model.ckpt{rank}" for rank in range(4)}
    phases = phases_of([*reads(0), *saves], names=names, nprocs=4)
    (saved_at_once,) = phases.checkpoints
    assert saved_at_once.busiest_s == pytest.approx(0.045)
    spent = sum(5 * (9 - rank) for rank in range(writing)) / 1000
    assert saved_at_once.busy_s == pytest.approx(spent / 4)
    assert all(phase.busiest_s is None for phase in (*phases.stages, *phases.epochs))


def saved(bursts: list[tuple[int, int, int]], names: dict[int, str], seen=None):
    """Checkpoints of writes that begin at (ms, offset in MiB, file), 10 ms of 1 MiB each."""
    ios = [
        Io(at * MS, (at + 10) * MS, offset << 20, 1 << 20, file=file, op=1)
        for at, offset, file in bursts
    ]
    names = {1: "/data/train.h5", **names}
    return phases_of([*reads(0), *ios], seen, names=names).checkpoints


def test_a_save_that_pauses_is_one_checkpoint():
    """The storage stalls for half a second twice, in a file that is saved again two seconds on."""
    bursts = [(1_000, 0, 2), (1_500, 1, 2), (2_100, 2, 2), (4_000, 0, 2), (4_600, 1, 2)]
    found = saved(bursts, {2: "/run/model.ckpt"})
    assert [(p.start_s, round(p.end_s, 3)) for p in found] == [(1.0, 2.11), (4.0, 4.61)]


def test_files_of_one_number_are_one_checkpoint():
    names = {2: "/run/model_1.pt", 3: "/run/optimizer_1.pt", 4: "/run/model_2.pt",
             5: "/run/optimizer_2.pt"}  # fmt: skip
    found = saved([(1_000, 0, 2), (1_400, 0, 3), (2_000, 0, 4), (2_400, 0, 5)], names)
    assert [p.start_s for p in found] == [1.0, 2.0]


@pytest.mark.parametrize(("step_ms", "saves"), [(100, 2), (1_000, 1)])
def test_training_steps_between_writes_make_two_checkpoints(step_ms, saves):
    """Two files half a second apart: with steps between them, or all within one step."""
    names = {2: "/run/model.pt", 3: "/run/optimizer.pt"}
    seen = [
        Span(SpanKind.STEP, k * step_ms * MS, (k + 1) * step_ms * MS, k)
        for k in range(4_000 // step_ms)
    ]
    assert len(saved([(1_050, 0, 2), (1_550, 0, 3)], names, seen)) == saves
