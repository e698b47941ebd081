"""What a plan reads and holds: the least there is, within its bounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


from tests.loaders.data.stored import N, written
from tests.loaders.scheduled.planned import scheduled, stream
from vanidl_loaders.data.coalesce import open_reads
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available
from vanidl_loaders.errors import MissingError
from vanidl_loaders.scheduled.buffer import Buffer


@pytest.mark.parametrize("gap", [0, 4])
@pytest.mark.parametrize("buffer", [0, 37, 86, 101, 500])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_loads_are_the_provable_minimum_and_bounds_hold(flat, ranks, buffer, gap):
    seen = []
    for rank in range(ranks):
        loader, counts = scheduled(flat, rank, ranks, buffer=buffer, gap=gap), []
        for epoch in range(3):
            before = loader.stats().loads
            for _, batch in stream(loader, [epoch]):
                now = loader.stats()
                assert now.buffer_peak <= now.buffer_capacity <= -(-buffer // ranks)
                assert now.staging_peak <= now.staging_capacity
                assert len(batch["sample"]) > 0
            counts.append(loader.stats().loads - before)
        assert loader.stats().reloads == 0
        seen.append(counts)
        loader.close()
    assert np.sum(seen, 0).tolist() == [N, *[max(N - buffer, 0)] * 2]


def test_loads_and_hits_are_all_that_is_handed_out(flat):
    loader = scheduled(flat, gap=2)
    used = sum(len(batch["sample"]) for _, batch in stream(loader, range(3)))
    stats = loader.stats()
    assert stats.loads + stats.hits == used == 3 * N
    loader.close()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_read_alike_in_every_step(flat, ranks):
    """max - min <= 1 over ranks, recounted from the bytes that are read for each step."""
    loaders = [scheduled(flat, rank, ranks, look_ahead=0) for rank in range(ranks)]
    reads = np.zeros((ranks, 3 * len(loaders[0])), int)
    for rank, loader in enumerate(loaders):
        before = 0
        for step, _ in enumerate(stream(loader, range(3))):
            now = loader.stats().nbytes // flat.sample_nbytes
            reads[rank, step], before = now - before, now
        loader.close()
    assert (reads.max(0) - reads.min(0)).max() <= 1
    assert reads.sum() == N + 2 * (N - 60)


def test_the_storage_sees_the_minimum(flat, tmp_path):
    """Recounted by the emulated storage's own log: rows, not the loader's word."""
    try:
        check_available()
    except MissingError as error:
        pytest.skip(str(error))
    with h5py.File(flat.path(0)) as file:
        places = {f: file[f.name].id.get_offset() for f in flat.fields}
    log = tmp_path / "requests.jsonl"
    with EmulatedStorage(flat.folder, cost=Cost(), log=log) as storage:
        mounted = SampleSet(storage.target, "rows", N, flat.fields, "rows")
        for epochs, expected in ((1, N), (3, N + 2 * (N - 60))):
            before = len(storage.requests())
            for rank in range(2):
                loader = scheduled(mounted, rank, 2)
                list(stream(loader, range(epochs)))
                loader.close()
            requests = storage.requests()[before:]
            for field, offset in places.items():
                nbytes = sum(
                    max(
                        0, min(r.offset + r.size, offset + N * field.nbytes) - max(r.offset, offset)
                    )
                    for r in requests
                )
                assert nbytes == expected * field.nbytes


def test_every_sample_is_read_once_a_use_and_gaps_are_counted(flat):
    merged, apart = scheduled(flat, gap=6), scheduled(flat, gap=0)
    for loader in (merged, apart):
        list(stream(loader, range(3)))
        loader.close()
    assert merged.stats().loads == apart.stats().loads
    assert merged.stats().requests < apart.stats().requests
    assert merged.stats().nbytes >= apart.stats().nbytes
    assert apart.stats().nbytes == apart.stats().loads * flat.sample_nbytes


@pytest.mark.parametrize("ranks", [1, 2])
def test_measuring_the_storage_is_counted_and_costs_three_per_cent(ranks, tmp_path, monkeypatch):
    """Recounted where the reads happen."""
    from vanidl_loaders.data import pread
    from vanidl_loaders.workloads.making import make

    samples = make("ptycho", tmp_path, samples=1000, seed=0, size=8)
    arrived = []
    inner = pread._PREAD

    def counting(*arguments):
        arrived.append(inner(*arguments))
        return arrived[-1]

    monkeypatch.setattr(pread, "_PREAD", counting)
    loader = scheduled(samples, 0, ranks, gap=None, buffer=0)
    for _ in loader:
        pass
    stats = loader.stats()
    assert (stats.requests, stats.nbytes) == (len(arrived), sum(arrived))
    measured = loader._stage._reads.measured.nbytes
    assert 0 < measured <= 0.03 * samples.sample_nbytes * 1000 / ranks
    loader.close()


def test_rows_of_a_gap_are_kept_where_they_are_needed_later(tmp_path):
    made = written(tmp_path, "gzip")  # a chunk brings eight rows
    fields = made.fields[:1]
    only = SampleSet(made.folder, "rows", N, fields, "rows")
    kept = scheduled(only, buffer=0)
    none = scheduled(only, buffer=0, staging_bytes=40 * only.sample_nbytes, look_ahead=1)
    for loader in (kept, none):
        list(stream(loader, range(2)))
        assert loader.stats().loads == 2 * N
        assert loader.stats().staging_peak <= loader.stats().staging_capacity
        loader.close()
    assert kept.stats().requests < none.stats().requests


def test_the_speed_is_measured_only_where_it_is_asked_for(flat):
    measured, given = scheduled(flat, gap=None), scheduled(flat, gap=3)
    for loader in (measured, given):
        next(iter(loader))
        loader.close()
    assert measured.speed.bytes_per_s > 0
    assert measured.speed.latency_s >= 0
    assert given.speed is None
    assert open_reads(flat, gap=None, threads=1).speed is None  # nothing is read before use


def test_a_buffer_never_holds_more_than_fits(flat):
    buffer = Buffer(flat, 2)
    buffer.add(7)
    buffer.add(9)
    with pytest.raises(AssertionError):
        buffer.add(11)
    buffer.row("x", 7)[...] = 1
    buffer.row("x", 9)[...] = 2
    assert buffer.row("x", 7).max() == 1
    buffer.discard(7)
    buffer.discard(7)
    assert (len(buffer), buffer.room, buffer.peak, 7 in buffer) == (1, 1, 2, False)
    assert buffer.nbytes == 2 * flat.sample_nbytes


@pytest.mark.parametrize("places", [6, 9, 15, 40])
def test_staging_stays_within_a_given_size(flat, places):
    loader = scheduled(flat, buffer=0, gap=5, staging_bytes=places * flat.sample_nbytes)
    ids = Counter(i for _, b in stream(loader, [0]) for i in b["sample"].tolist())
    stats = loader.stats()
    assert stats.staging_peak <= stats.staging_capacity == places
    assert stats.loads == N == len(ids)
    loader.close()
