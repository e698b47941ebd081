"""The runtime of a plan: what it reads, holds and hands out."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader

from loaders.errors import InputError, MissingError, UsageError
from loaders.loading import WEIGHT, Settings, find_loader, open_loader
from loaders.samples import Field, SampleSet
from loaders.scheduled.background import Background
from loaders.scheduled.buffer import Buffer
from loaders.scheduled.dataset import ScheduledBatchSampler, ScheduledDataset, collate
from loaders.scheduled.plan import PlanSettings, make_plan
from loaders.scheduled.reading import RowReads, open_reads
from loaders.scheduled.stage import StageSettings
from loaders.storage.model import Cost
from loaders.storage.mount import EmulatedStorage, check_available
from loaders.world import World

BIN = str(Path(sys.executable).parent)
LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2"],
    "mpiexec": ["-n", "2"],
}
N, SIDE = 101, 6
LAYOUTS = ("contiguous", "chunked", "gzip", "big-endian", "compact")


def created(layout):
    """Options of create_dataset: chunks that rows do not divide by, across columns as well."""
    if layout == "chunked":
        return {"chunks": (7, 4, 6)}
    if layout == "gzip":
        return {"chunks": (8, 6, 6), "compression": "gzip", "shuffle": True}
    return {}


@pytest.fixture(scope="session", params=LAYOUTS)
def rows(request, tmp_path_factory):
    """Random samples in one file: two fields of different width."""
    return written(tmp_path_factory.mktemp("rows"), request.param)


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    return written(tmp_path_factory.mktemp("flat"), "contiguous")


def written(folder, layout, samples=N):
    kinds = (">f4", ">i2") if layout == "big-endian" else ("<f4", "<i2")
    fields = (Field("x", (SIDE, SIDE), "<f4"), Field("deep/y", (3,), "<i2"))
    made = SampleSet(folder, "rows", samples, fields, "rows")
    random = np.random.default_rng(5)
    with h5py.File(made.path(0), "w") as file:
        x = random.standard_normal((samples, SIDE, SIDE)).astype(kinds[0])
        file.create_dataset("x", data=x, **created(layout))
        y = random.integers(-9, 9, (samples, 3)).astype(kinds[1])
        if layout == "compact":
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_layout(h5py.h5d.COMPACT)
            file.create_dataset("deep/y", data=y, dcpl=creation)
        else:
            file.create_dataset("deep/y", data=y)
    made.save()
    return made


def direct(samples):
    with h5py.File(samples.path(0)) as file:
        return {each.name: file[each.name][()] for each in samples.fields}


def scheduled(samples, rank=0, ranks=1, *, batch=4, epochs=3, drop_last=False, **options):
    settings = Settings(World(rank, ranks, 0, 1), batch, epochs, drop_last=drop_last)
    return open_loader("scheduled", samples, settings, {"gap": 0, "buffer": 60} | options)


def stream(loader, epochs):
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            yield epoch, batch


# -- what is handed out ---------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0, 3, None])
@pytest.mark.parametrize("look_ahead", [0, 1, 5])
def test_bytes_are_those_of_direct_reads(rows, gap, look_ahead):
    stored = direct(rows)
    loader = scheduled(rows, gap=gap, look_ahead=look_ahead)
    for _, batch in stream(loader, range(3)):
        ids = batch["sample"].numpy()
        for name, values in stored.items():
            found = batch[name].numpy()
            assert found.dtype == values.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, values[ids])
    loader.close()


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "images"])
def test_samples_in_files_of_their_own(name, small):
    samples = small(name)
    of_id = {}
    for batch in open_loader("baseline", samples, Settings(batch=2)):
        of_id |= {i: (batch, at) for at, i in enumerate(batch["sample"].tolist())}
    loader = scheduled(samples, batch=2, buffer=3)
    for _, batch in stream(loader, range(3)):
        for at, sample in enumerate(batch["sample"].tolist()):
            plain, place = of_id[sample]
            for field in samples.fields:
                assert torch.equal(batch[field.name][at], plain[field.name][place])
    assert loader.stats().loads == 5 + 2 * (5 - 3)
    loader.close()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("balance", ["load", "batch"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_global_batches_are_the_baselines(flat, ranks, balance, drop_last):
    def global_batches(name, options):
        batches = {}
        for rank in range(ranks):
            settings = Settings(World(rank, ranks, 0, 1), 4, 3, seed=8, drop_last=drop_last)
            loader = open_loader(name, flat, settings, options)
            for epoch in range(3):
                loader.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    batches.setdefault((epoch, step), []).extend(batch["sample"].tolist())
            assert step + 1 == len(loader)
            loader.close()
        return {place: sorted(ids) for place, ids in batches.items()}

    options = {"buffer": 60, "balance": balance}
    assert global_batches("scheduled", options) == global_batches("baseline", {})


# -- what is read ---------------------------------------------------------------------------


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


def test_no_chunk_is_decoded_twice_in_a_window(tmp_path):
    made = written(tmp_path, "gzip")
    reads = RowReads(made, 0, 1)
    ids = np.array([0, 1, 7, 8, 9, 30, 31, 33, 100])  # chunks of 8: 0 1 3 4 12
    place = {(f.name, i): np.empty(f.shape, f.dtype) for f in made.fields for i in ids.tolist()}
    done = [task() for task in reads.tasks(ids, ids[:0], lambda name, i: place[name, i])]
    assert sum(d.requests for d in done[: len(done)]) == 5 + len(
        reads._sources["deep/y"].runs(ids)[0]
    )
    covered = reads.covered(ids)
    assert set(ids.tolist()) <= set(covered.tolist())
    start, stop = reads._sources["x"].runs(ids)
    assert (start[1:] >= stop[:-1]).all()
    assert (start % 8 == 0).all()
    stored = direct(made)
    for (name, i), values in place.items():
        np.testing.assert_array_equal(values, stored[name][i])
    reads.close()


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


# -- bounds ---------------------------------------------------------------------------------


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


def test_staging_that_does_not_hold_a_step_is_refused(flat):
    loader = scheduled(flat, buffer=0, staging_bytes=3 * flat.sample_nbytes)
    with pytest.raises(UsageError, match="staging") as refused:
        list(loader)
    loader.close()
    enough = int(str(refused.value).split("at least ")[1].split()[0])
    loader = scheduled(flat, buffer=0, staging_bytes=enough)
    assert len(list(loader)) == len(loader)
    loader.close()


# -- resume ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 4, 13])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_state_goes_on_with_the_same_stream(flat, rank, stop):
    whole = scheduled(flat, rank, 2)
    wanted = [(e, b["sample"].tolist(), float(b[WEIGHT])) for e, b in stream(whole, range(3))]
    steps = len(whole)
    whole.close()
    first = scheduled(flat, rank, 2)
    list(stream(first, [0]))
    first.set_epoch(1)
    for step, _ in enumerate(first, 1):
        if step == stop:
            state = first.state_dict()
            break
    first.close()
    second = scheduled(flat, rank, 2)
    second.load_state_dict(state)
    rest = [(e, b["sample"].tolist(), float(b[WEIGHT])) for e, b in stream(second, [1, 2])]
    assert rest == wanted[steps + stop :]
    stats = second.stats()
    # Lazily: each of the buffer's at most once, and what padding uses again.
    assert 0 < stats.reloads <= 30 + 1
    plan = second.plan
    planned = sum(
        int(s.of_rank(rank)[1].sum())
        for e in (1, 2) for s in list(plan.steps(e))[stop if e == 1 else 0 :]
    )  # fmt: skip
    assert stats.loads == planned
    second.close()


@pytest.mark.parametrize(
    "change", [{"ranks": 3}, {"buffer": 59}, {"balance": "batch"}, {"batch": 5}]
)
def test_a_state_of_another_plan_is_refused(flat, change):
    state = scheduled(flat, ranks=2).state_dict()
    with pytest.raises(UsageError, match="expected a state"):
        scheduled(flat, **({"ranks": 2} | change)).load_state_dict(state)


def test_a_saved_plan_is_followed_and_another_ones_refused(flat, tmp_path):
    path = tmp_path / "plan.npz"
    make_plan(PlanSettings(N, batch=4, epochs=3, buffer=20)).save(path)
    loader = scheduled(flat, plan=str(path), buffer=None)
    list(stream(loader, range(3)))
    assert loader.stats().loads == N + 2 * (N - 20)
    loader.close()
    with pytest.raises(UsageError, match="batch"):
        scheduled(flat, plan=str(path), batch=5)


def test_ids_in_order_without_shuffling(flat):
    settings = Settings(batch=4, epochs=2, shuffle=False)
    loader = open_loader("scheduled", flat, settings, {"buffer": 0})
    assert [i for b in loader for i in b["sample"].tolist()] == list(range(N))
    loader.close()


def test_the_default_buffer_holds_all_of_a_small_set(flat):
    loader = open_loader("scheduled", flat, Settings(batch=4, epochs=2))
    assert loader.plan.settings.buffer == N
    half = open_loader("scheduled", flat, Settings(batch=4), {"buffer_fraction": 0.5})
    assert half.plan.settings.buffer == round(N / 2)


# -- threads and errors ---------------------------------------------------------------------


def readers():
    return {t for t in threading.enumerate() if t.name.startswith("read")}


def test_threads_end_on_close(flat):
    gc.collect()
    before = readers()
    loader = scheduled(flat, look_ahead=2)
    iteration = iter(loader)
    next(iteration)
    assert readers() - before
    loader.close()
    assert readers() <= before


def test_leaving_an_iteration_ends_its_thread_and_the_next_one_begins_anew(flat):
    loader = scheduled(flat)
    wanted = [b["sample"].tolist() for _, b in stream(loader, [1])]
    iteration = iter(loader)
    next(iteration)
    assert [b["sample"].tolist() for _, b in stream(loader, [1])] == wanted
    assert list(iteration) == []
    loader.close()


def cut(path):
    """Half a file: HDF5 has it open already, and rows lie behind its end."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_an_error_while_reading_ahead_is_raised_in_next_and_ends_the_threads(tmp_path):
    made = written(tmp_path, "contiguous")
    gc.collect()
    before = readers()
    loader = scheduled(made, look_ahead=1)
    iteration = iter(loader)
    next(iteration)
    cut(made.path(0))
    with pytest.raises(InputError, match="end"):
        list(iteration)
    loader.close()
    assert readers() <= before


