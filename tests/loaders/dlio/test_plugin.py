"""Laws of the loaders under DLIO, by a stand-in of its interface; the real one is further below."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.dlio.standin import config
from tests.loaders.dlio.stored import SHAPE, records, write
from tests.loaders.ranks import threads
from vanidl_loaders.errors import InputError, LoadersError, MissingError, UsageError
from vanidl_loaders.pls import loader as pls

FILES = 12


def epochs_of(loader, args):
    """Batches of each epoch, as DLIO's training loop asks for them."""
    found = []
    for _ in range(args.epochs):
        found.append([{k: v.clone() for k, v in batch.items()} for batch in loader.next()])
        loader.finalize()
    return found


@pytest.fixture
def on_ranks(dlio, monkeypatch):
    """Rank -> its epochs; ranks are threads, and those of `pls` exchange."""
    transports = {}
    monkeypatch.setattr(pls, "open_transport", lambda world, _: transports[world.rank])

    def run(kind, folder, files, ranks, name, **more):
        def work(transport):
            rank = transport.world.rank
            transports[rank] = transport
            args = config(folder, files, rank=rank, ranks=ranks, **more)
            return epochs_of(dlio.loader(kind, args, name), args)

        return threads.on_ranks(ranks, work)[0]

    return run


def samples_of(batch):
    """Ids by content, and the ids that the batch says."""
    (field,) = set(batch) - {"sample", "weight"}
    content = batch[field].numpy()
    return [int(record.flat[0]) for record in content], batch["sample"].tolist()


@pytest.mark.parametrize(
    ("name", "per_file"),
    [("hdf5", 1), ("hdf5", 3), ("npy", 1), ("npy", 2), ("npz", 1), ("npz", 2), ("png", 1)],
)
@pytest.mark.parametrize("kind", ["ScheduledDataLoader", "PartialLocalDataLoader"])
def test_every_sample_once_an_epoch_and_equal_steps(
    on_ranks, tmp_path, monkeypatch, kind, name, per_file
):
    monkeypatch.setenv("VANIDL_LOADER_OPTIONS", ONLY[kind])
    files = write(tmp_path, name, FILES, per_file)
    ranks = on_ranks(kind, tmp_path, files, 3, name, num_samples_per_file=per_file)
    steps = FILES * per_file // (2 * 3)
    for epoch in range(2):
        batches = [rank[epoch] for rank in ranks]
        assert [len(each) for each in batches] == [steps] * 3
        pairs = [samples_of(batch) for each in batches for batch in each]
        assert all(by_content == said for by_content, said in pairs)
        seen = Counter(sample for by_content, _ in pairs for sample in by_content)
        assert seen == Counter(range(FILES * per_file))


ONLY = {
    "ScheduledDataLoader": "--buffer-fraction 0.5 --look-ahead 2",
    "PartialLocalDataLoader": "--exchange-fraction 0.5",
}


