"""The dataset view against plain loops and grids of bytes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import operations, trace_of
from tests.makers.records import Io, darshan_log
from tests.makers.sameness import same
from vanidl.analyses import dataset
from vanidl.analyses.dataset import count_inversions
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble

REACH = 80_000  # bytes that synthetic operations touch at most


def reads_of(ios, written):
    return [(p, io) for p, io in ios if io.op == 0 and io.file not in written]


def dataset_reads(ios):
    """Reads of the files that count as dataset: read, and never written."""
    written = {io.file for _, io in ios if io.op == 1 and io.nbytes}
    read = {io.file for _, io in ios if io.op == 0 and io.nbytes}
    return [(p, io) for p, io in reads_of(ios, written) if io.file in read]


@given(operations())
def test_unique_bytes_agree_with_a_grid_of_bytes(ios):
    data = analyse(trace_of(ios, None)).dataset
    reads = dataset_reads(ios)
    if data is None:
        assert not reads
        return
    grids = defaultdict(lambda: np.zeros(REACH, bool))
    for _, io in reads:
        grids[f"/data/part-{io.file}.h5"][io.offset : io.offset + io.nbytes] = True
    assert {f.path: f.unique_bytes for f in data.files} == {p: g.sum() for p, g in grids.items()}
    assert {f.path: f.extent for f in data.files} == {
        p: int(np.flatnonzero(g)[-1]) + 1 for p, g in grids.items()
    }
    assert data.unique_bytes <= data.bytes_read == sum(io.nbytes for _, io in reads)
    assert sum(f.reads for f in data.files) == len(reads)


@given(operations())
def test_ranks_add_up_and_none_reads_more_than_all(ios):
    data = analyse(trace_of(ios, None)).dataset
    if data is None:
        return
    assert sum(r.bytes_read for r in data.ranks) == data.bytes_read
    assert max(r.unique_bytes for r in data.ranks) <= data.unique_bytes
    assert data.unique_bytes <= sum(r.unique_bytes for r in data.ranks)
    assert data.grid.nbytes.sum() == data.bytes_read


@given(operations(), st.integers(1, 5))
def test_visits_agree_with_a_plain_loop(ios, rows):
    trace = trace_of(ios, None, max_part_rows=rows)
    data = analyse(trace).dataset
    seen = defaultdict(list)
    for part in trace.io:
        for i in range(len(part)):
            kind = trace.files.kind[part.file[i]]
            if part.op[i] == 0 and part.nbytes[i] and kind == "dataset":
                offset = int(part.offset[i])
                read = offset, offset + int(part.nbytes[i])
                seen[part.process, trace.files.path[part.file[i]]].append(read)
    visits = defaultdict(int)
    for (_, path), reads in seen.items():
        lowest, extent = min(begin for begin, _ in reads), max(end for _, end in reads)
        before = (-1, -1)
        for read in reads:
            was_there = before[0] == lowest and not (before == read == (lowest, extent))
            visits[path] += read[0] == lowest and not was_there
            before = read
    found = {f.path: f.visits for f in data.files if f.visits} if data else {}
    assert found == dict(visits)


@given(st.lists(st.integers(0, 50), max_size=60))
def test_inversions_agree_with_counting_all_pairs(values):
    pairs = sum(a > b for i, a in enumerate(values) for b in values[i + 1 :])
    assert count_inversions(np.array(values, np.int64)) == pairs


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 9)), max_size=20))
def test_cover_of_huge_offsets_is_that_of_small_ones(ranges):
    key, start, length = np.array(ranges, np.int64).reshape(-1, 3).T
    small = dataset.union_by_key(key, start, start + length)
    far = np.int64(2**61)
    large = dataset.union_by_key(key, start + far, start + length + far)
    moved = large._replace(start=large.start - far, end=large.end - far)
    assert same(moved, small)
    halves = (dataset.union_by_key(key[s], start[s], (start + length)[s]) for s in np.s_[::2, 1::2])
    assert same(dataset.merge(*halves), small)


def read_whole(file: int, at: int, *, pieces: int = 4) -> list[Io]:
    return [Io(at + i, at + i + 1, i * 10, 10, file) for i in range(pieces)]


def run_of(ios, **more):
    return analyse(assemble(Group((darshan_log(ios, **more),), ()), {}))


def names(count: int) -> dict[int, str]:
    return {f: f"/data/part-{f}.bin" for f in range(1, count + 1)}


@pytest.mark.parametrize(("order", "name"), [("up", "in order"), ("down", "reversed"),
                                             ("random", "shuffled")])  # fmt: skip
def test_order_of_visits_between_files(order, name):
    files = 30
    rng = np.random.default_rng(1)
    ios, at = [], 0
    for _ in range(3):
        sequence = {"up": range(1, files + 1), "down": range(files, 0, -1),
                    "random": (rng.permutation(files) + 1).tolist()}[order]  # fmt: skip
        for file in sequence:
            ios += read_whole(file, at)
            at += 10
    data = run_of(ios, names=names(files)).dataset
    assert {f.visits for f in data.files} == {3}
    assert data.order.name == name
    if order != "random":
        assert data.order.concordance == (order == "up")
        assert data.order.repeated == 1


def test_files_are_ordered_by_the_numbers_in_their_names():
    ios = [io for file in range(1, 13) for io in read_whole(file, 10 * file)]
    assert run_of(ios, names=names(12)).dataset.order.concordance == 1


def test_random_access_to_an_open_file_is_one_visit_an_epoch():
    rng = np.random.default_rng(0)
    offsets = np.concatenate([rng.permutation(50) for _ in range(3)]) * 100
    ios = [Io(i * 10, i * 10 + 5, int(offset), 100) for i, offset in enumerate(offsets)]
    results = run_of(ios)
    assert results.dataset.files[0].visits == 3
    assert results.dataset.files[0].reread_factor == 3


def test_one_size_in_single_reads_is_taken_for_the_sample():
    offsets = np.random.default_rng(0).permutation(64) * 8000
    results = run_of([Io(i * 10, i * 10 + 5, int(o), 4000) for i, o in enumerate(offsets)])
    samples = results.dataset.samples
    assert (samples.record_bytes, samples.source, samples.total) == (4000, "inferred", 64)


def test_a_sequential_stream_shows_no_sample_size():
    results = run_of([Io(i * 10, i * 10 + 5, i * 4000, 4000) for i in range(64)])
    assert results.dataset.samples.record_bytes is None
    assert results.dataset.samples.total is None


def test_reads_without_offset_leave_unique_bytes_unknown():
    results = run_of([Io(0, 5, -1, 100), Io(10, 15, 0, 100)])
    file = results.dataset.files[0]
    assert (file.bytes_read, file.unique_bytes, file.reread_factor) == (200, None, None)
    assert results.dataset.unique_bytes is None


def test_written_files_are_no_dataset():
    assert run_of([Io(0, 5, 0, 100, op=1)]).dataset is None


def test_a_file_that_is_read_whole_by_one_read_is_visited_by_each():
    """One whose beginning is looked at twice before it is read on is not."""
    whole = [Io(i * 10, i * 10 + 5, 0, 100, 1) for i in range(3)]
    header = [Io(40 + i, 41 + i, *read, 2) for i, read in enumerate([(0, 10), (0, 10), (10, 90)])]
    data = run_of([*whole, *header], names=names(2)).dataset
    assert {f.path: f.visits for f in data.files} == {"/data/part-1.bin": 3, "/data/part-2.bin": 1}
