"""Which worker reads went into which step: the truth or nothing, on synthetic and recorded runs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vanidl
from tests import DATA
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.analyses import dataloader_batches
from vanidl.analyses.dataloader_batches import (
    find_deliveries,
    get_recorded_deliveries,
    infer_deliveries,
)
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import READ, SpanKind, Spans, Trace, concatenate_spans

RUNS = DATA
MS = 1_000_000


class Loader(NamedTuple):
    """A training loop with a PyTorch DataLoader, simulated."""

    workers: int = 2
    batches: int = 9  # per epoch
    epochs: int = 2
    reads: int = 3  # per batch
    short: int = 0  # reads that the last batch of an epoch lacks: drop_last=False
    read_ms: int = 4
    step_ms: int = 10
    ahead: int = 2  # batches a worker may be ahead: prefetch_factor
    skip: int = 3  # calls of __next__ before the profile
    drop: int = 0  # and after it


class Truth(NamedTuple):
    trace: object
    taken: list[tuple[int, int, int]]  # pid of the worker, start of the last read, end of the wait


def simulated(loader: Loader) -> Truth:
    reads: dict[int, list[Io]] = {}
    lives: dict[int, tuple[int, int]] = {}
    calls: list[tuple[int, int, tuple[int, int] | None]] = []  # start, end, (pid, last read)
    now = 100
    for epoch in range(loader.epochs):
        now = _epoch(loader, epoch, now, (reads, lives, calls))
    mine = calls[loader.skip : len(calls) - loader.drop]
    spans = [Span(SpanKind.INPUT_WAIT, s * MS, e * MS) for s, e, _ in mine]
    spans += _steps(mine, loader)
    logs = [darshan_log([], length_ns=(now + 100) * MS)]
    for pid, (start, end) in lives.items():
        ios = [io._replace(start=io.start - start * MS, end=io.end - start * MS)
               for io in reads[pid]]  # fmt: skip
        logs.append(
            darshan_log(
                ios, pid=pid, parent=100, start_ns=JOB_START_NS + start * MS,
                length_ns=(end - start) * MS,
            )
        )  # fmt: skip
    trace = assemble(Group(tuple(logs), (profile(spans),)), {})
    taken = [
        (batch[0], JOB_START_NS + batch[1] * MS, JOB_START_NS + end * MS)
        for _, end, batch in mine
        if batch
    ]
    return Truth(trace, taken)


def _epoch(loader: Loader, epoch: int, now: int, into) -> int:
    reads, lives, calls = into
    pids = [101 + epoch * loader.workers + w for w in range(loader.workers)]
    for pid in pids:
        reads[pid], lives[pid] = [], (now, now)
    asked = dict.fromkeys(range(min(loader.ahead * loader.workers, loader.batches)), now)
    ready: dict[int, tuple[int, int]] = {}
    for k in range(loader.batches + 1):
        for j in sorted(asked):
            pid = pids[j % loader.workers]
            begin = max(asked.pop(j), reads[pid][-1].end // MS if reads[pid] else now)
            for r in range(loader.reads - loader.short * (j == loader.batches - 1)):
                start = begin + r * loader.read_ms
                io = Io(start * MS, (start + loader.read_ms) * MS, j * 900 + r * 100, 100)
                reads[pid].append(io)
            ready[j] = (pid, reads[pid][-1].start // MS)
        if k == loader.batches:
            calls.append((now, now + 1, None))
            now += 1
            break
        pid, last = ready[k]
        end = max(now, last + loader.read_ms) + 1
        calls.append((now, end, (pid, last)))
        later = k + loader.ahead * loader.workers
        if later < loader.batches:
            asked[later] = end
        now = end + loader.step_ms
    for pid in pids:
        lives[pid] = (lives[pid][0], now + 1)
    return now + 2


def _steps(calls, loader: Loader) -> list[Span]:
    """A step begins with the first wait after the one before, the last call of an epoch too."""
    spans, start = [], None
    for begin, end, batch in calls:
        start = begin if start is None else start
        if batch:
            until = end + loader.step_ms
            spans.append(Span(SpanKind.STEP, start * MS, until * MS, len(spans)))
            start = None
    return spans


def loader_of(workers: int, reads: int, short: int, **others: int) -> Loader:
    """With one worker, nothing but an even split shows how long the batches were."""
    short = min(short, reads - 1) if workers > 1 else 0
    return Loader(workers=workers, reads=reads, short=short, **others)


loaders = st.builds(
    loader_of,
    workers=st.integers(1, 4),
    reads=st.integers(1, 5),
    short=st.integers(0, 4),
    batches=st.integers(4, 20),
    epochs=st.integers(1, 3),
    read_ms=st.integers(1, 12),
    step_ms=st.integers(1, 30),
    ahead=st.integers(1, 4),
    skip=st.integers(0, 6),
    drop=st.integers(0, 6),
)


@settings(max_examples=50 if settings.default.derandomize else 150)
@given(loaders)
def test_what_is_known_is_true(loader):
    truth = simulated(loader)
    for found in find_deliveries(truth.trace):
        pids = [truth.trace.processes[p].pid for p in found.worker]
        got = list(zip(pids, found.read_ns.tolist(), found.taken_ns.tolist(), strict=True))
        # The wait of a call whose step is not in the profile delivers to no step.
        assert set(got) <= set(truth.taken)
        assert len(got) >= len(truth.taken) - 1


@pytest.mark.parametrize("loader", [Loader(), Loader(workers=3, batches=10), Loader(workers=1)])
def test_a_profile_over_an_epochs_end_tells(loader):
    (found,) = find_deliveries(simulated(loader).trace)
    assert len(found) == loader.epochs * loader.batches - loader.skip


def test_a_short_last_batch_leaves_the_borders_of_the_others_alone():
    """The worker that read 5, 5 and 1 samples did not read 4, 4 and 3."""
    truth = simulated(Loader(workers=2, batches=6, reads=5, short=4, skip=0))
    (found,) = find_deliveries(truth.trace)
    assert found.read_ns.tolist() == [read for _, read, _ in truth.taken]


@pytest.mark.parametrize(
    "loader", [Loader(epochs=1, batches=40, skip=10, drop=20), Loader(batches=40, skip=5, drop=60)]
)
def test_a_profile_within_an_epoch_does_not_tell(loader):
    assert find_deliveries(simulated(loader).trace) == ()


@pytest.mark.parametrize(("name", "ranks"), [("torch_pfs_workers4", 1), ("ddp_two_hosts", 2)])
def test_batches_of_recorded_runs_are_those_of_the_step_numbers(name, ranks):
    """ProfilerStep#k takes the k-th batch of the run: a count that the mapping does not use."""
    trace = vanidl.open_run(RUNS / name).trace
    found = find_deliveries(trace)
    assert len(found) == ranks
    for each in found:
        steps = trace.spans.pick(
            (trace.spans.kind == SpanKind.STEP) & (trace.spans.process == each.trainer)
        )
        number = steps.step[np.searchsorted(steps.start, each.taken_ns, side="right") - 1]
        workers = sorted(
            (p.start_ns, i) for i, p in enumerate(trace.processes)
            if p.role == "worker" and p.trainer == each.trainer
        )  # fmt: skip
        a_generation = len(workers) // 2  # two epochs
        batches = 32 if a_generation == 4 else 16
        epoch, k = number // batches, number % batches
        expected = [
            workers[e * a_generation + w][1] for e, w in zip(epoch, k % a_generation, strict=True)
        ]
        assert sorted(each.worker.tolist()) == sorted(expected)
        assert [w in [i for _, i in workers[e * a_generation:][:a_generation]]
                for w, e in zip(each.worker, epoch, strict=True)] == [True] * len(each)  # fmt: skip


