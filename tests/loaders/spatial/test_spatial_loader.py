"""Laws of the loader over many ranks: what is dealt, read, kept and exchanged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.ranks.threads import outcomes_on_ranks
from vanidl_loaders.data.order import draw_epoch_order, pad_order
from vanidl_loaders.data.samples import Field, SampleSet
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.world import World
from vanidl_loaders.spatial import Division
from vanidl_loaders.spatial.grid import index_slices
from vanidl_loaders.spatial.loader import SpatialLoader, SpatialSettings

N, SHAPE = 11, (2, 7, 6)
FIELDS = (Field("x", SHAPE, "<i2"), Field("label", SHAPE[1:], "<i4"), Field("y", (), "<f4"))


def written(folder, layout, samples=N, options=None):
    random = np.random.default_rng(1)
    made = SampleSet(folder, "cosmoflow", samples, FIELDS, layout)
    whole = {
        each.name: random.integers(0, 999, (samples, *each.shape)).astype(each.dtype)
        for each in FIELDS
    }
    if layout == "rows":
        with h5py.File(made.path(0), "w") as file:
            for name, values in whole.items():
                own = (options or {}) if name == "x" else {}
                file.create_dataset(name, data=values, **own)
    else:
        for number in range(samples):
            made.path(number).parent.mkdir(exist_ok=True)
            with h5py.File(made.path(number), "w") as file:
                for name, values in whole.items():
                    file[name] = values[number]
    made.save()
    return made, whole


@pytest.fixture(scope="module", params=["files", "rows", "chunked rows"])
def stored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    if request.param == "chunked rows":
        return written(folder, "rows", options={"chunks": (4, 1, 3, 6), "compression": "gzip"})
    return written(folder, request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("files"), "files")


def loading(samples, transport, *, epochs=1, batch=2, begin=None, **options):
    """(loader, batches of each epoch) of one rank."""
    own = {"division": Division((1, 2, 1)), "ahead": 1} | options
    settings = Settings(transport.world, batch, epochs, drop_last=own.pop("drop_last", False))
    loader = SpatialLoader(samples, settings, SpatialSettings(**own), transport)
    if begin is not None:
        loader.load_state_dict(begin)
    seen = []
    for epoch in range(begin["epoch"] if begin else 0, epochs):
        loader.set_epoch(epoch)
        seen.append([{k: v.clone() for k, v in each.items()} for each in loader])
    loader.close()
    return loader, seen


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_every_group_gets_its_samples_and_every_rank_its_block(stored, ranks, store, ahead):
    samples, whole = stored
    division = Division((1, 2, 1), (0, 1, 0), "periodic")
    options = {"division": division, "divide": ("x", "label"), "store": store, "ahead": ahead}
    found = outcomes_on_ranks(ranks, lambda t: loading(samples, t, epochs=3, **options))
    groups = ranks // 2
    wide = np.pad(whole["x"], ((0, 0), (0, 0), (1, 1), (0, 0)), mode="wrap")
    flat = np.pad(whole["label"], ((0, 0), (1, 1), (0, 0)), mode="wrap")
    for rank, (loader, epochs) in enumerate(found):
        part, group = rank % 2, rank // 2
        (rows,) = division.block(SHAPE, part)[1:2]
        window = slice(rows[0], rows[1] + 2)
        for epoch, batches in enumerate(epochs):
            assert len(batches) == len(loader)
            order = pad_order(
                draw_epoch_order(N, seed=0, epoch=epoch), ranks=groups, batch=2, drop_last=False
            )
            ids = np.concatenate([batch["sample"] for batch in batches])
            np.testing.assert_array_equal(ids, order[group::groups])  # DistributedSampler's
            x = np.concatenate([batch["x"] for batch in batches])
            np.testing.assert_array_equal(x, wide[ids][:, :, window])
            labels = np.concatenate([batch["label"] for batch in batches])
            np.testing.assert_array_equal(labels, flat[ids][:, window])
            y = np.concatenate([batch["y"] for batch in batches])
            np.testing.assert_array_equal(y, whole["y"][ids])  # undivided: whole everywhere


@pytest.mark.parametrize("read_mode", ["posix", "collective", "scatter", "crop"])
@pytest.mark.parametrize("grid", [(1, 1, 3), (2, 1, 2)])
def test_every_way_and_the_store_give_the_same_batches(files, grid, read_mode):
    samples, whole = files
    division = Division(grid)
    ranks = 2 * division.parts
    found = outcomes_on_ranks(
        ranks,
        lambda t: loading(samples, t, epochs=2, division=division, read_mode=read_mode, store=True),
    )
    for rank, (loader, epochs) in enumerate(found):
        box = index_slices(division.block(SHAPE, rank % division.parts))
        for batch in (batch for epoch in epochs for batch in epoch):
            for sample, block in zip(batch["sample"], batch["x"], strict=True):
                np.testing.assert_array_equal(block, whole["x"][int(sample)][box])
        assert loader.stats().steps == 2 * len(loader)


def test_the_store_reads_every_sample_once_and_exchanges_the_rest(files):
    samples, _ = files
    found = outcomes_on_ranks(4, lambda t: loading(samples, t, epochs=4, store=True))
    stats = [loader.stats() for loader, _ in found]
    of_block = [
        sum(v[0].nbytes for k, v in epochs[0][0].items() if k != "sample") for _, epochs in found
    ]
    for part in range(2):
        own = [stats[part], stats[part + 2]]
        assert sum(s.loads for s in own) == N  # each sample once, in all epochs, in all groups
        # the id that pads the first epoch is in the store by then
        assert sum(s.loads + s.hits + s.received for s in own) == 4 * (N + 1)
        assert sum(s.received for s in own) > 0
    for each, nbytes in zip(stats, of_block, strict=True):
        assert each.store_nbytes == each.loads * nbytes
        assert each.received_nbytes == each.received * nbytes
        assert each.nbytes == each.loads * nbytes  # of blocks: with shares as well


def test_chunks_that_several_parts_read_are_told(stored):
    samples, _ = stored
    with h5py.File(samples.path(0)) as file:
        chunked = file["x"].chunks is not None
    loader = open_loader("spatial", samples, Settings(World(0, 2, 0, 1)), {"grid": (1, 2, 1)})
    assert sum(1 for _ in loader) == len(loader)
    loader.close()
    # 7 rows in two, chunks of 3: blocks 0-3 and 4-6 touch the chunks 0, 1 and 1, 2
    assert loader.stats().chunk_overlap == (4 / 3 if chunked else None)


def test_without_a_store_each_epoch_reads_blocks_again(files):
    samples, _ = files
    found = outcomes_on_ranks(2, lambda transport: loading(samples, transport, epochs=2))
    sizes = [
        sum(v[0].nbytes for k, v in epochs[0][0].items() if k != "sample") for _, epochs in found
    ]
    assert [loader.stats().nbytes for loader, _ in found] == [2 * N * size for size in sizes]
    assert all(loader.stats().hits == 0 for loader, _ in found)


@pytest.mark.parametrize("store", [False, True])
def test_a_resumed_run_goes_on_with_the_same_ids(files, store):
    samples, _ = files

    def work(transport):
        _, whole = loading(samples, transport, epochs=2, store=store)
        settings = Settings(transport.world, 2, 2)
        first = SpatialLoader(
            samples, settings, SpatialSettings(Division((1, 2, 1)), store=store), transport
        )
        first.set_epoch(0)
        batches = iter(first)
        next(batches)
        state = first.state_dict()
        first.close()  # a step that was read ahead is given up
        _, rest = loading(samples, transport, epochs=2, store=store, begin=state)
        return whole, rest

    for whole, rest in outcomes_on_ranks(4, work):
        expected = [whole[0][1:], whole[1]]
        for left, right in zip(expected, rest, strict=True):
            assert [b["sample"].tolist() for b in left] == [b["sample"].tolist() for b in right]
            for one, other in zip(left, right, strict=True):
                assert torch.equal(one["x"], other["x"])


def test_drop_last_leaves_whole_batches_on_every_rank(files):
    samples, _ = files
    found = outcomes_on_ranks(4, lambda transport: loading(samples, transport, drop_last=True))
    assert [len(loader) for loader, _ in found] == [2] * 4
    assert {len(batch["sample"]) for _, epochs in found for batch in epochs[0]} == {2}


def test_fewer_samples_than_a_step_repeat_some_and_read_them_once(tmp_path):
    samples, whole = written(tmp_path, "files", samples=1)
    found = outcomes_on_ranks(4, lambda transport: loading(samples, transport, batch=3, store=True))
    for rank, (loader, epochs) in enumerate(found):
        assert [batch["sample"].tolist() for batch in epochs[0]] == [[0]]
        box = index_slices(Division((1, 2, 1)).block(SHAPE, rank % 2))
        np.testing.assert_array_equal(epochs[0][0]["x"][0], whole["x"][0][box])
        assert loader.stats().loads == 1
    assert Counter(loader.stats().store_nbytes > 0 for loader, _ in found) == {True: 2, False: 2}


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("read_mode", ["posix", "collective", "scatter"])
def test_a_failure_on_one_rank_raises_on_all_in_the_same_step(tmp_path, read_mode, ahead):
    for name in ("whole", "damaged"):
        (tmp_path / name).mkdir()
    samples, _ = written(tmp_path / "whole", "files")
    damaged, _ = written(tmp_path / "damaged", "files")
    bad = int(draw_epoch_order(N, seed=0, epoch=0)[5])
    damaged.path(bad).write_bytes(b"")

    def work(transport):
        own = damaged if transport.world.rank in (2, 3) else samples  # another node's copy
        loader = SpatialLoader(
            own,
            Settings(transport.world, 2),
            SpatialSettings(Division((1, 2, 1)), read_mode=read_mode, ahead=ahead),
            transport,
        )
        with pytest.raises(InputError) as raised:
            for _ in loader:
                pass
        loader.close()
        return loader.stats().steps, str(raised.value)

    found = outcomes_on_ranks(4, work)
    assert [steps for steps, _ in found] == [1] * 4
    assert all(f"{bad:07d}.h5" in text for _, text in found)


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({"grid": (1, 2, 1)}, 3),
        ({"grid": (1, 8, 1)}, 8),
        ({"grid": (1, 2)}, 2),
        ({"divide": ["nothing"]}, 2),
        ({"divide": ["y"]}, 2),
        ({"divide": ["label"], "grid": (2, 1, 1)}, 2),
        ({"io": "independent"}, 2),
        ({"io": "collective"}, 2),
        ({"slab_store": True}, 2),
        ({"slabs_ahead": -1}, 2),
    ],
)
def test_options_that_make_no_sense_are_refused(files, options, ranks):
    settings = Settings(World(0, ranks, 0, 1, "arguments"))
    with pytest.raises(UsageError, match="expected"):
        open_loader("spatial", files[0], settings, options)


def test_blocks_beyond_the_budget_are_refused_before_anything_is_read(files):
    """What one rank alone keeps is every sample."""
    samples, _ = files
    nbytes = len(samples) * samples.sample_nbytes
    for memory, options in ((nbytes, {"slab_store": True}), (0, {})):
        open_loader("spatial", samples, Settings(memory_nbytes=memory), options).close()
    with pytest.raises(UsageError, match=f"--memory of at least {nbytes} bytes"):
        open_loader("spatial", samples, Settings(memory_nbytes=nbytes - 1), {"slab_store": True})


def test_images_and_no_samples_are_refused(small, tmp_path):
    pytest.importorskip("PIL", reason="pillow is not installed")
    with pytest.raises(UsageError, match="images"):
        open_loader("spatial", small("images"), Settings())
    empty = SampleSet(tmp_path, "cosmoflow", 0, FIELDS, "files")
    with pytest.raises(InputError, match="none"):
        open_loader("spatial", empty, Settings())


def test_a_state_of_another_division_is_refused(files):
    one = open_loader("spatial", files[0], Settings(), {"grid": (1, 1, 1)})
    other = open_loader("spatial", files[0], Settings(), {"grid": (1, 1, 1), "halo": 1})
    with pytest.raises(UsageError, match="state"):
        other.load_state_dict(one.state_dict())


def test_alone_it_reads_everything(files):
    samples, whole = files
    loader = open_loader("spatial", samples, Settings(batch=4))
    for batch in loader:
        np.testing.assert_array_equal(batch["x"], whole["x"][batch["sample"]])
    assert loader.stats().nbytes == sum(each.nbytes for each in whole.values())
    loader.close()


def test_pinned_memory_is_asked_for_only_where_there_is_a_device(files):
    loader = open_loader("spatial", files[0], Settings(batch=4, pin_memory=True))
    for batch in loader:
        assert batch["x"].is_pinned() == torch.cuda.is_available()
    loader.close()
