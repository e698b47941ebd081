"""Finding and configuring Darshan, without Darshan."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.makers.darshan_logs import Log, log_bytes
from vanidl.errors import InputError, UsageError
from vanidl.record import darshan
from vanidl.record.recorder import CUT, ENDED


@pytest.fixture(autouse=True)
def no_darshan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*darshan._ROOTS, "LD_PRELOAD", "LD_LIBRARY_PATH", "DARSHAN_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(darshan.util, "find_library", lambda name: None)


def install(prefix: Path, where: str = "$DARSHAN_LOGS_HERE") -> Path:
    library = prefix / "lib" / "libdarshan.so"
    library.parent.mkdir(parents=True)
    library.touch()
    config = prefix / "bin" / "darshan-config"
    config.parent.mkdir()
    config.write_text(
        f"#!/bin/sh\ncase $1 in\n--log-path) echo '{where}';;\n"
        f"--dyn-ld-flags) echo '-L{prefix}/lib -Wl,-rpath={prefix}/lib -ldarshan';;\nesac\n"
    )
    config.chmod(0o755)
    return library


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert darshan.find_library() is None
    with pytest.raises(InputError, match=r"found none \(darshan-config"):
        darshan.make_tracer(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DARSHAN_RUNTIME_DIR", "{prefix}"),
        ("DARSHAN_ROOT", "{prefix}"),
        ("LD_LIBRARY_PATH", "/nowhere:{prefix}/lib"),
        ("LD_PRELOAD", "{prefix}/lib/libdarshan.so"),
        ("PATH", "{prefix}/bin:/usr/bin:/bin"),
    ],
)
def test_it_is_found_where_modules_and_tools_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    library = install(tmp_path)
    monkeypatch.setenv(variable, value.format(prefix=tmp_path))
    assert darshan.find_library() == library


def test_a_library_that_is_given_must_exist(tmp_path: Path) -> None:
    library = install(tmp_path)
    assert darshan.find_library(str(library)) == library
    with pytest.raises(UsageError, match="no such file"):
        darshan.find_library(str(tmp_path / "libdarshan.so"))


def test_logs_go_where_the_build_looks_for_them(tmp_path: Path) -> None:
    library = install(tmp_path / "a")
    made = darshan.make_tracer(tmp_path / "run", str(library))
    folder = tmp_path / "run" / "darshan"
    assert made.environment["DARSHAN_LOGS_HERE"] == str(folder)
    assert made.environment["DARSHAN_LOGPATH"] == str(folder)
    assert made.environment["DARSHAN_LOGFILE"] is None
    today = datetime.now()
    assert (folder / str(today.year) / str(today.month) / str(today.day)).is_dir()
    assert "DARSHAN_LOGS_HERE" not in darshan.make_tracer(
        tmp_path / "other", str(install(tmp_path / "b", "/logs/darshan"))
    ).environment  # fmt: skip


def test_other_preloaded_libraries_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", f"/lib/other.so {library}")
    made = darshan.make_tracer(tmp_path / "run")
    assert made.environment["LD_PRELOAD"] == f"{library}:/lib/other.so"


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("/home/me/env/lib/python3.11/site-packages/torch/__init__.py", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("/home/me/job/__pycache__/net.cpython-311.pyc", True),
        ("/home/me/env/lib/python311.zip", True),
        ("/proc/self/maps", True),
        ("/scratch/run/steps/node1-17-4f2a.steps", True),
        ("/scratch/run/objects/node1-17-4f2a.objects", True),
        ("/scratch/first.steps.h5", False),
        ("/root/data/part-0.tfrecord", False),
        ("/home/me/data/train.h5", False),
        ("/scratch/usr/a.npy", False),
        ("/data/python/samples.bin", False),
    ],
)
def test_imports_are_left_out_and_data_is_not(path: str, left_out: bool) -> None:
    found = any(re.search(pattern, path) for pattern in darshan.EXCLUDED)
    assert found is left_out


def test_expressions_survive_darshans_own_syntax() -> None:
    assert not any(re.search(r"[,\s]", pattern) for pattern in darshan.EXCLUDED)


def test_the_users_own_configuration_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.conf"
    own.write_text("MODMEM 512\n")
    monkeypatch.setenv("DARSHAN_CONFIG_PATH", str(own))
    values = re.findall(r"^MODMEM (\d+)$", darshan.make_configuration(), re.M)
    assert values[-1] == "512"


def test_logs_in_dated_folders_are_gathered_and_name_their_processes(tmp_path: Path) -> None:
    """A shared log names all its ranks that ran; one that Darshan did not finish, nobody else."""
    dated = tmp_path / "2026" / "11" / "22"
    dated.mkdir(parents=True)
    contents = {
        "me_x_id1-10_11-22-1-1_1.darshan": log_bytes(Log(job=(1, 1, 3))),  # ranks 0, 1 and 2
        "me_x_id1-20_11-22-1-1_2.darshan": log_bytes(Log(job=(1, 1, 1))),
        "me_x_id1-30_11-22-1-1_3.darshan": b"no log",
        "me_x_id1-40_11-22-1-1_4.darshan_partial": b"",
        "renamed.darshan": b"",
    }
    for name, content in contents.items():
        (dated / name).write_bytes(content)
    pids = {10: 0, 11: 1, 12: 2, 13: 3, 14: None, 20: None, 30: 5, 40: None}
    states = darshan.list_logged(tmp_path, pids)
    assert states == dict.fromkeys((10, 11, 12, 20, 30), ENDED) | {40: CUT}
    whole = {name for name in contents if name.endswith(".darshan")}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == whole
    assert [path.name for path in dated.iterdir()] == ["me_x_id1-40_11-22-1-1_4.darshan_partial"]