@pytest.mark.parametrize("name", ["hdf5", "npy"])
@pytest.mark.parametrize("parts", [1, 3])
def test_blocks_of_a_group_make_up_every_sample_once(on_ranks, tmp_path, monkeypatch, name, parts):
    axis = 1 if name == "hdf5" else 0
    grid = ["1", "1", "1"]
    grid[axis] = str(parts)
    monkeypatch.setenv("VANIDL_LOADER_OPTIONS", f"--grid {'x'.join(grid)} --io posix")
    files = write(tmp_path, name, FILES)
    ranks = on_ranks("SpatialDataLoader", tmp_path, files, 3, name)
    expected = records(FILES, 1)
    (field,) = set(ranks[0][0][0]) - {"sample"}
    for epoch in range(2):
        assert [len(rank[epoch]) for rank in ranks] == [FILES // (2 * 3)] * 3
        seen = Counter()
        for group in range(3 // parts):
            for step in zip(*(ranks[group * parts + p][epoch] for p in range(parts)), strict=True):
                whole = np.concatenate([b[field].numpy() for b in step], axis=axis + 1)
                for record, sample in zip(whole, step[0]["sample"].tolist(), strict=True):
                    assert (record.reshape(SHAPE) == expected[sample]).all()
                    seen[sample] += 1
        assert seen == Counter(range(FILES))


@pytest.mark.parametrize("name", ["hdf5", "npy"])
def test_encoded_files_come_back_each_once(dlio, tmp_path, name):
    pytest.importorskip("numba", reason="numba is not installed")
    from vanidl_loaders.decoders.folders import encode_folder

    files = write(tmp_path, name, FILES)
    encode_folder(tmp_path / "train", tmp_path / "train-encoded")
    seen = Counter()
    for rank in range(2):
        args = config(tmp_path, files, rank=rank, ranks=2, epochs=1)
        (batches,) = epochs_of(dlio.loader("DecodedDataLoader", args, name), args)
        assert len(batches) == FILES // (2 * 2)
        for batch in batches:
            field = {"hdf5": "records_0", "npy": "array"}[name]
            content, said = batch[field].numpy(), batch["sample"].tolist()
            assert [int(record.flat[0]) for record in content] == said
            seen.update(said)
    assert seen == Counter(range(FILES))


def test_a_rest_of_samples_is_dropped_alike_on_all_ranks(on_ranks, tmp_path, monkeypatch):
    files = write(tmp_path, "npy", 11)
    for kind, options in ONLY.items():
        monkeypatch.setenv("VANIDL_LOADER_OPTIONS", options)
        ranks = on_ranks(kind, tmp_path, files, 2, "npy")
        assert [[len(epoch) for epoch in rank] for rank in ranks] == [[2, 2]] * 2


@pytest.fixture
def reads_with(dlio, tmp_path, monkeypatch):
    """A function options -> files read in three epochs of 12 samples of 24 bytes."""
    from vanidl_loaders.dlio import samples as reading

    read, real = [], reading.read_bytes
    monkeypatch.setattr(reading, "read_bytes", lambda path: read.append(path) or real(path))
    args = config(tmp_path, write(tmp_path, "npy", FILES), epochs=3)

    def count(options):
        monkeypatch.setenv("VANIDL_LOADER_OPTIONS", options)
        loader = dlio.loader("ScheduledDataLoader", args)
        read.clear()  # the first file, for shape and type
        epochs_of(loader, args)
        return len(read)

    return count


def test_what_is_buffered_is_not_read_again_in_later_epochs(reads_with):
    assert reads_with("--buffer 9") == FILES + 2 * (FILES - 9)


def test_memory_is_limited_by_the_option_of_all_loaders(reads_with):
    assert reads_with("--memory 1MB") == FILES
    assert reads_with("--memory 144") >= FILES + 2 * (FILES - 144 // 24)


def test_each_wait_and_each_sample_that_is_read_has_its_span(dlio, tmp_path):
    args = config(tmp_path, write(tmp_path, "npy", FILES))
    epochs_of(dlio.loader("ScheduledDataLoader", args), args)
    assert Counter(dlio.spans.noted) == {"fetch.iter": 2 * 6, "item": FILES}
    assert dlio.spans.steps == 2 * [1, 2, 3, 4, 5, 6]


def test_preprocessing_takes_its_time_for_each_sample_buffered_or_not(dlio, tmp_path):
    files = write(tmp_path, "npy", FILES)
    args = config(tmp_path, files, preprocess_time={"mean": 0.1})
    found = epochs_of(dlio.loader("ScheduledDataLoader", args), args)
    assert [len(epoch) for epoch in found] == [6, 6]
    assert dlio.slept == [{"mean": 0.1}] * 2 * FILES
    assert dlio.spans.noted.count("preprocess") == 2 * FILES


def test_an_epoch_that_is_left_early_does_not_stop_the_next(dlio, tmp_path):
    args = config(tmp_path, write(tmp_path, "npy", FILES))
    loader = dlio.loader("ScheduledDataLoader", args)
    next(iter(loader.next()))
    loader.finalize()
    assert len(list(loader.next())) == 6
    loader.finalize()


def test_records_of_unequal_size_are_refused_by_name(dlio, tmp_path):
    files = write(tmp_path, "npy", FILES)
    np.save(files[5], np.zeros((5, 4, 1), np.uint8))
    args = config(tmp_path, files)
    loader = dlio.loader("ScheduledDataLoader", args)
    with pytest.raises(InputError, match=r"found x \(5, 4, 1\).*record_length_bytes_stdev: 0"):
        epochs_of(loader, args)


def test_records_of_unequal_size_are_cut_or_filled_up_as_dlio_resizes_them(dlio, tmp_path):
    files = write(tmp_path, "npz", FILES)
    stored = [np.arange(1 + 7 * n, dtype="<u2").reshape(-1, 1) for n in range(FILES)]
    for path, array in zip(files, stored, strict=True):
        np.savez(path, x=array, y=[0])
    more = {"record_length_stdev": 9, "record_length_resize": 50, "epochs": 1}
    args = config(tmp_path, files, **more)
    (batches,) = epochs_of(dlio.loader("ScheduledDataLoader", args, "npz"), args)
    pairs = [pair for batch in batches for pair in zip(batch["sample"], batch["x"], strict=True)]
    assert sorted(int(sample) for sample, _ in pairs) == list(range(FILES))
    for sample, record in pairs:
        assert bytes(record.numpy()) == stored[int(sample)].tobytes()[:50].ljust(50, b"\0")


@pytest.mark.parametrize("name", ["hdf5", "npy", "npz", "png"])
def test_damaged_and_missing_files_are_named_or_read_as_they_were(dlio, tmp_path, name):
    from vanidl_loaders.dlio.samples import read_sample

    (path, *_) = write(tmp_path, name, 1)
    whole, said = path.read_bytes(), []
    (expected,) = read_sample(path, name).values()
    for seed in range(60):
        draw = np.random.default_rng(seed)
        damaged = bytearray(whole[: draw.integers(len(whole))] if seed % 2 else whole)
        if damaged:
            damaged[draw.integers(len(damaged))] ^= 1 << draw.integers(8)
        path.write_bytes(damaged)
        try:
            assert all(isinstance(a, np.ndarray) for a in read_sample(path, name).values())
        except InputError as error:
            said.append(str(error))
    assert len(said) > 20
    assert all(path.name in message for message in said)
    path.unlink()
    with pytest.raises(InputError, match=path.name):
        read_sample(path, name)
    path.write_bytes(whole)
    assert np.array_equal(*read_sample(path, name).values(), expected)


def test_a_rank_that_fails_ends_all_with_its_line(dlio, tmp_path, monkeypatch, capsys):
    from vanidl_loaders.dlio import plugin

    ended = []
    monkeypatch.setattr(plugin, "end_ranks", lambda *said: ended.append(said))
    files = write(tmp_path, "npy", FILES)
    files[3].write_bytes(b"")
    args = config(tmp_path, files)
    loader = dlio.loader("ScheduledDataLoader", args)
    with pytest.raises(InputError):
        epochs_of(loader, args)
    ((status, why),) = ended
    assert status == 1
    assert files[3].name in why
    assert capsys.readouterr().err == f"vanidl_loaders: {why}\n"


@pytest.mark.parametrize(
    ("kind", "name", "more", "said"),
    [
        ("ScheduledDataLoader", "tfrecord", {}, "expected dataset.format among hdf5, npy"),
        ("SpatialDataLoader", "npz", {}, "among hdf5, npy, num_samples_per_file 1"),
        ("DecodedDataLoader", "npy", {"num_samples_per_file": 2}, "num_samples_per_file 1"),
        ("ScheduledDataLoader", "npy", {"batch_size": 13}, "lower reader.batch_size"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(dlio, tmp_path, kind, name, more, said):
    files = write(
        tmp_path, "npz" if name == "npz" else "npy", FILES, 2 if "num" in str(more) else 1
    )
    with pytest.raises(LoadersError) as refused:
        dlio.loader(kind, config(tmp_path, files, **more), name)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_come_from_the_environment_and_wrong_ones_are_refused(dlio, tmp_path, monkeypatch):
    args = config(tmp_path, write(tmp_path, "npy", FILES))
    monkeypatch.setenv("VANIDL_LOADER_OPTIONS", "--grid 2x1x1")
    with pytest.raises(UsageError, match=r"options of scheduled in .VANIDL_LOADER_OPTIONS"):
        dlio.loader("ScheduledDataLoader", args)


def test_without_dlio_the_classes_are_there_and_say_what_to_install(imported):
    package = imported({"dlio_benchmark": None})
    for name in package.__all__:
        with pytest.raises(MissingError, match=r"expected DLIO, found: .*pip install") as missing:
            getattr(package, name)("npy", "train", 1)
        assert "\n" not in str(missing.value)


@pytest.mark.parametrize(("name", "along"), [("hdf5", 0), ("npz", -1)])
def test_files_of_a_real_training_are_read_by_the_name_of_their_array(
    dlio, tmp_path, monkeypatch, name, along
):
    records = np.arange(24, dtype=np.uint8).reshape(4, 6)
    path = tmp_path / f"part.{name}"
    if name == "npz":
        np.savez(path, image=np.moveaxis(records, 0, along))
    else:
        with h5py.File(path, "w") as file:
            file["image"] = records
    args = config(tmp_path, [path], num_samples_per_file=4, format=name)
    monkeypatch.setenv("VANIDL_DLIO_ARRAY", "image")
    reader = dlio.reader(args)
    assert [reader.read_index(i, 1).tolist() for i in range(4)] == records.tolist()
    monkeypatch.delenv("VANIDL_DLIO_ARRAY")
    with pytest.raises(UsageError, match="name of the array"):
        dlio.reader(args)
