"""Blocks of every layout, type and grid make up the whole, and cost their own bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader

from tests.loaders.ranks.threads import outcomes_on_ranks
from tests.loaders.spatial.stored import CHUNKS, DTYPES, FILTERED, LAYOUTS, content, store
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.spatial import Division, RawFile
from vanidl_loaders.spatial.dataset import SlabDataset
from vanidl_loaders.spatial.grid import count_elements, index_slices
from vanidl_loaders.spatial.layouts import measure_chunk_overlap

SHAPE = (4, 7, 9, 6)
GRIDS = [(1, 1, 1, 1), (1, 3, 1, 1), (1, 1, 1, 5), (4, 1, 1, 1), (1, 2, 2, 1), (1, 2, 3, 2)]
EXACT = ("contiguous", "user block", "chunked", "npy", "fortran npy", "raw")
"""Layouts of which exactly the block's bytes are read."""


def blocks(file, division, **options):
    for part in range(division.parts):
        dataset = SlabDataset([file], "x", division, part=part, **options)
        yield part, dataset[0].numpy(), dataset


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_make_up_the_whole(tmp_path, layout, grid):
    file, array = store(tmp_path, layout, content(SHAPE, "<i2"))
    division, whole, read = Division(grid), np.full(SHAPE, -1, np.int16), 0
    for part, block, dataset in blocks(file, division):
        box = division.block(SHAPE, part)
        whole[index_slices(box)] = block
        stats = dataset.stats()
        read += stats.nbytes
        if layout in EXACT:
            assert stats.nbytes == count_elements(box) * 2
    np.testing.assert_array_equal(whole, array)
    if layout in EXACT:
        assert read == array.nbytes


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "shuffled gzip", "npy", "raw"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_comes_back_in_native_byte_order(tmp_path, dtype, layout):
    file, array = store(tmp_path, layout, content((5, 6, 7), dtype))
    division = Division((1, 2, 3), 1, "periodic")
    padded = np.pad(array, ((0, 0), (1, 1), (1, 1)), mode="wrap")
    for part, block, _ in blocks(file, division):
        (_, rows, columns) = division.block(array.shape, part)
        expected = padded[:, rows[0] : rows[1] + 2, columns[0] : columns[1] + 2]
        np.testing.assert_array_equal(block, expected)
        assert block.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["contiguous", "gzip"])
def test_arrays_of_any_number_of_axes(tmp_path, layout, axes):
    file, array = store(tmp_path, layout, content((11,) * axes, "<f4"))
    division, whole = Division((1,) * (axes - 1) + (4,)), np.empty_like(array)
    for part, block, _ in blocks(file, division):
        whole[index_slices(division.block(array.shape, part))] = block
    np.testing.assert_array_equal(whole, array)


@pytest.mark.parametrize("layout", sorted(FILTERED))
def test_only_touched_chunks_are_read_and_their_overlap_is_told(tmp_path, layout):
    file, _ = store(tmp_path, layout, content(SHAPE, "<i2"))
    division, sides = Division((1, 2, 2, 1)), CHUNKS[4]
    sizes = {}
    with h5py.File(file) as opened:
        found = opened["x"].id
        for number in range(found.get_num_chunks()):
            info = found.get_chunk_info(number)
            sizes[info.chunk_offset] = info.size
    touches = 0
    for part, _, dataset in blocks(file, division):
        box = division.block(SHAPE, part)
        touched = [
            corner
            for corner in sizes
            if all(a < c + n and c < b for (a, b), c, n in zip(box, corner, sides, strict=True))
        ]
        stats = dataset.stats()
        assert stats.nbytes == sum(sizes[corner] for corner in touched)
        assert stats.requests == len(touched)
        assert dataset.chunk_overlap == measure_chunk_overlap(SHAPE, sides, division)
        touches += len(touched)
    assert measure_chunk_overlap(SHAPE, sides, division) == touches / len(sizes) > 1


