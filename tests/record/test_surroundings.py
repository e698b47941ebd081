"""Whatever is wrong around a recorded command, its own exit status is what comes back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formatting.test_secrets import SECRET
from tests.record.conftest import LOOKED_AT
from vanidl.record import recording
from vanidl.record.processes import find_rank
from vanidl.record.recorder import Tracer

COMMAND = """
import sys
from vanidl import cli
from vanidl.record import recording
from vanidl.record.recorder import Tracer
recording._choose_tracer = lambda *chosen: Tracer("none", "1", {}, lambda pids: {})
cli.entry()
"""


def recorded(run: Path, *command: str, before: str = "", closing: str = "", **environment: str):
    """`vanidl record` with a tracer that does nothing, through a shell."""
    words = [sys.executable, "-c", COMMAND, "record", "-o", str(run), "--", *command]
    line = f'{before} exec "$@" {closing}'
    return subprocess.run(
        ["bash", "-c", line, "bash", *words], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("rank", ["9" * 5000, "²", "٣", "-1", "1e9", "99999999999", " 1", ""])
def test_an_absurd_rank_is_none(tmp_path: Path, rank: str) -> None:
    assert find_rank({"RANK": rank}) is None
    assert find_rank({"RANK": rank, "PMI_RANK": "3"}) == 3


def test_an_absurd_rank_changes_nothing(tmp_path: Path) -> None:
    done = recorded(tmp_path / "run", "sh", "-c", "sleep 0.1; exit 7", RANK="9" * 5000)
    assert done.returncode == 7
    assert json.loads((tmp_path / "run/run.json").read_text())["ranks"] is None


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    done = recorded(tmp_path / "run", "sh", "-c", "exit 7", before="ulimit -f 0;")
    assert done.returncode == 7
    assert "cannot write the record of the run" in done.stderr
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


@pytest.mark.parametrize("closing", ["2>&-", ">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_change_nothing(tmp_path: Path, closing: str) -> None:
    seen = "test -e /proc/self/fd/1; a=$?; test -e /proc/self/fd/2; exit $((10 + 2 * a + $?))"
    bare = subprocess.run(["bash", "-c", f"sh -c '{seen}' {closing}"], check=False).returncode
    done = recorded(tmp_path / "run", "sh", "-c", seen, closing=closing)
    assert done.returncode == bare
    assert (tmp_path / "run/run.json").exists()


def test_words_that_are_no_text_change_nothing(tmp_path: Path) -> None:
    run = os.fsencode(tmp_path / "run")
    words = [
        sys.executable,
        "-c",
        COMMAND,
        "record",
        "-o",
        run,
        "--",
        "sh",
        "-c",
        "exit 7",
        b"\xff",
    ]
    done = subprocess.run(words, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 7
    assert json.loads((tmp_path / "run/run.json").read_text())["command"][-1] == "\\udcff"


def test_a_folder_that_the_command_removes_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    before = f"cd '{place}';"
    done = recorded(tmp_path / "run", "sh", "-c", f"rmdir '{place}'; exit 7", before=before)
    assert done.returncode == 7
    assert json.loads((tmp_path / "run/run.json").read_text())["folder"] == ""


@pytest.mark.usefixtures("looks")
def test_secrets_are_not_recorded(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        recording, "_choose_tracer", lambda *chosen: Tracer("none", "1", {}, lambda pids: {})
    )
    inner = f"{LOOKED_AT}looked_at(); '{SECRET}'"
    words = ["--token", f"two {SECRET}", f"--password={SECRET}", f"https://me:{SECRET}@host/x"]
    command = [sys.executable, "-c", inner.replace(SECRET, f"sk-{SECRET}"), *words]
    done = recording.record(command, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    assert SECRET not in path.read_text()
    assert SECRET not in repr(done)
    assert "--password=***" in done.run.processes[0].command
    os.umask(mask := os.umask(0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_short_processes_are_not_claimed_to_be_counted(tmp_path: Path) -> None:
    done = recorded(tmp_path / "run", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done")
    assert done.returncode == 0
    assert "of at least" in done.stderr
