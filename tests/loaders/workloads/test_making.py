from __future__ import annotations

import hashlib

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("PIL", reason="pillow is not installed")

from vanidl_loaders.data.readers import open_reader
from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.workloads import making
from vanidl_loaders.workloads.making import make
from vanidl_loaders.workloads.registry import WORKLOADS, find_workload

NAMES = sorted(WORKLOADS)


class Interrupted(Exception):
    pass


def stop_after(limit):
    def progress(done, total):
        if done == limit:
            raise Interrupted

    return progress


def digests(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_other_seed_other_bytes(name, tmp_path):
    for folder, seed in (("a", 5), ("b", 5), ("c", 6)):
        make(name, tmp_path / folder, samples=3, seed=seed, size=16)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    changed = digests(tmp_path / "c")
    assert all(changed[p] != d for p, d in digests(tmp_path / "a").items() if p.suffix != "")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mark_every", [1, 2, 32])
def test_an_interrupted_making_goes_on_to_the_same_bytes(name, tmp_path, monkeypatch, mark_every):
    monkeypatch.setattr(making, "MARK_EVERY", mark_every)
    make(name, tmp_path / "once", samples=5, size=16)
    with pytest.raises(Interrupted):
        make(name, tmp_path / "twice", samples=5, size=16, progress=stop_after(3))
    assert digests(tmp_path / "twice") != digests(tmp_path / "once")
    make(name, tmp_path / "twice", samples=5, size=16)
    assert digests(tmp_path / "twice") == digests(tmp_path / "once")


def test_what_is_made_is_not_made_again(tmp_path, monkeypatch):
    make("ptycho", tmp_path, samples=4, size=16)
    monkeypatch.setattr(find_workload("ptycho"), "sample", None)  # would raise when called
    make("ptycho", tmp_path, samples=4, size=16)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_reads_back_as_it_was_made(name, small):
    samples = small(name)
    workload, reads = find_workload(name), open_reader(samples)
    for i in range(len(samples)):
        made, read = workload.sample(samples, i), reads.read(i)
        assert set(made) == set(read) == {f.name for f in samples.fields}
        for field in samples.fields:
            assert read[field.name].shape == field.shape
            assert read[field.name].dtype == np.dtype(field.dtype)
            if field.name == "image":  # JPEG: close, not equal; noise of one pixel is not kept
                error = read["image"].astype(float) - made["image"]
                assert abs(error.mean()) < 4
            else:
                np.testing.assert_array_equal(read[field.name], made[field.name])
    reads.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_description_comes_back(name, small):
    assert open_samples(small(name).folder) == small(name)


def test_another_call_into_the_same_folder_is_refused(tmp_path):
    make("ptycho", tmp_path, samples=2, size=16)
    with pytest.raises(InputError, match="another seed, size or number"):
        make("ptycho", tmp_path, samples=3, size=16)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ptycho", {"samples": 0}),
        ("nothing", {"samples": 1}),
        ("cosmoflow", {"samples": 1, "size": 200}),
        ("deepcam", {"samples": 1, "size": 17}),
    ],
)
def test_what_cannot_be_made_is_refused(name, given, tmp_path):
    with pytest.raises(UsageError, match="expected"):
        make(name, tmp_path / "x", **given)


def test_no_description_says_how_to_make_one(tmp_path):
    with pytest.raises(InputError, match="loaders make"):
        open_samples(tmp_path)
    (tmp_path / "samples.json").write_text("{}")
    with pytest.raises(InputError, match="schema"):
        open_samples(tmp_path)
