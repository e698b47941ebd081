"""Folders of containers, the data set, the loader and DALI."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from torch.utils.data import DataLoader

from vanidl_loaders.decoders import decode_sample, open_sample
from vanidl_loaders.decoders.dataset import DecodedLoader, EncodedDataset
from vanidl_loaders.decoders.folders import MARK, encode_folder, sample_path
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.world import World

WORKLOADS = {"cosmoflow": "counts", "deepcam": "climate/data"}


@pytest.fixture(scope="module", params=sorted(WORKLOADS))
def encoded(request, small, tmp_path_factory):
    """(samples, folder of containers) of each workload that has a codec."""
    samples = small(request.param)
    folder = tmp_path_factory.mktemp("encoded")
    encode_folder(samples.folder, folder)
    return samples, folder


def baseline(samples, settings):
    return list(open_loader("baseline", samples, settings))


def test_containers_hold_what_the_samples_hold(encoded):
    samples, folder = encoded
    for batch in baseline(samples, Settings(batch=1, shuffle=False)):
        sample = int(batch.pop("sample"))
        decoded = decode_sample(sample_path(folder, sample).read_bytes(), device="cpu")
        assert set(decoded) == set(batch)
        main = WORKLOADS[samples.workload]
        for name in set(batch) - {main}:
            assert torch.equal(decoded[name], batch[name][0])
        if main == "counts":
            wanted = np.log1p(batch[main][0].numpy().astype(np.float32)).astype(np.float16)
            assert np.array_equal(decoded[main].numpy().view("u2"), wanted.view("u2"))
        else:
            extent = float(batch[main].max() - batch[main].min())
            assert float((decoded[main].float() - batch[main][0]).abs().max()) < 0.02 * extent


def test_encoding_is_resumed(encoded, tmp_path):
    samples, _ = encoded
    told = []
    first = encode_folder(samples.folder, tmp_path, progress=lambda *n: told.append(n))
    assert (first.encoded, first.skipped, told) == (5, 0, [(n, 5) for n in range(1, 6)])
    assert first.nbytes == 5 * samples.sample_nbytes
    kept = {p: p.read_bytes() for p in tmp_path.rglob("*.vdl")}
    assert sum(map(len, kept.values())) == first.encoded_nbytes
    sample_path(tmp_path, 2).unlink()
    again = encode_folder(samples.folder, tmp_path, progress=lambda *n: told.append(n))
    assert (again.encoded, again.skipped, told[-1]) == (1, 4, (5, 5))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.vdl")} == kept
    with pytest.raises(InputError, match="another folder"):
        encode_folder(samples.folder, tmp_path, settings="otherwise")
    (tmp_path / MARK).write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        encode_folder(samples.folder, tmp_path)


def test_folders_of_files_are_encoded(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    counts = np.random.default_rng(0).poisson(2, (6, 6, 6, 4)).astype(np.int16)
    np.save(tmp_path / "in" / "a.npy", counts)
    np.save(tmp_path / "in" / "deep" / "b.npy", counts + 1)
    (tmp_path / "in" / "notes.txt").touch()
    assert encode_folder(tmp_path / "in", tmp_path / "out").encoded == 2
    found = {p.relative_to(tmp_path / "out").as_posix() for p in tmp_path.rglob("*.vdl")}
    assert found == {"a.npy.vdl", "deep/b.npy.vdl"}
    with pytest.raises(InputError, match=r"found none"):
        encode_folder(tmp_path / "out", tmp_path / "other")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_the_baselines(encoded, workers, ranks, drop_last):
    samples, folder = encoded
    for rank in range(ranks):
        settings = Settings(
            world=World(rank, ranks, rank, ranks), batch=2, seed=4, workers=workers,
            drop_last=drop_last,
        )  # fmt: skip
        ours = DecodedLoader(samples, settings, folder)
        other = open_loader("baseline", samples, Settings(**vars(settings) | {"workers": 0}))
        for epoch in range(2):
            ours.set_epoch(epoch)
            other.set_epoch(epoch)
            pairs = list(zip(ours, other, strict=True))
            assert len(pairs) == len(ours)
            for found, wanted in pairs:
                assert set(found) == set(wanted)
                assert torch.equal(found["sample"], wanted["sample"])
                assert {n: v.shape for n, v in found.items()} == {
                    n: v.shape for n, v in wanted.items()
                }


def test_a_resumed_epoch_goes_on_behind_the_last_batch(encoded):
    samples, folder = encoded
    settings = Settings(batch=2, workers=1)
    loader = DecodedLoader(samples, settings, folder)
    whole = [batch["sample"].tolist() for batch in loader]
    batches = iter(loader)
    next(batches)
    other = DecodedLoader(samples, settings, folder)
    other.load_state_dict(loader.state_dict())
    batches.close()
    assert [batch["sample"].tolist() for batch in other] == whole[1:]
    with pytest.raises(UsageError, match="state"):
        DecodedLoader(samples, Settings(batch=3), folder).load_state_dict(other.state_dict())


def test_reads_are_counted(encoded):
    samples, folder = encoded
    loader = DecodedLoader(samples, Settings(batch=5, shuffle=False), folder)
    (batch,) = loader
    stats = loader.stats()
    assert stats.loads == stats.requests == 5
    assert stats.nbytes == sum(p.stat().st_size for p in folder.rglob("*.vdl"))
    assert stats.steps == 1
    assert batch["sample"].tolist() == list(range(5))


@pytest.mark.parametrize("workers", [0, 2])
def test_pytorchs_own_loader_reads_the_data_set(encoded, workers):
    samples, folder = encoded
    dataset = EncodedDataset(samples, folder)
    assert len(dataset) == 5
    found = list(DataLoader(dataset, batch_size=5, num_workers=workers))
    (wanted,) = DecodedLoader(samples, Settings(batch=5, shuffle=False), folder)
    assert all(torch.equal(found[0][name], wanted[name]) for name in wanted)
    with pytest.raises(IndexError, match="sample in"):
        dataset[5]


@pytest.mark.parametrize("workers", [0, 2])
def test_missing_and_damaged_containers_are_named(small, tmp_path, workers):
    samples = small("cosmoflow")
    with pytest.raises(InputError, match="loaders encode"):
        open_loader("decoded", samples, Settings(), {"encoded": str(tmp_path / "none")})
    encode_folder(samples.folder, tmp_path)
    loader = DecodedLoader(samples, Settings(batch=2, workers=workers), tmp_path)
    path = sample_path(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="in the container"):
        list(loader)
    path.unlink()
    with pytest.raises(InputError, match="go on with"):
        list(loader)


def test_dali_gives_the_same(encoded):
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    from vanidl_loaders.decoders import dali

    samples, folder = encoded
    paths = [sample_path(folder, sample) for sample in range(5)]
    names = [each.name for each in samples.fields]
    pipeline = dali.build_pipeline(paths, names, batch=2)
    for number in range(2):
        outputs = pipeline.run()
        for name, output in zip(names, outputs, strict=True):
            for at in range(2):
                content = paths[2 * number + at].read_bytes()
                wanted = decode_sample(content, device="cpu")[name].numpy()
                found = np.asarray(output[at])
                assert found.dtype == wanted.dtype
                assert found.tobytes() == wanted.tobytes()
    with pytest.raises(StopIteration):
        pipeline.run()
    with pytest.raises(UsageError, match="at least 9"):
        dali.build_pipeline(paths, names, batch=9)
    with pytest.raises(UsageError, match="device_id"):
        dali.build_pipeline(paths, names, batch=2, device="gpu")


def test_an_opened_sample_is_a_view_of_its_bytes(encoded):
    _, folder = encoded
    for each in open_sample(sample_path(folder, 0).read_bytes()).values():
        assert not any(section.flags.writeable for section in each.sections.values())
