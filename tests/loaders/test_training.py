from __future__ import annotations

import ctypes
import errno
import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from tests.loaders.launch import STARTED_BY, json_objects
from vanidl_loaders import training
from vanidl_loaders.baseline import BaselineLoader
from vanidl_loaders.cli import main
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.loader.loader import WEIGHT, Settings
from vanidl_loaders.training import Places, Plan, train


def train_line(samples, *more):
    return ["train", "--data", str(samples.folder), "--batch", "4", *map(str, more)]


def trace_events(folder):
    (path,) = folder.glob("*.pt.trace.json.gz")
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def test_a_run_leaves_a_trace_and_an_event_file(ptycho, tmp_path, capsys):
    tb = tmp_path / "tb"
    line = train_line(ptycho, "--profile", tb, "--events", tb, "--epochs", 2)
    assert main(line) == 0
    assert "12 steps on each of 1 rank" in capsys.readouterr().out
    names = [e.get("name", "") for e in trace_events(tb)]
    steps = {n for n in names if n.startswith("ProfilerStep#")}
    assert steps == {f"ProfilerStep#{i}" for i in range(1, 12)}  # step 0 warms up
    waits = [n for n in names if n.startswith("enumerate(DataLoader)#") and "__next__" in n]
    assert len(waits) >= 11
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tb)).Reload().Scalars("loss")
    assert [e.step for e in events] == list(range(12))


def test_vanidl_run_is_the_default_place(ptycho, tmp_path, monkeypatch):
    monkeypatch.setenv("VANIDL_RUN", str(tmp_path / "run"))
    assert main(train_line(ptycho, "--steps", 3)) == 0
    assert trace_events(tmp_path / "run" / "tb")
    assert list((tmp_path / "run" / "tb").glob("events.out.tfevents.*"))


def test_options_win_over_vanidl_run():
    assert Places.chosen("p", None, {"VANIDL_RUN": "r"}) == Places(Path("p"), None)
    assert Places.chosen(None, None, {"VANIDL_RUN": ""}) == Places()


def test_training_is_deterministic_and_steps_can_be_limited(ptycho):
    def losses(**plan):
        settings = Settings(batch=4, seed=5)
        loader = BaselineLoader(ptycho, settings)
        return train(ptycho, loader, settings, Plan(**plan)), loader.stats()

    whole, _ = losses()
    again, _ = losses()
    cut, stats = losses(most_steps=2)
    assert whole.losses == again.losses
    assert (len(whole.losses), whole.samples) == (6, 21)
    assert cut.losses == whole.losses[:2]
    assert stats.loads == 8  # the batch behind the limit was not read


def test_checkpoints_hold_the_model(ptycho, tmp_path):
    assert main(train_line(ptycho, "--checkpoints", tmp_path, "--epochs", 2)) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-0.pt", "checkpoint-1.pt"]
    state = torch.load(tmp_path / "checkpoint-1.pt", weights_only=True)
    assert all(torch.isfinite(value).all() for value in state.values())


class Weighing(BaselineLoader):
    """The baseline, its batches weighted."""

    def __iter__(self):
        return (batch | {WEIGHT: torch.tensor(0.0)} for batch in super().__iter__())


def test_a_weight_scales_the_gradient(ptycho):
    settings = Settings(batch=4)
    outcome = train(ptycho, Weighing(ptycho, settings), settings, Plan())
    free = train(ptycho, BaselineLoader(ptycho, settings), settings, Plan())
    assert outcome.losses[0] == free.losses[0]  # reported unweighted
    assert outcome.losses[-1] != free.losses[-1]  # no gradient, no learning


def test_ranks_out_of_step_are_refused(ptycho, monkeypatch):
    monkeypatch.setattr(training, "is_same_on_all_ranks", lambda value: False)
    settings = Settings(batch=4)
    with pytest.raises(LoadersError, match="same number of steps"):
        train(ptycho, BaselineLoader(ptycho, settings), settings, Plan())


@pytest.mark.parametrize(
    "launcher", ["torchrun", pytest.param("mpi to train", marks=pytest.mark.mpi)]
)
def test_two_ranks_train_in_step(launcher, ptycho, tmp_path, run_python):
    profile = ["--profile", tmp_path / "tb"] * (launcher != "torchrun")  # its imports take seconds
    line = train_line(ptycho, "--json", *profile)
    done = run_python([*STARTED_BY[launcher](2), "-m", "vanidl_loaders", *line])
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr  # what Triton's library has to say of a fast end
    ranks = {each["rank"]: each for each in json_objects(done.stdout)}
    assert sorted(ranks) == [0, 1]
    assert [len(each["losses"]) for each in ranks.values()] == [3, 3]
    assert [each["samples"] for each in ranks.values()] == [11, 11]  # 21, one of them twice
    assert len(list((tmp_path / "tb").glob("*.pt.trace.json.gz"))) == len(profile)


def test_every_workload_trains(small, capsys):
    for name in ("cosmoflow", "deepcam", "images"):
        assert main(train_line(small(name), "--workload", name, "--batch", 2)) == 0
    assert capsys.readouterr().out.count("3 steps") == 3


def test_bench_prints_a_ratio_and_list_lists(ptycho, capsys):
    assert main(["bench", *train_line(ptycho)[1:], "--repeat", "1"]) == 0
    assert "ratio  1.00" in capsys.readouterr().out
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "ptycho" in listed
    assert "baseline" in listed


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--drop-last", "--batch", "64"], "at least one step per epoch"),
        (["--loader", "scheduled", "--staging-bytes", 10**15], "memory of this host"),
        (["--loader", "spatial", "--rank", "1", "--ranks", "2"], "trains on blocks"),
        (["--loader", "pls", "--exchange-timeout-s", "nan"], "a timeout above 0"),
        (["--loader", "pls", "--exchange-bytes", "-1"], "bytes under way"),
        pytest.param(
            ["--loader", "decoded", "--decode-on", "cuda"],
            "a CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(more, said, ptycho, capsys):
    assert main(train_line(ptycho, *more)) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("loader", ["scheduled", "pls"])
def test_an_error_of_the_storage_names_the_file(loader, ptycho, capsys, monkeypatch):
    from vanidl_loaders.data import pread

    def broken(*_arguments):
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(pread, "_PREAD", broken)
    assert main(train_line(ptycho, "--loader", loader)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(ptycho.path(0)) in line
    assert "Input/output error" in line


def test_storage_that_is_gone_is_said_though_its_file_cannot_be_closed(ptycho, capsys, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    closed = []

    def gone(*_arguments):
        raise OSError(107, "Transport endpoint is not connected")

    def fails(_file):
        closed.append(None)
        raise RuntimeError("Can't decrement id ref count")

    monkeypatch.setattr(h5py.Dataset, "__getitem__", gone)
    monkeypatch.setattr(h5py.File, "close", fails)
    assert main(train_line(ptycho, "--loader", "baseline")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Transport endpoint" in line
    assert closed
