"""A log cut anywhere: every whole operation before the cut is used, and every output says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz.mutants import borders, header_of
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log
from vanidl.cli import main
from vanidl.readers.darshan.log import read_log
from vanidl.readers.records import CounterFile

WORK = Workload(900, ranks=3, files=2)
COSMICTAGGER = "data/public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def counters_of(path: Path) -> CounterFile:
    counters = read_log(path).counters
    assert counters is not None
    return counters


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.darshan"
    write_log(path, WORK)
    return path


@pytest.fixture
def cut(whole: Path) -> Path:
    """The log cut within its traced operations; its counters, which lie behind, are gone."""
    path = whole.with_name("cut.darshan")
    region = header_of(whole.read_bytes()).regions["DXT_POSIX"]
    path.write_bytes(whole.read_bytes()[: region.start + region.length // 2])
    return path


@pytest.mark.parametrize("compression", ["zlib", "bz2", "none"])
def test_every_whole_stream_before_a_cut_is_there(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "log.darshan"
    write_log(path, WORK, Log(compression=compression))
    content = path.read_bytes()
    table = read_log(path).operations[0]
    header = header_of(content)
    region = header.regions["DXT_POSIX"]
    ends = [e for e in borders(content) if region.start < e <= region.end]
    for end in ends:
        for at in (end, end - 1, end + 1):
            path.write_bytes(content[:at])
            log = read_log(path)
            held = log.operations[0]
            kept = len(held.op)
            assert held.start_ns.tolist() == table.start_ns[:kept].tolist()
            assert held.nbytes.tolist() == table.nbytes[:kept].tolist()
            streams = sum(e <= at for e in ends)
            assert kept >= WORK.segments * streams // len(ends)
            assert log.whole == (at >= len(content))


def test_counters_before_a_cut_are_there(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    totals = write_log(path, WORK)
    content = path.read_bytes()
    region = header_of(content).regions["POSIX"]
    all_reads = counters_of(path).layers[0].counters["POSIX_READS"]
    assert all_reads.sum() == totals.reads
    for share in (0.5, 0.99):
        path.write_bytes(content[: region.start + int(region.length * share)])
        file = counters_of(path)
        reads = file.layers[0].counters["POSIX_READS"]
        assert 0 < len(reads) < len(all_reads)
        assert reads.tolist() == all_reads[: len(reads)].tolist()
        assert file.losses


def test_damaged_counters_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    write_log(path, WORK)
    content = bytearray(path.read_bytes())
    region = header_of(bytes(content)).regions["POSIX"]
    content[region.start + region.length // 2] ^= 0x10
    path.write_bytes(content)
    file = counters_of(path)
    assert file.layers == ()
    assert len(file.losses) == 1
    assert "POSIX" in file.losses[0]


def test_text_json_page_export_and_check_say_what_is_missing(capsys, tmp_path, cut) -> None:
    text = said(capsys, "summary", str(cut), "--full")
    assert "Not all of the run is in these numbers" in text
    assert "! damaged:" in text
    result = json.loads(said(capsys, "summary", str(cut), "--json"))
    assert result["coverage"]["complete"] is False
    messages = [w["message"] for w in result["coverage"]["warnings"] if w["code"] == "damaged"]
    assert any("the log is cut: DXT_POSIX" in message for message in messages)
    assert any("POSIX: only 0 whole records could be read" in message for message in messages)
    assert 0 < result["io"]["ops"] < WORK.segments
    page = tmp_path / "report.html"
    said(capsys, "report", str(cut), "-o", str(page))
    assert "the log is cut: DXT_POSIX" in page.read_text()
    said(capsys, "export", str(cut), "--to", "json", "-o", str(tmp_path / "all.json"))
    exported = json.loads((tmp_path / "all.json").read_text())
    assert exported["coverage"] == result["coverage"]
    assert "cut" in said(capsys, "check", str(cut))


def test_a_comparison_says_which_side_lacks_what(capsys, tmp_path, whole, cut) -> None:
    runs = (str(whole), str(cut))
    text = " ".join(said(capsys, "compare", *runs).split())
    assert "! B: damaged:" in text
    assert "the log is cut: DXT_POSIX" in text
    assert "! A: damaged:" not in text
    result = json.loads(said(capsys, "compare", *runs, "--json"))
    a, b = (side["runs"][0]["coverage"] for side in result["sides"])
    assert (a["complete"], b["complete"]) == (True, False)
    assert "damaged" in {w["code"] for w in b["warnings"]}
    assert result["metrics"]["bytes_read"]["verdict"] == "not comparable"
    page = tmp_path / "c.html"
    said(capsys, "compare", *runs, "-o", str(page))
    assert "the log is cut: DXT_POSIX" in page.read_text()


def test_one_byte_off_cosmictagger_loses_nothing_whole(capsys, tmp_path, shared) -> None:
    content = (shared / COSMICTAGGER).read_bytes()
    path = tmp_path / "cut.darshan"
    path.write_bytes(content[:-1])
    result = json.loads(said(capsys, "summary", str(path), "--json"))
    assert result["io"]["ops"] == 313_872
    assert result["coverage"]["complete"] is False