def test_without_workers_there_is_nothing_to_tell_and_nothing_is_looked_at(monkeypatch):
    looked_at = []
    monkeypatch.setattr(
        dataloader_batches, "_collect_waits", lambda _, rank: looked_at.append(rank)
    )
    assert find_deliveries(vanidl.open_run(RUNS / "torch_pfs_workers0").trace) == ()
    assert not looked_at
    trace = simulated(Loader()).trace
    assert all((part.op == READ).all() for part in trace.io)


RECORDED = RUNS / "torch_fetches"  # by Darshan and the recorder: 3 epochs of 16 batches, 2 workers


def profiled(trace: Trace) -> Trace:
    """The run as a profiler marks it: a step to the next batch, found ends of epochs in steps."""
    spans = trace.spans
    waits = spans.pick(spans.kind == SpanKind.INPUT_WAIT)
    got = np.isin(waits.end, trace.fetches.wait_end)
    after_end = np.append(False, ~got[:-1])
    start = np.where(after_end, np.append(0, waits.start[:-1]), waits.start)[got]
    none = np.zeros(len(start), np.int32)
    steps = Spans(
        start=start,
        end=np.append(start[1:], waits.start[-1]),
        process=none,
        step=np.arange(len(start), dtype=np.int32),
        kind=np.full(len(start), SpanKind.STEP, np.uint8),
        thread=none - 1,
        name=none,
        source=none,
        names=spans.names,
    )
    both = concatenate_spans([spans.pick(spans.kind != SpanKind.STEP), steps], spans.names)
    return replace(trace, spans=both.pick(np.argsort(both.start, kind="stable")))


def test_the_guess_agrees_with_what_was_recorded() -> None:
    trace = vanidl.open_run(RECORDED).trace
    (known,), (guess,) = get_recorded_deliveries(trace), infer_deliveries(profiled(trace))
    assert len(known) == 48
    for column in ("worker", "read_ns", "taken_ns"):
        assert (getattr(guess, column) == getattr(known, column)).all(), column
    (used,) = find_deliveries(trace)
    assert (used.read_ns == known.read_ns).all()


def test_every_sample_of_a_recorded_run_is_read_in_the_fetch_of_its_batch() -> None:
    run = vanidl.open_run(RECORDED)
    fetches, codes = run.trace.fetches, np.flatnonzero(run.trace.files.is_data)
    reads = np.zeros(len(fetches), np.int64)
    total = 0
    for part in run.trace.io:
        rows = part.rows(np.isin(part.file, codes) & (part.op == READ))
        mine = np.flatnonzero(fetches.process == part.process)
        total += len(rows)
        for row in mine.tolist():
            inside = (rows.start >= fetches.begin[row]) & (rows.end <= fetches.end[row])
            reads[row] += int(inside.sum())
    assert total == 3 * 64
    assert (reads == 4).all()
    assert run.fetching is not None
    assert run.fetching.io_recorded
    assert [loader.workers for loader in run.fetching.loaders] == [2]
    groups = {(row.group, row.process) for row in run.results.workers.rows}
    assert [sum(g == k for g, _ in groups) for k in range(3)] == [2, 2, 2]
