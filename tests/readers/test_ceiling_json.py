from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vanidl.errors import InputError
from vanidl.model.run_facts import Ceiling
from vanidl.readers.ceiling_json import NAME, gather, read_ceiling, write_ceiling

CEILING = Ceiling(
    ranks=2, steps=50, step_s=0.1, free_s=0.04, median_step_s=0.1, median_free_s=0.04,
    copying_s=0.001, cost=0.6, low=0.58, high=0.63, replayed=2, kept=40, kept_nbytes=1000,
    remarks=("DataLoader (V) stayed real",),
)  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_ceiling(tmp_path, CEILING)
    assert read_ceiling(tmp_path / NAME) == CEILING
    assert gather([tmp_path / "run.json"]) == (CEILING, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": 0.9}, {"low": 0.7}, {"high": 1.0}, {"high": 0.5}, {"step_s": 0.0}, {"free_s": -1},
        {"copying_s": -1.0}, {"steps": 0}, {"ranks": True}, {"kept": "1"}, {"kept_nbytes": -1},
        {"remarks": 5}, {"schema": "vanidl-ceiling/9"}, {"median_step_s": None}, {"pairs": 0},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_values_are_refused(tmp_path: Path, wrong: dict) -> None:
    write_ceiling(tmp_path, CEILING)
    path = tmp_path / NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(InputError, match="expected what vanidl ceiling measured"):
        read_ceiling(path)
    ceiling, (notice,) = gather([tmp_path / "run.json"])
    assert ceiling is None
    assert notice.code == "ceiling_unreadable"


@pytest.mark.parametrize("text", ["", "[]", "nan", '{"schema": "vanidl-ceiling/1"}', "\xff"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match="expected what vanidl ceiling measured"):
        read_ceiling(tmp_path / NAME)


def test_long_remarks_are_cut(tmp_path: Path) -> None:
    write_ceiling(tmp_path, replace(CEILING, remarks=("x" * 10_000,) * 100))
    found = read_ceiling(tmp_path / NAME)
    assert len(found.remarks) == 20
    assert max(map(len, found.remarks)) == 400


def test_of_several_runs_none_speaks_for_all(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write_ceiling(tmp_path / name, CEILING)
    assert gather([tmp_path / name / "run.json" for name in "ab"]) == (None, [])
