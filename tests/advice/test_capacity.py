"""What a storage delivers to several readers, on reads that are made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.advice.labeled import made
from vanidl.advice.capacity import fit_throughput
from vanidl.model.trace import READ, Part, Trace

MS, SIZE = 1_000_000, 1 << 20


def trace_of_reads(rows: list[tuple[int, int]]) -> Trace:
    """A run whose only operations are reads of the first dataset file, from start to end in ms."""
    trace = made("healthy").trace
    part: Part = trace.io[0]
    order = np.array(sorted(rows), np.int64) * MS
    code = int(np.flatnonzero(trace.files.is_data)[0])
    count = len(rows)
    values = {
        "start": order[:, 0], "end": order[:, 1], "nbytes": np.full(count, SIZE),
        "op": np.full(count, READ, part.op.dtype), "file": np.full(count, code),
    }  # fmt: skip
    columns = {
        name: np.zeros(count, getattr(part, name).dtype)
        for name in part.__dataclass_fields__
        if isinstance(getattr(part, name), np.ndarray) and name not in values
    }
    return replace(trace, io=(replace(part, **columns, **values),))


def one_after_another(count: int, each_ms: int, from_ms: int) -> list[tuple[int, int]]:
    return [(from_ms + k * each_ms, from_ms + (k + 1) * each_ms) for k in range(count)]


@pytest.mark.parametrize(("each_ms", "saturated"), [(40, True), (10, False)])
def test_a_storage_is_saturated_where_four_readers_get_what_one_gets(each_ms, saturated):
    """A reader alone takes 10 ms for each MiB; four at once as long, or four times as long."""
    alone = one_after_another(200, 10, 0)
    together = [row for _ in range(4) for row in one_after_another(100, each_ms, 2_000)]
    found = fit_throughput(trace_of_reads(alone + together))
    assert found.saturated is saturated
    rate = SIZE / 0.010 * (1 if saturated else 4)
    assert found.peak_bytes_per_s == pytest.approx(rate, rel=0.01)


def test_with_as_many_reads_at_all_times_nothing_is_known_of_more():
    found = fit_throughput(trace_of_reads(one_after_another(200, 10, 0)))
    assert found.saturated is None
    assert found.mean_depth == pytest.approx(1.0)
    assert fit_throughput(trace_of_reads(one_after_another(20, 10, 0))) is None
