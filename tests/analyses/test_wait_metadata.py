"""What input waits consist of: reads and writes, metadata calls, the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.labeled import RECIPES, made
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace
from tests.makers.records import Span, profile
from tests.makers.runs import analysed
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.breakdown.overlap import IO_WAIT, OTHER_WAIT, Overlap
from vanidl.merge.assemble import assemble
from vanidl.merge.jobs import Group
from vanidl.model.trace import SpanKind
from vanidl.readers.dftracer.run import combine
from vanidl.readers.dftracer.trace_file import read_file
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
    assert mean.input_wait_metadata_s == pytest.approx(samples(OPENS) * 4e-3, rel=0.01)
    assert mean.input_wait_rest_s == pytest.approx(samples(OPENS) * 1e-3, rel=0.05)
    assert mean.wait_is_mostly == IO_WAIT


def test_decoding_twice_as_fast_gains_half_of_the_decoding():
    rows = {row.name: row.gain_at_most_s for row in of(OPENS).what_if.rows}
    assert rows["decoding twice as fast"] == pytest.approx(samples(OPENS) * 0.5e-3, rel=0.05)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_wait_is_its_parts(name):
    run = made(name)
    overlap = run.overlap
    if overlap is None or overlap.mean.input_wait_io_s is None:
        return
    for row in (*overlap.per_rank, overlap.mean):
        bare = row.input_wait_s - row.input_wait_io_s
        assert row.input_wait_metadata_s + row.input_wait_rest_s == pytest.approx(bare)
        assert 0 <= row.input_wait_metadata_s <= row.input_wait_metadata_at_most_s
        assert 0 <= row.input_wait_rest_at_least_s <= row.input_wait_rest_s + 1e-12
    is_rest = overlap.mean.input_wait_rest_at_least_s >= overlap.mean.input_wait_s / 2
    assert (overlap.mean.wait_is_mostly == OTHER_WAIT) == is_rest or not overlap.mean.input_wait_s


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
    assert mean.input_wait_metadata_s == mean.input_wait_metadata_at_most_s
    assert mean.input_wait_metadata_s == pytest.approx(expected, abs=1e-9)


def _overlap(path: Path, spans: list[Span]) -> Overlap:
    run = combine([read_file(path)])
    counters = {path: CounterFile(layers) for path, layers in run.counters.items()}
    seen = profile(spans, pid=100, base_ns=EPOCH_US * US)
    return analysed(assemble(Group(run.logs, (seen,)), counters)).overlap


def test_a_rank_without_counters_has_no_known_rest():
    trace = of(replace(OPENS, open_us=0)).trace
    results = analysed(replace(trace, counters={}))
    assert results.overlap.mean.input_wait_metadata_at_most_s is None
    assert results.overlap.mean.wait_is_mostly != OTHER_WAIT


def test_metadata_time_that_is_not_credible_is_never_taken_for_likely():
    trace = of(OPENS).trace
    table = trace.counters["POSIX"]
    meta = table.seconds["POSIX_F_META_TIME"]
    seconds = {**table.seconds, "POSIX_F_META_TIME": np.full(len(meta), 1e6)}
    wrong = replace(trace, counters={"POSIX": replace(table, seconds=seconds)})
    mean = analysed(wrong).overlap.mean
    assert mean.input_wait_metadata_s == 0
    assert mean.input_wait_rest_at_least_s == 0
