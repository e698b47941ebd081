"""Warnings about recorded runs: DFTracer's blind spots, and what the recorder missed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import vanidl
from tests.makers.darshan_logs import Log, Record, log_bytes, random_records
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace, Summed
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions
from vanidl.model.warnings import Notice
from vanidl.readers.run_folder import ProcessRecord, RunRecord, write_record

Case = Callable[[Path], tuple[Notice, ...]]


def traced(
    folder: Path, *calls: tuple[str, str, dict[str, int]], beside: str = ""
) -> tuple[Notice, ...]:
    """Warnings of a DFTracer run that did these calls."""
    trace = PfwTrace(100)
    for i, (name, path, arguments) in enumerate(calls):
        trace.io(name, path, 1000 * (i + 1), 100, **arguments)
    trace.end(1000 * (len(calls) + 2))
    trace.write(folder / "dftracer" / "trace-0-preload.pfw.gz")
    if beside:
        (folder / "dftracer" / beside).touch()
    return vanidl.open_run(folder).coverage.warnings


def typed(
    folder: Path,
    *,
    sums: bool = False,
    shared: bool = False,
    layer: str = "",
    samples: int = 0,
    **settings: int,
) -> tuple[Notice, ...]:
    """Warnings of a DFTracer run of today's format that read a file."""
    trace = PfwTrace(100, dialect="typed")
    trace.io("pread", "/data/a.h5", 10, 5, ret=10, offset=0)
    if sums:
        trace.sums([Summed("pread", 20, 5, 100, {"ret": 10})])
    if shared:
        trace.define("/data/b.h5", trace.define("/data/a.h5"))
    if layer:
        trace.event("MPI_call", layer, 30, 5, ret=0)
    for at in range(samples):
        trace.sample("cpu", at, user_pct=1.5)
    trace.end(100, **settings)
    trace.write(folder / "trace-0-preload.pfw")
    return vanidl.open_run(folder).coverage.warnings


def numbered(folder: Path, *, dropped: int) -> tuple[Notice, ...]:
    """Warnings of a trace that lacks lines from its middle."""
    trace = PfwTrace(100)
    for i in range(9):
        trace.io("pread", "/data/a.h5", 10 * i, 5, ret=10, offset=0)
    trace.end(100)
    del trace.lines[-4 : -4 + dropped]
    trace.write(folder / "trace-0-preload.pfw")
    return vanidl.open_run(folder).coverage.warnings


def beside_data(folder: Path, *nbytes: int) -> tuple[Notice, ...]:
    """Warnings of five files of 1000 bytes that lie here; of the first ones so many were read."""
    data = folder / "data"
    data.mkdir()
    trace = PfwTrace(100)
    for i, n in enumerate([*nbytes, *[1000] * 5][:5]):
        (data / f"{i}.bin").write_bytes(bytes(1000))
        trace.io("open64", f"/job/data/{i}.bin", 100 * i, 5)
        trace.io("read", f"/job/data/{i}.bin", 100 * i + 10, 5, ret=n)
        trace.io("close", f"/job/data/{i}.bin", 100 * i + 20, 5, ret=0)
    trace.end(1000)
    trace.write(folder / "run" / "trace-0-preload.pfw")
    inputs = Inputs(data=DataOptions((str(data),)))
    return vanidl.open_run(folder / "run", inputs=inputs).coverage.warnings


def by_threads(folder: Path, *, seen: bool) -> tuple[Notice, ...]:
    """Warnings of two threads that open a file each; the calls of the first are seen or not."""
    calls = []
    for thread, complete in ((1, seen), (2, True)):
        path = f"/data/{thread}.h5"
        calls.append(("open64", path, {"ret": 5, "tid": thread}))
        if complete:
            calls.append(("pread", path, {"ret": 10, "offset": 0, "tid": thread}))
            calls.append(("close", path, {"ret": 0, "tid": thread}))
    return traced(folder, *calls)


PREAD = ("pread", "/data/a.h5", {"ret": 10, "offset": 0, "count": 10})
READ = ("read", "/data/a.h5", {"ret": 10, "count": 10})
OPEN_TO_WRITE = ("open64", "/out/ckpt-1.pt", {"flags": 0o101})
WRITE = ("write", "/out/ckpt-1.pt", {"ret": 10, "count": 10})


def watched(
    folder: Path,
    state: str = "recorded",
    loss: str = "",
    tool_s: float | None = None,
    stopped: str = "",
) -> tuple[Notice, ...]:
    """Warnings of a run whose recorder saw one process in this state, and a tool without a log."""
    start = EPOCH_US * 1000
    process = ProcessRecord(100, 1, "python train.py", None, start, start + 10**9, state)
    seen = [process]
    if tool_s is not None:
        end = start + round(tool_s * 1e9)
        seen.append(ProcessRecord(101, 100, "ldconfig -p", None, start, end, "missing"))
    record = RunRecord(
        "run-1", ("python", "train.py"), "/job", "node01", "dftracer", "2.2.0", {}, start,
        start + 10**9, 0, None, (("/", "ext4"),), tuple(seen), (loss,) if loss else (),
    )  # fmt: skip
    write_record(folder / "run.json", replace(record, stopped=stopped))
    return traced(folder, PREAD)


def broken_record(folder: Path, content: str) -> tuple[Notice, ...]:
    (folder / "run.json").write_text(content)
    return traced(folder, PREAD)


def whole_record(folder: Path) -> tuple[Notice, ...]:
    return watched(folder)


