"""Whose fault a wait is: against a count of every nanosecond, and for pipelines of known cause."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_batches import END, random_run
from vanidl.analyses.operations import make_calls_reduction
from vanidl.analyses.reducing import reduce_parts
from vanidl.breakdown.causes import DELIVERY, INPUT_CPU, STORAGE, WORKERS
from vanidl.breakdown.input_wait import Served, collect_storage_calls, divide_waits, is_complete
from vanidl.model import intervals
from vanidl.model.trace import Fetches, SpanKind, Trace


def divided(trace: Trace, *, whole: bool = True):
    """The cells of the waits of the only rank, in the order of the waits."""
    taken = np.flatnonzero(trace.fetches.wait_end > trace.fetches.wait_begin)
    order = taken[np.argsort(trace.fetches.wait_begin[taken])]
    start, end = trace.fetches.wait_begin[order], trace.fetches.wait_end[order]
    calls = reduce_parts({"calls": make_calls_reduction(trace)}, trace.io, trace)["calls"]
    members = range(len(trace.processes))
    of_process = {p: collect_storage_calls(trace, calls, p, whole, 0) for p in members}
    return order, divide_waits(trace, 0, start, end, of_process, None).bounds


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_waits_are_divided_as_their_workers_spent_the_time(seed: int, calls: bool) -> None:
    trace = random_run(np.random.default_rng(seed), calls=calls)
    fetches = trace.fetches
    order, cells = divided(trace)
    at_work = {p: np.zeros(END + 1, bool) for p in (1, 2)}
    stored = {p: np.zeros(END + 1, bool) for p in (1, 2)}
    for process, begin, end in zip(fetches.process, fetches.begin, fetches.end, strict=True):
        at_work[int(process)][begin:end] = True
    for part in trace.io:
        for start, end in zip(part.start, part.end, strict=True):
            stored[part.process][start:end] = True
    for process, spans in trace.metadata_calls.items():
        for start, end in zip(spans.start, spans.end, strict=True):
            stored[process][start:end] = True
    for place, row in enumerate(order.tolist()):
        process = int(fetches.process[row])
        low, high = int(fetches.wait_begin[row]), int(fetches.wait_end[row])
        ready = min(max(int(fetches.end[row]), low), high)
        until = max(int(fetches.end[row]), low)
        did = at_work[process][low:until]
        storing = int((did & stored[process][low:until]).sum())
        late = ready - low
        expected = late * storing / max(int(did.sum()), 1)
        got = cells[STORAGE][0][place]
        assert expected - 3 <= got <= expected
        busy = int(at_work[process][ready:high].sum())
        assert cells[DELIVERY][0][place] == high - ready - busy
        assert cells[DELIVERY][1][place] == high - ready
        least = sum(cells[c][0][place] for c in (STORAGE, DELIVERY, WORKERS))
        most = sum(cells[c][1][place] for c in (STORAGE, DELIVERY, WORKERS, INPUT_CPU))
        assert least <= high - low <= most


@pytest.mark.parametrize(("reading", "decoding"), [(250, 250), (300, 200), (0, 500), (500, 0)])
def test_a_wait_is_shared_by_all_that_made_its_batch_late(reading: int, decoding: int) -> None:
    """One worker that reads, then decodes, for steps of 400: its waits hold only the decoding."""
    trace = pipeline(reading, decoding, step=400, batches=12, ahead=2)
    order, cells = divided(trace)
    fetches = trace.fetches
    waited = int((fetches.wait_end - fetches.wait_begin)[order].sum())
    assert waited > 0
    share = cells[STORAGE][0].sum() / waited
    assert share == pytest.approx(reading / (reading + decoding), abs=0.03)


def pipeline(reading: int, decoding: int, step: int, batches: int, ahead: int) -> Trace:
    """A loader with one worker, which reads first; times in ns."""
    base = random_run(np.random.default_rng(0), calls=False)
    each = reading + decoding
    taken = np.zeros(batches, np.int64)
    begin, end, waits = (np.zeros(batches, np.int64) for _ in range(3))
    now = free = 0
    for k in range(batches):
        asked = 0 if k < ahead else taken[k - ahead]
        begin[k] = max(free, asked)
        end[k] = free = begin[k] + each
        waits[k] = now
        taken[k] = max(now, end[k])
        now = int(taken[k]) + step
    zeros = np.zeros(batches, np.int64)
    fetches = replace(
        base.fetches,
        trainer=zeros,
        nbytes=zeros - 1,
        process=zeros + 1,
        worker=zeros,
        name=zeros,
        epoch=zeros,
        batch=np.arange(batches),
        samples=zeros + 1,
        begin=begin,
        collate=end,
        end=end,
        wait_begin=waits,
        wait_end=taken,
        ahead=zeros + ahead,
        in_order=zeros + 1,
        pid=zeros - 1,
    )
    template = base.io[0]
    kept = slice(0, 0)
    reads = replace(
        template.rows(kept),
        process=1,
        start=begin,
        end=begin + reading,
        offset=zeros,
        nbytes=zeros + 1,
        thread=zeros.astype(np.int32),
        file=zeros.astype(np.int32),
        op=zeros.astype(np.uint8),
    )
    spans = replace(
        base.spans.pick(base.spans.kind == SpanKind.INPUT_WAIT).pick(np.zeros(0, np.int64))
    )
    return replace(base, fetches=fetches, io=(reads,), spans=spans, metadata_calls={})


@pytest.mark.parametrize(
    ("batches", "complete"),
    [
        ([(0, 0, 0), (0, 0, 1), (0, 0, 2)], True),
        ([(0, 0, 2), (0, 0, 0), (0, 0, 1), (0, 0, 1)], True),  # in any order, one twice
        ([(0, 0, 0), (0, 0, 2)], False),
        ([(0, 0, 0), (0, 1, 2), (1, 0, 5)], True),  # other epochs and loaders
        ([(0, 0, 0), (0, 0, -1), (0, 0, 1)], True),  # of one it is not known
        ([(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 3)], False),
    ],
)
def test_a_number_that_is_missing_is_seen(batches, complete):
    rows = np.array(batches, np.int64).T
    columns = {f.name: np.zeros(len(batches), np.int64) for f in fields(Fetches)[:-1]}
    columns |= dict(zip(("name", "epoch", "batch"), rows, strict=True))
    assert is_complete(Fetches(**columns)) is complete


PAIRS = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), min_size=1, max_size=8)


@given(PAIRS, PAIRS, st.integers(-30, 0), st.integers(0, 30))
def test_calls_within_windows_are_bounded_whatever_the_clocks(calls, windows, early, late):
    """Each shift that may be gives something between both bounds, and no window holds more."""

    def united(pairs, by=0):
        start, length = np.array(pairs, np.int64).T
        return intervals.union(1000 + start + by, 1000 + start + length + by)

    none, window = intervals.EMPTY, united(windows)
    every = Served(united(calls), none, none, none, False, 0, early, late)
    low, high = every.within(every.reads, window.start, window.end)
    assert (high <= window.end - window.start).all()
    for shift in (early, 0, late):
        spent = intervals.covered_within(united(calls, shift), window.start, window.end)
        assert (low <= spent).all()
        assert (spent <= high).all()
