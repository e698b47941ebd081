"""What the recorder wrote of object storage -> operations and totals of the layer OBJECT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.makers.object_files import MS, OK, ROWS, START, objects_of
from vanidl.model.trace import OBJECT, READ, WRITE
from vanidl.readers.format import Reading
from vanidl.readers.objects import FORMAT
from vanidl.readers.objects import operations as read
from vanidl.readers.objects.log import build_counters, build_log
from vanidl.readers.objects.operations import read_operations
from vanidl.record.injected.vanidl_steps import operations as written


def test_reader_and_writer_agree_on_the_layout() -> None:
    for name in ("MAGIC", "TEXT", "NAME", "READ", "WRITE", "STAT", "LIST", "OTHER"):
        assert getattr(read, name) == getattr(written, name)
    assert written._ROW.size == read.ROW_BYTES == len(read.MAGIC)
    assert (written.INCOMPLETE, written.UNSIZED) == (read._INCOMPLETE, read._UNSIZED)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = read_operations(objects_of(tmp_path))
    requests = file.requests
    names = [file.names[n] for n in requests.name.tolist()]
    assert names == [row[1] for row in ROWS]
    assert requests.kind.tolist() == [row[0] & 0xFF for row in ROWS]
    assert ((requests.end - START) // MS).tolist() == [row[5] for row in ROWS]
    assert requests.failed.tolist() == [False, False, False, False, True, True, False]
    assert requests.nbytes.tolist() == [0, 0, 4096, 4096, 0, 0, 10_000]
    assert file.start_ns == START
    assert not file.losses


def test_reads_and_writes_are_operations_and_the_rest_is_metadata(tmp_path: Path) -> None:
    found = build_log(read_operations(objects_of(tmp_path)))
    (table,) = found.operations
    assert table.layer == OBJECT
    moved = sorted(zip(table.op.tolist(), table.nbytes.tolist(), strict=True))
    assert moved == [(READ, 0), (READ, 0), (READ, 4096), (READ, 4096), (WRITE, 10_000)]
    calls = found.metadata_calls
    assert calls is not None
    assert (calls.start // MS).tolist() == [5, 10]
    assert (calls.end // MS).tolist() == [9, 12]


def test_every_request_is_counted_once(tmp_path: Path) -> None:
    file = read_operations(objects_of(tmp_path))
    (table,) = build_counters(file).layers
    kinds = ("READS", "WRITES", "STATS", "LISTS", "OTHERS")
    assert sum(int(table.counters[f"OBJECT_{kind}"].sum()) for kind in kinds) == len(ROWS)
    assert int(table.counters["OBJECT_FAILED"].sum()) == 2
    assert int(table.counters["OBJECT_BYTES_READ"].sum()) == 8192
    spent = sum(float(seconds.sum()) for seconds in table.seconds.values())
    assert spent == pytest.approx(sum(row[5] - row[4] for row in ROWS) / 1e3)


def test_names_are_given_again_when_there_were_too_many(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(written, "_MOST_NAMES", 3)
    rows = [(written.READ | OK, f"s3://b/{k % 5}", 0, k, k, k + 1) for k in range(20)]
    file = read_operations(objects_of(tmp_path, rows))
    assert [file.names[n] for n in file.requests.name.tolist()] == [row[1] for row in rows]
    assert sorted(file.names) == [f"s3://b/{k}" for k in range(5)]


def test_a_file_that_cannot_be_written_breaks_nothing_and_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    log = written.Operations(str(tmp_path / "gone"), lambda _, error: said.append(str(error)))
    for k in range(3):
        log.add(written.READ | OK, "s3://b/signature=CANARY", 0, 1, k, 2 * 10**18)
    log._last()
    assert len(said) == 1
    assert "CANARY" not in said[0]


def test_a_time_far_from_the_process_is_left_out(tmp_path: Path) -> None:
    path = objects_of(tmp_path)
    content = bytearray(path.read_bytes())
    rows = np.frombuffer(content, "<i8").reshape(-1, 6)
    at = int(np.flatnonzero((rows[:, 0] & 0xFF) == written.WRITE)[-1])
    rows[at, 4] = 1
    path.write_bytes(content)
    file = read_operations(path)
    assert len(file.requests) == len(ROWS) - 1
    assert any("1 of" in loss for loss in file.losses)


def test_a_killed_process_is_said(tmp_path: Path) -> None:
    path = objects_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b'{"end_ns"') - read.ROW_BYTES])
    records = FORMAT.read({"objects": (path,)}, Reading(lambda *_: None))
    codes = {notice.code for notice in records.notices}
    assert codes == {"objects_unfinished"}
