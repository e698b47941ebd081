"""The local part as PyTorch's DataLoader sees it; images in class folders."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")

from torch.utils.data import DataLoader

from tests.loaders.ranks.threads import on_ranks
from vanidl_loaders import pls
from vanidl_loaders.errors import InputError
from vanidl_loaders.pls.storage import content, new_message
from vanidl_loaders.ranks.world import World


@pytest.fixture
def folder(tmp_path):
    """Three classes of 4, 5 and 6 images; each image's colour tells which it is."""
    for label, name in enumerate(("ant", "bee", "cat")):
        (tmp_path / "all" / name).mkdir(parents=True)
        for i in range(4 + label):
            picture = Image.new("RGB", (8, 6), (80 * label, 20 * i, 7))
            picture.save(tmp_path / "all" / name / f"{i}.png")
    (tmp_path / "all" / "bee" / "notes.txt").write_text("no image")
    return tmp_path / "all"


def colours(dataset):
    return {(label, picture.getpixel((0, 0))) for picture, label in dataset}


def test_image_folder_shares_images_out_and_exchanges_them(folder, tmp_path):
    def work(transport):
        rank = transport.world.rank
        local = tmp_path / "local" if rank else None
        dataset = pls.ImageFolder(folder, world=World(rank, 2), local_folder=local)
        before = colours(dataset)
        scheduler = pls.Scheduler(dataset, batch_size=2, fraction=0.5, transport=transport)
        scheduler.scheduling(0)
        scheduler.clean_local_storage()
        return before, colours(dataset), len(dataset)

    results, _ = on_ranks(2, work)
    everything = {(label, (80 * label, 20 * i, 7)) for label in range(3) for i in range(4 + label)}
    for when in (0, 1):
        assert results[0][when] | results[1][when] == everything
        assert not results[0][when] & results[1][when]
    assert results[0][0] != results[0][1]
    assert [result[2] for result in results] == [8, 7]
    kept = sorted((tmp_path / "local" / "rank00001").glob("*.sample"))
    assert len(kept) == 7
    with Image.open(kept[0]) as picture:  # still a PNG file
        assert picture.size == (8, 6)


def test_class_file_and_transform(folder, tmp_path):
    (tmp_path / "classes.txt").write_text("cat\n\nant\n")
    dataset = pls.ImageFolder(folder, tmp_path / "classes.txt", np.asarray, world=World())
    assert dataset.classes == ["cat", "ant"]
    assert sorted(label for _, label in dataset) == [0] * 6 + [1] * 4
    assert {picture.shape for picture, _ in dataset} == {(6, 8, 3)}
    for picture, label in dataset:
        assert picture[0, 0, 0] == (160, 0)[label]


@pytest.mark.parametrize("names", ["dog\n", ""])
def test_a_class_file_of_other_data_is_refused(names, folder, tmp_path):
    (tmp_path / "classes.txt").write_text(names)
    with pytest.raises(InputError, match="expected"):
        pls.ImageFolder(folder, tmp_path / "classes.txt")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a folder"):
        pls.ImageFolder(tmp_path / "nothing")
    with pytest.raises(InputError, match="class names"):
        pls.ImageFolder(tmp_path, tmp_path / "nothing")


def test_a_file_that_is_no_image_is_refused(folder):
    (folder / "ant" / "0.png").write_bytes(b"nothing")
    dataset = pls.ImageFolder(folder, world=World())
    with pytest.raises(InputError, match=r"0\.png"):
        list(dataset)


def test_slots_are_those_of_the_local_part():
    dataset = pls.PartialLocalDataset(list(range(10)), world=World(1, 3), partition="blocks")
    assert [*dataset] == [4, 5, 6]
    assert dataset[-1] == 6
    with pytest.raises(IndexError, match="slot"):
        dataset[3]


def persistent(kept):
    dataset = pls.PartialLocalDataset(list("abcd"), world=World(), folder=kept, partition="blocks")
    dataset.settle(dataset.held())
    return dataset, DataLoader(dataset, 2, num_workers=1, persistent_workers=True)


def exchange(dataset):
    """Sample 3 leaves, sample 9 comes in its place."""
    (packed,) = dataset.source.read([0], dataset.counts)
    message = new_message(9, len(content(packed)))
    content(message)[:] = content(packed)
    dataset.store.add(message)
    dataset.switch(np.array([0, 1, 2, 9]), [3])


def test_workers_that_live_on_see_what_was_exchanged(tmp_path):
    dataset, loader = persistent(tmp_path)
    assert [each for batch in loader for each in batch] == list("abcd")
    exchange(dataset)
    assert [each for batch in loader for each in batch] == list("abca")


def test_workers_that_live_on_are_told_that_memory_is_not_shared():
    dataset, loader = persistent(None)
    assert [each for batch in loader for each in batch] == list("abcd")
    exchange(dataset)
    with pytest.raises(InputError, match="persistent_workers=False"):
        list(loader)
