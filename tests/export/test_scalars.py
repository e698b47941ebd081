"""Scalars for TensorBoard, read back by TensorBoard's own reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vanidl
from tests import DATA
from tests.makers.needed import needed
from tests.makers.records import darshan_log
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.errors import UsageError
from vanidl.export.registry import export
from vanidl.export.scalars import _make_folder_name
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.run import Run

needed("tensorboard", reason="TensorBoard is not installed")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scalars") / "io"
    run = str(DATA / "ddp_two_hosts")
    assert main(["export", run, "--to", "tensorboard", "-o", str(folder)]) == 0
    return folder


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    return accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def test_each_rank_has_a_folder(written: Path) -> None:
    assert sorted(p.name for p in written.iterdir()) == [f"rank_{n}" for n in range(4)]


def test_points_are_the_steps_of_the_frame(
    written: Path, opened: Callable[[Path], vanidl.Run]
) -> None:
    run = opened(DATA / "ddp_two_hosts")
    rows = run.frame("steps")
    rows = rows[rows["rank"] == 2]
    board = read(written / "rank_2")
    share = board.Scalars("io/input wait share")
    assert [point.step for point in share] == rows["step"].tolist()
    expected = (rows["input_wait_s"] / rows["duration_s"]).to_numpy()
    np.testing.assert_allclose([point.value for point in share], expected, rtol=1e-6)
    ends = run.trace.job.start_ns / 1e9 + rows["end_s"].to_numpy()
    np.testing.assert_allclose([point.wall_time for point in share], ends, atol=1e-6)
    read_mib = board.Scalars("io/read (MiB)")
    assert sum(p.value for p in read_mib) == pytest.approx(rows["bytes_read"].sum() / 2**20)


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    trace = assemble(Group((darshan_log([]),), ()), {})
    with pytest.raises(UsageError, match="steps that have a place in time"):
        export(Run(trace, analyse(trace)), "tensorboard", tmp_path / "out")


@pytest.mark.parametrize("name", ["..", "../../etc", "a/b", "", "x\0y", "node01:10322", "日本"])
def test_the_name_of_a_rank_is_one_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / _make_folder_name(name)).mkdir()
    assert len(list(tmp_path.iterdir())) == 1
