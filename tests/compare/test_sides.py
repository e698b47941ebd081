from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

import vanidl
from tests import DATA
from vanidl.compare.sides import Side, distinct_names, side_of, sub_folders
from vanidl.errors import InputError, SeveralJobsError

W0, W4 = DATA / "torch_pfs_workers0", DATA / "torch_pfs_workers4"


@cache
def opened(path: Path) -> vanidl.Run:
    return vanidl.open_run(path)


def test_a_run_with_sub_folders_is_one_run():
    side = side_of(W4, "B", opened)
    assert (side.letter, side.name, len(side.samples)) == ("B", "torch_pfs_workers4", 1)
    assert side.samples[0].ranks == ("node01:10334",)
    assert side.samples[0].account.overlap.mean.input_wait_s == pytest.approx(0.781, rel=0.01)


def test_a_folder_of_runs_is_a_side_of_repeats(tmp_path):
    for name, source in (("run-10", W0), ("run-9", W4)):
        shutil.copytree(source, tmp_path / name)
    side = side_of(tmp_path, "A", vanidl.open_run, "both")
    assert side.name == "both"
    assert [Path(s.path).name for s in side.samples] == ["run-9", "run-10"]
    assert [s.job.id for s in side.samples] == ["10334", "10322"]


def test_unrelated_logs_in_one_folder_stay_an_error(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for source in (W0, W4):
        for log in (source / "darshan").iterdir():
            shutil.copy(log, logs)
    with pytest.raises(SeveralJobsError):
        side_of(tmp_path, "A", vanidl.open_run)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError):
        side_of(tmp_path / "missing", "A", vanidl.open_run)


def test_sub_folders_are_in_natural_order_without_hidden_ones(tmp_path):
    for name in ("b-2", "b-10", "a-1", ".cache", "7", "x"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert [p.name for p in sub_folders(tmp_path)] == ["7", "a-1", "b-2", "b-10", "x"]
    assert sub_folders(tmp_path / "file") == []


def test_equal_names_become_paths():
    paths = [Path("x/run"), Path("y/run"), Path("other")]
    sides = [Side(letter, path.name, ()) for letter, path in zip("ABC", paths, strict=True)]
    assert [s.name for s in distinct_names(sides, paths)] == ["x/run", "y/run", "other"]