def test_what_was_not_read_whole_is_not_held(tmp_path):
    made = written(tmp_path, "contiguous")
    content, stored = made.path(0).read_bytes(), direct(made)
    loader = scheduled(made, buffer=N)
    iteration = iter(loader)
    next(iteration)
    cut(made.path(0))
    with pytest.raises(InputError, match="end"):
        list(iteration)
    made.path(0).write_bytes(content)
    for _, batch in stream(loader, [0]):
        for name, values in stored.items():
            np.testing.assert_array_equal(batch[name], values[batch["sample"].numpy()])
    loader.close()


def test_a_damaged_chunk_is_named(tmp_path):
    made = written(tmp_path, "gzip")
    with h5py.File(made.path(0)) as file:
        chunk = file["x"].id.get_chunk_info(5)
    with made.path(0).open("r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    loader = scheduled(made)
    with pytest.raises(InputError, match="40 to 48 of x"):
        list(loader)
    loader.close()


@pytest.mark.parametrize("damage", ["missing", "foreign", "shape"])
def test_data_that_are_not_as_described_are_named(tmp_path, damage):
    made = written(tmp_path, "contiguous")
    if damage == "missing":
        made.path(0).unlink()
    elif damage == "foreign":
        made.path(0).write_bytes(b"no HDF5")
    else:
        made = SampleSet(tmp_path, "rows", N + 1, made.fields, "rows")
    loader = scheduled(made)
    with pytest.raises(InputError, match=r"rows\.h5"):
        list(loader)
    loader.close()


def test_epochs_beyond_the_plan_are_refused(flat):
    loader = scheduled(flat, epochs=2)
    loader.set_epoch(2)
    with pytest.raises(UsageError, match="plan more"):
        list(loader)
    loader.close()


@pytest.mark.parametrize("wrong", [{"look_ahead": -1}, {"gap": -1}, {"threads": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        StageSettings(**wrong)


def test_a_background_makes_so_many_items_ahead_and_no_more():
    made = []

    def items():
        try:
            for i in range(20):
                made.append(i)
                yield i
        finally:
            made.append("closed")

    background = Background(items(), 3)
    for _ in range(200):
        if len(made) == 4:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3]  # three wait, one is in hand
    assert next(background) == 0
    background.close()
    background.close()
    assert made[-1] == "closed"
    assert list(background) == []


# -- in other people's DataLoaders ----------------------------------------------------------


def in_dataloader(samples, workers, kind=DataLoader, rank=0, ranks=1, **options):
    plan = make_plan(PlanSettings(N, ranks=ranks, batch=4, epochs=3, buffer=60))
    sampler = ScheduledBatchSampler(plan, rank)
    dataset = ScheduledDataset(samples, plan, rank, StageSettings(gap=0))
    loader = kind(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        **options,
    )
    return loader, sampler, dataset


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dataloader_hands_out_the_same_batches(flat, workers, ranks):
    total = 0
    for rank in range(ranks):
        loader, sampler, dataset = in_dataloader(flat, workers, rank=rank, ranks=ranks)
        own = scheduled(flat, rank, ranks)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            own.set_epoch(epoch)
            for found, wanted in zip(loader, own, strict=True):
                assert found.keys() == wanted.keys()
                assert all(torch.equal(found[name], wanted[name]) for name in wanted)
            assert len(loader) == len(own)
        own.close()
        total += dataset.stats().loads
        assert dataset.reloads() == 0
        del loader
        dataset.close()
    assert total == N + 2 * (N - 60)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's call
@pytest.mark.parametrize("workers", [0, 1])
def test_torchdata_goes_on_in_mid_epoch(flat, workers):
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader
    loader, sampler, dataset = in_dataloader(flat, workers, stateful)
    sampler.set_epoch(1)
    ids, state = [], None
    for step, batch in enumerate(loader):
        ids.append(batch["sample"].tolist())
        if step == 6:
            state = loader.state_dict()
    dataset.close()
    again, sampler, dataset = in_dataloader(flat, workers, stateful)
    again.load_state_dict(state)
    assert [b["sample"].tolist() for b in again] == ids[7:]
    sampler.set_epoch(2)
    assert len(list(again)) == len(again)
    dataset.close()
    del loader, again


def test_a_dataset_says_how_it_is_to_be_used(flat):
    plan = make_plan(PlanSettings(N, batch=4, buffer=60))
    dataset = ScheduledDataset(flat, plan, 0)
    with pytest.raises(UsageError, match="ScheduledBatchSampler"):
        dataset.__getitems__([1, 2])
    np.testing.assert_array_equal(dataset[5]["x"][0], direct(flat)["x"][5])
    assert len(dataset) == N
    with pytest.raises(UsageError, match="rank"):
        ScheduledBatchSampler(plan, 1)
    loader = DataLoader(dataset, batch_sampler=ScheduledBatchSampler(plan, 0), num_workers=2)
    with pytest.raises(UsageError, match="num_workers"):
        list(loader)


# -- gradients ------------------------------------------------------------------------------


def test_gradients_are_the_baselines(ptycho, tmp_path, run_python, python):
    """Two DDP ranks in fp64: equal to rounding with weights, wrong without."""
    program = Path(__file__).parent / "scheduled_gradients.py"
    launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run_python([*launch, program, ptycho.folder, tmp_path])
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert any(a != b for a, b in zip(ranks[0]["sizes"], ranks[1]["sizes"], strict=True))
    for found in ranks:
        scale = found["plain"].abs().max()
        assert (found["planned"] - found["plain"]).abs().max() < 1e-14 * scale
        assert (found["unweighted"] - found["plain"]).abs().max() > 1e-3 * scale


def test_the_loader_is_in_the_registry():
    assert find_loader("scheduled").NAME == "scheduled"


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("mpiexec", marks=pytest.mark.mpi)])
def test_two_ranks_train(launcher, ptycho, run_python, python):
    program = [python, *LAUNCHERS["torchrun"]]
    if launcher == "mpiexec":
        pytest.importorskip("mpi4py", reason="mpi4py is not installed")
        found = shutil.which("mpiexec", path=BIN) or shutil.which("mpiexec")
        if found is None:
            pytest.skip("mpiexec is not installed")
        program = [found, *LAUNCHERS["mpiexec"], python]
    line = ["train", "--data", ptycho.folder, "--batch", 4, "--epochs", 3, "--json"]
    line += ["--loader", "scheduled", "--buffer", 14]
    done = run_python([*program, "-m", "loaders", *line])
    assert done.returncode == 0, done.stderr
    each = [json.loads(t) for t in done.stdout.replace("}{", "}\n{").splitlines()]
    assert sorted(rank["rank"] for rank in each) == [0, 1]
    assert [len(rank["losses"]) for rank in each] == [9, 9]
    assert sum(rank["stats"]["loads"] for rank in each) == 21 + 2 * (21 - 14)
    assert sum(rank["samples"] for rank in each) == 3 * 22  # 21, one of them twice
