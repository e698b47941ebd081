"""The run as a Darshan log: its own tools find the same totals, our reader the same operations."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vanidl
from tests import DATA
from tests.makers.calls_files import (
    CLOSE,
    FREAD,
    FSYNC,
    OPEN,
    PREAD,
    STAT,
    Call,
    Calls,
    Counted,
    calls_file,
)
from tests.makers.calls_files import WRITE as WRITE_CALL
from tests.makers.records import JOB_START_NS, Io, darshan_log, operation_table
from vanidl.analyses.results import analyse
from vanidl.errors import UsageError
from vanidl.export import darshan as darshan_export
from vanidl.export.darshan.counters import FileCounters
from vanidl.export.registry import export
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import Options, assemble
from vanidl.model.selection import Selection
from vanidl.model.trace import MPIIO, OBJECT, POSIX, READ, STDIO, WRITE, Part, Trace
from vanidl.readers.darshan.counter_names import NAMES
from vanidl.readers.records import CounterFile, CounterRecords, TracerLog
from vanidl.run import Run

RUNS = ("ddp_two_hosts", "torch_pfs_workers4")
SEGMENTS = ("read_segments", "write_segments")
CLASSES = (100, 1024, 10240, 102400, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)


def run_of(*logs: TracerLog, counters: dict[str, CounterFile] | None = None, **options: Any) -> Run:
    trace = assemble(Group(logs, ()), counters or {}, (), Options(**options))
    return Run(trace, analyse(trace), Selection())


def back(run: Run, folder: Path) -> Run:
    export(run, "darshan", folder / "out.darshan")
    return vanidl.open_run(folder / "out.darshan")


def operations(trace: Trace, layer: str = POSIX) -> dict[str, Counter[tuple[int, ...]]]:
    """Path -> every operation: process, op, offset, size, start and end."""
    found: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for part in trace.io:
        if part.layer == layer:
            rows = zip(
                part.file.tolist(),
                part.op.tolist(),
                part.offset.tolist(),
                part.nbytes.tolist(),
                part.start.tolist(),
                part.end.tolist(),
                strict=True,
            )
            for file, *row in rows:
                found[trace.files.path[file]][(part.process, *row)] += 1
    return found


@pytest.fixture(scope="module", params=RUNS)
def recorded(request, tmp_path_factory) -> tuple[Run, Path]:
    run = vanidl.open_run(DATA / request.param)
    path = tmp_path_factory.mktemp("darshan") / "out.darshan"
    export(run, "darshan", path)
    return run, path


def test_every_operation_comes_back(recorded):
    run, path = recorded
    again = vanidl.open_run(path)
    assert [log.whole for log in again.trace.logs] == [True]
    assert operations(again.trace) == operations(run.trace)
    assert again.trace.job.command == run.trace.job.command
    for layer in (POSIX, STDIO):
        for name in ("OPENS", "READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN"):
            name = f"{layer}_{name}"
            assert again.trace.counters[layer].total(name) == run.trace.counters[layer].total(name)
        for name in ("READ", "WRITE", "META"):
            name = f"{layer}_F_{name}_TIME"
            assert again.trace.counters[layer].total_s(name) == pytest.approx(
                run.trace.counters[layer].total_s(name), rel=1e-12
            )


def test_darshans_library_finds_the_same_totals(recorded):
    darshan = pytest.importorskip("darshan", reason="needs PyDarshan")
    run, path = recorded
    report = darshan.DarshanReport(str(path), read_all=True)
    assert report.metadata["job"]["nprocs"] == len(run.trace.processes)
    assert report.metadata["exe"] == run.trace.job.command
    for layer in (POSIX, STDIO):
        frames = report.records[layer].to_df()
        table = run.trace.counters[layer]
        for name in ("OPENS", "READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN"):
            assert frames["counters"][f"{layer}_{name}"].sum() == table.total(f"{layer}_{name}")
        for name in ("READ", "WRITE", "META"):
            name = f"{layer}_F_{name}_TIME"
            assert frames["fcounters"][name].sum() == pytest.approx(table.total_s(name))
        by_file = Counter[str]()
        for record, nbytes in zip(
            frames["counters"]["id"], frames["counters"][f"{layer}_BYTES_READ"], strict=True
        ):
            by_file[report.name_records[record]] += nbytes
        expected = Counter[str]()
        for file, nbytes in zip(table.file, table.counters[f"{layer}_BYTES_READ"], strict=True):
            expected[run.trace.files.path[file]] += max(int(nbytes), 0)
        assert by_file == expected
    segments = [
        segment
        for record in report.records["DXT_POSIX"]
        for kind in SEGMENTS
        for segment in record[kind]
    ]
    assert len(segments) == sum(len(part) for part in run.trace.io if part.layer == POSIX)
    assert sum(segment["length"] for segment in segments) == sum(
        int(part.nbytes.sum()) for part in run.trace.io if part.layer == POSIX
    )


def test_drishti_finds_the_same_totals(recorded):
    pytest.importorskip("drishti", reason="needs drishti-io")
    run, path = recorded
    if run.name != RUNS[0]:
        pytest.skip("two seconds a log: one tells")
    code = "import sys; from drishti.reporter import main; sys.argv[0] = 'drishti'; main()"
    command = [sys.executable, "-c", code, "--size", "200", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    table = run.trace.counters[POSIX]
    reads, writes = table.total("POSIX_READS"), table.total("POSIX_WRITES")
    read, written = table.total("POSIX_BYTES_READ"), table.total("POSIX_BYTES_WRITTEN")
    calls, nbytes = reads + writes, read + written
    assert re.search(rf"PROCESSES +{len(run.trace.processes)} ", shown)
    assert f"({writes / calls:.2%} writes vs. {reads / calls:.2%} reads)" in shown
    assert f"({written / nbytes:.2%} write vs. {read / nbytes:.2%} read)" in shown


# Counters by definition: Darshan's runtime as plain loops over operations, one file at a time.


def plain_counters(rows: list[tuple[int, int, int, int, int]]) -> dict[str, float]:
    """Counters of one file; rows by start: (op, offset, bytes, start, end in ns)."""
    found: dict[str, float] = defaultdict(int)
    sizes, strides = Counter[int](), Counter[int]()
    last_byte, last_op = [0, 0], None
    for op, offset, nbytes, start, end in rows:
        word, moved = (("READ", "READ"), ("WRITE", "WRITTEN"))[op]
        found[f"{word}S"] += 1
        found[f"BYTES_{moved}"] += nbytes
        found[f"SEQ_{word}S"] += offset > last_byte[op]
        found[f"CONSEC_{word}S"] += offset == last_byte[op] + 1
        stride = 0
        if offset > 0 and offset > last_byte[op] and last_byte[op] != 0:
            stride = offset - last_byte[op] - 1
        strides[stride] += 1
        sizes[nbytes] += 1
        last_byte[op] = offset + nbytes - 1
        found[f"MAX_BYTE_{moved}"] = max(found[f"MAX_BYTE_{moved}"], last_byte[op])
        size_class = next((i for i, most in enumerate(CLASSES) if nbytes <= most), 9)
        found[f"{word} class {size_class}"] += 1
        found["RW_SWITCHES"] += last_op not in (None, op)
        last_op = op
        key = f"{word}_START_TIMESTAMP"
        found[key] = min(found.get(key, np.inf), start / 1e9)
        found[f"{word}_END_TIMESTAMP"] = max(found[f"{word}_END_TIMESTAMP"], end / 1e9)
        if (end - start) / 1e9 > found[f"MAX_{word}_TIME"]:
            found[f"MAX_{word}_TIME"] = (end - start) / 1e9
            found[f"MAX_{word}_TIME_SIZE"] = nbytes
    for op, word in enumerate(("READ", "WRITE")):
        busy = {t for o, _, _, start, end in rows if o == op for t in range(start, end)}
        found[f"{word}_TIME"] = len(busy) / 1e9
    for what, value_of, counts in (("ACCESS", "ACCESS", sizes), ("STRIDE", "STRIDE", strides)):
        del counts[0]
        best = sorted(counts.items(), key=lambda pair: (-pair[1], -pair[0]))[:4]
        for i, (value, count) in enumerate(best, 1):
            found[f"{what}{i}_{value_of}"], found[f"{what}{i}_COUNT"] = value, count
    return found


near = st.sampled_from([0, 1, 2, 3, 4, 7, 8])
edges = st.sampled_from([0, 1, *CLASSES, *(most + 1 for most in CLASSES)])
rows = st.lists(
    st.tuples(
        st.integers(0, 2),  # file
        st.sampled_from([READ, WRITE]),
        near,
        st.one_of(near, edges),
        st.integers(0, 40),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=40,
)


@given(rows=rows, pieces=st.integers(1, 3))
def test_counters_are_those_of_plain_loops(rows, pieces):
    rows = sorted(rows, key=lambda row: row[4])
    columns = np.array(rows, np.int64).T
    file, op, offset, nbytes, start, took = columns
    part = Part(
        0, POSIX, start + 1000, start + took + 1000, offset, nbytes,
        np.zeros(len(rows), np.int32), file.astype(np.int32) * 5, op.astype(np.uint8),
    )  # fmt: skip
    cuts = np.linspace(0, len(rows), pieces + 1).astype(int).tolist()
    parts = [part.rows(slice(a, b)) for a, b in pairwise(cuts) if b > a]
    found = FileCounters.of(parts, 1000)
    assert found.codes.tolist() == sorted({5 * row[0] for row in rows})
    for slot, code in enumerate(found.codes.tolist()):
        mine = [(o, at, n, s, s + d) for f, o, at, n, s, d in rows if 5 * f == code]
        expected = plain_counters(mine)
        for word in ("READ", "WRITE"):
            for i, size in enumerate(
                n.removeprefix(f"SIZE_{word}_")
                for n in NAMES["POSIX"].plain
                if n.startswith(f"SIZE_{word}_")
            ):
                expected[f"SIZE_{word}_{size}"] = expected.pop(f"{word} class {i}", 0)
        for name, values in found.counters.items():
            assert values[slot] == expected[name], name
        for name, values in found.seconds.items():
            expected_s = expected[name] if np.isfinite(expected[name]) else 0
            assert values[slot] == pytest.approx(expected_s, abs=1e-15), name
        told = {n for n, v in expected.items() if v}
        assert told <= {*found.counters, *found.seconds}


def test_what_plain_loops_find_is_in_the_log(tmp_path):
    ios = [Io(i * 10, i * 10 + 5, (i * 7) % 50, 1 + i % 3, 1 + i % 2, (i // 5) % 2)
           for i in range(100)]  # fmt: skip
    table = back(run_of(darshan_log(ios)), tmp_path).trace.counters[POSIX]
    for row, file in enumerate(table.file.tolist()):
        mine = [(i.op, i.offset, i.nbytes, i.start, i.end) for i in ios if i.file == file + 1]
        expected = plain_counters(sorted(mine, key=lambda each: each[3]))
        for name in ("READS", "SEQ_READS", "CONSEC_WRITES", "RW_SWITCHES", "ACCESS1_ACCESS",
                     "ACCESS1_COUNT", "STRIDE2_STRIDE", "MAX_BYTE_WRITTEN"):  # fmt: skip
            assert table.counters[f"POSIX_{name}"][row] == expected[name], name
        for name in ("OPENS", "STATS", "MEM_ALIGNMENT"):
            assert table.counters[f"POSIX_{name}"][row] == -1, name


def test_layers_and_processes_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(darshan_export, "_MOST_ROWS", 16)
    ios = [Io(i * 10, i * 10 + 5, i, i % 97, 1 + i % 3, i % 2) for i in range(100)]
    logs = []
    for pid in (100, 200):
        table = replace(operation_table(ios), thread=np.arange(100, dtype=np.uint64) % 4 + 7)
        tables = (table, operation_table(ios[:40], MPIIO), operation_table(ios[:30], STDIO))
        logs.append(replace(darshan_log(ios, pid=pid), operations=tables))
    run = run_of(*logs, max_part_rows=60)
    again = back(run, tmp_path)
    for layer in (POSIX, MPIIO):
        assert operations(again.trace, layer) == operations(run.trace, layer)
    table = again.trace.counters[STDIO]
    assert table.total("STDIO_READS") == table.total("STDIO_WRITES") == 30
    table = again.trace.counters[MPIIO]
    assert (table.total("MPIIO_INDEP_READS"), table.total("MPIIO_SIZE_READ_AGG_0_100")) == (40, 40)


def test_places_that_were_not_recorded_stay_unknown(tmp_path):
    ios = [Io(0, 5, -1, 10, 1), Io(10, 15, 10, 10, 1), Io(0, 5, 0, 10, 2)]
    run = run_of(darshan_log(ios))
    again = back(run, tmp_path)
    assert operations(again.trace) == operations(run.trace)
    table = again.trace.counters[POSIX]
    assert table.counters["POSIX_SEQ_READS"].tolist() == [-1, 0]
    assert table.counters["POSIX_ACCESS1_ACCESS"].tolist() == [10, 10]


def counted(**values: list[int]) -> CounterFile:
    counters = {f"POSIX_{name}": np.array(column, np.int64) for name, column in values.items()}
    rank, file = counters.pop("POSIX_rank"), counters.pop("POSIX_file").astype(np.uint64)
    seconds = {"POSIX_F_META_TIME": np.full(len(file), 0.25),
               "POSIX_F_OPEN_START_TIMESTAMP": np.full(len(file), 0.5)}  # fmt: skip
    return CounterFile((CounterRecords(POSIX, file, rank, counters, seconds),))


def test_what_the_tracer_counted_is_written_as_it_is(tmp_path):
    ios = [Io(i * 10, i * 10 + 5, i * 10, 10, file) for i in range(4) for file in (1, 2)]
    log = darshan_log(ios)
    # Of file 1 everything was traced, of file 2 four of nine reads, of file 3 nothing.
    kept = counted(rank=[0, 0, 0], file=[1, 2, 3], OPENS=[1, 2, 3], READS=[4, 9, 5],
                   WRITES=[0, 0, 0], BYTES_READ=[40, 90, 50])  # fmt: skip
    log = replace(log, names={i: f"/data/part-{i}.h5" for i in (1, 2, 3)})
    run = run_of(log, counters={log.path: kept})
    table = back(run, tmp_path).trace.counters[POSIX]
    assert table.counters["POSIX_OPENS"].tolist() == [1, 2, 3]
    assert table.counters["POSIX_READS"].tolist() == [4, 9, 5]
    assert table.counters["POSIX_BYTES_READ"].tolist() == [40, 90, 50]
    assert table.counters["POSIX_SEQ_READS"].tolist() == [3, -1, -1]
    assert table.seconds["POSIX_F_META_TIME"].tolist() == [0.25] * 3
    assert table.seconds["POSIX_F_OPEN_START_TIMESTAMP"].tolist() == [0.5] * 3


def test_recorded_calls_become_a_log_with_equal_totals(tmp_path):
    darshan = pytest.importorskip("darshan", reason="needs PyDarshan")
    rows = [
        Call(
            call, 1000 * i, 400, 7 * i, 0 if call in (OPEN, STAT, FSYNC, CLOSE) else 100, 1 + i % 3
        )
        for i, call in enumerate((OPEN, STAT, PREAD, PREAD, WRITE_CALL, FSYNC, FREAD, CLOSE) * 50)
    ]
    names = {1: b"/data/a.h5", 2: b"/data/b.h5", 3: b"/out/c.pt"}
    counted = (Counted(1, reads=7, bytes_read=700, read_ns=5000, read_sizes=(7, *[0] * 9)),)
    files = (
        Calls({10: rows, 11: rows[:80]}, names, counted),
        Calls({12: rows[:40]}, names, pid=4712, parent_pid=4711, how=1),
    )
    (tmp_path / "run").mkdir()
    for calls in files:
        (tmp_path / "run" / calls.name).write_bytes(calls_file(calls))
    run = vanidl.open_run(tmp_path / "run")
    again = back(run, tmp_path)
    assert operations(again.trace) == operations(run.trace)
    report = darshan.DarshanReport(str(tmp_path / "out.darshan"), read_all=True)
    traced = sum(len(part) for part in run.trace.io if part.layer == POSIX)
    segments = [r[kind] for r in report.records["DXT_POSIX"] for kind in SEGMENTS]
    assert sum(map(len, segments)) == traced
    for layer in (POSIX, STDIO):
        frames, table = report.records[layer].to_df(), run.trace.counters[layer]
        for name in ("OPENS", "READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN"):
            assert frames["counters"][f"{layer}_{name}"].sum() == table.total(f"{layer}_{name}")
        spent = {word: table.total_s(f"{layer}_F_{word}_TIME") for word in SPENT}
        for word, seconds in spent.items():
            found = frames["fcounters"][f"{layer}_F_{word}_TIME"].sum()
            assert found == pytest.approx(seconds), word
    posix = report.records[POSIX].to_df()["counters"]
    by_name = posix.groupby("id")["POSIX_STATS"].sum()
    assert int(by_name.sum()) == sum(row.call == STAT for row in [*rows, *rows[:80], *rows[:40]])
    # Of the file with reads that have no slot nothing is told of their order.
    lost = posix[(posix["POSIX_READS"] > 7) & (posix["POSIX_SEQ_READS"] == -1)]
    assert [report.name_records[i] for i in lost["id"]] == ["/data/a.h5"]


SPENT = ("READ", "WRITE", "META")


def test_a_record_of_all_ranks_stands_for_the_file(tmp_path):
    ios = [Io(i * 10, i * 10 + 5, i * 10, 10, 1, 0, i % 2) for i in range(6)]
    log = darshan_log(ios, nprocs=2, pid=None)
    kept = counted(rank=[-1], file=[1], OPENS=[2], READS=[6], WRITES=[0], BYTES_READ=[60])
    run = run_of(log, counters={log.path: kept})
    again = back(run, tmp_path)
    table = again.trace.counters[POSIX]
    assert (table.process.tolist(), table.counters["POSIX_READS"].tolist()) == ([-1], [6])
    assert operations(again.trace) == operations(run.trace)


def test_filters_apply(tmp_path):
    run = vanidl.open_run(DATA / RUNS[0])
    chosen = run.select(Selection(only="dataset", to_s=12))
    again = back(chosen, tmp_path)
    assert again.summary.ops == chosen.summary.ops
    assert again.summary.bytes_read == chosen.summary.bytes_read
    assert {*again.trace.files.path} <= {f.path for f in run.files.rows if f.kind == "dataset"}


def test_names_and_commands_do_no_harm(tmp_path):
    darshan = pytest.importorskip("darshan", reason="needs PyDarshan")
    command = "python train.py --token abcdefgh\nroot:x " + "long " * 2000
    names = {1: "/data/raw\udcff,\n$x^2$日.h5", 2: "/a b/\x00c" + "d" * 5000}
    log = darshan_log([Io(0, 5, 0, 10, 1), Io(0, 5, 0, 10, 2)], command=command, names=names)
    log = replace(log, mounts=(("/a b", "ext4"), ("/data", "lustre")))
    again = back(run_of(log), tmp_path)
    assert "abcdefgh" not in again.trace.job.command
    assert again.trace.job.command.startswith("python train.py --token")
    assert "/data/raw\\udcff,\\n$x^2$日.h5" in again.trace.files.path
    report = darshan.DarshanReport(str(tmp_path / "out.darshan"), read_all=True)
    assert sorted(map(len, report.name_records.values()))[-1] <= 4096
    assert ["/data", "lustre"] in [list(mount) for mount in report.mounts]


def test_a_run_without_mounts_has_its_command(tmp_path):
    darshan = pytest.importorskip("darshan", reason="needs PyDarshan")
    export(run_of(replace(darshan_log([Io(0, 5, 0, 10)]), mounts=())), "darshan",
           tmp_path / "out.darshan")  # fmt: skip
    assert darshan.DarshanReport(str(tmp_path / "out.darshan")).metadata["exe"] == "python train.py"


def test_operations_before_the_job_keep_their_distance(tmp_path):
    log = darshan_log([Io(-100, -50, 0, 10), Io(50, 60, 10, 10)])
    again = back(run_of(log), tmp_path)
    assert again.trace.job.start_ns == JOB_START_NS - 100
    assert sum(operations(again.trace)["/data/part-1.h5"].values()) == 2


def test_incomplete_logs_are_flagged(tmp_path):
    log = darshan_log([Io(0, 5, 0, 10)])
    flagged = back(run_of(replace(log, partial_layers=("DXT_POSIX",))), tmp_path)
    assert flagged.trace.logs[0].partial_layers == ("DXT_POSIX",)
    flagged = back(run_of(replace(log, whole=False, losses=("one",))), tmp_path)
    assert flagged.trace.logs[0].partial_layers == ("POSIX", "DXT_POSIX")


def test_a_run_without_such_layers_is_refused(tmp_path):
    table = operation_table([Io(0, 5, 0, 10)], OBJECT)
    run = run_of(replace(darshan_log([Io(0, 5, 0, 10)]), operations=(table,), beside=True))
    with pytest.raises(UsageError, match="POSIX, MPI-IO, STDIO, found OBJECT"):
        export(run, "darshan", tmp_path / "out.darshan")
    assert list(tmp_path.iterdir()) == []
