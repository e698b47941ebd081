"""What a command says reaches the terminal escaped; closed streams and signals are survived."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import DATA
from vanidl.cli import main
from vanidl.errors import package_missing

RUN = DATA / "torch_pfs_workers0"
EVIL = "\x1b]0;owned\x07\x9b2J\u202e"
VANIDL = f"'{sys.executable}' -m vanidl"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)


def safe(text: str) -> bool:
    return all(c == "\n" or c.isprintable() for c in text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["summary", f"no {EVIL}"], ["summary", str(RUN), "--only", EVIL],
        ["summary", str(RUN), "--wait-name", f"({EVIL}"], ["summary", str(RUN), "--layer", EVIL],
        ["summary", str(RUN), "--kind", f"{EVIL}=x"], ["summary", str(RUN), "--job", EVIL],
        ["report", str(RUN), "-o", f"/no {EVIL}/x"], ["check", EVIL], [EVIL],
        ["summary", str(RUN), f"--{EVIL}"],
    ],
    ids=range(10),
)  # fmt: skip
def test_words_of_the_command_line_are_escaped(capsys, arguments: list[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    assert status in (1, 2)
    assert "\\x1b" in printed.out + printed.err
    assert safe(printed.out)
    assert safe(printed.err)


def test_names_in_logs_are_escaped_wherever_they_are_said(capsys, tmp_path: Path) -> None:
    run = tmp_path / f"run {EVIL}"
    shutil.copytree(RUN, run)
    log = next(run.rglob("*.darshan"))
    log.rename(log.with_name(f"{EVIL}.darshan"))
    key = {EVIL: 1, "traceEvents": [{"ph": EVIL}], "deviceProperties": EVIL}
    (run / f"{EVIL}.pt.trace.json").write_text(json.dumps(key))
    (run / "run.json").write_text(json.dumps({"schema": EVIL}))
    for i in (1, 2):  # unrelated jobs give a table
        jobs = tmp_path / "jobs" / f"{EVIL} {i}"
        jobs.mkdir(parents=True)
        shutil.copy(next((DATA / f"torch_pfs_workers{4 * (i - 1)}").rglob("*.darshan")), jobs)
    page = str(tmp_path / f"{EVIL}.html")
    for arguments in (
        ["summary", str(run)], ["summary", str(run), "--json"], ["check", str(run)],
        ["check", str(run), "--json"], ["report", str(run), "-o", page],
        ["compare", str(run), str(run)], ["summary", str(tmp_path / "jobs")],
    ):  # fmt: skip
        main(arguments)
        printed = capsys.readouterr()
        assert safe(printed.out), arguments
        assert safe(printed.err), arguments


def test_json_passes_as_it_is(capsys) -> None:
    from vanidl.report.summary import summary_json
    from vanidl.run import open_run

    assert main(["summary", str(RUN), "--json"]) == 0
    assert capsys.readouterr().out == summary_json(open_run(RUN)).rstrip("\n") + "\n"


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_quiet(tmp_path: Path, closing: str) -> None:
    target = tmp_path / "page.html"
    done = shell(f"{VANIDL} report '{RUN}' -o '{target}' {closing}")
    assert (done.returncode, done.stderr) == (0, "")
    assert target.read_text().startswith("<!doctype html>")


def test_a_reader_that_went_away_is_no_message() -> None:
    done = shell(f"{{ {VANIDL} check '{RUN}' --json; echo $? >&2; }} | true")
    assert done.stderr.strip() in ("0", "1")


SLOW = """
import signal, sys, time
from vanidl import cli
from vanidl.files import atomic
from pathlib import Path

class Slow:
    def run(options):
        with atomic.{writer}(Path({target!r})) as made:
            print("ready", flush=True)
            time.sleep(60)

cli.find_command = lambda name: Slow
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler, which would be kept
cli.entry()
"""


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("writer", ["new_folder", "streamed_file"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_half_written(tmp_path: Path, writer: str, number: int) -> None:
    code = SLOW.format(writer=writer, target=str(tmp_path / "target"))
    with subprocess.Popen(
        [sys.executable, "-c", code, "check", "LOG"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert any(p.suffix == ".part" for p in tmp_path.iterdir())
        os.kill(process.pid, number)
        _, errors = process.communicate()
    assert process.returncode == 128 + number
    assert errors == ""
    assert not list(tmp_path.iterdir())


def test_no_memory_for_a_result_is_one_line(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMemoryLeft(MemoryError):
        """As pyarrow raises it."""

    def run(_options: object) -> int:
        raise NoMemoryLeft("realloc of size 192 failed")

    monkeypatch.setattr("vanidl.commands.summary.run", run)
    assert main(["summary", str(RUN)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("vanidl: expected memory")
    assert said.count("\n") == 1


def test_arrow_says_when_memory_is_limited_that_none_is_left() -> None:
    """Its own allocators end the process by a signal then."""
    code = (
        "import resource, pyarrow; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40));"
        "from vanidl.files.arrow import require_arrow; require_arrow('this needs');"
        "print(pyarrow.default_memory_pool().backend_name)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "system\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'x'"), "which is not installed"),
        (ImportError("x.so: failed to map segment"), "cannot be loaded here (x.so: failed to map"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_not_called_missing(error, words: str) -> None:
    assert words in str(package_missing(error, "a survey needs", "pyarrow", "parquet"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "found none left"),
        (RuntimeError("can't start new thread"), "found none left"),
        (ImportError("x.so: failed to map segment"), "(x.so: failed to map segment)"),
        (ModuleNotFoundError("No module named 'isal'"), "(No module named 'isal')"),
    ],
)
def test_a_start_up_that_fails_is_one_line(monkeypatch, capsys, error, words: str) -> None:
    def imported(_name: str) -> None:
        raise error

    monkeypatch.setattr("vanidl.cli.find_command", imported)
    assert main(["summary", "RUN"]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
