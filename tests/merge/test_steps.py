"""Which event files give the steps of a run, from the command line down."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import vanidl
from tests import DATA
from tests.makers.event_files import Event, event_file, step_table
from vanidl.cli import main
from vanidl.merge.pipeline import Inputs
from vanidl.merge.training_steps import split_tag

RUN = DATA / "torch_pfs_workers0"
LOG = next((RUN / "darshan").glob("*.darshan"))
HOST, PID, START_S = "node01", 10322, 1_795_220_341.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(LOG, tmp_path)
    return tmp_path


def events(count: int, *, at: float = START_S, stride: int = 1, tag: str = "loss") -> bytes:
    return event_file([Event(at + 0.1 * i, stride * i, (tag,)) for i in range(count)])


def put(folder: Path, name: str, content: bytes, *, pid: int = PID, number: int = 0) -> Path:
    path = folder / name / f"events.out.tfevents.{int(START_S)}.{HOST}.{pid}.{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def summary(capsys, *arguments: str) -> dict:
    assert main(["summary", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def steps_of(result: dict) -> int | None:
    return None if result["steps"] is None else result["steps"]["per_rank"]["max"]


def codes(result: dict) -> set[str]:
    return {w["code"] for w in result["coverage"]["warnings"]}


def test_event_files_give_steps_and_no_overlap_of_compute(capsys, folder):
    put(folder, "tb", events(21))
    result = summary(capsys, str(folder))
    assert (steps_of(result), result["job"]["ranks"]) == (20, 1)
    assert result["steps"]["source"] == "tensorboard-events"
    assert result["steps"]["mean_s"] == pytest.approx(0.1, abs=1e-5)
    overlap = result["overlap"]
    assert (overlap["basis"], overlap["hidden_fraction"]) == (None, None)
    assert (overlap["mean"]["hidden_s"], overlap["mean"]["in_wait_s"]) == (None, None)
    assert overlap["mean"]["window_s"] == pytest.approx(2.0, abs=1e-4)
    assert 0 < overlap["mean"]["unobserved_s"] < overlap["mean"]["io_s"]
    assert "fell within the recorded steps" in result["headline"]


def test_a_profiler_trace_of_the_process_wins(capsys):
    plain = summary(capsys, str(RUN))
    assert plain["steps"]["source"] == "pytorch-profiler"
    asked = next((RUN / "tb").glob("events.*"), None)
    if asked is not None:
        result = summary(capsys, str(RUN), "--steps", str(asked))
        assert result["steps"]["source"] == "pytorch-profiler"
        assert "steps_not_used" in codes(result)


def test_validation_is_not_training(capsys, folder):
    put(folder, "tb/train", events(11))
    validation = put(folder, "tb/validation", events(31))
    result = summary(capsys, str(folder))
    assert steps_of(result) == 10
    assert "steps_not_used" in codes(result)
    assert steps_of(summary(capsys, str(folder), "--steps", str(validation))) == 30


def test_validation_alone_is_no_step(capsys, folder):
    put(folder, "tb/validation", events(31))
    assert summary(capsys, str(folder))["steps"] is None


def test_writers_of_one_process_after_each_other_are_windows(capsys, folder):
    put(folder, "a", events(11))
    put(folder, "b", events(6, at=START_S + 10), number=1)
    put(folder, "c", events(4, at=START_S + 0.2), number=2)  # beside the first: not used
    result = summary(capsys, str(folder))
    assert steps_of(result) == 15
    assert result["overlap"]["mean"]["window_s"] == pytest.approx(1.5, abs=1e-4)


def test_a_tag_is_chosen_with_a_colon(capsys, folder):
    path = put(folder, "tb", events(5) + events(3, tag="epoch_loss")[60:])
    path.write_bytes(
        event_file(
            [Event(START_S + i, i) for i in range(5)]
            + [Event(START_S + 8 + i, i, ("epoch/loss",)) for i in range(3)]
        )
    )
    assert steps_of(summary(capsys, str(LOG), "--steps", str(path))) == 4
    assert steps_of(summary(capsys, str(LOG), "--steps", f"{path}:epoch/loss")) == 2
    assert main(["summary", str(LOG), "--steps", f"{path}:none"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "epoch/loss, loss" in error


def test_rare_marks_are_said(capsys, folder):
    put(folder, "tb", events(5, stride=50))
    result = summary(capsys, str(folder))
    message = next(
        w["message"] for w in result["coverage"]["warnings"] if w["code"] == "steps_sampled"
    )
    assert "every 50 steps" in message


def test_an_event_file_without_steps_is_no_fault_of_the_run(capsys, folder):
    put(folder, "tb", event_file([Event(START_S, 0, ())]))
    put(folder, "tb", b"", number=1)
    result = summary(capsys, str(folder))
    assert result["steps"] is None
    assert result["coverage"]["complete"]


def test_a_cut_event_file_is_said(capsys, folder):
    put(folder, "tb", events(9)[:-3])
    result = summary(capsys, str(folder))
    assert steps_of(result) == 7
    assert "damaged" in codes(result)


def test_event_files_of_ranks_of_a_shared_log(capsys, shared):
    result = summary(capsys, str(shared / "data/recorded/mpi_contiguous"))
    assert result["steps"]["per_rank"] == {"min": 63, "max": 63}
    assert (result["steps"]["ranks"], result["job"]["ranks"], result["job"]["processes"]) == (
        4,
        4,
        4,
    )
    assert [r["rank"] for r in result["overlap"]["per_rank"]] == [0, 1, 2, 3]


def test_steps_that_no_rank_claims_change_no_rank(capsys, shared, tmp_path):
    log = next((shared / "data/recorded/mpi_contiguous/darshan").glob("*.darshan"))
    shutil.copy(log, tmp_path)
    for pid in (1, 2):  # neither a rank in the folder's name nor a pid that the log knows
        put(tmp_path, f"tb{pid}", events(5, at=1_795_219_390.0), pid=pid)
    result = summary(capsys, str(tmp_path))
    assert result["job"]["ranks"] == 4
    assert result["steps"] is None
    assert "unassigned" in codes(result)


def test_durations_without_times_claim_no_overlap(capsys, folder):
    (folder / f"{HOST}.input_pipeline.pb").write_bytes(
        step_table([(i, 10.0 + i) for i in range(5)])
    )
    result = summary(capsys, str(folder))
    assert steps_of(result) == 5
    assert result["steps"]["mean_s"] == pytest.approx(0.012)
    clock = result["steps"]["clock"]
    assert clock["method"] == "none"
    assert {clock[k] for k in ("offset_s", "uncertainty_s", "low_s", "high_s")} == {None}
    assert result["overlap"] is None
    assert "no overlap is claimed" in result["headline"]


def test_a_step_table_of_another_host_is_said(capsys, folder):
    (folder / "elsewhere.input_pipeline.pb").write_bytes(step_table([(0, 1.0)]))
    result = summary(capsys, str(folder))
    assert result["steps"] is None
    assert "steps_unmatched" in codes(result)


def test_cosmictagger_has_steps_by_host_and_claims_no_overlap(capsys, shared):
    result = summary(capsys, str(shared / "data/public/vanidl_cosmictagger"))
    assert result["steps"]["per_rank"] == {"min": 451, "max": 469}
    assert (result["steps"]["ranks"], result["job"]["ranks"]) == (8, 8)
    assert 1.32 <= result["steps"]["mean_s"] <= 1.35
    assert result["overlap"] is None
    assert "no overlap is claimed" in result["headline"]


def test_only_a_step_table_is_one_clear_line(capsys, tmp_path):
    (tmp_path / "h.input_pipeline.pb").write_bytes(step_table([(0, 1.0)]))
    assert main(["summary", str(tmp_path)]) == 1
    assert "Darshan logs" in capsys.readouterr().err


def test_a_path_and_its_tag(tmp_path):
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_tag(str(odd)) == (str(odd), None)
    assert split_tag(f"{odd}:loss:x") == (str(odd), "loss:x")
    assert split_tag(f"{tmp_path}:loss") == (str(tmp_path), "loss")
    assert split_tag("nowhere") == ("nowhere", None)


def test_steps_are_counted_by_event_files_of_the_same_run(tmp_path):
    """Another run's event file in the same folder says nothing about this one."""
    for name in ("torch_pfs_workers0", "ddp_two_hosts"):
        shutil.copytree(DATA / name, tmp_path / name)
    both = {
        name: vanidl.open_run(tmp_path, inputs=Inputs(job_ids=(job,))).steps
        for name, job in (("torch_pfs_workers0", "@1"), ("ddp_two_hosts", "@2"))
    }
    alone = {name: vanidl.open_run(DATA / name).steps.counted for name in both}
    assert {name: steps.counted for name, steps in both.items()} == alone
    assert alone["torch_pfs_workers0"] != alone["ddp_two_hosts"]
