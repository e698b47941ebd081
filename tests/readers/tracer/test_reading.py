"""What a run says that the tracer recorded: layers, totals, kinds of calls, families, losses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.makers import calls_files as maker
from tests.makers.calls_files import Call, Calls, Counted, calls_file, read_loop
from tests.makers.step_journals import journal_bytes
from vanidl.cli import main
from vanidl.merge.pipeline import Inputs, read_trace
from vanidl.model.call_kinds import METADATA_KINDS, SYNC
from vanidl.model.trace import FILES_NOT_RECORDED, POSIX, READ, STDIO, WRITE, Trace
from vanidl.readers.run_folder import UNFINISHED, ProcessRecord, RunRecord, write_record
from vanidl.readers.tracer import reading as tracer_log
from vanidl.record import tracer as tracer_record

MS = 1_000_000
PROGRAM = [
    Call(maker.OPEN, 0 * MS, 1 * MS, 0, 3, 1),
    Call(maker.READ, 2 * MS, 2 * MS, 0, 4096, 1, 4096),
    Call(maker.READ, 4 * MS, 1 * MS, 4096, 100, 1, 4096),
    Call(maker.READ, 6 * MS, 1 * MS, 4196, 0, 1, 4096),  # the end of the file
    Call(maker.READ, 7 * MS, 1 * MS, 4196, -5, 1, 4096),  # an error
    Call(maker.CLOSE, 9 * MS, 1 * MS, 0, 0, 1),
    Call(maker.STAT, 10 * MS, 3 * MS, 0, -2, 2),
    Call(maker.STAT, 14 * MS, 3 * MS, 0, 0, 1),
    Call(maker.FOPEN, 20 * MS, 1 * MS, 0, 3, 3),
    Call(maker.FREAD, 21 * MS, 1 * MS, 0, 800, 3, 800),
    Call(maker.FWRITE, 22 * MS, 2 * MS, 0, 5000, 4, 5000),
    Call(maker.WRITE, 25 * MS, 4 * MS, 0, 7, 4, 7),
    Call(maker.FSYNC, 30 * MS, 9 * MS, 0, 0, 4),
    Call(maker.RENAME, 40 * MS, 1 * MS, 2, 0, 4),
    Call(maker.MKDIR, 42 * MS, 1 * MS, 0, 0, 5),
    Call(maker.UNLINK, 44 * MS, 1 * MS, 0, 0, 4),
    Call(maker.LSEEK, 46 * MS, 1 * MS, 0, 0, 1),
    Call(maker.MMAP, 48 * MS, 1 * MS, 0, 8192, 6),
    Call(maker.PREAD, 50 * MS, 1 * MS, 0, 33, 0, 33),  # of a file without a name
]
NAMES = {1: b"/data/a.h5", 2: b"/data/missing", 3: b"/data/b.npy", 4: b"/out/model.pt",
         5: b"/out", 6: b"/data/c.arrow"}  # fmt: skip
CALLS = Calls({4711: PROGRAM}, NAMES)


def trace_of(folder: Path, *files: Calls) -> Trace:
    for file in files:
        (folder / file.name).write_bytes(calls_file(file))
    return read_trace(folder, Inputs())


def test_calls_become_operations_of_two_layers(tmp_path):
    trace = trace_of(tmp_path, CALLS)
    names = trace.files.path
    found = {
        layer: [
            (names[f], op, at, n, s, e)
            for part in trace.io if part.layer == layer
            for f, op, at, n, s, e in zip(part.file, part.op, part.offset, part.nbytes,
                                          part.start - trace.job.start_ns,
                                          part.end - trace.job.start_ns, strict=True)
        ]
        for layer in trace.layers_traced
    }  # fmt: skip
    assert found == {
        POSIX: [
            ("/data/a.h5", READ, 0, 4096, 2 * MS, 4 * MS),
            ("/data/a.h5", READ, 4096, 100, 4 * MS, 5 * MS),
            ("/data/a.h5", READ, 4196, 0, 6 * MS, 7 * MS),
            ("/out/model.pt", WRITE, 0, 7, 25 * MS, 29 * MS),
            (FILES_NOT_RECORDED, READ, 0, 33, 50 * MS, 51 * MS),
        ],
        STDIO: [
            ("/data/b.npy", READ, 0, 800, 21 * MS, 22 * MS),
            ("/out/model.pt", WRITE, 0, 5000, 22 * MS, 24 * MS),
        ],
    }
    assert trace.job.start_ns == maker.START_REALTIME_NS
    assert trace.job.run_time_s == 60


def test_totals_are_those_of_the_calls(tmp_path):
    trace = trace_of(tmp_path, CALLS)
    posix, stdio = trace.counters[POSIX], trace.counters[STDIO]
    expected = {"READS": 4, "WRITES": 1, "OPENS": 1, "CLOSES": 1, "STATS": 1, "SEEKS": 1,
                "FSYNCS": 1, "MMAPS": 1, "BYTES_READ": 4229, "BYTES_WRITTEN": 7}  # fmt: skip
    for name, value in expected.items():
        assert posix.total(f"POSIX_{name}") == value, name
    for name, value in {"READS": 1, "WRITES": 1, "OPENS": 1, "BYTES_READ": 800,
                        "BYTES_WRITTEN": 5000}.items():  # fmt: skip
        assert stdio.total(f"STDIO_{name}") == value, name
    # Time of calls that failed is time of their kind; that of syncs is of writing, too.
    times = {"READ": 0.006, "WRITE": 0.013, "META": 0.013, "SYNC": 0.009}
    for name, value in times.items():
        assert posix.total_s(f"POSIX_F_{name}_TIME") == pytest.approx(value), name
    by_file = dict(zip((trace.files.path[f] for f in posix.file), posix.counters["POSIX_STATS"],
                       strict=True))  # fmt: skip
    assert (by_file["/data/a.h5"], by_file["/data/missing"]) == (1, 0)


def test_kinds_of_calls_are_apart(tmp_path):
    trace = trace_of(tmp_path, CALLS)
    spent_ms = {kind: calls.length // MS for kind, calls in trace.calls[0].items()}
    assert spent_ms == {"open": 2, "close": 1, "stat": 6, "seek": 1, "rename": 1, "mkdir": 1,
                        "remove": 1, "map": 1, "sync": 9}  # fmt: skip
    assert set(spent_ms) - {SYNC} <= set(METADATA_KINDS)
    metadata = trace.metadata_calls[0].length // MS
    assert metadata == sum(spent_ms.values()) - spent_ms["sync"]
    assert int(trace.calls[0]["sync"].start[0]) - trace.job.start_ns == 30 * MS


def test_each_thread_is_a_lane(tmp_path):
    calls = Calls({10: read_loop(50), 11: read_loop(30), 12: read_loop(20)})
    (part,) = trace_of(tmp_path, calls).io
    assert np.bincount(part.thread).tolist() == [50, 30, 20]
    assert (np.diff(part.start) >= 0).all()


def test_calls_without_slots_are_in_totals_and_said(tmp_path, capsys):
    counted = (
        Counted(1, 1, 51 * MS, 59 * MS, reads=1000, opens=3, bytes_read=10**6, read_ns=5 * MS,
                metadata_ns=MS, read_sizes=(0, 1000, *[0] * 8)),
        Counted(9, 2, 52 * MS, 53 * MS, writes=2, bytes_written=50, write_sizes=(2, *[0] * 9)),
    )  # fmt: skip
    cut = replace(CALLS, names={**NAMES, 9: b"/out/log.txt"}, counted=counted,
                  missing_since=51 * MS, missing_reason=1)  # fmt: skip
    trace = trace_of(tmp_path, cut)
    assert trace.counters[POSIX].total("POSIX_READS") == 1004
    assert trace.counters[POSIX].total("POSIX_BYTES_READ") == 10**6 + 4229
    assert trace.counters[POSIX].total("POSIX_SIZE_READ_100_1K") == 1000
    assert trace.counters[POSIX].total("POSIX_OPENS") == 4
    assert trace.counters[STDIO].total("STDIO_BYTES_WRITTEN") == 5050
    (said,) = [w.message for w in trace.warnings if w.code == "calls_summed"]
    assert "1,005 calls of 1 process, from 0.051 s on, are in totals alone" in said
    assert "2,000,000 calls" in said
    assert main(["summary", str(tmp_path), "--json"]) == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert coverage["layers"]["POSIX"]["traced_fraction"] == 5 / 1005
    assert "Darshan" not in json.dumps(coverage)
    lacking = trace_of(tmp_path, replace(cut, missing_reason=2)).warnings
    assert any("no space was left" in w.message for w in lacking)
    (finding,) = (f for f in vanidl.open_run(tmp_path).findings if f.code == "trace_truncated")
    assert "--events" in finding.advice
    assert "DFTRACER" not in finding.advice


def test_a_killed_process_is_said_and_whole(tmp_path):
    trace = trace_of(tmp_path, replace(CALLS, ended=None))
    assert [log.whole for log in trace.logs] == [True]
    assert [w.code for w in trace.warnings] == ["calls_unfinished"]
    assert trace.job.run_time_s == pytest.approx(0.051)


@pytest.mark.parametrize(("ended", "is_one_run"), [(None, True), (60 * MS, False)])
def test_a_killed_training_lived_to_its_last_mark(tmp_path, ended, is_one_run):
    """Its last call may be long ago; one that ended by itself has no marks after its end."""
    marks = " ".join(f"w0:{1000 * k}-{1000 * k + 100} o:{1000 * k + 500}" for k in range(1, 61))
    (tmp_path / "n-4711.steps").write_bytes(
        journal_bytes({"pid": 4711, "host": "node01", "rank": 0}, marks, loaders=1)
    )
    trace = trace_of(tmp_path, replace(CALLS, ended=ended))
    codes = {w.code for w in trace.warnings}
    assert ("clock_unverified" not in codes) == is_one_run
    assert (trace.job.run_time_s == pytest.approx(60.5)) == is_one_run


@pytest.mark.parametrize(("ended", "program_ended"), [(60 * MS, CALLS.ended), (None, None)])
def test_a_training_that_a_script_started_is_on_the_clock_of_its_own_calls(
    tmp_path, ended, program_ended
):
    """The shell's copy that became it left a file under the same number, whose end may be open."""
    marks = " ".join(f"w0:{1000 * k}-{1000 * k + 100} o:{1000 * k + 500}" for k in range(5, 9))
    (tmp_path / "n-4711.steps").write_bytes(
        journal_bytes({"pid": 4711, "host": "node01", "rank": 0}, marks, loaders=1)
    )
    script = replace(CALLS, pid=4710, program=b"/bin/bash")
    copied = replace(CALLS, parent_pid=4710, how=1, ended=ended, program=b"/bin/bash")
    later = {4711: [replace(call, start=call.start + 70 * MS) for call in PROGRAM]}
    program = replace(CALLS, threads=later, start=70 * MS, ended=program_ended)
    trace = trace_of(tmp_path, script, copied, program)
    assert "clock_unverified" not in {w.code for w in trace.warnings}
    assert "processes_unassigned" not in {w.code for w in trace.warnings}
    assert len(trace.ranks) == 1
    assert Path(trace.processes[trace.ranks[0]].log).name == program.name


