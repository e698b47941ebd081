"""Scripts that keep a facility's survey current, with a fake sacct and a fake tree of logs."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests import ROOT
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log

FOLDER = ROOT / "contrib" / "facility"
MONTH = datetime.now().astimezone().strftime("%Y-%m")
needs = [name for name in ("flock", "setsid", "nice") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(needs) or sys.platform != "linux", reason="needs util-linux")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def log_into(folder: Path) -> None:
    """A folder with a log, which nobody opens here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.darshan").touch()


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """The settings of a facility with logs of this month, and a vanidl that notes its arguments."""
    log_into(tmp_path / "logs" / MONTH)
    (tmp_path / "bin").mkdir()
    fake = script(tmp_path / "bin" / "vanidl", f'echo "$@" >> {tmp_path}/calls')
    script(tmp_path / "bin" / "sacct", 'echo "${FAKE_ELAPSED-4000}"')
    return {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "VANIDL_CONF": "/nowhere",
        "VANIDL_LOGS": f"{tmp_path}/logs/%Y-%m",
        "VANIDL_STATE": f"{tmp_path}/state",
        "VANIDL": str(fake),
        "VANIDL_AS_ROOT": "1",
        "VANIDL_SURVEY": str(FOLDER / "vanidl-survey"),
        "SLURM_JOB_ID": "17",
    }


def run(name: str, site: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(FOLDER / name)]
    return subprocess.run(command, env=site, capture_output=True, text=True, check=False)


def test_this_month_is_surveyed_into_a_folder_of_its_own(site, tmp_path) -> None:
    assert run("vanidl-survey", site).returncode == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1] == f"survey {tmp_path}/logs/{MONTH} -o {tmp_path}/state/{MONTH}"


def surveyed(site: dict[str, str], tmp_path: Path, **more: str) -> list[str]:
    """The folders that one run surveys, and where to."""
    (tmp_path / "calls").unlink(missing_ok=True)
    done = run("vanidl-survey", site | more)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""
    pairs = [line.replace(f"{tmp_path}/", "").split() for line in calls.splitlines()]
    assert all(words[0] == "survey" and words[2] == "-o" for words in pairs)
    return [f"{words[1]} {words[3]}" for words in pairs]


@pytest.mark.parametrize(
    ("day", "days", "months"),
    [
        ("2026-12-03", None, ["2026-11", "2026-12"]),  # a job of 28 November ended today
        ("2026-12-07", None, ["2026-11", "2026-12"]),  # seven days ago was November
        ("2026-12-08", None, ["2026-12"]),
        ("2026-12-08", "8", ["2026-11", "2026-12"]),
        ("2026-12-01", "0", ["2026-12"]),
        ("2027-01-02", "40", ["2026-11", "2026-12", "2027-01"]),
        ("2027-03-01", "1", ["2027-02", "2027-03"]),
        ("2026-12-08", "08", ["2026-11", "2026-12"]),  # no octal number
    ],
)
def test_months_are_read_again_as_long_as_a_job_may_last(
    site, tmp_path, day: str, days: str | None, months: list[str]
) -> None:
    for month in ("2026-10", "2026-11", "2026-12", "2027-01", "2027-02", "2027-03"):
        log_into(tmp_path / "logs" / month)
    more = {"VANIDL_DAY": day} | ({"VANIDL_LONGEST_DAYS": days} if days else {})
    assert surveyed(site, tmp_path, **more) == [f"logs/{m} state/{m}" for m in months]
    assert surveyed(site, tmp_path, **more) == [f"logs/{m} state/{m}" for m in months]


def test_a_folder_a_day_has_a_survey_a_day(site, tmp_path) -> None:
    for name in ("2026/11/29", "2026/11/30", "2026/12/1", "2026/11/1"):
        log_into(tmp_path / "all logs" / name)
    (tmp_path / "all logs" / "2026" / "11" / "28").mkdir()  # made in advance, never logged into
    more = {"VANIDL_LOGS": f"{tmp_path}/all logs/%Y/%-m/%-d", "VANIDL_DAY": "2026-12-01"}
    assert run("vanidl-survey", site | more).returncode == 0
    calls = (tmp_path / "calls").read_text().replace(f"{tmp_path}/", "").splitlines()
    assert calls == [
        "survey all logs/2026/11/29 -o state/2026-11-29",
        "survey all logs/2026/11/30 -o state/2026-11-30",
        "survey all logs/2026/12/1 -o state/2026-12-01",
    ]


