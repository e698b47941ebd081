"""Requests to object storage beside a tracer's log of the same process: one process, two totals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.makers.object_files import objects_of
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, operation_table, profile
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group, group_runs
from vanidl.merge.pipeline import assemble
from vanidl.model.selection import Selection
from vanidl.model.trace import OBJECT, POSIX, SpanKind, Trace
from vanidl.readers.records import TracerLog
from vanidl.run import open_run

POSIX_READS = [Io(1_000_000, 2_000_000, 0, 100), Io(3_000_000, 4_000_000, 100, 50)]
GETS = [Io(5_000_000, 9_000_000, 0, 4096), Io(6_000_000, 12_000_000, 4096, 4096)]


def objects_log(
    pid: int = 100, parent: int | None = None, rank: int | None = None, start_ns: int = JOB_START_NS
) -> TracerLog:
    log = darshan_log(GETS, pid=pid, parent=parent, job_id="100", names={1: "s3://data/a"})
    return replace(
        log,
        path=f"host-{pid}.objects",
        tracer="vanidl-record",
        operations=(operation_table(GETS, OBJECT),),
        start_ns=start_ns,
        start_resolution_ns=0,
        start_error_ns=0,
        counts_apart=False,
        beside=True,
        rank=rank,
    )


def trace_of(*logs: TracerLog) -> Trace:
    steps = [Span(SpanKind.STEP, k * 10_000_000, (k + 1) * 10_000_000, k) for k in range(3)]
    profiles = (profile(steps),)
    (found,) = group_runs(logs, profiles)
    return assemble(Group(found.logs, found.profiles), {})


def bytes_read(trace: Trace, layer: str) -> int | None:
    return analyse(trace, Selection(layer)).summary.bytes_read


def test_both_logs_are_of_one_process_and_neither_adds_to_the_other() -> None:
    alone = trace_of(darshan_log(POSIX_READS))
    both = trace_of(darshan_log(POSIX_READS), objects_log())
    assert len(both.processes) == len(alone.processes) == 1
    assert bytes_read(both, POSIX) == bytes_read(alone, POSIX) == 150
    assert bytes_read(both, OBJECT) == 8192
    posix = analyse(both, Selection(POSIX)).summary
    assert posix.storage_bytes_read == analyse(alone, Selection(POSIX)).summary.storage_bytes_read
    assert both.job.tracer == "darshan"


def test_a_worker_with_object_storage_alone_belongs_to_its_trainer() -> None:
    trace = trace_of(darshan_log(POSIX_READS), objects_log(pid=200, parent=100))
    assert [(p.pid, p.role) for p in trace.processes] == [(100, "trainer"), (200, "worker")]
    assert trace.family.tolist() == [0, 0]


def test_the_rank_of_a_shared_log_is_found_by_its_number() -> None:
    shared = darshan_log([Io(1, 2, 0, 10, rank=0), Io(1, 2, 0, 10, rank=1)], pid=None, nprocs=2)
    trace = trace_of(shared, objects_log(pid=300, rank=1))
    ranks = {p.rank: p for p in trace.processes if p.role == "trainer" and p.rank is not None}
    assert ranks[1].pid == 300
    gets = [part for part in trace.io if part.layer == OBJECT]
    assert [trace.processes[part.process].rank for part in gets] == [1]


def test_a_correction_of_the_tracers_clock_moves_no_request() -> None:
    late = darshan_log(POSIX_READS, start_ns=JOB_START_NS)
    late = replace(late, start_late_ns=50_000_000, end_ns=JOB_START_NS + 2_000_000)
    trace = trace_of(late, objects_log())
    gets = next(part for part in trace.io if part.layer == OBJECT)
    assert gets.start.tolist() == [JOB_START_NS + io.start for io in GETS]
    reads = next(part for part in trace.io if part.layer == POSIX)
    assert reads.start[0] != JOB_START_NS + POSIX_READS[0].start


def test_failed_requests_are_said(tmp_path: Path) -> None:
    coverage = open_run(objects_of(tmp_path)).coverage
    (said,) = (w.message for w in coverage.warnings if w.code == "object_requests_failed")
    assert said.startswith("2 requests of 7 ")


def test_without_another_log_the_layer_is_the_runs_own() -> None:
    trace = trace_of(objects_log())
    results = analyse(trace)
    assert results.summary.layer == OBJECT
    assert results.summary.bytes_read == 8192
    assert results.summary.storage_bytes_read is None
