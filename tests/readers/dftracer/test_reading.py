from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vanidl
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace, compressed
from vanidl.errors import InputError
from vanidl.model.trace import POSIX, STDIO, WRITE, SpanKind
from vanidl.readers.dftracer import reading as dftracer_run
from vanidl.readers.dftracer import trace_file
from vanidl.readers.dftracer.reading import DftracerRun
from vanidl.readers.dftracer.trace_file import read_trace_file
from vanidl.readers.records import OperationTable, TracerLog
from vanidl.record import dftracer
from vanidl.record.recorder import ENDED


class Call(NamedTuple):
    name: str
    path: str
    at: int
    duration: int
    ret: int


READERS = {"read": POSIX, "pread64": POSIX, "fread": STDIO}
WRITERS = {"write": POSIX, "pwrite": POSIX, "fwrite": STDIO}
ITEM_BYTES = 8

calls = st.lists(
    st.builds(
        Call,
        st.sampled_from([*READERS, *WRITERS]),
        st.sampled_from(["/data/a.bin", "/data/b.bin", "c.bin"]),
        st.integers(1, 10_000),
        st.integers(0, 500),
        st.integers(-1, 5000),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda call: (call.name, call.path, call.at, call.duration, call.ret),
)


def trace_of(made: list[Call], **options: object) -> PfwTrace:
    trace = PfwTrace(**options)  # type: ignore[arg-type]
    for call in made:
        size = {"size": ITEM_BYTES} if call.name.startswith("f") else {}
        trace.io(call.name, call.path, call.at, call.duration, ret=call.ret, count=9999, **size)
    trace.end(20_000)
    return trace


def combined(*paths: Path) -> DftracerRun:
    return dftracer_run.combine_files([read_trace_file(path) for path in paths])


def table(log: TracerLog, layer: str) -> OperationTable | None:
    return next((t for t in log.operations if t.layer == layer), None)


def moved(call: Call) -> int:
    return call.ret * (ITEM_BYTES if call.name.startswith("f") else 1)


@given(calls, st.sampled_from(["today", "letters"]), st.integers(1, 5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_operations_and_totals_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[Call],
    dialect: str,
    members: int,
    packed: bool,
) -> None:
    name = "trace-00-preload.pfw" + (".gz" if packed else "")
    path = trace_of(made, dialect=dialect).write(tmp_path_factory.mktemp("t") / name, members)
    run = combined(path)
    (log,) = run.logs
    assert log.whole
    for layer in (POSIX, STDIO):
        sound = [c for c in made if {**READERS, **WRITERS}[c.name] == layer and c.ret >= 0]
        found = table(log, layer)
        assert (0 if found is None else len(found.nbytes)) == len(sound)
        if found is None:
            continue
        whole = {(c.at, c.duration, moved(c), int(c.name in WRITERS)) for c in sound}
        start_us = (found.start_ns + log.start_ns) // 1000 - EPOCH_US
        rows = zip(start_us.tolist(), ((found.end_ns - found.start_ns) // 1000).tolist(),
                   found.nbytes.tolist(), found.op.tolist(), strict=True)  # fmt: skip
        assert set(rows) == whole
        records = next(r for r in run.counters[log.path] if r.layer == layer)
        for i, file in enumerate(records.file.tolist()):
            of_file = [c for c in sound if log.names[file].endswith(c.path)]
            reads = [c for c in of_file if c.name in READERS]
            assert records.counters[f"{layer}_READS"][i] == len(reads)
            assert records.counters[f"{layer}_WRITES"][i] == len(of_file) - len(reads)
            assert records.counters[f"{layer}_BYTES_READ"][i] == sum(map(moved, reads))
            spent = records.seconds[f"{layer}_F_READ_TIME"][i]
            assert spent == pytest.approx(sum(c.duration for c in reads) / 1e6)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_file_gives_a_beginning_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    made = [Call("pread", "/data/a.bin", at, 1, at) for at in range(1, 200)]
    text = trace_of(made).text()
    whole = compressed(text, 3) if data.draw(st.booleans()) else text
    cut = data.draw(st.integers(1, len(whole) - 1))
    suffix = ".pfw.gz" if whole[:2] == b"\x1f\x8b" else ".pfw"
    path = tmp_path_factory.mktemp("cut") / f"trace{suffix}"
    path.write_bytes(whole[:cut])
    try:
        run = combined(path)
    except InputError:  # not one whole line
        return
    if not run.logs:
        return
    (log,) = run.logs
    found = table(log, POSIX)
    sizes = [] if found is None else found.nbytes.tolist()
    assert sizes == list(range(1, len(sizes) + 1))
    assert not log.whole or len(sizes) == len(made)


def test_what_is_kept_of_a_cut_member_is_all_before_it(tmp_path: Path) -> None:
    made = [Call("pread", "/data/a.bin", at, 1, 10) for at in range(1, 1000)]
    text = trace_of(made).text()
    first, rest = text[: len(text) // 2], text[len(text) // 2 :]
    packed = compressed(first, 1)
    path = tmp_path / "trace.pfw.gz"
    path.write_bytes(packed + compressed(rest, 1)[:-200])
    (log,) = combined(path).logs
    found = table(log, POSIX)
    assert found is not None
    assert len(found.nbytes) >= first.count(b'"pread"') - 1
    assert "the gzip data is cut" in log.losses[0]
    assert any("no end" in loss for loss in log.losses)


def test_a_cut_last_line_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.pfw"
    path.write_bytes(trace_of([Call("pread", "/a", 1, 1, 5)]).text()[:-30])
    (log,) = combined(path).logs
    assert "the last line is cut" in log.losses
    assert not log.whole


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    trace = trace_of([Call("pread", "/a", 1, 1, 5)])
    trace.lines.insert(-1, '{"name":"read","cat":')
    trace.lines.insert(-1, '{"name":"read","cat":"POSIX","pid":null,"tid":1,"ts":1,"dur":1,"ph":1}')
    (log,) = combined(trace.write(tmp_path / "trace.pfw")).logs
    assert any(loss.endswith("no sound event: 2") for loss in log.losses)
    found = table(log, POSIX)
    assert found is not None
    assert found.nbytes.tolist() == [5]


def test_empty_files_are_said_and_give_no_process(tmp_path: Path) -> None:
    empty = tmp_path / "trace-0-fork.pfw.gz"
    empty.touch()
    run = combined(empty, trace_of([Call("pread", "/a", 1, 1, 5)]).write(tmp_path / "t-1.pfw"))
    assert len(run.logs) == 1
    assert "1 of 2 DFTracer files are empty" in run.notices[0].message
    assert combined(empty).logs == ()


def test_a_foreign_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.pfw"
    path.write_text("nothing\nof the kind\n")
    with pytest.raises(InputError, match="expected a DFTracer trace"):
        read_trace_file(path)


def test_a_child_uses_names_that_only_its_parent_defines(tmp_path: Path) -> None:
    parent = PfwTrace(100)
    known = parent.define("/data/train.h5")
    parent.end(50)
    child = PfwTrace(101, 100)
    child.event("pread", "POSIX", 5, 2, fhash=known, ret=77, count=77, offset=0)
    child.end(40)
    run = combined(
        parent.write(tmp_path / "a-preload.pfw.gz"), child.write(tmp_path / "b-fork.pfw.gz")
    )
    of_pid = {log.pid: log for log in run.logs}
    assert list(of_pid[101].names.values()) == ["/data/train.h5"]
    assert of_pid[101].parent_pid == 100
    assert {log.job_id for log in run.logs} == {"100"}


@pytest.mark.parametrize(("metric", "tick_ns"), [("US", 1000), ("NS", 1), ("MS", 1_000_000)])
def test_unit_of_time_is_that_of_the_file(tmp_path: Path, metric: str, tick_ns: int) -> None:
    base = 1_700_000_000 * 1_000_000_000 // tick_ns
    trace = PfwTrace(metric=metric, base=base)
    trace.io("pread", "/a", 3000, 7, ret=1)
    (log,) = combined(trace.write(tmp_path / "t.pfw")).logs
    found = table(log, POSIX)
    assert found is not None
    assert log.start_ns == base * tick_ns
    assert found.start_ns.tolist() == [3000 * tick_ns]
    assert (found.end_ns - found.start_ns).tolist() == [7 * tick_ns]


def test_offsets_of_read_and_write_are_unknown(tmp_path: Path) -> None:
    trace = PfwTrace()
    trace.io("pread", "/a", 1, 1, ret=4, offset=4096)
    trace.io("read", "/a", 2, 1, ret=4)
    run = combined(trace.write(tmp_path / "t.pfw"))
    found = table(run.logs[0], POSIX)
    assert found is not None
    assert found.offset.tolist() == [4096, -1]
    (notice,) = [n for n in run.notices if n.code == "offsets_not_recorded"]
    assert "1 of 2" in notice.message


def test_relative_names_count_from_the_folder_the_process_is_in(tmp_path: Path) -> None:
    trace = PfwTrace(folder="/job/run")
    trace.io("pread", "../data/a.bin", 1, 1, ret=1)
    trace.io("chdir", "sub", 5, 1, ret=0)
    trace.io("pread", "a.bin", 10, 1, ret=1)
    trace.io("chdir", "nowhere", 12, 1, ret=-1)
    trace.io("pread", "./b.bin", 15, 1, ret=1)
    trace.io("pread", "/data/c.bin", 16, 1, ret=1)
    (log,) = combined(trace.write(tmp_path / "t.pfw")).logs
    found = table(log, POSIX)
    assert found is not None
    assert [log.names[f] for f in found.record_file.tolist()] == [
        "/job/data/a.bin", "/job/run/sub/a.bin", "/job/run/sub/b.bin", "/data/c.bin",
    ]  # fmt: skip


def test_waiting_for_a_child_is_no_work_on_files(tmp_path: Path) -> None:
    trace = PfwTrace(100, dialect="typed")
    trace.io("open64", "/d/x", 10, 5, flags=0, ret=3)
    trace.event("waitpid", "POSIX", 100, 900, ret=101)
    trace.end(2000)
    trace.write(tmp_path / "t.pfw")
    run = vanidl.open_run(tmp_path)
    (calls,) = run.trace.metadata_calls.values()
    assert calls.length == 5_000


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_syncs_are_writing_and_no_metadata(tmp_path: Path, call: str) -> None:
    """As in Darshan's counters; one by one they are a part of storage of their own."""
    trace = PfwTrace(100, dialect="typed")
    trace.io("open64", "/d/x", 10, 5, flags=1, ret=3)
    trace.io("write", "/d/x", 20, 30, ret=4096)
    trace.io(call, "/d/x", 100, 900, ret=0)
    trace.io("close", "/d/x", 1100, 7, ret=0)
    trace.end(2000)
    trace.write(tmp_path / "t.pfw")
    run = vanidl.open_run(tmp_path)
    (metadata,), (calls,) = run.trace.metadata_calls.values(), run.trace.calls.values()
    assert metadata.length == 12_000
    assert {kind: each.length for kind, each in calls.items()} == {"sync": 900_000}
    table = run.trace.counters[POSIX]
    spent = [table.total_s(f"POSIX_F_{what}_TIME") for what in ("WRITE", "META")]
    assert spent == pytest.approx([930e-6, 12e-6])
    assert table.total("POSIX_FSYNCS") == 1
    cells = {part: run.breakdown.cell(f"mean/run/storage.{part}") for part in ("sync", "metadata")}
    assert cells["sync"].low_ns <= 900_000 <= cells["sync"].high_ns
    assert cells["metadata"].high_ns <= 12_000


def test_a_process_that_became_another_program_is_one(tmp_path: Path) -> None:
    shell = PfwTrace(100, command="bash run.sh")
    shell.io("read", "/job/run.sh", 1, 1, ret=10)
    python = PfwTrace(100, command="python train.py", base=EPOCH_US + 1000)
    python.io("read", "/data/a", 1, 1, ret=20)
    python.end(5)
    run = combined(shell.write(tmp_path / "b.pfw"), python.write(tmp_path / "a.pfw"))
    (log,) = run.logs
    assert log.command == "python train.py"
    assert log.whole
    found = table(log, POSIX)
    assert found is not None
    assert sorted(found.nbytes.tolist()) == [10, 20]
    assert len(found.record_file) == 2


def test_a_process_that_goes_on_in_another_file_is_one(tmp_path: Path) -> None:
    first = PfwTrace(100)
    first.io("read", "/data/a", 1, 1, ret=10)
    second = PfwTrace(100)
    second.lines.clear()  # it introduces itself in the first file only
    second.io("read", "/data/b", 9, 1, ret=20)
    second.end(12)
    files = (first.write(tmp_path / "preload.pfw"), second.write(tmp_path / "app.pfw"))
    (log,) = combined(*files).logs
    assert (log.host, log.command, log.whole) == ("node01", "python train.py", True)
    assert set(dftracer.list_logged(tmp_path).items()) == {(100, ENDED)}


def test_processes_of_a_tree_work_for_the_program_above_them(tmp_path: Path) -> None:
    tree = [
        (1, 0, "bash run.sh", "preload"),
        (2, 1, "python train.py", "preload"),
        (3, 2, "python train.py", "fork"),
        (4, 2, "sh -c ldconfig", "preload"),
        (5, 4, "ldconfig -p", "preload"),
        (6, 1, "python other.py", "preload"),
        (7, 99, "python train.py", "fork"),
    ]
    paths = []
    for pid, parent, command, kind in tree:
        trace = PfwTrace(pid, parent, command=command)
        trace.end(100)
        paths.append(trace.write(tmp_path / f"t{pid}-{kind}.pfw"))
    parents = {log.pid: log.parent_pid for log in combined(*paths).logs}
    assert parents == {1: None, 2: None, 3: 2, 4: 2, 5: 2, 6: None, 7: 99}


def test_a_trace_without_arguments_says_that_it_lacks_them(tmp_path: Path) -> None:
    trace = PfwTrace()
    event = {"name": "read", "cat": "POSIX", "pid": 100, "tid": 100, "ts": EPOCH_US, "dur": 1,
             "ph": 1}  # fmt: skip
    trace.lines += [json.dumps(event)] * 3
    trace.end(9)
    run = combined(trace.write(tmp_path / "t.pfw"))
    assert run.logs[0].operations == ()
    assert "DFTRACER_INC_METADATA=1" in run.logs[0].losses[0]


def test_the_oldest_dialect_names_files_and_hosts_in_place(tmp_path: Path) -> None:
    event = {"id": "0", "name": "write", "cat": "POSIX", "pid": "7", "tid": "8",
             "ts": str(EPOCH_US), "dur": "9", "ph": "X",
             "args": {"hostname": "n1", "fname": "/p/out.bat", "ret": "3276800"}}  # fmt: skip
    path = tmp_path / "t.pfw"
    path.write_text(f"[\n {json.dumps(event)}\n")
    (log,) = combined(path).logs
    found = table(log, POSIX)
    assert found is not None
    assert (log.host, log.pid, log.names[int(found.record_file[0])]) == ("n1", 7, "/p/out.bat")
    assert (found.nbytes.tolist(), found.op.tolist()) == ([3276800], [WRITE])


def dlio(trace: PfwTrace, fetch: str, block: str, epoch: tuple[str, str], compute: str) -> None:
    """Two epochs of two steps: 10 us fetch, 30 us block with 20 us of compute in it."""
    category = "ai_framework" if "." in compute else "compute"
    for k in range(2):
        at = 100 + 100 * k
        for step in range(2):
            trace.event(fetch, "dataloader", at + 40 * step, 10, step=step + 1)
            trace.event(compute, category, at + 40 * step + 15, 20)
            trace.event(block, "dataloader", at + 40 * step + 10, 30, step=step + 1)
        trace.event(epoch[1], epoch[0], at, 80, epoch=str(k + 1))
    trace.end(1000)


@pytest.mark.parametrize(
    ("fetch", "block", "epoch", "compute"),
    [
        ("fetch.iter", "fetch.block", ("pipeline", "epoch.block"), "compute"),
        ("loop.iter", "loop.yield", ("dlio_benchmark", "DLIOBenchmark._train"),
         "TorchFramework.compute"),
    ],
)  # fmt: skip
def test_marks_of_a_program_become_steps_waits_compute_and_epochs(
    tmp_path: Path, fetch: str, block: str, epoch: tuple[str, str], compute: str
) -> None:
    trace = PfwTrace()
    dlio(trace, fetch, block, epoch, compute)
    (profile,) = combined(trace.write(tmp_path / "t.pfw")).profiles
    base = EPOCH_US * 1000

    def spans(kind: SpanKind) -> list[tuple[int, int, int]]:
        rows = profile.kind == kind
        times = (profile.start_ns[rows] - base) // 1000, (profile.end_ns[rows] - base) // 1000
        return list(zip(*(t.tolist() for t in times), profile.step[rows].tolist(), strict=True))

    starts = [100, 140, 200, 240]
    assert spans(SpanKind.STEP) == [(s, s + 40, i) for i, s in enumerate(starts)]
    assert spans(SpanKind.INPUT_WAIT) == [(s, s + 10, -1) for s in starts]
    assert spans(SpanKind.OP) == [(s + 15, s + 35, -1) for s in starts]
    assert spans(SpanKind.EPOCH) == [(100, 180, 1), (200, 280, 2)]
    assert (np.diff(profile.start_ns) >= 0).all()


def test_ranks_in_the_names_that_dlio_gives_are_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        trace = PfwTrace(500 + rank, 9, command="dlio_benchmark")
        trace.io("pread", f"/data/{rank}.h5", 110, 5, ret=1000, offset=0)
        dlio(trace, "fetch.iter", "fetch.block", ("pipeline", "epoch.block"), "compute")
        trace.write(tmp_path / f"trace-{rank}-of-3.pfw")
    run = vanidl.open_run(tmp_path)
    assert [p.rank for p in run.trace.processes] == [0, 1, 2]
    assert run.overlap is not None
    assert run.overlap.basis == "ops"
    assert run.summary.storage_bytes_read == 3000


def test_a_run_of_both_layers_adds_them_and_claims_no_more(tmp_path: Path) -> None:
    trace = PfwTrace()
    trace.io("pread", "/data/a.bin", 10, 5, ret=1000, offset=0)
    trace.io("fopen64", "/data/b.bin", 20, 5, mode="rb")
    trace.io("fread", "/data/b.bin", 30, 5, ret=3, size=100, count=100)
    trace.io("fopen64", "/data/model.pt", 40, 5, mode="wb")
    trace.end(100)
    trace.write(tmp_path / "t.pfw")
    run = vanidl.open_run(tmp_path)
    assert run.summary.storage_bytes_read == 1300
    assert run.summary.bytes_read == 1000
    stdio = run.select(vanidl.Selection(layer=STDIO)).summary
    assert (stdio.source, stdio.bytes_read, stdio.reads) == ("trace", 300, 1)
    by_layer = {c.layer: c for c in run.coverage.layers}
    assert by_layer[POSIX].traced_ops == 1
    assert by_layer[POSIX].counted_ops is None
    codes = {w.code for w in run.coverage.warnings}
    assert {"not_traced", "writes_not_seen"} <= codes
    assert "stdio_untraced" not in codes
    assert run.trace.processes[0].clock_uncertainty_ns == 1000


def test_a_killed_process_makes_the_coverage_incomplete(tmp_path: Path) -> None:
    trace = PfwTrace()
    trace.io("pread", "/data/a.bin", 10, 5, ret=1000, offset=0)
    trace.write(tmp_path / "t.pfw")
    coverage = vanidl.open_run(tmp_path).coverage
    assert not coverage.complete
    assert any(w.code == "damaged" and "has no end" in w.message for w in coverage.warnings)


def test_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    paths = []
    for pid in (1, 2, 3):
        made = [Call("pread", f"/d/{pid % 2}", at, 1, at) for at in range(5)]
        paths.append(trace_of(made, pid=pid).write(tmp_path / f"t{pid}.pfw"))
    files = [read_trace_file(path) for path in paths]
    first, second = dftracer_run.combine_files(files), dftracer_run.combine_files(files[::-1])
    assert [log.names for log in first.logs] == [log.names for log in second.logs]
    for a, b in zip(first.logs, second.logs, strict=True):
        for one, other in zip(a.operations, b.operations, strict=True):
            assert one.nbytes.tobytes() == other.nbytes.tobytes()


def test_a_line_without_an_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_MOST_CHUNKS", 4)
    trace = PfwTrace()
    trace.io("read", "/data/a.bin", 10, 5, ret=10, offset=0)
    before = trace.text()
    path = tmp_path / "x.pfw"
    path.write_bytes(before + b'{"name": "' + b"x" * 4_000_000 + b'"}\n' + before)
    read = trace_file.read_trace_file(path)
    assert len(read.events) == 2
    assert read.losses == ("lines left out as they are no sound event: 1",)
    path.write_bytes(before + b"x" * 4_000_000)
    assert trace_file.read_trace_file(path).losses == ("the last line is cut",)


def test_marked_compute_on_no_known_clock_gives_steps_without_a_place(tmp_path):
    """Compute without steps, of a trace whose times are of 1970: its lengths are known, no more."""
    trace = PfwTrace(100, metric="NS")
    trace.event("forward", "compute", 10, 50)
    trace.io("pread", "/data/a.bin", 90, 5, ret=100, offset=0)
    trace.end(1000)
    trace.write(tmp_path / "x.pfw")
    run = vanidl.open_run(tmp_path)
    assert run.steps is not None
    assert (run.steps.per_rank_max, run.steps.mean_s) == (1, pytest.approx(5e-8))
    assert run.overlap is None


def computing(folder: Path, repeats: int = 1) -> vanidl.Run:
    """Three computes of 40 ms in an epoch, reads of 30 ms before and 20 ms under each."""
    trace = PfwTrace(100)
    first = trace.events
    for _ in range(repeats):
        trace.events = first  # a repeat has the number of the event that it repeats
        trace.event("DLIOBenchmark._train", "dlio_benchmark", 1000, 300_000)
        for at in (50_000, 150_000, 250_000):
            trace.event("TorchFramework.compute", "ai_framework", at, 40_000)
    for at in (50_000, 150_000, 250_000):
        trace.io("read", "/data/a.bin", at - 30_000, 50_000, ret=4096)
    trace.end(400_000)
    trace.write(folder / "x.pfw")
    return vanidl.open_run(folder)


@pytest.mark.parametrize("repeats", [1, 21])
def test_compute_without_marked_steps_has_its_overlap(tmp_path, repeats):
    """Workers of old releases repeat what their parent had not yet written: it counts once."""
    run = computing(tmp_path, repeats)
    assert run.steps is not None
    assert run.overlap is not None
    assert run.steps.steps_from == "compute"
    assert run.steps.per_rank_max == 3
    assert np.allclose(run.steps.table.end_s - run.steps.table.start_s, [0.089, 0.1, 0.1])
    (rank,) = run.overlap.per_rank
    assert rank.hidden_s == pytest.approx(3 * 0.02)
    assert rank.exposed_s == pytest.approx(3 * 0.03)
    assert rank.input_wait_s is None
    assert rank.compute_s == pytest.approx(3 * 0.04)


def test_a_run_whose_operations_are_all_impossible_is_summed_up(tmp_path: Path) -> None:
    """It has no length: nobody asked for a window, so none is refused."""
    trace = PfwTrace()
    for at in range(3):
        trace.io("read", "/a", at, 0, ret=1 << 61)
    run = vanidl.open_run(trace.write(tmp_path / "t.pfw"))
    assert not run.summary.ops
    said = " ".join(warning.message for warning in run.coverage.warnings)
    assert "3 of 3 operations left out" in said