def twice(folder: Path, *, changed: bool) -> tuple[Notice, ...]:
    """Warnings of a run with a second file of its only trace: equal, or without its last line."""
    traced(folder, PREAD, PREAD)
    (trace,) = (folder / "dftracer").iterdir()
    lines = gzip.decompress(trace.read_bytes()).splitlines(keepends=True)
    again = gzip.compress(b"".join(lines[:-1])) if changed else trace.read_bytes()
    (folder / "again.pfw.gz").write_bytes(again)
    return vanidl.open_run(folder).coverage.warnings


def both(folder: Path, *, pid: int) -> tuple[Notice, ...]:
    """Warnings of a run with a DFTracer trace of process 100 and a Darshan log of `pid`."""
    start = EPOCH_US // 10**6
    reads = [Record(1, 0, "node01", [], [(0, 10, 0.1, 0.2, 1)])]
    log = Log(job=(os.getuid(), 7, 1), start=(start, 0), end=(start + 9, 0),
              names={1: b"/data/a.h5"}, metadata=b"", dxt={"DXT_POSIX": [reads]})  # fmt: skip
    (folder / f"user_python_id7-{pid}_1-1-1-1_1.darshan").write_bytes(log_bytes(log))
    return watched(folder)


RECORDED: dict[str, tuple[dict[str, Case], dict[str, Case]]] = {
    "not_traced": (
        {"a DFTracer trace": lambda folder: traced(folder, PREAD)},
        {"a Darshan log": lambda folder: _darshan(folder)},
    ),
    "copies": (
        {"a trace twice": lambda folder: twice(folder, changed=False)},
        {"a trace and a part of it": lambda folder: twice(folder, changed=True)},
    ),
    "versions_left_out": (
        {"a trace and a part of it": lambda folder: twice(folder, changed=True)},
        {"a trace twice": lambda folder: twice(folder, changed=False)},
    ),
    "two_tracers": (
        {"a log and a trace of one process": lambda folder: both(folder, pid=100)},
        {"of two processes": lambda folder: both(folder, pid=7)},
    ),
    "calls_summed": (
        {"calls that were summed up": lambda folder: typed(folder, sums=True)},
        {"calls one by one": typed},
    ),
    "layer_switched_off": (
        {"STDIO switched off": lambda folder: typed(folder, stdio=0)},
        {"STDIO on": lambda folder: typed(folder, stdio=1)},
    ),
    "files_filtered": (
        {"some folders": lambda folder: typed(folder, trace_all_files=0)},
        {"all files": lambda folder: typed(folder, trace_all_files=1)},
    ),
    "layers_above": (
        {"a call of MPI-IO": lambda folder: typed(folder, layer="MPIIO")},
        {"a call of MPI": lambda folder: typed(folder, layer="collective")},
    ),
    "events_not_analysed": (
        {"telemetry beside the run": lambda folder: typed(folder, samples=1)},
        {"no telemetry": typed},
    ),
    "names_ambiguous": (
        {"two names of one hash": lambda folder: typed(folder, shared=True)},
        {"a hash a name": typed},
    ),
    "descriptors_lost": (
        {"an open that nothing follows": lambda folder: by_threads(folder, seen=False)},
        {"opens with reads and closes": lambda folder: by_threads(folder, seen=True)},
    ),
    "events_lost": (
        {"a line that was never written": lambda folder: numbered(folder, dropped=1)},
        {"every line": lambda folder: numbered(folder, dropped=0)},
    ),
    "sizes_differ": (
        {"half of one file": lambda folder: beside_data(folder, 500)},
        {
            "every file whole": lambda folder: beside_data(folder, 1000),
            "every file in half": lambda folder: beside_data(folder, *[500] * 5),
        },
    ),
    "empty_traces": (
        {"a file without a line": lambda f: traced(f, PREAD, beside="trace-1-preload.pfw.gz")},
        {"only whole files": lambda folder: traced(folder, PREAD)},
    ),
    "offsets_not_recorded": (
        {"read()": lambda folder: traced(folder, READ)},
        {"pread()": lambda folder: traced(folder, PREAD)},
    ),
    "writes_not_seen": (
        {"torch.save": lambda folder: traced(folder, OPEN_TO_WRITE)},
        {"a checkpoint that was written": lambda folder: traced(folder, OPEN_TO_WRITE, WRITE)},
    ),
    "recording_stopped": (
        {"a disk that was full": lambda folder: watched(folder, stopped="Stopped at 1 s.")},
        {"room to the end": whole_record},
    ),
    "processes_missing": (
        {"a process without a log": lambda folder: watched(folder, "missing")},
        {"all recorded": whole_record},
    ),
    "processes_brief": (
        {"a tool that lived a moment": lambda folder: watched(folder, tool_s=0.01)},
        {"one that lived longer": lambda folder: watched(folder, tool_s=1.0)},
    ),
    "processes_unfinished": (
        {"a killed process": lambda folder: watched(folder, "unfinished")},
        {"all recorded": whole_record},
    ),
    "recording": (
        {"a loss that the recorder names": lambda f: watched(f, loss="The disk was full.")},
        {"none": whole_record},
    ),
    "run_record_unreadable": (
        {
            "no JSON": lambda folder: broken_record(folder, "{"),
            "another program's": lambda folder: broken_record(folder, '{"schema": "other/1"}'),
        },
        {"a record": whole_record},
    ),
}


def _darshan(folder: Path) -> tuple[Notice, ...]:
    log = Log(job=(1000, 7, 1), dxt={"DXT_POSIX": random_records(1, ranks=1)})
    (folder / "user_python_id7-7_1.darshan").write_bytes(log_bytes(log))
    return vanidl.open_run(folder).coverage.warnings