def test_blocks_that_end_with_chunks_read_no_chunk_twice(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        data = content((4, 8, 8), "<i2")
        file.create_dataset("x", data=data, chunks=(2, 4, 4), compression="gzip")
        stored = file["x"].id.get_storage_size()
    found = list(blocks(path, Division((1, 2, 2))))
    assert [each.chunk_overlap for _, _, each in found] == [1.0] * 4
    assert sum(each.stats().nbytes for _, _, each in found) == stored


def test_a_periodic_window_that_meets_itself_reads_a_chunk_once(tmp_path):
    file, _ = store(tmp_path, "gzip", content((10, 11), "<i2"))
    dataset = SlabDataset([file], "x", Division((2, 1), (4, 0), "periodic"), part=0)
    assert dataset[0].shape == (13, 11)
    with h5py.File(file) as opened:
        assert dataset.stats().requests == opened["x"].id.get_num_chunks()


@pytest.mark.parametrize("read_mode", ["collective", "scatter", "crop", "posix", "gaps", "auto"])
@pytest.mark.parametrize("layout", ["contiguous", "fortran npy", "gzip", "raw"])
@pytest.mark.parametrize("grid", [(1, 1, 1, 5), (1, 2, 3, 1), (2, 2, 2, 2)], ids=str)
def test_every_way_gives_the_same_blocks(tmp_path, grid, layout, read_mode):
    file, array = store(tmp_path, layout, content(SHAPE, ">i2"))
    division = Division(grid, (0, 1, 2, 0), "clamp")
    padded = np.pad(array, [(w, w) for w in division.widths], mode="edge")

    def work(transport):
        dataset = SlabDataset([file, file], "x", division, transport, read_mode=read_mode)
        return [dataset[i].numpy() for i in range(2)], dataset.stats().nbytes

    found = outcomes_on_ranks(division.parts, work)
    for part, (read, nbytes) in enumerate(found):
        block = division.block(SHAPE, part)
        cut = tuple(slice(a, b + 2 * w) for (a, b), w in zip(block, division.widths, strict=True))
        for each in read:
            np.testing.assert_array_equal(each, padded[cut])
        if (read_mode, layout) in (("collective", "contiguous"), ("auto", "raw")):
            assert nbytes == 2 * count_elements(block) * array.itemsize  # with a halo, too
        if read_mode == "crop" and layout == "raw":
            assert nbytes == 2 * array.nbytes
        if read_mode == "scatter" and layout == "raw":
            assert nbytes == (2 * array.nbytes if part == 0 else 0)


def test_short_runs_are_read_jointly_and_long_ones_alone(tmp_path):
    array = np.zeros((2, 2, 1 << 18), "<f4")
    np.save(tmp_path / "x.npy", array)

    def requests(grid):
        def work(transport):
            dataset = SlabDataset([tmp_path / "x.npy"], "x", Division(grid), transport)
            dataset[0]
            return dataset.stats().requests

        return outcomes_on_ranks(2, work)

    assert requests((1, 2, 1)) == [2, 2]  # 2 runs of 1 MiB each
    assert requests((1, 1, 2)) == [1, 1]  # 4 runs of 512 KiB: one share


@pytest.mark.parametrize("read_mode", ["posix", "collective", "scatter", "auto"])
def test_a_failure_on_one_rank_raises_on_all(tmp_path, read_mode):
    array = content((4, 8, 8), "<i2")
    whole, cut = tmp_path / "whole.npy", tmp_path / "cut.npy"
    np.save(whole, array)
    cut.write_bytes(whole.read_bytes()[:-1])

    def work(transport):
        second = cut if transport.world.rank == 2 else whole  # as where nodes have own copies
        dataset = SlabDataset(
            [whole, second, whole], "x", Division((1, 2, 2)), transport, read_mode=read_mode
        )
        assert dataset[0].shape == (4, 4, 4)
        with pytest.raises(InputError, match="bytes") as raised:
            dataset[1]
        assert dataset[2].shape == (4, 4, 4)  # all may go on
        return str(raised.value)

    found = outcomes_on_ranks(4, work)
    assert all("cut.npy" in each for each in found)
    assert ["rank 2" in each for each in found] == [True, True, False, True]


@pytest.mark.parametrize("layout", ["contiguous", "gzip", "npy", "raw"])
def test_cut_and_missing_files_are_said(tmp_path, layout):
    file, _ = store(tmp_path, layout, content((40, 50, 60), "<i2"))
    path = file.path if isinstance(file, RawFile) else file
    dataset = SlabDataset([file], "x", Division((1, 2, 1)), part=1)
    dataset[0]
    kept = path.read_bytes()
    path.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(InputError, match="expected"):
        dataset[0]
    path.unlink()
    with pytest.raises(InputError, match="expected"):
        dataset[0]
    with pytest.raises(InputError, match="expected"):
        SlabDataset([file], "x", Division((1, 2, 1)), part=1)


def test_a_damaged_chunk_is_said(tmp_path):
    file, _ = store(tmp_path, "gzip", content((6, 10), "<f8"))
    with h5py.File(file) as opened:
        info = opened["x"].id.get_chunk_info(0)
    content_ = bytearray(file.read_bytes())
    content_[info.byte_offset : info.byte_offset + info.size] = bytes(info.size)
    file.write_bytes(content_)
    with pytest.raises(InputError, match="filters"):
        SlabDataset([file], "x", Division((1, 1)), part=0)[0]


def test_files_of_another_kind_or_shape_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    np.save(tmp_path / "b.npy", np.zeros((4, 5)))
    (tmp_path / "c.npy").write_bytes(b"nothing")
    (tmp_path / "d.h5").write_bytes(b"nothing")
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file["y"] = np.zeros((4, 4))
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    with pytest.raises(InputError, match="shape"):
        SlabDataset([a, b], "x", Division((2, 1)), part=0)[1]
    for name in ("c.npy", "d.h5", "e.h5"):
        with pytest.raises(InputError, match="expected"):
            SlabDataset([tmp_path / name], "x", Division((2, 1)), part=0)
    with pytest.raises(InputError, match="at least one"):
        SlabDataset([], "x", Division((2, 1)), part=0)
    with pytest.raises(IndexError):
        SlabDataset([a], "x", Division((2, 1)), part=0)[1]


WRONG = (
    {},
    {"part": 2},
    {"part": 0, "read_mode": "other"},
    {"part": 0, "read_mode": "independent"},
    {"part": 0, "read_mode": "collective"},
)


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    with pytest.raises(UsageError, match="expected"):
        SlabDataset([tmp_path / "a.npy"], "x", Division((2, 1)), **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_under_a_dataloader(tmp_path, workers):
    arrays = [content((4, 6), "<f4", seed) for seed in range(5)]
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
    files = [tmp_path / f"{number}.npy" for number in range(5)]
    dataset = SlabDataset(files, "x", Division((1, 2)), part=1)
    loader = DataLoader(pickle.loads(pickle.dumps(dataset)), batch_size=2, num_workers=workers)
    found = torch.cat(list(loader)).numpy()
    np.testing.assert_array_equal(found, np.stack(arrays)[:, :, 3:])


def test_a_worker_cannot_speak_for_a_connected_rank(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))

    def work(transport):
        dataset = SlabDataset([tmp_path / "a.npy"], "x", Division((1, 1)), transport)
        with pytest.raises(UsageError, match="num_workers=0"):
            pickle.dumps(dataset)
        with pytest.raises(UsageError, match="num_workers=0"):
            next(iter(DataLoader(dataset, num_workers=1, multiprocessing_context="fork")))

    assert outcomes_on_ranks(1, work) == [None]


def test_objects_and_records_are_no_numbers(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, {}]), allow_pickle=True)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = ["a", "b"]
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["x"] = np.zeros(2, [("a", "<i2"), ("b", "<f4")])
    for name in ("a.npy", "b.h5", "c.h5"):
        with pytest.raises(InputError, match="numbers"):
            SlabDataset([tmp_path / name], "x", Division((1,)), part=0)


def test_a_rank_that_finds_no_file_tells_all(tmp_path):
    file, _ = store(tmp_path, "npy", content((4, 6), "<i2"))

    def work(transport):
        mine = file if transport.world.rank else tmp_path / "missing.npy"
        with pytest.raises(InputError, match=r"missing\.npy"):
            SlabDataset([mine], "x", Division((1, 2)), transport)

    assert outcomes_on_ranks(2, work) == [None, None]
