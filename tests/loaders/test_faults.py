"""What is wrong with data or options ends a command with one line and a status, never a traceback.

Two ranks of one job see the same: they end with the same line and status.
"""

from __future__ import annotations

import errno
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("PIL", reason="pillow is not installed")
pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from vanidl_loaders.cli import main
from vanidl_loaders.data.readers import HDF5Reader
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader

LOADERS = ("baseline", "scheduled", "pls", "spatial")
FILES = (".h5", ".jpg")


def refused(capsys, *line):
    """(status, line) of a command that has to be refused in one line."""
    status = main(["train", *map(str, line)])
    said = capsys.readouterr().err.splitlines()
    assert status in (1, 2)
    assert len(said) == 1, said
    return status, said[0]


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {
    "truncated": truncated,
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("workload", ["ptycho", "cosmoflow", "images"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_named_by_every_loader(workload, damage, small, tmp_path, capsys):
    data = shutil.copytree(small(workload).folder, tmp_path / "data")
    for path in [p for p in data.rglob("*") if p.suffix in FILES]:
        DAMAGES[damage](path)
    for loader in LOADERS[: 3 if workload == "images" else 4]:
        status, said = refused(capsys, "--data", data, "--loader", loader, "--batch", 2)
        assert status == 1
        assert str(data) in said


DESCRIPTIONS = {
    "a list": lambda _: [1],
    "nothing": lambda d: {"schema": d["schema"]},
    "a type": lambda d: d | {"fields": [d["fields"][0] | {"dtype": "<q9"}]},
    "a shape": lambda d: d | {"fields": [d["fields"][0] | {"shape": [-1, 4]}]},
    "a count": lambda d: d | {"samples": "many"},
    "a negative count": lambda d: d | {"samples": -1},
    "a layout": lambda d: d | {"layout": "images"},
    "more": lambda d: d | {"unknown": 1},
    "another schema": lambda d: d | {"schema": "loaders/2"},
    "a workload": lambda d: d | {"workload": "none"},
}


@pytest.mark.parametrize("wrong", DESCRIPTIONS)
def test_a_damaged_description_is_refused(wrong, ptycho, tmp_path, capsys):
    content = json.loads((ptycho.folder / "samples.json").read_text())
    (tmp_path / "samples.json").write_text(json.dumps(DESCRIPTIONS[wrong](content)))
    for loader in LOADERS:
        refused(capsys, "--data", tmp_path, "--loader", loader)


def test_a_description_nested_without_end_is_refused(tmp_path, capsys):
    (tmp_path / "samples.json").write_text("[" * 100_000)
    refused(capsys, "--data", tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ["--plan", "/dev/null"],
        ["--buffer-fraction", "nan"],
        ["--buffer", "-1"],
        ["--buffer", 10**9, "--staging-bytes", 10**15],
        ["--read-timeout-s", "nan"],
        ["--read-threads", 0],
        ["--batch", 0],
        ["--batch", 64, "--drop-last"],
        ["--rank", 0, "--ranks", 40],
        ["--rank", 2, "--ranks", 2],
        ["--rank", 1],
    ],
)
def test_options_that_make_no_sense_are_refused(options, ptycho, capsys):
    refused(capsys, "--data", ptycho.folder, "--loader", "scheduled", *options)


@pytest.mark.parametrize("name", LOADERS[:3])
@pytest.mark.parametrize(("batch", "ranks"), [(4, 1), (64, 1), (4, 2), (2, 8)])
def test_ranks_and_batches_that_divide_nothing(name, batch, ranks, ptycho):
    """Every rank has as many steps, and together they train on every sample of 21."""
    from vanidl_loaders.ranks.world import World

    if name == "pls" and ranks > 1:
        pytest.skip("ranks exchange: tests/loaders/pls")
    options = {"look_ahead": 0} if name == "scheduled" else {}
    steps, seen = set(), set()
    for rank in range(ranks):
        world = World(rank, ranks, 0, 1, "arguments")
        loader = open_loader(name, ptycho, Settings(world, batch), options)
        batches = [batch["sample"] for batch in loader]
        loader.close()
        steps.add(len(batches))
        seen.update(np.concatenate(batches).tolist())
    assert len(steps) == 1
    assert seen == set(range(21))


def test_storage_that_fails_names_the_sample_and_the_error(ptycho, monkeypatch, capsys):
    """HDF5's own text has times, addresses and no sample."""

    def fails(*_):
        raise OSError(errno.EIO, "Can't synchronously read data (file read failed: time = Mon ...")

    monkeypatch.setattr(HDF5Reader, "array", fails)
    status, said = refused(capsys, "--data", ptycho.folder, "--no-shuffle", "--batch", 1)
    assert status == 1
    assert f"expected to read sample 0 of {ptycho.folder}, found: Input/output error; " in said


def test_bytes_of_images_are_those_of_their_files(small):
    samples = small("images")
    for name in ("baseline", "scheduled"):
        loader = open_loader(name, samples, Settings(batch=2))
        list(loader)
        loader.close()
        stored = sum(samples.path(i).stat().st_size for i in range(5))
        assert loader.stats().nbytes == stored
