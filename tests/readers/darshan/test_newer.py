"""Counters of versions that we do not know: read by PyDarshan where it is, else named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.makers.sameness import same
from tests.readers.darshan.test_counters import log_with, random_region
from vanidl.check.check import check
from vanidl.readers.darshan import counters, newer, verdicts
from vanidl.readers.darshan.log import read_log
from vanidl.readers.records import CounterFile, TracerLog

MODULES = {"POSIX": 4, "STDIO": 2, "H5D": 2, "DFS": 1}


def written(folder: Path, number: int) -> Path:
    regions = {m: (v, random_region(m, v, "<", number + 1)) for m, v in MODULES.items()}
    path = folder / f"{number}.darshan"
    path.write_bytes(log_with(regions))
    return path


def counters_of(log: TracerLog) -> CounterFile:
    assert log.counters is not None
    return log.counters


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes one version of a module as unknown as one of a Darshan to come."""
    return lambda module: monkeypatch.delitem(counters.FORMS, (module, MODULES[module]))


@pytest.mark.usefixtures("darshan_library")
def test_pydarshan_reads_what_we_do_not_know(tmp_path: Path, forgotten) -> None:
    paths = [written(tmp_path, i) for i in range(3)]
    whole = [counters_of(read_log(path)) for path in paths]
    forgotten("POSIX")
    forgotten("H5D")
    logs = [read_log(path) for path in paths]
    assert [counters_of(log).unread for log in logs] == [{"POSIX": 4, "H5D": 2}] * 3
    for log, before in zip(newer.with_newer(logs), whole, strict=True):
        found = counters_of(log)
        assert (found.unread, found.losses) == ({}, ())
        ordered = sorted(found.layers, key=lambda r: r.layer)
        assert same(ordered, sorted(before.layers, key=lambda r: r.layer))


@pytest.mark.usefixtures("darshan_library")
def test_a_log_that_ends_the_child_stays_unread_and_those_before_it_are_there(
    tmp_path: Path, forgotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [written(tmp_path, i) for i in range(3)]
    forgotten("POSIX")
    head = "        log, found"
    fatal = f"        if path.endswith('1.darshan'): import os; os.abort()\n{head}"
    monkeypatch.setattr(newer, "_CHILD", newer._CHILD.replace(head, fatal))
    logs = newer.with_newer([read_log(path) for path in paths])
    assert [counters_of(log).unread for log in logs] == [{}, {"POSIX": 4}, {"POSIX": 4}]


@pytest.mark.usefixtures("darshan_library")
def test_a_child_that_takes_too_long_is_ended(
    tmp_path: Path, forgotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, 0)
    forgotten("POSIX")
    monkeypatch.setattr(newer, "_START_S", 0.2)
    monkeypatch.setattr(newer, "_LOG_S", 0)
    monkeypatch.setattr(newer, "_CHILD", "while True: pass")
    (log,) = newer.with_newer([read_log(path)])
    assert counters_of(log).unread == {"POSIX": 4}


@pytest.mark.usefixtures("darshan_library")
def test_a_version_that_nobody_knows_stays_unread(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"POSIX": (99, random_region("POSIX", 4, "<"))}))
    (log,) = newer.with_newer([read_log(path)])
    assert counters_of(log).unread == {"POSIX": 99}
    assert counters_of(log).layers == ()


@pytest.mark.parametrize("is_here", [True, False])
def test_check_names_module_version_and_what_may_read_it(
    tmp_path: Path, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"POSIX": (99, random_region("POSIX", 4, "<"))}))
    for module in (newer, verdicts):
        monkeypatch.setattr(module, "find_spec", lambda _: is_here or None)
    monkeypatch.setattr(newer, "_CHILD", "raise SystemExit(1)")
    (verdict,) = check([str(path)])
    (said,) = verdict.missing
    assert said.startswith("POSIX: its records are of version 99, which this vanidl does not know")
    assert ("pip install 'vanidl-io[darshan]'" in said) != is_here
    assert verdict.state == "partial"


def test_no_child_is_started_for_logs_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newer, "read_by_pydarshan", lambda _: pytest.fail("a child was started"))
    log = read_log(written(tmp_path, 0))
    assert newer.with_newer([log]) == [log]


def test_reading_imports_neither_pydarshan_nor_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, vanidl; vanidl.open_run(sys.argv[1]);"
        "sys.exit(any(m in sys.modules for m in ('darshan', 'pandas')))"
    )
    command = [sys.executable, "-c", code, str(written(tmp_path, 0))]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
