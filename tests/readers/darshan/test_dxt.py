from __future__ import annotations

import random
import struct
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.makers.darshan_logs import Log, Record, log_bytes, log_parts, random_records
from vanidl.errors import InputError
from vanidl.model.trace import READ, WRITE
from vanidl.readers.darshan.log import read_log
from vanidl.readers.records import OperationTable

VERSIONS = ("3.00", "3.10", "3.20", "3.21", "3.41")
COLUMNS = ("record", "op", "offset", "nbytes", "start_ns", "end_ns")
MATRIX = [
    (version, order, compression, threads)
    for version in VERSIONS
    for order in "<>"
    for compression in ("zlib", "bz2", "none")
    for threads in (False, True)
]


def written(streams: list[list[Record]], threads: bool) -> dict[str, list[object]]:
    """The columns that a table of these records must have, by a plain loop."""
    columns: dict[str, list[object]] = {name: [] for name in (*COLUMNS, "thread")}
    for i, record in enumerate(r for stream in streams for r in stream):
        for op, rows in ((WRITE, record.writes), (READ, record.reads)):
            for offset, length, start, end, thread in rows:
                times = (round(start * 1e9), round(end * 1e9))
                values = (i, op, offset, length, *times, thread)
                for name, value in zip(columns, values, strict=True):
                    columns[name].append(value)
    return columns if threads else {n: c for n, c in columns.items() if n != "thread"}


def check(table: OperationTable, streams: list[list[Record]], threads: bool) -> None:
    records = [r for stream in streams for r in stream]
    assert table.record_file.tolist() == [r.file for r in records]
    assert table.record_rank.tolist() == [r.rank for r in records]
    assert table.record_host == tuple(r.host for r in records)
    assert (table.thread is not None) == threads
    for name, column in written(streams, threads).items():
        assert getattr(table, name).tolist() == column
        assert not getattr(table, name).flags.writeable


def save(folder: Path, raw: bytes) -> Path:
    path = folder / "log.darshan"
    path.write_bytes(raw)
    return path


def assert_prefix(cut: OperationTable, full: OperationTable) -> None:
    n = len(cut.start_ns)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(cut, name), getattr(full, name)[:n])


@pytest.mark.parametrize(("version", "order", "compression", "threads"), MATRIX)
def test_every_kind_of_log_gives_what_was_written(
    tmp_path: Path, version: str, order: str, compression: str, threads: bool
) -> None:
    posix, mpiio = random_records(1), random_records(2, ranks=2)
    log = Log(version, order, compression, names={2**63: b"/p/a"})
    log.dxt = {"DXT_POSIX": posix, "DXT_MPIIO": mpiio}
    log.dxt_version = {"DXT_POSIX": 1 + threads, "DXT_MPIIO": 2 + threads}
    read = read_log(save(tmp_path, log_bytes(log)))
    assert (read.whole, read.losses) == (True, ())
    assert [t.layer for t in read.operations] == ["POSIX", "MPI-IO"]
    check(read.operations[0], posix, threads)
    check(read.operations[1], mpiio, threads)


def test_offsets_of_the_first_mpiio_records_are_unknown(tmp_path: Path) -> None:
    log = Log(dxt={"DXT_MPIIO": random_records(3)}, dxt_version={"DXT_MPIIO": 1})
    (table,) = read_log(save(tmp_path, log_bytes(log))).operations
    assert len(table.offset)
    assert set(table.offset.tolist()) == {-1}


@pytest.mark.parametrize("far", [(2**32 - 1, 5), (2**32, 5), (5, 2**32), (-1, 5)])
def test_a_large_number_behind_many_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: tuple[int, int]
) -> None:
    monkeypatch.setattr("vanidl.readers.darshan.dxt._BLOCK", 4)
    small = [(3 * i, 7, float(i), i + 0.5, 0) for i in range(9)]
    streams = [[Record(i, i, "a", small, [])] for i in range(3)]
    streams += [[Record(3, 3, "a", small, [(*far, 10.0, 11.0, 0), *small])]]
    log = read_log(save(tmp_path, log_bytes(Log(dxt={"DXT_POSIX": streams}))))
    assert log.whole
    check(log.operations[0], streams, threads=False)


def test_records_of_a_newer_version_are_a_loss(tmp_path: Path) -> None:
    log = Log(dxt={"DXT_POSIX": random_records(3)}, dxt_version={"DXT_POSIX": 3})
    raw = log_bytes(log)
    log = read_log(save(tmp_path, raw))
    assert log.operations == ()
    assert "version 3" in log.losses[0]


