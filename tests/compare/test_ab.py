from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from vanidl.compare import ab
from vanidl.compare.ab import Plan, order, run_pairs
from vanidl.compare.runs import DROPPED, WARM, load
from vanidl.errors import UsageError, VanidlError
from vanidl.model.run_facts import Ending
from vanidl.readers.run_folder import AB_FILE


@dataclass(frozen=True)
class Ended:
    exit_status: int
    tracer: str = "none"

    @property
    def ending(self) -> Ending:
        return Ending(self.exit_status, last_error="ValueError: no")


@dataclass
class Recorder:
    """Runs commands plainly and remembers them."""

    fail_at: int = -1
    seen: list[tuple[tuple[str, ...], str, str]] = None

    def __post_init__(self) -> None:
        self.seen = []

    def __call__(self, command: Sequence[str], folder: Path, tracer: str) -> Ended:
        assert list(folder.iterdir()) == []
        self.seen.append((tuple(command), folder.name, tracer))
        status = subprocess.run(list(command), check=False).returncode
        return Ended(3 if len(self.seen) == self.fail_at else status)


def plan(folder: Path, **more) -> Plan:
    return Plan("true --old", 'true "two words" {run}/x', folder / "runs", **{"pairs": 2, **more})


@pytest.mark.parametrize("pairs", [1, 2, 5, 8])
def test_order_is_abba_and_balanced(pairs):
    turns = order(pairs)
    assert "".join(side for side, _ in turns).startswith("abba")
    assert Counter(turns) == {(s, p): 1 for s in "ab" for p in range(pairs + 1)}
    for pair in range(pairs + 1):  # the two runs of a pair are neighbours
        at = [i for i, (_, p) in enumerate(turns) if p == pair]
        assert at[1] - at[0] == 1
    firsts = Counter(turns[2 * pair][0] for pair in range(1, pairs + 1))
    assert abs(firsts["a"] - firsts["b"]) <= 1


def test_the_third_arm_takes_its_turn_in_each_pair(tmp_path):
    plain, memory = Recorder(), Recorder()
    experiment = run_pairs(plan(tmp_path, ceiling=True), plain, None, memory)
    assert [run.folder for run in experiment.runs] == [
        "a-0", "b-0", "ceiling-0", "ceiling-1", "b-1", "a-1", "a-2", "b-2", "ceiling-2",
    ]  # fmt: skip
    assert [(words, name) for words, name, _ in memory.seen] == [
        (("true", "--old"), f"ceiling-{pair}") for pair in range(3)
    ]
    assert len(plain.seen) == 6
    assert load(tmp_path / "runs") == experiment


def test_runs_are_recorded_in_order_with_their_folders(tmp_path):
    recorder = Recorder()
    experiment = run_pairs(plan(tmp_path, tracer="darshan"), recorder)
    assert [name for _, name, _ in recorder.seen] == ["a-0", "b-0", "b-1", "a-1", "a-2", "b-2"]
    assert recorder.seen[2][0] == ("true", "two words", str(tmp_path / "runs/b-1/x"))
    assert {tracer for _, _, tracer in recorder.seen} == {"darshan"}
    assert load(tmp_path / "runs") == experiment
    assert experiment.cache_policy == WARM
    assert all(run.wall_time_s > 0 for run in experiment.runs)


def test_progress_tells_what_runs(tmp_path):
    said = []
    run_pairs(plan(tmp_path, pairs=1), Recorder(), lambda *line: said.append(line))
    assert said == [("A, the warm-up pair", 0, 4), ("B, the warm-up pair", 1, 4),
                    ("B, pair 1", 2, 4), ("A, pair 1", 3, 4)]  # fmt: skip


def test_a_failing_command_stops_and_keeps_what_was_recorded(tmp_path):
    with pytest.raises(VanidlError, match="command A failed in pair 1 with exit status 3") as error:
        run_pairs(plan(tmp_path), Recorder(fail_at=4))
    assert "4 of 6 runs are kept" in str(error.value)
    assert "ValueError: no" in str(error.value)
    assert error.value.exit_status == 1
    runs = json.loads((tmp_path / "runs" / AB_FILE).read_text())["runs"]
    assert [run["exit_status"] for run in runs] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pairs": 0}, "at least 1 pair"),
        ({"a": ""}, "--a: expected a command"),
        ({"b": "echo 'open"}, "Check its quotes"),
    ],
)
def test_a_plan_that_cannot_be_run(tmp_path, more, message):
    values = {"a": "true", "b": "true", "folder": tmp_path / "runs", **more}
    recorder = Recorder()
    with pytest.raises(UsageError, match=message):
        run_pairs(Plan(**values), recorder)
    assert recorder.seen == []


def test_a_folder_in_use(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/old").touch()
    with pytest.raises(UsageError, match="new or empty folder"):
        run_pairs(plan(tmp_path), Recorder())


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(VanidlError, match="another place with --runs"):
        run_pairs(plan(tmp_path), Recorder())


def test_caches_are_dropped_before_every_run(tmp_path, monkeypatch):
    target = tmp_path / "drop_caches"
    monkeypatch.setattr(ab, "DROP_CACHES", target)
    written = []

    def recorder(command, folder, tracer):
        written.append(target.read_text())
        target.unlink()
        return Ended(0)

    experiment = run_pairs(plan(tmp_path, drop_caches=True), recorder)
    assert written == ["3\n"] * 6
    assert experiment.cache_policy == DROPPED


def test_caches_that_cannot_be_dropped_stop_before_any_run(tmp_path, monkeypatch):
    monkeypatch.setattr(ab, "DROP_CACHES", tmp_path / "missing" / "drop_caches")
    recorder = Recorder()
    with pytest.raises(VanidlError, match="--drop-caches: expected to be allowed"):
        run_pairs(plan(tmp_path, drop_caches=True), recorder)
    assert recorder.seen == []


def test_a_masked_word_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VANIDL_SECRET_1", "two words")
    words = 'true --token="$VANIDL_SECRET_1"'
    recorder = Recorder()
    run_pairs(plan(tmp_path, pairs=1), recorder)
    experiment = run_pairs(
        Plan(words, "true --password $VANIDL_SECRET_1", tmp_path / "more", pairs=1), recorder
    )
    assert recorder.seen[-1][0] == ("true", "--token=two words")
    assert recorder.seen[-2][0] == ("true", "--password", "two words")
    assert "two words" not in (tmp_path / "more" / AB_FILE).read_text()
    assert experiment.a == words
    monkeypatch.delenv("VANIDL_SECRET_1")
    with pytest.raises(UsageError, match="VANIDL_SECRET_1 in the environment"):
        run_pairs(Plan(words, "true", tmp_path / "none", pairs=1), recorder)
