"""A DarshanReport in hand is what reading its log gives; our records as frames are PyDarshan's."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vanidl
from tests import ROOT
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log
from tests.makers.needed import needed
from tests.makers.sameness import same
from tests.readers.darshan.test_counters import log_with, lost_by_library, random_region
from vanidl.check.check import check
from vanidl.errors import InputError
from vanidl.readers.darshan import counters, pydarshan
from vanidl.readers.darshan import verdict as verdict_of_log
from vanidl.readers.darshan.log import read_log
from vanidl.readers.darshan.pydarshan import read_report
from vanidl.readers.records import CounterFile, TracerLog
from vanidl.report.summary import summary_object

# Counters of versions that we do not know: read by PyDarshan where it is, else named.

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
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes one version of a module as unknown as one of a Darshan to come."""

    def forget(module: str) -> None:
        monkeypatch.delitem(counters.FORMS, (module, MODULES[module]))
        counters._sort_modules.cache_clear()

    yield forget
    counters._sort_modules.cache_clear()


@pytest.mark.usefixtures("darshan_library")
def test_pydarshan_reads_what_we_do_not_know(tmp_path: Path, forgotten) -> None:
    paths = [written(tmp_path, i) for i in range(3)]
    whole = [counters_of(read_log(path)) for path in paths]
    forgotten("POSIX")
    forgotten("H5D")
    logs = [read_log(path) for path in paths]
    assert [counters_of(log).unread for log in logs] == [{"POSIX": 4, "H5D": 2}] * 3
    for log, before in zip(pydarshan.add_newer_counters(logs), whole, strict=True):
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
    monkeypatch.setattr(pydarshan, "_CHILD", pydarshan._CHILD.replace(head, fatal))
    logs = pydarshan.add_newer_counters([read_log(path) for path in paths])
    assert [counters_of(log).unread for log in logs] == [{}, {"POSIX": 4}, {"POSIX": 4}]


@pytest.mark.usefixtures("darshan_library")
def test_a_child_that_takes_too_long_is_ended(
    tmp_path: Path, forgotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, 0)
    forgotten("POSIX")
    monkeypatch.setattr(pydarshan, "_START_S", 0.2)
    monkeypatch.setattr(pydarshan, "_LOG_S", 0)
    monkeypatch.setattr(pydarshan, "_CHILD", "while True: pass")
    (log,) = pydarshan.add_newer_counters([read_log(path)])
    assert counters_of(log).unread == {"POSIX": 4}


@pytest.mark.usefixtures("darshan_library")
def test_a_version_that_nobody_knows_stays_unread(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"POSIX": (99, random_region("POSIX", 4, "<"))}))
    (log,) = pydarshan.add_newer_counters([read_log(path)])
    assert counters_of(log).unread == {"POSIX": 99}
    assert counters_of(log).layers == ()


@pytest.mark.parametrize("is_here", [True, False])
def test_check_names_module_version_and_what_may_read_it(
    tmp_path: Path, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"POSIX": (99, random_region("POSIX", 4, "<"))}))
    for module in (pydarshan, verdict_of_log):
        monkeypatch.setattr(module, "find_spec", lambda _: is_here or None)
    monkeypatch.setattr(pydarshan, "_CHILD", "raise SystemExit(1)")
    (verdict,) = check([str(path)])
    (said,) = verdict.missing
    assert said.startswith("POSIX: its records are of version 99, which this vanidl does not know")
    assert ("pip install 'vanidl-io[darshan]'" in said) != is_here
    assert verdict.state == "partial"


def test_no_child_is_started_for_logs_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = lambda _: pytest.fail("a child was started")  # noqa: E731
    monkeypatch.setattr(pydarshan, "read_by_pydarshan", never)
    log = read_log(written(tmp_path, 0))
    assert pydarshan.add_newer_counters([log]) == [log]


def test_reading_imports_neither_pydarshan_nor_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, vanidl; vanidl.open_run(sys.argv[1]);"
        "sys.exit(any(m in sys.modules for m in ('darshan', 'pandas')))"
    )
    command = [sys.executable, "-c", code, str(written(tmp_path, 0))]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


