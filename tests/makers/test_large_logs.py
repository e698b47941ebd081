"""The generator of large logs: its logs obey the laws of real ones, for us and for PyDarshan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log, write_logs
from vanidl.cli import main
from vanidl.readers.darshan.log import read_log

SMALL = Workload(3001, ranks=3, files=4)
PEER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import darshan
report = darshan.DarshanReport(sys.argv[1], read_all=True)
traced = [r for r in report.records["DXT_POSIX"].to_dict()]
counters = report.records["POSIX"].to_df()["counters"]
print(json.dumps({
    "names": len(report.name_records),
    "reads": sum(r["read_count"] for r in traced),
    "writes": sum(r["write_count"] for r in traced),
    "bytes": sum(s["length"] for r in traced for s in r["read_segments"]),
    "counted": int(counters["POSIX_READS"].sum() + counters["POSIX_WRITES"].sum()),
}))
"""


def summary(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["summary", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("compression", ["zlib", "bz2", "none"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", ["3.00", "3.10", "3.20", "3.21", "3.41"])
def test_every_kind_holds_what_the_writer_says(
    tmp_path: Path, version: str, order: str, compression: str
) -> None:
    path = tmp_path / "log.darshan"
    totals = write_log(path, SMALL, Log(version, order, compression, partial=("DXT_POSIX",)))
    log = read_log(path)
    assert (log.whole, log.partial_layers) == (True, ("DXT_POSIX",))
    table = log.operations[0]
    assert len(table.op) == totals.reads + totals.writes == SMALL.segments
    assert table.nbytes.sum() == totals.bytes_read + totals.bytes_written
    spent_s = (table.end_ns - table.start_ns).sum() / 1e9
    assert spent_s == pytest.approx(totals.seconds, abs=1e-9 * SMALL.segments)
    assert path.stat().st_size == totals.nbytes


@pytest.mark.parametrize("threads", [1, 2])
def test_counters_are_those_of_the_operations(tmp_path, capsys, threads) -> None:
    path = tmp_path / "log.darshan"
    log = Log(dxt_version={"DXT_POSIX": threads})
    totals = write_log(path, SMALL, log)
    said = summary(path, capsys)
    layer = said["coverage"]["layers"]["POSIX"]
    assert (layer["counted_ops"], layer["traced_ops"]) == (SMALL.segments, SMALL.segments)
    assert {w["code"] for w in said["coverage"]["warnings"]} == {"mmap_not_monitored"}
    counters = read_log(path).counters
    assert counters is not None
    counted = counters.layers[0].counters
    for op in ("read", "write"):
        by_rule = said["io"]["access"][op]
        assert by_rule["sequential_darshan"] == counted[f"POSIX_SEQ_{op.upper()}S"].sum() > 0
        assert by_rule["consecutive_darshan"] == counted[f"POSIX_CONSEC_{op.upper()}S"].sum()
    assert said["storage"]["bytes_read"] == totals.bytes_read
    assert said["storage"]["bytes_written"] == totals.bytes_written


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("version", ["3.00", "3.10", "3.21", "3.41"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_pydarshan_reads_the_same(tmp_path: Path, version: str, order: str) -> None:
    path = tmp_path / "log.darshan"
    totals = write_log(path, SMALL, Log(version, order))
    done = subprocess.run(
        [sys.executable, "-c", PEER, str(path)], capture_output=True, text=True, check=True
    )
    says = json.loads(done.stdout)
    assert (says["reads"], says["writes"]) == (totals.reads, totals.writes)
    assert (says["counted"], says["bytes"]) == (SMALL.segments, totals.bytes_read)


def test_many_logs_are_one_run(tmp_path, capsys) -> None:
    paths = write_logs(tmp_path, 5, Workload(40, files=2))
    said = summary(tmp_path, capsys)
    assert said["job"]["processes"] == len(paths) == 5
    assert said["io"]["ops"] == 200
