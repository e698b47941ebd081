from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.cli import main
from vanidl_loaders.commands.compare import count_served_nbytes
from vanidl_loaders.workloads.making import make


def compared(capsys, *line):
    assert main(["compare", *map(str, line)]) == 0
    return capsys.readouterr().out


def test_bytes_are_those_that_the_kernel_counts(tmp_path, capsys):
    """Of a loader that reads every sample, and of two that read none after the first epoch."""
    made = make("ptycho", tmp_path, samples=21, seed=3, size=64)  # more than HDF5 itself buffers
    options = ["--data", made.folder, "--batch", 4, "--epochs", 3, "--json"]
    content = json.loads(compared(capsys, *options, "--loaders", "baseline,scheduled,pls"))
    rows = {row["loader"]: row for row in content["loaders"]}
    data = 21 * made.sample_nbytes
    for row in rows.values():
        assert len(row["seconds"]) == len(row["served_nbytes"]) == 3
        assert row["served_nbytes"][0] >= data
    assert rows["baseline"]["served_nbytes"][1] >= data
    for name in ("scheduled", "pls"):  # all fits their memory
        assert rows[name]["served_nbytes"][2] < data / 4
    assert rows["baseline"]["loads"] == 3 * 21
    assert rows["scheduled"]["loads"] == 21


def test_the_table_names_the_proof_and_what_was_refused(small, capsys):
    options = ["--data", small("images").folder, "--batch", 2, "--epochs", 2]
    text = compared(capsys, *options, "--loaders", "spatial,baseline,pls")
    assert "spatial    refused: expected samples in HDF5 files" in text
    assert "pls: global batches are its own" in text
    assert "fastest after the first epoch" in text


@pytest.mark.parametrize(("held", "said"), [(21, True), (20, False)])
def test_epochs_that_read_nothing_say_nothing_about_the_storage(ptycho, capsys, held, said):
    """All 21 samples fit, or one does not."""
    options = ["--data", ptycho.folder, "--batch", 4, "--buffer", held]
    rows = {}
    for name in ("baseline", "scheduled"):
        text = compared(capsys, *options, "--loaders", name)
        rows[name] = f"{name}: read no sample after the first epoch" in text
    assert rows == {"baseline": False, "scheduled": said}


def test_a_package_that_is_missing_refuses_one_loader(small, capsys, monkeypatch):
    """Which is tried last: what the others took is not lost."""
    monkeypatch.setitem(sys.modules, "webdataset", None)
    options = ["--data", small("ptycho").folder, "--batch", 2, "--loaders", "baseline,webdataset"]
    text = compared(capsys, *options)
    assert "webdataset refused: expected the package webdataset, found none: pip install" in text
    assert "fastest after the first epoch: baseline. Nothing to change." in text


def test_one_epoch_has_none_after_it(small, capsys):
    options = ["--data", small("ptycho").folder, "--batch", 2, "--epochs", 1]
    text = compared(capsys, *options, "--loaders", "baseline")
    _, _, later_s, ratio, _, later_mb = text.splitlines()[1].split()
    assert (later_s, ratio, later_mb) == ("-", "1", "-")
    assert "fastest in the first epoch: baseline" in text


def test_loaders_that_do_not_fit_are_refused(small, capsys):
    data = ["--data", str(small("images").folder)]
    assert main(["compare", *data, "--loaders", "spatial"]) == 2
    assert main(["compare", *data, "--loaders", "nosuch"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_served_bytes_are_counted(tmp_path):
    before = count_served_nbytes()
    if before is None:
        pytest.skip("this kernel does not count read bytes")
    path = tmp_path / "content"
    path.write_bytes(bytes(1 << 20))
    assert len(path.read_bytes()) <= count_served_nbytes() - before < 3 << 20
