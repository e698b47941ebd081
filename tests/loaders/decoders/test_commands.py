from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")


from vanidl_loaders.cli import main
from vanidl_loaders.decoders.convert import read_sample, write_sample


@pytest.fixture
def counts():
    return np.random.default_rng(1).poisson(1, (8, 8, 8, 4)).astype(np.int16)


@pytest.mark.parametrize("source", ["a.npy", "a.h5", "a.tfrecord", "a.tfrecord.gz"])
@pytest.mark.parametrize("target", ["b.npy", "b.h5", "b.tfrecord"])
def test_files_of_every_kind_go_in_and_come_out(tmp_path, monkeypatch, counts, source, target):
    monkeypatch.chdir(tmp_path)
    write_sample(source, {"array": counts})
    assert main(["encode", source, "c.vdl"]) == 0
    assert main(["inspect", "c.vdl"]) == 0
    assert main(["decode", "c.vdl", target, "--device", "cpu"]) == 0
    (found,) = read_sample(target).values()
    wanted = np.moveaxis(np.log1p(counts.astype(np.float32)).astype(np.float16), -1, 0)
    assert np.array_equal(found.view("u2"), wanted.view("u2"))


def test_inspect_says_what_is_there_and_how_far_off(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0, 9, 8 * 200).reshape(8, 200)
    fields = np.stack([np.sin(x), np.cos(x) + 3], -1).astype(np.float32)
    write_sample("a.h5", {"climate/data": fields, "climate/labels": np.zeros((8, 200), np.int8)})
    assert main(["encode", "a.h5", "a.vdl", "--codec", "deepcam"]) == 0
    capsys.readouterr()
    assert main(["inspect", "a.vdl", "--json", "--original", "a.h5"]) == 0
    found = json.loads(capsys.readouterr().out)
    data, labels = found["arrays"]["climate/data"], found["arrays"]["climate/labels"]
    assert (data["codec"], labels["codec"]) == ("deepcam", "lossless")
    assert data["source"]["shape"] == [8, 200, 2]
    assert data["decoded"]["shape"] == [2, 8, 200]
    assert [each["channel"] for each in data["errors"]] == [0, 1]
    assert max(each["over_tenth"] for each in data["errors"]) < 0.03
    assert main(["inspect", "a.vdl", "--original", "a.h5"]) == 0
    text = capsys.readouterr().out
    assert "climate/data: deepcam" in text
    assert "over 10 %" in text


def test_stats_bring_channels_to_the_unit_interval(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = np.random.default_rng(0).uniform(1e5, 2e5, (4, 50, 2)).astype(np.float32)
    write_sample("a.h5", {"data": fields})
    with h5py.File("stats.h5", "w") as file:
        file["climate/minval"] = fields.min((0, 1))
        file["climate/maxval"] = fields.max((0, 1))
    line = ["encode", "a.h5", "a.vdl", "--codec", "deepcam", "--stats"]
    assert main([*line, "stats.h5"]) == 0
    assert main(["decode", "a.vdl", "b.npy", "--device", "cpu"]) == 0
    found = read_sample("b.npy")["array"]
    least, most = fields.min((0, 1)), fields.max((0, 1))
    wanted = np.moveaxis((fields - least) / (most - least), -1, 0)
    assert np.abs(found - wanted).max() < 0.02
    assert main([*line, "none.h5"]) == 1


def test_a_folder_is_encoded_and_resumed(small, tmp_path, capsys):
    samples = small("cosmoflow")
    line = ["encode", str(samples.folder), str(tmp_path / "out"), "--threads", "1"]
    assert main(line) == 0
    assert capsys.readouterr().out.startswith("5 encoded, ")
    assert main(line) == 0
    assert capsys.readouterr().out == "0 encoded, 0 bytes to 0; 5 were there\n"
    assert main([*line, "--codec", "cosmoflow", "--channels", "first"]) == 1
    assert "choose another folder" in capsys.readouterr().err


def test_training_on_decoded_samples_gives_the_baselines_losses(small, tmp_path, capsys):
    for workload in ("cosmoflow", "deepcam"):
        samples, losses = small(workload), {}
        encoded = str(tmp_path / workload)
        assert main(["encode", str(samples.folder), encoded]) == 0
        capsys.readouterr()
        for loader in ("baseline", "decoded"):
            line = ["train", "--data", str(samples.folder), "--batch", "2", "--epochs", "2"]
            more = ["--loader", loader, "--encoded", encoded, "--decode-on", "cpu", "--json"]
            assert main([*line, *more]) == 0
            losses[loader] = json.loads(capsys.readouterr().out)["losses"]
        assert losses["decoded"] == pytest.approx(losses["baseline"], rel=0.02)
        assert losses["decoded"] != losses["baseline"]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        (["encode", "none.npy", "a.vdl"], 1, "expected a file"),
        (["encode", "a.npy", "a.zip"], 2, "suffix .vdl"),
        (["encode", "a.npy", "a.vdl", "--shape", "x"], 2, "--shape"),
        (["decode", "none.vdl", "a.npy"], 1, "expected a container"),
        (["decode", "a.npy", "b.npy"], 1, "in the container"),
        (["inspect", "none.vdl"], 1, "expected a container"),
        (["inspect", "a.npy"], 1, "in the container"),
        (["decode", "b.vdl", "c.npy", "--array", "x"], 2, "arrays among array"),
    ],
)
def test_bad_input_is_one_line_and_a_status(
    tmp_path, monkeypatch, capsys, counts, line, status, message
):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", counts)
    assert main(["encode", "a.npy", "b.vdl"]) == 0
    assert main(line) == status
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
