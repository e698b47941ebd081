"""-o never destroys what is read, and nobody waits for a pipe."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests import DATA
from vanidl.cli import main
from vanidl.errors import VanidlError
from vanidl.files.atomic import new_folder, streamed_file, write_whole

RUN = DATA / "torch_pfs_workers0"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(RUN, copy)
    (copy / "run.json").write_text("{}")
    return copy


def log_of(run: Path) -> Path:
    return next(run.rglob("*.darshan"))


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


COMMANDS = {
    "report": ["report"], "document": ["export", "--to", "json"],
    "timeline": ["export", "--to", "chrome"], "compare": ["compare"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_input_is_written_over(capsys, run: Path, tmp_path: Path, command: str) -> None:
    log, trace = log_of(run), next(run.rglob("*.pt.trace.json.gz"))
    (tmp_path / "link").symlink_to(log)
    os.link(log, tmp_path / "hard")
    before = contents(run)
    name, *options = COMMANDS[command]
    paths = [str(run)] * (1 + (name == "compare"))
    targets = [log, trace, run / "run.json", tmp_path / "link", run / ".." / "run" / "run.json"]
    for target in targets:
        assert main([name, *paths, *options, "-o", str(target)]) == 2
        assert "read here" in capsys.readouterr().err
    files = [str(log)] * len(paths)
    assert main([name, *files, *options, "-o", str(tmp_path / "hard")]) == 2
    steps = ["--steps", f"{trace}:loss"]
    assert main([name, *files, *options, *steps, "-o", str(trace)]) == 2
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.h5").write_bytes(b"x")
    more = ["--data", str(data), "-o", str(data / "x.h5")]
    assert main([name, *paths, *options, *more]) == 2
    assert contents(run) == before
    assert (data / "x.h5").read_bytes() == b"x"


def test_a_page_in_the_folder_of_its_run_can_be_replaced(capsys, run: Path) -> None:
    for _ in range(2):
        assert main(["report", str(run), "-o", str(run / "report.html")]) == 0


@pytest.mark.parametrize("name", ["x.darshan", "x.pfw.gz", "x.pt.trace.json", "pipe"])
@pytest.mark.parametrize("command", ["summary", "check", "report"])
def test_a_pipe_is_refused(capsys, tmp_path: Path, name: str, command: str) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    assert main([command, str(pipe)]) == 1
    assert main(["summary", str(RUN), "--steps", str(pipe)]) == 1
    assert main([command, str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert ("pipe" in said.out) == (command == "check")
    assert "empty" not in said.out


def test_a_pipe_that_nobody_reads_is_no_output(capsys, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for line in (["report", str(RUN)], ["export", str(RUN), "--to", "chrome"]):
        assert main([*line, "-o", str(pipe)]) == 1
        assert "nobody reads this pipe" in capsys.readouterr().err


def test_a_pipe_that_is_read_is_an_output(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    number = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"one")
        with streamed_file(pipe) as file:
            file.write(b"two")
        assert os.read(number, 10) == b"onetwo"
    finally:
        os.close(number)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027])
def test_the_umask_is_respected(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", b"x")
        write_whole(tmp_path / "private", b"x", private=True)
        with streamed_file(tmp_path / "stream.gz") as file:
            file.write(b"x")
        with new_folder(tmp_path / "folder") as folder:
            (folder / "inner").write_bytes(b"x")
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    plain = 0o666 & ~mask
    assert modes == {
        "file": plain, "private": 0o600, "stream.gz": plain,
        "folder": 0o777 & ~mask, "inner": plain,
    }  # fmt: skip


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(VanidlError), streamed_file(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_in_the_words_of_the_system(tmp_path: Path) -> None:
    text = "Error writing bytes to file. Detail: [errno 28] No space left on device"
    with pytest.raises(VanidlError) as raised, new_folder(tmp_path / "csv"):
        raise OSError(errno.ENOSPC, text)
    assert str(raised.value).endswith(
        f"csv: {os.strerror(errno.ENOSPC)}; choose another place with -o"
    )
    assert not list(tmp_path.iterdir())


def test_an_output_that_was_there_is_named(capsys, run: Path, tmp_path: Path) -> None:
    words = ["export", str(run), "--to", "json", "-o", str(tmp_path / "out.json")]
    assert main(words) == 0
    assert "replaced" not in capsys.readouterr().err
    assert main(words) == 0
    named = f"{tmp_path / 'out.json'} is there already, and will be replaced\n"
    assert named in capsys.readouterr().err