def test_records_without_operations(tmp_path: Path) -> None:
    empty = [[Record(5, 0, "a", [], []), Record(6, 0, "a", [], [])], []]
    (table,) = read_log(save(tmp_path, log_bytes(Log(dxt={"DXT_POSIX": empty})))).operations
    assert len(table.start_ns) == 0
    assert table.record_file.tolist() == [5, 6]


@pytest.mark.parametrize("compression", ["zlib", "bz2", "none"])
def test_a_cut_log_gives_a_beginning_and_says_so(tmp_path: Path, compression: str) -> None:
    streams = random_records(4, rows=200)
    parts = log_parts(Log(compression=compression, dxt={"DXT_POSIX": streams}))
    raw = b"".join(parts)
    (full,) = read_log(save(tmp_path, raw)).operations
    ends = np.cumsum([len(p) for p in parts]).tolist()
    rng = random.Random(5)
    for size in [*ends[:-1], *(e - 1 for e in ends), *(rng.randrange(len(raw)) for _ in range(80))]:
        path = save(tmp_path, raw[:size])
        if size < (ends[0] if compression == "none" else ends[1]):
            with pytest.raises(InputError):
                read_log(path)
            continue
        try:
            log = read_log(path)
        except InputError:
            assert size < ends[1]
            continue
        assert not log.whole
        assert "cut" in log.losses[0]
        assert_prefix(log.operations[0], full)
        whole = sum(size >= end for end in ends[3:])
        rows = sum(len(r.writes) + len(r.reads) for s in streams[:whole] for r in s)
        assert len(log.operations[0].start_ns) >= rows


@pytest.mark.parametrize("threads", [False, True])
def test_a_cut_at_every_border_of_records_and_segments(tmp_path: Path, threads: bool) -> None:
    streams = random_records(11, ranks=2, files=2, rows=12)
    log = Log(compression="none", dxt={"DXT_POSIX": streams})
    log.dxt_version["DXT_POSIX"] = 1 + threads
    parts = log_parts(log)
    raw = b"".join(parts)
    (full,) = read_log(save(tmp_path, raw)).operations
    size, rows = len(b"".join(parts[:3])), 0
    for record in (r for stream in streams for r in stream):
        size += 104
        for count in range(len(record.writes) + len(record.reads) + 1):
            cut = read_log(save(tmp_path, raw[: size + (40 if threads else 32) * count]))
            assert cut.whole == (len(raw) == size + (40 if threads else 32) * count)
            assert len(cut.operations[0].start_ns) == rows + count
            assert_prefix(cut.operations[0], full)
        rows += count
        size += (40 if threads else 32) * count


def test_one_byte_short_keeps_every_stream_before_the_last(tmp_path: Path) -> None:
    streams = random_records(6)
    raw = log_bytes(Log(dxt={"DXT_POSIX": streams}))
    log = read_log(save(tmp_path, raw[:-1]))
    rows = sum(len(r.writes) + len(r.reads) for s in streams[:-1] for r in s)
    assert len(log.operations[0].start_ns) >= rows
    assert any("cut" in loss for loss in log.losses)