@pytest.mark.parametrize(("written_every_ms", "is_lost"), [(0, False), (1000, True)])
def test_of_a_killed_process_whose_calls_are_all_there_nothing_is_lost(
    tmp_path, written_every_ms, is_lost
):
    process = ProcessRecord(4711, 1, "python train.py", None, 1, 2, UNFINISHED)
    record = RunRecord("r1", ("python",), "/job", "node01", "vanidl", "0.1.0", {}, 1, 2, 137, 4,
                       (), (process,), ())  # fmt: skip
    write_record(tmp_path / "run.json", record)
    trace = trace_of(tmp_path, replace(CALLS, ended=None, written_every_ms=written_every_ms))
    codes = {w.code for w in trace.warnings}
    assert "calls_unfinished" in codes
    assert ("processes_unfinished" in codes) == is_lost


def test_families_and_commands_are_those_of_the_recorder(tmp_path):
    """Forked workers work for what forked them; run.json has ranks and arguments."""
    main_process = replace(CALLS, pid=100)
    worker = Calls({101: read_loop(9)}, {1: b"/data/w.h5"}, pid=101, parent_pid=100, how=1)
    tool = Calls({102: read_loop(2)}, {1: b"/etc/x"}, pid=102, parent_pid=100, how=0,
                 program=b"/usr/bin/uname")  # fmt: skip
    alone = trace_of(tmp_path, main_process, worker, tool)
    roles = {p.pid: (p.role, p.command) for p in alone.processes}
    assert roles[101] == ("worker", "/usr/bin/python3.11")
    assert roles[102] == ("auxiliary", "/usr/bin/uname")
    processes = tuple(
        ProcessRecord(pid, 100, command, 3 if pid == 100 else None, 1, 2)
        for pid, command in ((100, "python train.py --lr 1"), (101, "python train.py --lr 1"),
                             (102, "uname -p"))
    )  # fmt: skip
    write_record(tmp_path / "run.json", RunRecord(
        "r1", ("python",), "/job", "node01", "vanidl", "0.1.0", {}, 1, 2, 0, 4,
        (("/data", "lustre"), ("/", "ext4")), processes, (),
    ))  # fmt: skip
    named = trace_of(tmp_path, main_process, worker, tool)
    assert {p.pid: p.command for p in named.processes} == {p.pid: p.command for p in processes}
    trainer = named.processes[0]
    assert (trainer.pid, trainer.rank, trainer.role) == (100, 3, "trainer")
    assert named.job.command == "python train.py --lr 1"
    assert dict(zip(named.files.path, named.files.mount, strict=True))["/data/a.h5"] == "/data"


