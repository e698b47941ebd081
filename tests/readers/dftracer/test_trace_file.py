"""Lines that are no single call of POSIX or STDIO, and what the tracer was told to record."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vanidl
from tests.makers.dftracer_traces import EPOCH_US, PfwTrace, Summed
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.reading import DftracerRun, combine_files
from vanidl.readers.dftracer.trace_file import read_trace_file
from vanidl.readers.records import LARGEST_NBYTES
from vanidl.record import dftracer as record_dftracer
from vanidl.sections.registry import figures

ITEM_BYTES = 8
THREADS = (100, 101)
NAMES = ("read", "pread64", "write", "fread", "fwrite")


def call(name: str, at: int, duration: int, tid: int, ret: int) -> Summed:
    size = {"size": ITEM_BYTES} if name.startswith("f") else {}
    return Summed(name, at, duration, tid, {"ret": ret, **size})


calls = st.lists(
    st.builds(call, st.sampled_from(NAMES), st.integers(1, 5000), st.integers(0, 300),
              st.sampled_from(THREADS), st.integers(0, 9000)),
    min_size=1, max_size=30,
)  # fmt: skip


def moved(of: Summed) -> int:
    return of.arguments["ret"] * of.arguments.get("size", 1)


def combined(*paths: Path) -> DftracerRun:
    return combine_files([read_trace_file(path) for path in paths])


def totals(run: DftracerRun) -> dict[str, float]:
    """Every counter but opens, over all logs and files."""
    found: dict[str, float] = {}
    for layers in run.counters.values():
        for records in layers:
            for name, values in (*records.counters.items(), *records.seconds.items()):
                if not name.endswith("_OPENS"):
                    found[name] = found.get(name, 0) + values.sum().item()
    return found


def said(run: DftracerRun) -> dict[str, Notice]:
    return {notice.code: notice for notice in run.notices}


@given(made=calls, dialect=st.sampled_from(["typed", "letters"]))
@settings(max_examples=30, deadline=None)
def test_sums_of_calls_total_what_the_calls_do(tmp_path_factory, made, dialect):
    folder = tmp_path_factory.mktemp("t")
    single, summed = PfwTrace(dialect=dialect), PfwTrace(dialect=dialect)
    for one in made:
        single.io(one.name, "/data/a", one.at, one.duration, tid=one.tid, **one.arguments)
    summed.sums(made)
    for trace in (single, summed):
        trace.end(9000)
    by_call = combined(single.write(folder / "a.pfw"))
    by_sum = combined(summed.write(folder / "b.pfw"))
    assert totals(by_sum) == pytest.approx(totals(by_call))
    assert totals(by_sum).get("POSIX_BYTES_READ", 0) == sum(
        moved(c) for c in made if c.name in ("read", "pread64")
    )
    assert not any(log.operations for log in by_sum.logs)
    assert "calls_summed" in said(by_sum)
    assert "calls_summed" not in said(by_call)
    assert "events_lost" not in said(by_sum)


@given(made=calls, later=calls, children=st.integers(1, 2))
@settings(max_examples=20, deadline=None)
def test_sums_that_a_fork_copied_count_once(tmp_path_factory, made, later, children):
    """A child writes what its parent had summed up and not yet written, under its own number."""
    folder = tmp_path_factory.mktemp("t")
    alone, parent = PfwTrace(100), PfwTrace(100)
    alone.sums([*made, *later])
    parent.sums([*made, *later])
    files = []
    for pid in range(200, 200 + children):
        child = PfwTrace(pid, 100)
        own = [one._replace(tid=pid) for one in later]
        alone.sums(own)
        child.sums([*made, *own])
        child.end(9000)
        files.append(child.write(folder / f"{pid}-fork.pfw"))
    for trace in (alone, parent):
        trace.end(9000)
    whole = combined(alone.write(folder / "alone.pfw"))
    forked = combined(parent.write(folder / "parent.pfw"), *files)
    assert totals(forked) == pytest.approx(totals(whole))


def test_sums_name_no_file_and_say_so_in_every_output(tmp_path: Path) -> None:
    trace = PfwTrace(dialect="typed")
    trace.sums([call("read", at, 5, 100, 4096) for at in range(10)])
    trace.end(9000)
    trace.write(tmp_path / "t.pfw")
    run = vanidl.open_run(tmp_path)
    assert (run.summary.source, run.summary.ops, run.summary.bytes_read) == ("counters", 10, 40960)
    assert run.summary.time is None
    assert run.trace.files.path == ("<files not recorded>",)
    assert [layer.files for layer in run.summary.layers] == [None]
    (finding,) = (f for f in run.findings if f.code == "trace_truncated")
    assert "without DFTRACER_ENABLE_AGGREGATION" in finding.advice
    shown = [figure.empty_reason for figure in figures(run) if figure.empty_reason]
    assert not [reason for reason in shown if "DXT" in reason or "No read or write" in reason]
    assert not run.coverage.complete
    assert "calls_summed" in {warning.code for warning in run.coverage.warnings}


@pytest.mark.parametrize(
    ("rets", "sizes", "nbytes"),
    [((10, 20), (8, 8), 240), ((10, 20), (4, 8), 120), ((100, -1), (1, 1), 99), ((-1,), (1,), 0)],
)
def test_sums_that_do_not_tell_their_bytes_give_the_least_that_they_can_be(
    tmp_path: Path, rets: tuple[int, ...], sizes: tuple[int, ...], nbytes: int
) -> None:
    trace = PfwTrace(dialect="typed")
    pairs = zip(rets, sizes, strict=True)
    trace.sums([Summed("fread", 1, 1, 100, {"ret": r, "size": s}) for r, s in pairs])
    trace.end(9)
    run = combined(trace.write(tmp_path / "t.pfw"))
    assert totals(run)["STDIO_BYTES_READ"] == nbytes
    exact = sum(max(r, 0) * s for r, s in zip(rets, sizes, strict=True)) == nbytes
    assert ("lower bounds" in said(run)["calls_summed"].message) == (not exact)


def test_sums_without_results_have_no_bytes_and_not_none(tmp_path: Path) -> None:
    trace = PfwTrace(dialect="typed")
    trace.sums([Summed("read", at, 5, 100, {}) for at in range(3)])
    trace.end(9)
    trace.write(tmp_path / "t.pfw")
    (table,) = vanidl.open_run(tmp_path).trace.counters.values()
    assert table.total("POSIX_BYTES_READ") is None
    assert table.total("POSIX_READS") == 3


@given(ret=st.integers(1, 2**61), count=st.integers(1, 2**61), dur=st.integers(0, 2**61))
@settings(max_examples=30, deadline=None)
def test_a_sum_is_within_the_bounds_of_one_operation(tmp_path_factory, ret, count, dur):
    trace = PfwTrace(dialect="typed")
    trace.sums([call("read", 1, 5, 100, 10)])
    good = trace.lines[-1]
    bad = good.replace('"ret":10', f'"ret_sum":{ret}').replace('"dur":5', f'"dur_sum":{dur}')
    trace.lines += [bad.replace('"dft_cnt":1', f'"dft_cnt":{count}')] * 50
    trace.end(9)
    run = combined(trace.write(tmp_path_factory.mktemp("t") / "t.pfw"))
    possible = ret <= LARGEST_NBYTES and count <= LARGEST_NBYTES and dur * 1000 <= 1 << 51
    assert totals(run)["POSIX_BYTES_READ"] == 10 + 50 * ret * possible
    assert run.logs[0].whole == possible


@pytest.mark.parametrize(("metric", "tick_ns"), [("US", 1000), ("NS", 1), ("MS", 10**6)])
@pytest.mark.parametrize("ended", [True, False])
def test_the_unit_is_that_of_the_end_event_or_of_the_size_of_a_moment(
    tmp_path: Path, metric: str, tick_ns: int, ended: bool
) -> None:
    trace = PfwTrace(dialect="typed", metric=metric, base=EPOCH_US * 1000 // tick_ns)
    trace.io("read", "/data/a", 10, 5, ret=7)
    if ended:
        trace.end(20)
    (log,) = combined(trace.write(tmp_path / "t.pfw")).logs
    assert log.start_ns == EPOCH_US * 1000
    (table,) = log.operations
    assert (table.end_ns - table.start_ns).tolist() == [5 * tick_ns]
    assert log.whole == ended


@pytest.mark.parametrize(
    ("stated", "meant"), [(20003, "2.0.3"), (100005, "1.0.5"), ("v2.1.0", "2.1.0"), ("9", "0.0.9")]
)
def test_versions_are_named_as_people_write_them(
    tmp_path: Path, stated: str | int, meant: str
) -> None:
    trace = PfwTrace()
    trace.io("read", "/data/a", 10, 5, ret=7)
    trace.lines = [line.replace('"version":20003', f'"version":"{stated}"') for line in trace.lines]
    (log,) = combined(trace.write(tmp_path / "t.pfw")).logs
    assert log.version == meant


@pytest.mark.parametrize(
    ("settings_", "code", "word"),
    [
        ({"posix": 0}, "layer_switched_off", "POSIX"),
        ({"stdio": 0}, "layer_switched_off", "STDIO"),
        ({"io": 0}, "layer_switched_off", "DFTRACER_DISABLE_IO"),
        ({"trace_all_files": 0}, "files_filtered", "DFTRACER_DATA_DIR"),
    ],
)
def test_what_was_switched_off_is_said(
    tmp_path: Path, settings_: dict[str, int], code: str, word: str
) -> None:
    trace = PfwTrace(dialect="typed")
    trace.io("read", "/data/a", 10, 5, ret=7)
    trace.end(20, **{"posix": 1, "stdio": 1, "io": 1, "trace_all_files": 1} | settings_)
    found = said(combined(trace.write(tmp_path / "t.pfw")))
    assert word in found[code].message
    assert {"layer_switched_off", "files_filtered"} & set(found) == {code}


def test_a_recording_takes_away_what_would_lose_calls(tmp_path: Path) -> None:
    found = record_dftracer.make_environment(tmp_path / "lib.so", tmp_path)
    names = ("ENABLE_AGGREGATION", "DISABLE_IO", "DISABLE_POSIX", "DISABLE_STDIO")
    assert [found[f"DFTRACER_{name}"] for name in names] == [None] * 4


def test_telemetry_is_said_and_makes_no_process(tmp_path: Path) -> None:
    trace = PfwTrace(dialect="typed")
    trace.io("read", "/data/a", 10, 5, ret=7)
    trace.end(20)
    service = PfwTrace(dialect="typed")
    service.lines.clear()
    for at in range(3):
        service.sample("cpu", at, user_pct=12.5)
    run = combined(trace.write(tmp_path / "t.pfw"), service.write(tmp_path / "service.pfw.gz"))
    assert len(run.logs) == 1
    assert "3 samples of telemetry" in said(run)["events_not_analysed"].message
    assert "empty_traces" not in said(run)


def test_lines_of_an_unknown_kind_are_said(tmp_path: Path) -> None:
    trace = PfwTrace(dialect="typed")
    trace.io("read", "/data/a", 10, 5, ret=7)
    trace.lines.append(trace.lines[-1].replace('"ph":1', '"ph":9').replace('"id":2,', ""))
    trace.end(20)
    run = combined(trace.write(tmp_path / "t.pfw"))
    assert "1 lines of a kind" in said(run)["events_not_analysed"].message
    assert run.logs[0].whole


def test_names_that_share_a_hash_are_said(tmp_path: Path) -> None:
    trace = PfwTrace(dialect="letters")
    for path in ("/data/a", "/data/b", "/data/a"):
        trace.define(path, "7")
        trace.io("read", path, 10, 5, ret=7)
    trace.end(20)
    run = combined(trace.write(tmp_path / "t.pfw"))
    assert "1 of 3 names" in said(run)["names_ambiguous"].message  # the third is the folder
    assert totals(run)["POSIX_BYTES_READ"] == 21


@given(made=calls)
@settings(max_examples=15, deadline=None)
def test_sums_are_bytes_over_time_where_the_interval_is_stated(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("t")
    trace = PfwTrace(dialect="typed")
    trace.sums(made)
    trace.end(9000, trace_interval_ms=1)
    trace.write(folder / "t.pfw")
    run = vanidl.open_run(folder)
    for layer, names in (("POSIX", ("read", "pread64")), ("STDIO", ("fread",))):
        expected: dict[int, int] = {}
        for one in made:
            if one.name in names and moved(one):
                expected[one.at // 1000] = expected.get(one.at // 1000, 0) + moved(one)
        found: dict[int, int] = {}
        for heatmap in run.trace.heatmaps:
            if heatmap.layer == layer:
                first = (heatmap.start_ns - EPOCH_US * 1000) // 10**6
                found |= {first + i: n for i, n in enumerate(heatmap.bytes_read.tolist()) if n}
        assert found == expected
    timeline = run.timeline
    posix = sum(moved(c) for c in made if c.name in ("read", "pread64", "write"))
    assert (timeline is None and not posix) or (
        int(timeline.bytes_read.sum() + timeline.bytes_written.sum()) == posix
    )


@pytest.mark.parametrize("interval_ms", [0, -5, 2**40, 7])
def test_an_interval_that_cannot_be_makes_no_bins(tmp_path: Path, interval_ms: int) -> None:
    trace = PfwTrace(dialect="typed")
    trace.sums([call("read", at, 5, 100, 10) for at in (1, 10**14)])
    trace.end(9000, trace_interval_ms=interval_ms)
    run = combined(trace.write(tmp_path / "t.pfw"))
    assert not any(run.heatmaps.values())
    assert totals(run)["POSIX_BYTES_READ"] == 20


def test_removing_files_is_no_part_of_opening_them(tmp_path):
    trace = PfwTrace()
    for i, (name, duration) in enumerate([("open64", 300), ("close", 50), ("unlink", 350_000),
                                          ("remove", 400_000), ("xstat", 7)]):  # fmt: skip
        trace.io(name, "/data/a", 1000 * i, duration, ret=0)
    trace.end(10**6)
    found = totals(combined(trace.write(tmp_path / "a.pfw")))
    unit = found["POSIX_F_META_TIME"] / (300 + 50 + 7)
    assert found["POSIX_F_REMOVE_TIME"] == pytest.approx(unit * 750_000)