def test_a_damaged_stream_is_left_out_with_all_behind_it(tmp_path: Path) -> None:
    streams = random_records(7)
    parts = log_parts(Log(dxt={"DXT_POSIX": streams}))
    second = bytearray(parts[4])
    second[len(second) // 2] ^= 4
    log = read_log(save(tmp_path, b"".join([*parts[:4], bytes(second), parts[5]])))
    check(log.operations[0], streams[:1], threads=False)
    assert not log.whole
    assert "DXT_POSIX is incomplete" in log.losses[0]


def test_impossible_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    good = (0, 10, 1.0, 2.0, 0)
    bad = [(0, 1, nan, 1.0, 0), (0, 1, 1.0, inf, 0), (0, 1, -1.0, 1.0, 0), (0, -5, 1.0, 2.0, 0)]
    bad += [(0, 1, 2.0, 1.0, 0), (0, 1, 1.0, 1e300, 0), (0, 1, -inf, 1.0, 0)]
    bad += [(0, 2**41, 1.0, 2.0, 0), (2**63 - 1, 1, 1.0, 2.0, 0)]
    streams = [[Record(1, 0, "a", [good, *bad], [good])]]
    log = read_log(save(tmp_path, log_bytes(Log(dxt={"DXT_POSIX": streams}))))
    (table,) = log.operations
    assert table.start_ns.tolist() == [10**9, 10**9]
    assert table.op.tolist() == [WRITE, READ]
    assert f"{len(bad)} of {len(bad) + 2} operations" in log.losses[0]


@pytest.mark.parametrize(
    ("writes", "reads"), [(2**62, 0), (0, 2**62), (-1, 1), (5, -5), (2**63 - 1, 2**63 - 1)]
)
def test_counts_are_not_believed(tmp_path: Path, writes: int, reads: int) -> None:
    head = struct.pack("<Qqq64sqq", 1, 0, -1, b"h", writes, reads)
    parts = log_parts(Log(compression="none", dxt={"DXT_POSIX": [[Record(1, 0, "h", [], [])]]}))
    log = read_log(save(tmp_path, b"".join([*parts[:3], head])))
    assert len(log.operations[0].start_ns) == 0
    assert "announces" in log.losses[0]


def test_a_bomb_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vanidl.encoding.budget.FREE_TEXT_BYTES", 1 << 16)
    zeros = [[Record(0, 0, "", [(0, 0, 0.0, 0.0, 0)] * 200_000, [])]]
    log = read_log(save(tmp_path, log_bytes(Log(dxt={"DXT_POSIX": zeros}))))
    assert len(log.operations[0].start_ns) == 0
    assert "decompressed size exceeds" in log.losses[0]


@pytest.mark.parametrize("compression", ["zlib", "bz2", "none"])
def test_flipped_bits_never_crash(tmp_path: Path, compression: str) -> None:
    log = Log(compression=compression, names={7: b"/a", 8: b"/b"})
    log.dxt = {"DXT_POSIX": random_records(8, rows=20), "DXT_MPIIO": random_records(9, rows=5)}
    raw = log_bytes(log)
    rng = random.Random(10)
    for i in range(300):
        broken = bytearray(raw)
        for _ in range(1 + i % 3):
            # Half of them in the header, which steers everything else.
            at = rng.randrange(1328 if i % 2 else len(raw))
            broken[at] ^= 1 << rng.randrange(8)
        with suppress(InputError):
            read = read_log(save(tmp_path, bytes(broken)))
            assert read.whole == (not read.losses)


def same_as_pydarshan(path: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from darshan.backend import cffi_backend as peer
    rows = 0
    handle = peer.log_open(str(path))
    for table in read_log(path).operations:
        if table.thread is not None:
            continue
        module = {"POSIX": "DXT_POSIX", "MPI-IO": "DXT_MPIIO"}[table.layer]
        expected = []
        while (r := peer.log_get_dxt_record(handle, module)) is not None:
            for op, segments in ((WRITE, r["write_segments"]), (READ, r["read_segments"])):
                expected += [(r["id"], r["rank"], r["hostname"], op, *s.values()) for s in segments]
        peer_columns = list(zip(*expected, strict=True))
        hosts = np.array(table.record_host)[table.record].tolist()
        assert tuple(table.record_file[table.record].tolist()) == peer_columns[0]
        assert tuple(table.record_rank[table.record].tolist()) == peer_columns[1]
        assert tuple(hosts) == peer_columns[2]
        assert tuple(table.op.tolist()) == peer_columns[3]
        assert tuple(table.offset.tolist()) == peer_columns[4]
        assert tuple(table.nbytes.tolist()) == peer_columns[5]
        for mine, theirs in ((table.start_ns, 6), (table.end_ns, 7)):
            np.testing.assert_array_equal(mine, np.rint(np.array(peer_columns[theirs]) * 1e9))
        rows += len(expected)
    peer.log_close(handle)
    return rows


@pytest.mark.usefixtures("darshan_library")
def test_wheel_logs_equal_pydarshan(wheel_logs: tuple[Path, ...]) -> None:
    assert sum(map(same_as_pydarshan, wheel_logs)) > 7000


@pytest.mark.usefixtures("darshan_library")
def test_shared_logs_equal_pydarshan(finished_logs: tuple[Path, ...]) -> None:
    assert sum(map(same_as_pydarshan, finished_logs)) > 300_000


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize(("order", "compression"), [("<", "zlib"), (">", "zlib"), ("<", "none")])
@pytest.mark.parametrize("version", VERSIONS)
def test_written_logs_equal_pydarshan(
    tmp_path: Path, version: str, order: str, compression: str
) -> None:
    log = Log(version, order, compression, names={2**63: b"/p/a"})
    log.dxt = {"DXT_POSIX": random_records(1), "DXT_MPIIO": random_records(2)}
    assert same_as_pydarshan(save(tmp_path, log_bytes(log))) > 0


def test_threads_of_a_recorded_run(shared: Path) -> None:
    logs = [read_log(p) for p in (shared / "data/recorded/torch_hdf5_dxt_v2").rglob("*.darshan")]
    tables = [table for log in logs for table in log.operations]
    assert sum(len(t.start_ns) for t in tables) == 2981
    assert all(t.thread is not None and (t.thread > 0).all() for t in tables)
