"""What a request costs, and the sums of a rank's reads: against plain loops over single reads."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.test_capacity import trace_of_reads
from vanidl.advice import request_costs
from vanidl.analyses import reducing
from vanidl.model.trace import READ, WRITE

US = 1_000


def parts_of(seed: int, lengths: list[int], latency_us: int, tiny: float):
    """A trace with parts of so many operations, sizes and durations at random, some no reads."""
    rng = np.random.default_rng(seed)
    trace = trace_of_reads([(0, 1)])
    (one,) = trace.io
    parts = []
    for length in lengths:
        part = one.rows(np.zeros(length, np.int64))
        nbytes = rng.integers(0, 4_000_000, length)
        nbytes[rng.random(length) < tiny] = rng.integers(0, 4_000)
        lasted = latency_us * US + nbytes + rng.integers(0, 200 * US, length)
        start = np.sort(rng.integers(0, 10**9, length))
        op = np.where(rng.random(length) < 0.9, READ, WRITE).astype(part.op.dtype)
        parts.append(replace(part, start=start, end=start + lasted, nbytes=nbytes, op=op))
    return replace(trace, io=tuple(parts))


def cost_by_loops(trace) -> tuple[float, float] | None:
    """Latency and seconds a byte, read by read."""
    x, y, small = [], [], []
    for part in trace.io:
        rows = [
            (int(size), int(end - start) / 1e9)
            for size, start, end, op in zip(part.nbytes, part.start, part.end, part.op, strict=True)
            if op == READ
        ]
        few = [s for size, s in rows if 0 < size <= 0.1 * sum(n for n, _ in rows) / len(rows)]
        small += [(median(few), len(few))] if few else []
        x += [size for size, _ in rows if size > 0]
        y += [s for size, s in rows if size > 0]
    if len(x) < request_costs.FEWEST_READS or np.var(x) <= 0.01 * np.mean(
        np.square(x, dtype=float)
    ):
        return None
    slope = max(np.polyfit(x, y, 1)[0], 0.0)
    latency = np.mean(y) - slope * np.mean(x)
    total = sum(count for _, count in small)
    if total >= request_costs.FEWEST_READS:
        seen = 0
        for value, count in sorted(small):
            seen += count
            if seen >= total / 2:
                latency = min(latency, value)
                break
    latency = max(latency, 0.0)
    return latency, (sum(y) - latency * len(y)) / sum(x)


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.integers(0, 2_000),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([1, 50, 1 << 20]),
    st.sampled_from([1, 30, 1 << 20]),
)
def test_request_cost_is_that_of_plain_loops_however_reads_are_divided(
    seed, lengths, latency_us, tiny, at_once, small_rows
):
    trace = parts_of(seed, lengths, latency_us, tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reducing, "_TOGETHER_ROWS", at_once)
        patch.setattr(reducing, "SMALL_ROWS", small_rows)
        found = request_costs.fit_request_cost(trace)
    expected = cost_by_loops(trace)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.latency_s == pytest.approx(expected[0], rel=1e-6, abs=1e-9)
        assert found.s_per_byte == pytest.approx(expected[1], rel=1e-6, abs=1e-15)


def test_of_many_operations_parts_far_from_each_other_are_looked_at(monkeypatch):
    """Of six parts of 100 reads the first, third and fifth hold 300."""
    trace = parts_of(2, [100] * 6, 500, 0.3)
    monkeypatch.setattr(request_costs, "_ENOUGH", 300)
    some = request_costs.fit_request_cost(replace(trace, io=trace.io[::2]))
    assert request_costs.fit_request_cost(trace) == some is not None
    monkeypatch.setattr(request_costs, "_ENOUGH", 301)
    assert request_costs.fit_request_cost(trace) != some


@pytest.mark.parametrize(("count", "is_fitted"), [(99, False), (100, True)])
def test_nothing_is_fitted_to_fewer_than_100_reads(count, is_fitted):
    trace = parts_of(1, [count], 500, 0.0)
    (part,) = trace.io
    nbytes = np.maximum(part.nbytes, 1)
    reads_only = replace(part, op=np.full(count, READ, part.op.dtype), nbytes=nbytes)
    found = request_costs.fit_request_cost(replace(trace, io=(reads_only,)))
    assert (found is not None) is is_fitted
