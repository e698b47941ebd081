"""A DarshanReport in hand is what reading its log gives; our records as frames are PyDarshan's."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vanidl
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log
from tests.makers.needed import needed
from tests.readers.darshan.test_counters import lost_by_library
from vanidl.errors import InputError
from vanidl.readers.darshan.log import read_log
from vanidl.readers.darshan.report import log_of
from vanidl.report.json import summary_object

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
    mine, theirs = log_of(report_of(path)), read_log(path)
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
