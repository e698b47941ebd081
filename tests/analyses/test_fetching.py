"""What batches waited for, against a count of every nanosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.results import EXAMPLES
from vanidl.analyses import fetch_reads, fetching
from vanidl.analyses.fetching import WORKERS_WAIT, WaitParts
from vanidl.analyses.overlap import IO_WAIT, OTHER_WAIT, UNKNOWN_WAIT, Activity, Split
from vanidl.analyses.reducing import reduce_parts
from vanidl.analyses.steps import RankSpans
from vanidl.model import intervals
from vanidl.model.fetches import Fetches, of_columns
from vanidl.model.intervals import Intervals
from vanidl.model.trace import POSIX, READ, Part, Process, Trace

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
    base = EXAMPLES["one_rank"]()[0]
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
    fetches = of_columns({k: np.asarray(v, np.int64) for k, v in columns.items()}, ("loader",))
    timed = {k + 1: Intervals(*m.T) for k, m in enumerate(metadata)}
    return replace(
        base, job=replace(base.job, start_ns=0, end_ns=END), processes=tuple(host), fetches=fetches,
        io=[part(k + 1, each) for k, each in enumerate(reads)], metadata_calls=timed,
        layers_traced=(POSIX,), counters={},
    )  # fmt: skip


def split(trace: Trace) -> Split:
    """A split whose window is a part of the run."""
    window = Intervals(np.array([200]), np.array([2_700]))
    taken = trace.fetches.wait_end >= 0
    waits = intervals.union(trace.fetches.wait_begin[taken], trace.fetches.wait_end[taken])
    inside = intervals.intersect(waits, window)
    spans = RankSpans(trace.spans, windows=window, waits=inside, waits_known=True)
    nothing = Activity(intervals.EMPTY, inside, intervals.EMPTY)
    return Split(spans, nothing, None, None, None, None, None, None)


def counted(trace: Trace) -> dict[str, int]:
    """The parts of all waits, nanosecond by nanosecond."""
    fetches: Fetches = trace.fetches
    reading = {p.process: covered(p.start, p.end) for p in trace.io}
    calling = {k: covered(*trace.metadata_calls[k]) & ~reading[k] for k in trace.metadata_calls}
    sums = dict.fromkeys(
        ("reads_s", "metadata_s", "decoding_s", "collating_s", "not_begun_s", "delivery_s"), 0
    )
    for row in range(len(fetches)):
        process = int(fetches.process[row])
        for at in range(int(fetches.wait_begin[row]), int(fetches.wait_end[row])):
            if not 200 <= at < 2_700:
                continue
            if at < fetches.begin[row]:
                sums["not_begun_s"] += 1
            elif at >= fetches.end[row]:
                sums["delivery_s"] += 1
            elif reading[process][at]:
                sums["reads_s"] += 1
            elif process in calling and calling[process][at]:
                sums["metadata_s"] += 1
            else:
                sums["decoding_s" if at < fetches.collate[row] else "collating_s"] += 1
    return sums


def covered(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    mask = np.zeros(END + 1, bool)
    for low, high in zip(start.tolist(), end.tolist(), strict=True):
        mask[low:high] = True
    return mask


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_every_nanosecond_of_wait_is_of_one_part(seed: int, calls: bool) -> None:
    trace = random_run(np.random.default_rng(seed), calls=calls)
    reduction = {"fetches": fetch_reads.of_trace(trace)}
    reads = reduce_parts(reduction, trace.io, trace)["fetches"]
    found = fetching.finish(reads, {0: split(trace)}, trace)
    assert found is not None
    assert found.mean is not None
    for name, expected in counted(trace).items():
        value = getattr(found.mean, name)
        if name == "metadata_s" and not calls:
            assert value is None
        else:
            assert round(value * 1e9) == expected, name
    parts = ("samples_s", "collate_s", "not_begun_s", "delivery_s", "rest_s")
    assert sum(getattr(found.mean, p) for p in parts) == pytest.approx(found.mean.wait_s)


@pytest.mark.parametrize("seed", range(5))
def test_a_fetch_is_divided_without_rest_and_names_its_longest_read(seed: int) -> None:
    trace = random_run(np.random.default_rng(seed), calls=True)
    reads = reduce_parts({"f": fetch_reads.of_trace(trace)}, trace.io, trace)["f"]
    found = fetching.finish(reads, {}, trace)
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
    reduction = {"f": fetch_reads.of_trace(trace)}
    whole = reduce_parts(reduction, trace.io, trace)["f"]
    pieces = [p.rows(slice(k, k + 3)) for p in trace.io for k in range(0, len(p), 3)]
    cut = reduce_parts(reduction, pieces[::-1], trace)["f"]
    assert (cut.longest == whole.longest).all()
    for process, spans in whole.busy.items():
        assert (cut.busy[process].start == spans.start).all()
        assert (cut.busy[process].end == spans.end).all()


WAIT = WaitParts(
    label="", wait_s=10.0, batches=5, samples_s=0.0, collate_s=0.0, not_begun_s=0.0,
    delivery_s=0.0, rest_s=0.0, reads_s=0.0, metadata_s=0.0, metadata_at_most_s=0.0,
    decoding_s=0.0, collating_s=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "mostly"),
    [
        ({"reads_s": 4.0, "metadata_s": 1.0, "decoding_s": 5.0}, IO_WAIT),
        ({"reads_s": 4.0, "decoding_s": 5.0, "rest_s": 1.0}, OTHER_WAIT),
        ({"reads_s": 2.0, "decoding_s": 3.0, "delivery_s": 5.0}, WORKERS_WAIT),
        ({"reads_s": 2.0, "decoding_s": 8.0, "metadata_at_most_s": 4.0}, UNKNOWN_WAIT),
        ({"reads_s": None, "decoding_s": None, "samples_s": 9.0, "rest_s": 1.0}, UNKNOWN_WAIT),
        ({"reads_s": None, "decoding_s": None, "samples_s": 4.0, "rest_s": 6.0}, WORKERS_WAIT),
    ],
)
def test_what_a_wait_mostly_is(parts: dict, mostly: str) -> None:
    assert replace(WAIT, **parts).mostly == mostly
