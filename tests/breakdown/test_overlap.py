"""The overlap's input waits are those of the account: storage, metadata calls in it, the rest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advice.labeled import RECIPES, made
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace
from tests.makers.records import Span, profile
from tests.makers.runs import analysed
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.breakdown.account import WAIT
from vanidl.breakdown.causes import STORAGE
from vanidl.breakdown.overlap import Overlap, SlowestWaits
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import SpanKind
from vanidl.readers.dftracer.reading import combine_files
from vanidl.readers.dftracer.trace_file import read_trace_file
from vanidl.readers.records import CounterFile
from vanidl.run import Run

US = 1000
OPENS = Recipe(workers=0, open_each=True, epochs=1, open_us=4_000, read_us=500, decode_us=1_000)
"""Of 5.5 ms for each sample 1 ms is decoding."""


def of(recipe: Recipe) -> Run:
    return analysed(trace_of(recipe))


def samples(recipe: Recipe) -> int:
    return recipe.epochs * recipe.steps * recipe.batch


def test_opens_in_the_training_process_are_in_its_waits():
    mean = of(OPENS).overlap.mean
    opens_s, reads_s, decoding_s = (samples(OPENS) * ms / 1e3 for ms in (4, 0.5, 1))
    assert mean.input_wait_metadata_s <= opens_s <= 1.01 * mean.input_wait_metadata_at_most_s
    io_s = opens_s + reads_s
    assert mean.input_wait_io_s <= 1.001 * io_s <= 1.01 * mean.input_wait_io_at_most_s
    assert mean.input_wait_rest_s <= 1.05 * decoding_s
    assert decoding_s <= 1.001 * mean.input_wait_rest_at_most_s


def test_decoding_twice_as_fast_gains_half_of_the_decoding():
    rows = {row.name: row.gain_at_most_s for row in of(OPENS).what_if.rows}
    assert rows["decoding twice as fast"] == pytest.approx(samples(OPENS) * 0.5e-3, rel=0.05)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_wait_is_its_parts(name):
    run = made(name)
    overlap = run.overlap
    if overlap is None or overlap.mean.input_wait_io_s is None:
        return
    account = run.breakdown
    names = (*map(str, range(len(overlap.per_rank))), "mean")
    rows = zip(names, (*overlap.per_rank, overlap.mean), strict=True)
    for who, row in rows:
        cell = account.cell(f"{who}/{WAIT}/{STORAGE}")
        assert row.input_wait_s == pytest.approx(account.length_ns(WAIT, who) / 1e9)
        assert row.input_wait_io_s == pytest.approx(cell.low_ns / 1e9, abs=2e-9)
        assert row.input_wait_io_at_most_s == pytest.approx(cell.high_ns / 1e9, abs=2e-9)
        rest = row.input_wait_s - row.input_wait_io_at_most_s
        assert row.input_wait_rest_s == pytest.approx(rest, abs=1e-9)
        assert row.input_wait_io_s + row.input_wait_rest_at_most_s == pytest.approx(
            row.input_wait_s
        )
    lost = overlap.lost_to_input_s
    assert lost >= max(row.input_wait_s for row in overlap.per_rank) - 1e-9


times = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 60)), min_size=1, max_size=12)


@given(calls=times, reads=times, waits=st.lists(st.integers(0, 9), min_size=1, unique=True))
def test_calls_timed_singly_are_counted_to_the_microsecond(calls, reads, waits, tmp_path_factory):
    """Against a set of microseconds: in a wait, in a metadata call, in no read."""
    pfw = PfwTrace(100)
    for i, (at, length) in enumerate(calls):
        pfw.io(("open64", "close", "lseek64")[i % 3], "/data/a.h5", at, length, ret=3)
    for at, length in reads:
        pfw.io("pread", "/data/a.h5", at, length, ret=8, offset=0, count=8)
    pfw.end(1000)
    spans = [Span(SpanKind.STEP, 0, 1000 * US, 1)]
    spans += [Span(SpanKind.INPUT_WAIT, w * 100 * US, (w * 100 + 50) * US) for w in sorted(waits)]
    path = pfw.write(tmp_path_factory.mktemp("pfw") / "trace-0-preload.pfw")
    mean = _overlap(path, spans).mean
    in_wait = {u for w in waits for u in range(w * 100, w * 100 + 50)}
    called, read = ({u for at, n in spent for u in range(at, at + n)} for spent in (calls, reads))
    expected = len(in_wait & called - read) / 1e6
    assert mean.input_wait_metadata_s == pytest.approx(expected, abs=1e-9)


@settings(max_examples=10)  # 0.1 s each
@given(
    reads=times, kernels=times, collectives=times, waits=st.lists(st.integers(0, 9), unique=True)
)
def test_a_read_is_hidden_while_a_kernel_runs_in_a_wait_too(
    reads, kernels, collectives, waits, tmp_path_factory
):
    """Against sets of microseconds: a device computes on while training waits for input."""
    pfw = PfwTrace(100)
    for at, length in reads:
        pfw.io("pread", "/data/a.h5", at, length, ret=8, offset=0, count=8)
    pfw.end(1000)
    spans = [Span(SpanKind.STEP, 0, 1000 * US, 1)]
    spans += [Span(SpanKind.INPUT_WAIT, w * 100 * US, (w * 100 + 50) * US) for w in sorted(waits)]
    for kind, times_us in ((SpanKind.KERNEL, kernels), (SpanKind.COMMUNICATION, collectives)):
        spans += [Span(kind, at * US, (at + length) * US) for at, length in times_us]
    path = pfw.write(tmp_path_factory.mktemp("pfw") / "trace-0-preload.pfw")
    mean = _overlap(path, spans).mean
    read, computed, talked = (
        {u for at, n in spent for u in range(at, at + n) if u < 1000}
        for spent in (reads, kernels, collectives)
    )
    waited = {u for w in waits for u in range(w * 100, w * 100 + 50)}
    assert mean.hidden_s == pytest.approx(len(read & computed) / 1e6, abs=1e-9)
    assert mean.communication_s == pytest.approx(len(talked - computed) / 1e6, abs=1e-9)
    if not waits:
        return
    exposed = read - computed
    assert mean.in_wait_s == pytest.approx(len(exposed & waited) / 1e6, abs=1e-9)
    rest = exposed - waited
    assert mean.behind_communication_s == pytest.approx(len(rest & talked) / 1e6, abs=1e-9)
    assert mean.other_s == pytest.approx(len(rest - talked) / 1e6, abs=1e-9)


def _overlap(path: Path, spans: list[Span]) -> Overlap:
    run = combine_files([read_trace_file(path)])
    counters = {path: CounterFile(layers) for path, layers in run.counters.items()}
    seen = profile(spans, pid=100, base_ns=EPOCH_US * US)
    return analysed(assemble(Group(run.logs, (seen,)), counters)).overlap


RANK_STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 10**9)), max_size=8)


@given(st.lists(RANK_STEPS, max_size=4))
def test_the_slowest_rank_of_each_step_counts(ranks):
    """Whichever steps each rank has; the second step of a number is another than the first."""
    slowest, longest = SlowestWaits(), {}
    for steps in ranks:
        number, waited = np.array(steps, np.int64).reshape(-1, 2).T
        slowest.add(number, waited)
        seen = Counter()
        for step, wait_ns in steps:
            key = step, seen[step]
            seen[step] += 1
            longest[key] = max(longest.get(key, 0), wait_ns)
    assert slowest.total_s == pytest.approx(sum(longest.values()) / 1e9)
