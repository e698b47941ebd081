from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.makers.event_files import step_table
from vanidl.errors import InputError
from vanidl.readers.xprof.reading import read_durations

NAME = "node07.input_pipeline.pb"


def written(folder: Path, content: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(content)
    return path


def test_durations_in_the_order_of_the_file(tmp_path):
    read = read_durations(written(tmp_path, step_table([(0, 78.8226), (1, 3.0264), (7, 0.0)])))
    assert read.host == "node07"
    assert read.step.tolist() == [0, 1, 7]
    assert read.duration_ns.tolist() == [78_822_600, 3_026_400, 0]


def test_impossible_durations_are_left_out(tmp_path):
    rows = [(0, 1.0), (1, math.nan), (2, -1.0), (3, math.inf)]
    assert read_durations(written(tmp_path, step_table(rows))).step.tolist() == [0]


@pytest.mark.parametrize(
    "content", [b"", b"not a message", step_table([]), step_table([(0, 1.0)])[:-4]]
)
def test_what_is_no_step_table(tmp_path, content):
    with pytest.raises(InputError, match="expected a TensorBoard input pipeline analysis"):
        read_durations(written(tmp_path, content))
    with pytest.raises(InputError, match="check the path"):
        read_durations(tmp_path / "none.input_pipeline.pb")


def test_cosmictagger(shared: Path):
    paths = sorted((shared / "data/public/vanidl_cosmictagger").rglob("*.input_pipeline.pb"))
    read = {r.host: r for r in map(read_durations, paths)}
    assert {host: len(r.step) for host, r in read.items()} == {
        "nid03825": 469, **{f"nid038{n}": 451 for n in (26, 27, 31, 32, 35, 37, 39)}
    }  # fmt: skip
    assert (read["nid03832"].duration_ns[:3] / 1e6).tolist() == pytest.approx(
        [78.8226, 3.0264, 6796.0634], abs=1e-4
    )
    means = [r.duration_ns.mean() / 1e6 for r in read.values()]
    assert min(means) == pytest.approx(1322, abs=1)
    assert max(means) == pytest.approx(1346, abs=1)