needed("darshan", reason="PyDarshan is not installed")
pytestmark = pytest.mark.usefixtures("darshan_library")
WITHOUT = ("headline", "coverage")  # they name the modules that the report did not read


def report_of(path: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from darshan.report import DarshanReport

        return DarshanReport(str(path), **options)


def test_a_report_gives_what_its_log_gives(wheel_logs: tuple[Path, ...]) -> None:
    for path in {path.name: path for path in wheel_logs}.values():
        mine, theirs = vanidl.from_darshan(report_of(path)), vanidl.open_run(path)
        a, b = summary_object(mine), summary_object(theirs)
        if not a["job"]["command"]:  # PyDarshan gives none that is longer than its room
            b["job"]["command"] = ""
        for key in ("job", "storage", "layers", "io", "steps", "findings"):
            assert a[key] == b[key], (path.name, key)
        assert mine.name == path.name


@pytest.mark.parametrize("order", ["<", ">"])
def test_operations_and_counters_equal_those_read_here(tmp_path: Path, order: str) -> None:
    path = tmp_path / "u_x_id7-42_11-14-80000-1_1.darshan"
    write_log(path, Workload(3000, ranks=3, files=5), Log(byte_order=order))
    mine, theirs = read_report(report_of(path)), read_log(path)
    for name in ("job_id", "pid", "parent_pid", "user_id", "nprocs", "start_ns", "end_ns", "host",
                 "start_resolution_ns", "command", "metadata", "names", "modules", "version",
                 "partial_layers", "whole", "unread_modules", "start_error_ns"):  # fmt: skip
        assert getattr(mine, name) == getattr(theirs, name), name
    (table,), (other,) = mine.operations, theirs.operations
    for name in ("record_file", "record_rank", "record", "op", "offset", "nbytes", "start_ns",
                 "end_ns"):  # fmt: skip
        assert np.array_equal(getattr(table, name), getattr(other, name)), name


def test_modules_that_were_not_read_into_the_report_are_named(wheel_logs) -> None:
    path = next(path for path in wheel_logs if path.name == "dxt.darshan")
    report = report_of(path, read_all=False)
    report.mod_read_all_records("STDIO")
    run = vanidl.from_darshan(report)
    said = {w.code: w.message for w in run.coverage.warnings}
    assert "POSIX" in said["modules_not_read"]
    assert set(summary_object(run)["storage"]["by_layer"]) == {"STDIO"}
    assert not run.coverage.complete


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (SimpleNamespace(metadata={}, dtype="numpy"), "found none that read a log"),
        ("a path", "found none that read a log"),
        (SimpleNamespace(metadata={"job": {"uid": 1}}, dtype="pandas"), "dtype 'pandas'"),
    ],
)
def test_what_is_no_such_report_is_refused(report: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        vanidl.from_darshan(report)


def test_frames_are_pydarshans(wheel_logs: tuple[Path, ...]) -> None:
    seen = set()
    for path in wheel_logs:
        report, frames = report_of(path), vanidl.darshan_frames(path)
        assert set(frames) == set(report.records) - {"LUSTRE", "APMPI", "APXC"}
        for module, mine in frames.items():
            theirs = report.records[module].to_df()
            seen.add(module)
            if module.startswith("DXT"):
                for a, b in zip(mine, theirs, strict=True):
                    assert_same_record(a, b)
            else:
                for key, frame in mine.items():
                    lost = [*lost_by_library(str(path)) & {*frame}]
                    # PyDarshan's ids have a sign where all of them fit.
                    other = theirs[key].astype({"id": np.uint64}).drop(columns=lost)
                    pd.testing.assert_frame_equal(frame.drop(columns=lost), other)
    assert {"POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "DXT_POSIX"} <= seen


def assert_same_record(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for key, value in a.items():
        if not key.endswith("segments"):
            assert value == b[key]
        elif len(value) or len(b[key]):
            pd.testing.assert_frame_equal(value, b[key], check_exact=False, rtol=0, atol=1e-9)
