from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import vanidl
from tests import DATA
from vanidl.compare import compare
from vanidl.compare.runs import (
    WARM,
    Experiment,
    RecordedRun,
    load,
    open_recorded,
    save,
)
from vanidl.errors import InputError
from vanidl.readers.run_folder import AB_FILE

RUNS = tuple(
    RecordedRun(side, pair, f"{side}-{pair}", 2.0 + (side == "b") + pair / 100, 0, "darshan")
    for pair, turn in enumerate(("ab", "ba", "ab"))
    for side in turn
)
EXPERIMENT = Experiment("python a.py", "python b.py", WARM, RUNS)


def opener(path: Path) -> vanidl.Run:
    """The recorded twin of a run folder; b-2 left nothing."""
    if path.name == "b-2":
        raise InputError(f"{path}: nothing here")
    name = {"a": "torch_pfs_workers0", "b": "torch_pfs_workers4"}[path.name[0]]
    return vanidl.open_run(DATA / name)


def test_saved_is_loaded(tmp_path):
    save(EXPERIMENT, tmp_path)
    assert load(tmp_path) == EXPERIMENT
    assert json.loads((tmp_path / AB_FILE).read_text())["cache_policy"] == WARM


def test_sides_are_paired_without_the_first_pair(tmp_path):
    save(EXPERIMENT, tmp_path)
    (a, b), conditions = open_recorded(tmp_path, opener)
    assert (a.letter, a.name, b.name) == ("A", "python a.py", "python b.py")
    assert [s.pair for s in a.samples] == [s.pair for s in b.samples] == [1, 2]
    assert dict(conditions)["page cache"] == WARM
    assert dict(conditions)["order"].startswith("B A A B ")
    pairing = compare([a, b]).pairings[0]
    assert pairing.paired
    wall = pairing.change("wall_time_s")
    assert (wall.values_a, wall.values_b) == ((2.01, 2.02), (3.01, 3.02))
    assert wall.verdict == "too few runs"
    assert wall.low > 1


def test_a_run_that_left_no_logs_keeps_its_wall_time(tmp_path):
    save(EXPERIMENT, tmp_path)
    (_, b), _ = open_recorded(tmp_path, opener, ["old", "new"])
    assert b.name == "new"
    assert b.samples[1].results is None
    assert "nothing here" in b.samples[1].missing
    assert b.samples[1].wall_time_s == 3.02


def test_only_whole_pairs_count(tmp_path):
    failed = replace(RUNS[-1], exit_status=3)
    save(replace(EXPERIMENT, runs=(*RUNS[:-1], failed)), tmp_path)
    (a, b), _ = open_recorded(tmp_path, opener)
    assert [len(a.samples), len(b.samples)] == [1, 1]


def test_no_whole_pair(tmp_path):
    save(replace(EXPERIMENT, runs=RUNS[:3]), tmp_path)
    with pytest.raises(InputError, match="one complete pair"):
        open_recorded(tmp_path, opener)


@pytest.mark.parametrize("folder", ["/", "/etc", "../..", "a/../../b", "..", "", "."])
def test_no_folder_outside_is_opened(tmp_path, folder):
    save(replace(EXPERIMENT, runs=(replace(RUNS[0], folder=folder), *RUNS[1:])), tmp_path)
    with pytest.raises(InputError, match="outside"):
        load(tmp_path)


def test_no_link_out_of_it_is_followed(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "a-1").symlink_to(tmp_path)
    save(EXPERIMENT, run)
    opened = []
    (a, _), _ = open_recorded(run, lambda path: opened.append(path) or opener(path))
    assert "link out" in a.samples[0].missing
    assert run / "a-1" not in opened


@pytest.mark.parametrize(
    ("field", "value"), [("side", "c"), ("pair", -1), ("wall_time_s", -1.0), ("wall_time_s", 1e400)]
)
def test_impossible_values_are_refused(tmp_path, field, value):
    save(replace(EXPERIMENT, runs=(replace(RUNS[0], **{field: value}), *RUNS[1:])), tmp_path)
    with pytest.raises(InputError, match=r"ab\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "other"}', '{"schema": "vanidl-ab/1", "runs": [{}]}']
)
def test_a_damaged_record(tmp_path, text):
    (tmp_path / AB_FILE).write_text(text)
    with pytest.raises(InputError, match=r"ab\.json: expected what"):
        load(tmp_path)