def test_a_call_may_begin_before_its_recording(tmp_path):
    """A forked process begins its file within its first call."""
    calls = Calls(
        {9: [Call(maker.READ, -5000, 9000, 0, 10, 1), Call(maker.READ, 10_000, 1, 10, 5, 1)]}
    )
    trace = trace_of(tmp_path, calls)
    assert trace.job.start_ns == maker.START_REALTIME_NS - 5000
    assert (trace.io[0].start - trace.job.start_ns).tolist() == [0, 15_000]
    assert trace.job.run_time_s == pytest.approx(60.000005)


def test_a_mapped_data_file_that_no_call_read_is_said(tmp_path):
    found = vanidl.open_run(tmp_path) if trace_of(tmp_path, CALLS) else None
    assert found is not None
    (said,) = [w.message for w in found.coverage.warnings if w.code == "reads_not_seen"]
    assert "1 data file was mapped" in said
    assert "/data/c.arrow" in said
    read_too = [*PROGRAM, Call(maker.PREAD, 55 * MS, 1, 0, 9, 6)]
    trace_of(tmp_path, replace(CALLS, threads={4711: read_too}))
    found = vanidl.open_run(tmp_path)
    assert not [w for w in found.coverage.warnings if w.code == "reads_not_seen"]


def test_its_files_are_known_checked_and_logs_of_the_run(tmp_path, capsys):
    trace_of(tmp_path, CALLS)
    shutil.copy(tmp_path / CALLS.name, tmp_path / "renamed")
    assert main(["check", str(tmp_path / CALLS.name), str(tmp_path / "renamed"), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["checked"]
    assert [(v["kind"], v["state"]) for v in verdicts] == [("recorded calls", "whole")] * 2
    counted = (Counted(1, reads=16, read_sizes=(16, *[0] * 9)),)
    (tmp_path / CALLS.name).write_bytes(calls_file(replace(CALLS, counted=counted)))
    assert main(["check", str(tmp_path / CALLS.name)]) == 0
    shown = capsys.readouterr().out
    assert "partial  0.1.0    24 % POSIX, 100 % STDIO  recorded calls" in shown
    assert "16 calls of it are in totals alone" in shown
    own = replace(CALLS, names={**NAMES, 4: b"/run/calls/1-2.calls"})
    trace = trace_of(tmp_path, own)
    assert (
        dict(zip(trace.files.path, trace.files.kind, strict=True))["/run/calls/1-2.calls"] == "log"
    )


RECORDED = """
import os, threading, numpy as np
folder = os.environ["VANIDL_TEST_DATA"]
np.save(f"{folder}/a.npy", np.arange(1000.0))
np.load(f"{folder}/a.npy")
descriptor = os.open(f"{folder}/a.npy", os.O_RDONLY)
def read():
    for i in range(25):
        os.pread(descriptor, 64, 8 * i)
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if os.fork() == 0:
    os.pread(descriptor, 100, 0)
    os._exit(0)
os.wait()
os.stat(f"{folder}/a.npy")
os.rename(f"{folder}/a.npy", f"{folder}/b.npy")
"""


def test_what_the_library_recorded_is_read(tmp_path):
    library = tracer_record.find_library()
    if library is None:
        pytest.skip("the tracer's library is not compiled here")
    data, calls = tmp_path / "data", tmp_path / "calls"
    data.mkdir()
    calls.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(library), "VANIDL_TRACER": str(calls),
                   "VANIDL_TEST_DATA": str(data)}  # fmt: skip
    subprocess.run([sys.executable, "-c", RECORDED], env=environment, check=True)
    trace = read_trace(calls, Inputs())
    assert [log.whole for log in trace.logs] == [True, True]
    file = trace.files.path.index(f"{data}/a.npy")
    moved = {
        (layer, process, op): (len(rows), int(rows.sum()))
        for layer in (POSIX, STDIO) for process in (0, 1) for op in (READ, WRITE)
        if len(rows := np.concatenate([
            p.nbytes[(p.file == file) & (p.op == op)]
            for p in trace.io if (p.layer, p.process) == (layer, process)
        ] or [np.empty(0, np.int64)]))
    }  # fmt: skip
    assert moved[POSIX, 0, READ][1] >= 75 * 64
    assert moved[POSIX, 1, READ] == (1, 100)
    assert moved[STDIO, 0, READ][1] + moved[POSIX, 0, READ][1] >= 75 * 64 + 8000
    threads = np.concatenate([p.thread[p.nbytes == 64] for p in trace.io if p.process == 0])
    assert np.bincount(threads)[1:].tolist() == [25, 25, 25]
    assert {"open", "stat", "rename"} <= set(trace.calls[0])
    assert [p.role for p in trace.processes] == ["trainer", "worker"]


@pytest.mark.parametrize(
    ("kernel_nbytes", "said"),
    [
        # More than a twentieth, and than 16 MiB; what went elsewhere is in neither.
        (1_000_000 + (16 << 20) + 1, ["reads_not_seen", "At least 3.4 %"]),
        (1_000_000 + (16 << 20), ["reads_traced", "At least 3.4 %"]),
        (1_000_000 + 448_576, ["reads_traced", "At least 57.2 %"]),
        (1_000_000 + 448_575, []),  # of less than 1 MiB nothing is said
        (None, []),
    ],
)
def test_bytes_that_the_tracer_did_not_see_are_said(tmp_path, kernel_nbytes, said):
    read = Call(maker.READ, 20, 5, 0, 600_000, 1, 600_000)
    rchar = (-1, -1) if kernel_nbytes is None else (700, 700 + kernel_nbytes)
    calls = Calls({10: [read]}, {1: b"/data/a.bin"}, other_read=400_000, rchar=rchar)
    (tmp_path / calls.name).write_bytes(calls_file(calls))
    found = list(tracer_log.list_warnings([tracer_log.read_recorded(tmp_path / calls.name)]))
    assert [n.code for n in found] == said[:1]
    assert all(n.message.startswith(said[1]) for n in found)


@pytest.mark.parametrize(
    ("of_child", "said"),
    [
        ((0, 8 << 20), ["At least 99.9 % of the bytes that calls read from files are traced"]),
        ((-1, -1), []),  # then nothing is known of the parent either
    ],
)
def test_what_a_child_read_is_its_own_though_its_parents_count_has_it(tmp_path, of_child, said):
    """Linux adds the count of a child to that of the parent that waits for it."""
    reads = [Call(maker.READ, 20 + i, 1, 0, 1 << 20, 1, 1 << 20) for i in range(8)]
    names = {1: b"/data/a.bin"}
    child = Calls({11: reads}, names, pid=11, parent_pid=10, rchar=of_child)
    parent = Calls({10: reads}, names, pid=10, rchar=(0, (16 << 20) + 9000))
    found = []
    for calls in (child, parent):
        (tmp_path / calls.name).write_bytes(calls_file(calls))
        found.append(tracer_log.read_recorded(tmp_path / calls.name))
    messages = [notice.message for notice in tracer_log.list_warnings(found)]
    assert [message.startswith(text) for message, text in zip(messages, said, strict=True)] == [
        True for _ in said
    ]


@pytest.mark.parametrize(
    ("children", "ends_later", "said"),
    [
        # 8 of its own 10 MiB were not seen, and 8 of its child's 8 were: 10 of 18.
        (1, True, "At least 55.5 % of the bytes that calls read from files are traced"),
        (2, True, "At least 55.5 % of the bytes that calls read from files are traced"),
        # Whether its count has that of the child is not known: of the child alone it is.
        (2, False, "At least 100 % of the bytes that calls read from files are, in 1 of 2"),
        (0, False, "At least 100 % of the bytes that calls read from files are, in 1 of 2"),
    ],
)
def test_a_child_that_nobody_waited_for_is_not_in_its_parents_count(
    tmp_path, children, ends_later, said
):
    reads = [Call(maker.READ, 20 + i, 1, 0, 1 << 20, 1, 1 << 20) for i in range(8)]
    names = {1: b"/data/a.bin"}
    second = 1_000_000_000
    child = Calls(
        {11: reads}, names, pid=11, parent_pid=10, rchar=(0, 8 << 20),
        ended=(3 if ends_later else 1) * second,
    )  # fmt: skip
    parent = Calls(
        {10: reads[:2]}, names, pid=10, rchar=(0, 10 << 20), ended=2 * second, children=children
    )
    found = []
    for calls in (child, parent):
        (tmp_path / calls.name).write_bytes(calls_file(calls))
        found.append(tracer_log.read_recorded(tmp_path / calls.name))
    (notice,) = tracer_log.list_warnings(found)
    assert notice.message.startswith(said)


def test_a_child_is_in_the_count_of_the_program_that_waited_for_it_alone(tmp_path):
    """A shell that waits for a command, then becomes another program, which reads 4 MiB unseen."""
    reads = [Call(maker.READ, 20 + i, 1, 0, 1 << 20, 1, 1 << 20) for i in range(8)]
    names = {1: b"/data/a.bin"}
    second = 1_000_000_000
    child = Calls({11: reads}, names, pid=11, parent_pid=10, rchar=(0, 8 << 20), ended=second)
    shell = Calls({10: []}, {}, pid=10, rchar=(0, 8 << 20), ended=2 * second)
    later = [replace(read, start=2 * second + read.start) for read in reads[:4]]
    after = Calls(
        {10: later}, names, pid=10, rchar=(8 << 20, 16 << 20), start=2 * second, ended=3 * second
    )
    found = []
    for calls in (child, shell, after):
        (tmp_path / calls.name).write_bytes(calls_file(calls))
        found.append(tracer_log.read_recorded(tmp_path / calls.name))
    (notice,) = tracer_log.list_warnings(found)
    assert notice.message.startswith("At least 75 % of the bytes that calls read from files are")
