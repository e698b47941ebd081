"""A RUN on storage that may never answer is recorded elsewhere, and handed over in the end."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from vanidl.cli import main
from vanidl.errors import UsageError, VanidlError
from vanidl.parallel import storage
from vanidl.readers.run_folder import read_record
from vanidl.record import record, spool
from vanidl.record.spool import POINTER, Spool, find_recording_folder, may_span_hosts

SCRIPT = "import os; print(os.environ['VANIDL_RUN'], os.listdir(os.environ['RUN']))"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as a FUSE file system, and another one for what is temporary."""
    folder = tmp_path / "fuse"
    folder.mkdir()
    line = f"22 1 0:1 / {folder} rw - fuse.sshfs host: rw\n"
    (tmp_path / "mountinfo").write_text(line)
    monkeypatch.setattr(storage, "_MOUNTS", tmp_path / "mountinfo")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return folder


def left(tmp_path: Path) -> list[Path]:
    """What is temporary and still there."""
    return list((tmp_path / "tmp").iterdir())


def command(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A program that prints where it is recorded, and what it sees of RUN."""
    monkeypatch.setenv("RUN", str(run))
    return [sys.executable, "-c", SCRIPT]


def test_nothing_of_the_program_touches_run(mounted, tmp_path, monkeypatch, capfd) -> None:
    run = mounted / "RUN"
    done = record(command(run, monkeypatch), run, tracer="none")
    where, seen = capfd.readouterr().out.split(maxsplit=1)
    assert Path(where).parent == tmp_path / "tmp"
    assert POINTER in seen
    assert (done.folder, done.exit_status, done.problem) == (run, 0, "")
    assert read_record(run / "run.json").exit_status == 0
    assert not (run / POINTER).exists()
    assert left(tmp_path) == []


def test_in_place_it_is_run_that_is_written_to(mounted, tmp_path, monkeypatch, capfd) -> None:
    run = mounted / "RUN"
    record(command(run, monkeypatch), run, tracer="none", in_place=True)
    assert capfd.readouterr().out.split()[0] == str(run)
    assert left(tmp_path) == []


def test_a_folder_in_use_is_refused_and_nothing_stays(mounted, tmp_path, monkeypatch) -> None:
    (mounted / "RUN").mkdir()
    (mounted / "RUN" / "x").touch()
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        record(["true"], mounted / "RUN", tracer="none")
    (mounted / "file").touch()
    with pytest.raises(VanidlError, match=r"cannot make .*: Not a directory"):
        record(["true"], mounted / "file" / "RUN", tracer="none")
    assert left(tmp_path) == []


def test_a_command_that_cannot_be_started_leaves_nothing(mounted, tmp_path, capfd) -> None:
    words = ["record", "--tracer", "none", "-o", str(mounted / "RUN"), "--", "/no/such/program"]
    assert main(words) == 127
    assert not (mounted / "RUN").exists()
    assert left(tmp_path) == []


@pytest.mark.parametrize("options", [{"tracer": "none", "calls_on": "/tmp"}, {"waits": ["a b"]}])
def test_what_is_refused_leaves_nothing(mounted, tmp_path, options) -> None:
    with pytest.raises(UsageError):
        record(["true"], mounted / "RUN", **options)
    assert not (mounted / "RUN").exists()
    assert left(tmp_path) == []


def test_storage_that_does_not_answer_at_first_is_refused(mounted, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "ANSWER_S", 0.1)
    monkeypatch.setattr(spool, "_make_new", lambda *_: time.sleep(600))
    with pytest.raises(VanidlError, match=f"none at {mounted} for 8 s; nothing was started"):
        record(["true"], mounted / "RUN", tracer="none")
    assert left(tmp_path) == []
    os.waitpid(-1, 0)


def test_storage_that_stops_to_answer_costs_no_record(mounted, tmp_path, monkeypatch) -> None:
    ask = storage.ask

    def until_then(work):
        monkeypatch.setattr(spool, "ask", lambda work: None)
        return ask(work)

    monkeypatch.setattr(spool, "ask", until_then)
    done = record([sys.executable, "-c", "raise SystemExit(7)"], mounted / "RUN", tracer="none")
    assert done.exit_status == 7
    assert left(tmp_path) == [done.folder]
    assert read_record(done.folder / "run.json").exit_status == 7
    assert str(mounted) in done.problem
    assert str(done.folder) in done.problem


def contents(folder: Path) -> dict[Path, bytes]:
    """What is in the files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_files_are_handed_over_as_they_are(tmp_path: Path) -> None:
    made, run = tmp_path / "made", tmp_path / "RUN"
    (made / "steps").mkdir(parents=True)
    run.mkdir()
    with (made / "long.calls").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(5 << 20)
        file.write(b"here" * 300_000)
    (made / "long.calls").chmod(0o600)
    (made / "steps" / "a.steps").write_bytes(b"x" * 3)
    (made / "empty").touch()
    whole = contents(made)
    assert Spool(run, made, "/m").hand_over() == ""
    assert not made.exists()
    assert contents(run) == whole
    assert (run / "long.calls").stat().st_mode & 0o777 == 0o600
    assert (run / "long.calls").stat().st_blocks * 512 < 8 << 20


def test_what_cannot_be_written_stays_where_it_is(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "x").touch()
    (tmp_path / "RUN").touch()
    assert "File exists" in Spool(tmp_path / "RUN", made, "/m").hand_over()
    assert (made / "x").exists()


def test_commands_of_several_hosts_are_recorded_in_run(mounted) -> None:
    assert may_span_hosts(["/opt/bin/mpirun", "-n", "8", "python"], {})
    assert may_span_hosts(["env", "A=1", "srun", "python"], {})
    assert may_span_hosts(["python", "x.py"], {"SLURM_JOB_NUM_NODES": "2"})
    assert not may_span_hosts(["python", "x.py"], {"SLURM_JOB_NUM_NODES": "1"})
    assert not may_span_hosts(["torchrun", "x.py", "mpirun.py"], {})
    at = Spool.of(mounted / "RUN", ["mpirun", "x"], in_place=False)
    assert at.folder == at.run


def test_who_watches_is_led_to_where_it_is_recorded(tmp_path: Path) -> None:
    run, made = tmp_path / "RUN", tmp_path / "made"
    run.mkdir()
    assert find_recording_folder(run) == run
    (run / POINTER).write_bytes(os.fsencode(made))
    assert find_recording_folder(run) == run  # it is gone
    made.mkdir()
    assert find_recording_folder(run) == made
    (run / POINTER).write_text("made")
    assert find_recording_folder(run) == run
