"""A recorded job that failed has its exit status and last error in the table, and is said first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log
from tests.readers.test_run_folder import EXAMPLE
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.readers.run_folder import write_record

pytest.importorskip("pyarrow", reason="the table of jobs is Parquet")

from vanidl.survey.rows import anonymize_rows
from vanidl.survey.survey import survey


def test_a_job_that_failed_is_told_from_the_others(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number, name in enumerate(("well/darshan", "failed/darshan", "site")):
        path = logs / name / f"me_x_id{number}-{number}_1-1-1-1_1.darshan"
        path.parent.mkdir(parents=True)
        begin = 1_700_000_000 + 10_000 * number
        log = Log(start=(begin, 0), end=(begin + 60, 0))
        write_log(path, Workload(40, ranks=1, files=1, job=number), log)
    write_record(logs / "well" / "run.json", EXAMPLE)
    failed = replace(EXAMPLE, exit_status=137, last_error="OSError: no room for mine")
    write_record(logs / "failed" / "run.json", failed)
    done = survey(logs, tmp_path / "out")
    found = {row["first_log"].split("/")[0]: row for row in done.rows}
    assert {name: row["exit_status"] for name, row in found.items()} == {
        "well": 0, "failed": 137, "site": None,
    }  # fmt: skip
    assert found["failed"]["last_error"] == "OSError: no room for mine"
    assert {row["problem"] for row in done.rows} == {None}
    page = done.page.read_text()
    assert "1 of 2 recorded programs failed." in page
    assert "failed, exit status 137" in page
    public = anonymize_rows(done.rows, logs, Pseudonyms())
    assert {row["last_error"] for row in public} == {None}