@pytest.mark.parametrize("days", ["a week", "-1", "99999", "7; rm -rf /"])
def test_days_that_are_none(site, tmp_path, days: str) -> None:
    done = run("vanidl-survey", site | {"VANIDL_LONGEST_DAYS": days})
    assert done.returncode == 1
    assert "VANIDL_LONGEST_DAYS: expected days" in done.stderr
    assert not (tmp_path / "calls").exists()


def test_a_survey_that_is_under_way_is_left_alone(site, tmp_path) -> None:
    (tmp_path / "state").mkdir()
    with (tmp_path / "state" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("vanidl-survey", site)
    assert (done.returncode, done.stdout) == (0, "vanidl-survey: one is under way already\n")
    assert not (tmp_path / "calls").exists()


def test_a_survey_that_fails_is_reported_by_it_and_not_by_the_epilog(site, tmp_path) -> None:
    script(tmp_path / "bin" / "vanidl", "exit 4")
    assert run("vanidl-survey", site).returncode == 4
    assert run("slurm-epilog", site).returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="who runs the tests is not root")
def test_root_is_refused(site, tmp_path) -> None:
    del site["VANIDL_AS_ROOT"]
    done = run("vanidl-survey", site)
    assert done.returncode == 1
    assert "expected an unprivileged user" in done.stderr


def test_the_epilog_does_not_wait_for_the_survey(site, tmp_path) -> None:
    """The survey waits until it is told to go on, which is after the epilog has ended."""
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "ended")
    script(tmp_path / "survey", f"read -r _ < {tmp_path}/go; echo ended > {tmp_path}/ended")
    done = run("slurm-epilog", site | {"VANIDL_SURVEY": f"{tmp_path}/survey",
                                      "VANIDL_USER": "root"})  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (tmp_path / "go").write_text("go\n")
    assert (tmp_path / "ended").read_text() == "ended\n"


@pytest.mark.parametrize(
    ("elapsed", "asked"), [("4000", True), ("12", False), ("", True), ("bad\x1b[0m", True)]
)
def test_short_jobs_are_left_to_the_timer(site, tmp_path, elapsed, asked) -> None:
    script(tmp_path / "bin" / "runuser", 'shift 3; exec "$@"')
    script(tmp_path / "bin" / "setsid", f"echo asked > {tmp_path}/asked")
    assert run("slurm-epilog", site | {"FAKE_ELAPSED": elapsed}).returncode == 0
    assert (tmp_path / "asked").exists() == asked


@pytest.mark.skipif(os.getuid() != 0, reason="who runs the tests is not root")
def test_root_starts_the_survey_as_another_user(site, tmp_path) -> None:
    script(tmp_path / "bin" / "runuser", f'echo "$@" > {tmp_path}/asked')
    assert run("slurm-epilog", site).returncode == 0
    assert (tmp_path / "asked").read_text().startswith("-u vanidl -- setsid --fork ")


@pytest.mark.parametrize("broken", ["exit 1", "kill -9 $$"])
def test_the_epilog_never_fails(site, tmp_path, broken) -> None:
    script(tmp_path / "bin" / "sacct", broken)
    site["VANIDL_SURVEY"] = f"{tmp_path}/gone"
    assert run("slurm-epilog", site).returncode == 0
    del site["SLURM_JOB_ID"]
    assert run("slurm-epilog", site).returncode == 0


def test_a_log_that_cannot_be_read_stops_nothing(site, tmp_path) -> None:
    """That only new logs are read is tests/survey's."""
    pytest.importorskip("pyarrow", reason="the table of jobs is Parquet")
    script(tmp_path / "bin" / "vanidl", f'exec {sys.executable} -m vanidl "$@"')
    logs = tmp_path / "logs" / MONTH
    (logs / "x.darshan").unlink()
    write_log(logs / "me_x_id1-1_1-1-1-1_1.darshan", Workload(40, ranks=1, files=1), Log())
    (logs / "me_x_id3-3_1-1-1-1_1.darshan").write_bytes(b"no log")
    done = run("vanidl-survey", site | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 jobs, 1 could not be read")
    assert (tmp_path / "state" / MONTH / "jobs.parquet").is_file()


def test_systemd_knows_every_line(tmp_path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    text = (FOLDER / "vanidl-survey.service").read_text()
    text = text.replace("/usr/libexec/vanidl/vanidl-survey", "/bin/true").replace(
        "=vanidl\n", "=root\n"
    )
    (tmp_path / "vanidl-survey.service").write_text(text)
    shutil.copy(FOLDER / "vanidl-survey.timer", tmp_path)
    units = [str(tmp_path / f"vanidl-survey.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "vanidl-survey" in line] == []
