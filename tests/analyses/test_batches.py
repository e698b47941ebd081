"""Batches of loaders: what was read for each, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.results import EXAMPLES
from vanidl.analyses import batches as of_batches
from vanidl.analyses.reducing import reduce_parts
from vanidl.model.intervals import Intervals
from vanidl.model.trace import POSIX, READ, Part, Process, Trace, make_fetches

END = 3_000
WORKERS = 2
Rng = np.random.Generator


def borders(rng: Rng, count: int) -> np.ndarray:
    """`count` disjoint intervals in [0, END), as (count, 2)."""
    return np.sort(rng.choice(END, 2 * count, replace=False)).reshape(-1, 2)


def part(process: int, spans: np.ndarray) -> Part:
    n = len(spans)
    return Part(
        process=process,
        layer=POSIX,
        start=spans[:, 0],
        end=spans[:, 1],
        offset=np.zeros(n, np.int64),
        nbytes=np.arange(n, dtype=np.int64),
        thread=np.zeros(n, np.int32),
        file=np.arange(n, dtype=np.int32) % 2,
        op=np.full(n, READ, np.uint8),
    )


def random_run(rng: Rng, *, calls: bool) -> Trace:
    """A training process with two workers, each with reads that may run into each other."""
    base = EXAMPLES["one_rank"]().trace
    host = [Process("h", 1, role="trainer", rank=0, trainer=0, log="a", start_ns=0, end_ns=END)]
    host += [Process("h", 2 + k, role="worker", trainer=0, log="b") for k in range(WORKERS)]
    fetched = [borders(rng, 8) for _ in range(WORKERS)]
    reads = [np.sort(rng.integers(0, END, (12, 2)), axis=1) for _ in range(WORKERS)]
    reads = [each[np.argsort(each[:, 0], kind="stable")] for each in reads]
    metadata = [borders(rng, 6) for _ in range(WORKERS)] if calls else []
    begin, end = np.concatenate(fetched).T
    waits = borders(rng, len(begin))[rng.permutation(len(begin))]
    waits[0] = -1  # never taken
    n = len(begin)
    columns = {
        "trainer": np.zeros(n), "process": np.repeat([1, 2], 8), "worker": np.repeat([0, 1], 8),
        "name": np.zeros(n), "epoch": np.zeros(n), "batch": np.arange(n), "samples": np.ones(n),
        "begin": begin, "collate": rng.integers(begin, end + 1), "end": end,
        "wait_begin": waits[:, 0], "wait_end": waits[:, 1],
    }  # fmt: skip
    fetches = make_fetches({k: np.asarray(v, np.int64) for k, v in columns.items()}, ("loader",))
    timed = {k + 1: Intervals(*m.T) for k, m in enumerate(metadata)}
    return replace(
        base, job=replace(base.job, start_ns=0, end_ns=END), processes=tuple(host), fetches=fetches,
        io=[part(k + 1, each) for k, each in enumerate(reads)], metadata_calls=timed,
        layers_traced=(POSIX,), counters={},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_fetch_is_divided_without_rest_and_names_its_longest_read(seed: int) -> None:
    trace = random_run(np.random.default_rng(seed), calls=True)
    reads = reduce_parts({"f": of_batches.make_reduction(trace)}, trace.io, trace)["f"]
    found = of_batches.finish(reads, trace)
    assert found is not None
    batches = found.batches
    whole = batches.samples_s + batches.collate_s
    parts = (batches.reads_s, batches.metadata_s, batches.decoding_s, batches.collating_s)
    assert np.allclose(sum(parts), whole, atol=1e-12)
    assert np.isnan(batches.wait_s).sum() == 1
    for row in range(len(batches)):
        own = trace.io[int(trace.fetches.process[row]) - 1]
        begun = (own.start >= trace.fetches.begin[row]) & (own.start < trace.fetches.end[row])
        longest = (own.end - own.start)[begun].max(initial=0)
        assert round(batches.longest_read_s[row] * 1e9) == longest
        assert (batches.longest_read_file[row] >= 0) == begun.any()


def test_parts_of_reads_combine_in_any_order() -> None:
    trace = random_run(np.random.default_rng(3), calls=False)
    reduction = {"f": of_batches.make_reduction(trace)}
    whole = reduce_parts(reduction, trace.io, trace)["f"]
    pieces = [p.rows(slice(k, k + 3)) for p in trace.io for k in range(0, len(p), 3)]
    cut = reduce_parts(reduction, pieces[::-1], trace)["f"]
    assert (cut.longest == whole.longest).all()
    for process, spans in whole.busy.items():
        assert (cut.busy[process].start == spans.start).all()
        assert (cut.busy[process].end == spans.end).all()
