"""What commands write: whole or not at all, and nothing beside the input."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers.large_logs import Workload, write_log
from vanidl.cli import main

WRITERS: dict[str, list[str]] = {
    "report": ["report", "LOG"],
    "compare": ["compare", "LOG", "LOG"],
    "parquet": ["export", "LOG", "--to", "parquet"],
    "csv": ["export", "LOG", "--to", "csv"],
    "json": ["export", "LOG", "--to", "json"],
    "chrome": ["export", "LOG", "--to", "chrome"],
    "figures": ["export", "LOG", "--to", "figures"],
}
NEEDS = {"parquet": "pyarrow", "csv": "pyarrow", "figures": "matplotlib"}

# The limit on the size of a file stands in for a full disk; it holds for every file written.
LIMITED = """
import contextlib, io, json, resource, sys
from vanidl.cli import main
import vanidl.report.html, vanidl.compare.page, vanidl.export.registry
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for name, line in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(line)
    print(json.dumps([name, status, said.getvalue()]))
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("run") / "log.darshan"
    write_log(path, Workload(2000, ranks=2, files=200))
    return str(path)


def writing(name: str, log: str, target: Path) -> list[str]:
    """The command that writes to a target, with the name of a log filled in."""
    return [*(log if word == "LOG" else word for word in WRITERS[name]), "-o", str(target)]


def needed(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"--to {name} needs it")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("no right to mount a small file system")
    yield place
    gc.collect()  # pyarrow closes a file that it could not finish when its writer goes
    subprocess.run(["umount", str(place)], check=True)


def limited(lines: dict[str, list[str]]) -> dict[str, tuple[int, str]]:
    """Exit status and stderr of each command, all of one process whose disk is full."""
    words = [sys.executable, "-c", LIMITED, json.dumps(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (status, said) for name, status, said in found}


@pytest.fixture(scope="module")
def on_a_full_disk(
    log: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Path], dict[str, tuple[int, str]]]:
    """Writer -> the folder that it was to write into, and -> its exit status and stderr."""
    names = [n for n in WRITERS if n not in NEEDS or importlib.util.find_spec(NEEDS[n])]
    folders = {name: tmp_path_factory.mktemp("full") for name in names}
    return folders, limited({n: writing(n, log, folders[n] / "out") for n in names})


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_line_and_leaves_nothing(on_a_full_disk: tuple, name: str) -> None:
    needed(name)
    folders, ended = on_a_full_disk
    status, said = ended[name]
    assert status == 1, said
    (line,) = said.splitlines()
    assert line.startswith("vanidl: cannot write")
    assert "File too large" in line
    assert list(folders[name].iterdir()) == []


@pytest.mark.parametrize("name", ["report", "csv"])
def test_a_small_disk_is_one_line_and_keeps_what_was_there(capsys, small_disk, log, name) -> None:
    needed(name)
    target = small_disk / "out"
    if name == "report":
        target.write_text("the report of yesterday")
    assert main(writing(name, log, target)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    *before, error = err.splitlines()
    assert "No space left on device" in error
    assert len(before) == (name == "report")
    assert all("will be replaced" in line for line in before)
    assert [p.read_text() for p in small_disk.iterdir()] == (
        ["the report of yesterday"] if name == "report" else []
    )


@pytest.mark.parametrize("name", ["report", "json", "csv"])
def test_a_read_only_disk_is_one_line(capsys, small_disk, log, name) -> None:
    needed(name)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert main(writing(name, log, small_disk / "out")) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "Read-only file system" in err


def test_nothing_is_written_beside_the_input(tmp_path: Path, monkeypatch) -> None:
    run, elsewhere, temporary = (tmp_path / name for name in ("run", "here", "temporary"))
    run.mkdir()
    write_log(run / "log.darshan", Workload(50, ranks=1, files=2))
    elsewhere.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = listing(run)
    for arguments in (
        ["summary", str(run)],
        ["check", str(run)],
        ["report", str(run), "-o", str(tmp_path / "page.html")],
        ["compare", str(run), str(run), "--json"],
        ["export", str(run), "--to", "json", "-o", str(tmp_path / "all.json")],
    ):
        assert main(arguments) == 0
    assert listing(run) == before
    assert list(elsewhere.iterdir()) == []
    assert list(temporary.iterdir()) == []


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of everything in a folder, the folder itself among it."""
    found = [folder, *folder.rglob("*")]
    return {str(p): (os.stat(p).st_size, os.stat(p).st_mtime_ns) for p in found}  # noqa: PTH116
