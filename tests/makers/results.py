"""Synthetic runs with all their results, in every shape that a report must survive.

The numbers obey the laws of the results: splits add up, bins sum to totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from tests.makers import datasets
from tests.makers.records import Io, darshan_log
from vanidl.analyses.access import Access, AccessCounts
from vanidl.analyses.balance import Balance, RankLoad
from vanidl.analyses.coverage import Coverage, LayerCoverage
from vanidl.analyses.files import FileRow, FileTotals, GroupRow
from vanidl.analyses.profiled_steps import ClockEvidence, Steps, StepTable
from vanidl.analyses.results import Results, analyse
from vanidl.analyses.sizes import CommonSize, SizeBin, Sizes
from vanidl.analyses.summary import BusyTime, LayerTotals, Summary
from vanidl.analyses.timeline import FileTimeline, JobTimeline, Timeline
from vanidl.breakdown import Breakdown, attribute_time
from vanidl.breakdown.overlap import Overlap, RankOverlap
from vanidl.breakdown.phases import Phases
from vanidl.breakdown.step_records import StepRecords
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Files, Job, LogState, Process, Profile, SpanKind, Spans, Trace
from vanidl.model.warnings import Notice
from vanidl.readers.records import (
    CounterFile,
    CounterRecords,
    HeatmapRecord,
    MpiRecord,
    StepDurations,
    StripeRecord,
)
from vanidl.run import Run

START_NS = 1_764_000_000_000_000_000
NASTY = (
    "/data/</script><script>alert(1)</script>.h5",
    "/data/{{7*7}}{% raw %}.npz",
    "/data/line\nbreak\ttab\r.tfrecord",
    "/data/\"quotes\" 'and' `ticks` & <b>tags</b> <img src=x onerror=alert(1)>.npy",
    "/data/" + "very/long/" * 60 + "part.bin",
    "/data/日本語/данные/é\u202egnp.exe",
    "/data/raw\udcff\udc80bytes.dat",
    "/data/sep\u2028arator\u2029.csv",
    "javascript:alert(1)",
    "--><!--<svg/onload=alert(1)>",
    "/data/<a href='https://example.org'>link</a> $x^2$ %{x} &lt;.bin",
)


_last: list[tuple[Trace, Results, Breakdown]] = []


def _attributed(trace: Trace, results: Results) -> Breakdown:
    """The account of these; that of the last ones is at hand: examples often differ beside it."""
    if not (_last and _last[0][0] is trace and _last[0][1] is results):
        _last[:] = [(trace, results, attribute_time(trace, results))]
    return _last[0][2]


@dataclass(frozen=True)
class Example:
    """A run with its results, and what of its account of time is written by hand.

    It unpacks into trace and results.
    """

    trace: Trace
    results: Results
    overlap: Overlap | None = None
    phases: Phases | None = None
    step_records: StepRecords | None = None

    def __iter__(self) -> Iterator[Trace | Results]:
        return iter((self.trace, self.results))

    @cached_property
    def account(self) -> Breakdown:
        """The account of trace and results, with what is written by hand."""
        given = {
            name: value
            for name in ("overlap", "phases", "step_records")
            if (value := getattr(self, name)) is not None
        }
        return replace(_attributed(self.trace, self.results), **given)

    def changed(self, **results: object) -> Example:
        """The same with parts of its results replaced."""
        return replace(self, results=replace(self.results, **results))

    @property
    def run(self) -> Run:
        """The run as one that was opened."""
        made = Run(self.trace, self.results)
        made.__dict__["breakdown"] = self.account
        return made


@dataclass(frozen=True)
class Shape:
    """How large a synthetic run is, and how its time divides."""

    ranks: int = 4
    steps: int = 40
    step_s: float = 0.62
    wait_share: float = 0.63
    io_of_wait: float = 0.7
    hidden_share: float = 0.1
    run_s: float = 31.4
    first_s: float = 4.1
    bins: int = 512
    rows: int | None = None
    files: int = 60
    host: str = "node{:03d}"
    names: tuple[str, ...] = ()


def trace_of(shape: Shape, *, profile: bool = True, waits: bool = True) -> Trace:
    hosts = [shape.host.format(r // 4) for r in range(shape.ranks)]
    known = "{" in shape.host
    processes = tuple(
        Process(hosts[r], 4000 + r, rank=r if known else None, trainer=r, log=f"p{r}.darshan")
        for r in range(shape.ranks)
    )
    paths = file_paths(shape)
    n = len(paths)
    end = START_NS + int(shape.run_s * 1e9)
    job = Job(
        "1047283",
        "python train.py --data /data",
        START_NS,
        end,
        1,
        "darshan",
        shape.ranks,
        counts_apart=True,
    )
    files = Files(paths, ("dataset",) * n, ("/data",) * n, ("lustre",) * n)
    profiles = (Profile("r0.pt.trace.json", "pytorch-profiler", 0, waits),) if profile else ()
    logs = (LogState("p0.darshan", "3.41", whole=True),)
    spans = spans_of(shape) if profile and waits else no_spans()
    return Trace(job, processes, files, (), spans, profiles, {}, logs, (), ("POSIX",))


def file_paths(shape: Shape) -> tuple[str, ...]:
    plain = tuple(f"/data/imagenet/train/shard-{i:05d}.tar" for i in range(shape.files))
    return (*shape.names, *plain)


def waits_of(shape: Shape) -> np.ndarray:
    """Input wait in seconds, shape (ranks, steps); the last rank waits longest."""
    random = np.random.default_rng(7)
    level = np.linspace(0.7, 1.3, shape.ranks)[:, None] if shape.ranks > 1 else np.ones((1, 1))
    noise = random.gamma(8, 1 / 8, (shape.ranks, shape.steps))
    waits = shape.wait_share * shape.step_s * level * noise
    return np.minimum(waits, 0.95 * shape.step_s)


def spans_of(shape: Shape) -> Spans:
    waits = waits_of(shape)
    starts = shape.first_s + shape.step_s * np.arange(shape.steps)
    start = START_NS + (np.tile(starts, shape.ranks) * 1e9).astype(np.int64)
    length = (waits.ravel() * 1e9).astype(np.int64)
    n = len(start)
    order = np.argsort(start, kind="stable")
    return Spans(
        start[order],
        (start + length)[order],
        np.repeat(np.arange(shape.ranks, dtype=np.int32), shape.steps)[order],
        np.full(n, -1, np.int32),
        np.full(n, SpanKind.INPUT_WAIT, np.uint8),
        np.full(n, -1, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",),
    )


def no_spans() -> Spans:
    long, short = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return Spans(long, long, short, short, np.zeros(0, np.uint8), short, short, short, ())


def steps_of(shape: Shape, *, waits: bool = True, io: bool = True) -> Steps:
    n = shape.ranks * shape.steps
    starts = np.tile(shape.first_s + shape.step_s * np.arange(shape.steps), shape.ranks)
    wait = waits_of(shape).ravel() if waits else np.full(n, np.nan)
    busy = np.full(n, 0.4 * shape.step_s) if io else np.full(n, np.nan)
    table = StepTable(
        np.repeat(np.arange(shape.ranks, dtype=np.int32), shape.steps),
        np.tile(np.arange(shape.steps, dtype=np.int32), shape.ranks),
        starts,
        starts + shape.step_s,
        wait,
        busy,
    )
    clock = ClockEvidence("absolute", 0.0, 0.001)
    s, k = shape.step_s, shape.steps
    return Steps("pytorch-profiler", k, k, shape.ranks, s, s, s, clock, table)


def step_records_of(shape: Shape, *, waits: bool = True) -> StepRecords:
    n = shape.ranks * shape.steps
    wait = waits_of(shape).ravel() if waits else np.full(n, np.nan)
    share = np.full(n, 0.1 * shape.step_s) if waits else np.full(n, np.nan)
    kind = np.full(n, "", object)
    kind[:: shape.steps] = "first of epoch"
    kind[shape.steps // 2 :: shape.steps] = "checkpoint"
    moved = np.arange(n) * 4096
    files = file_paths(shape)
    slowest = tuple(tuple((files[(i + k) % len(files)], 0.01 / (k + 1)) for k in range(min(3, i)))
                    for i in range(n)) if files else ((),) * n  # fmt: skip
    return StepRecords(
        kind, moved // 4096, moved % 2, moved, moved % 2 * 44_000, 4 * share, share, share, share,
        share, wait, share, slowest,
    )  # fmt: skip


def overlap_of(shape: Shape, *, waits: bool = True, io: bool = True) -> Overlap:
    waited = waits_of(shape).sum(axis=1)
    rows = tuple(_rank_overlap(shape, r, float(waited[r]), waits, io) for r in range(shape.ranks))
    window = shape.steps * shape.step_s
    mean = _mean(rows)
    observed = [(r.io_s or 0.0) - (r.unobserved_s or 0.0) for r in rows]
    hidden = sum(r.hidden_s or 0.0 for r in rows)
    lost = float(waits_of(shape).max(axis=0).sum())
    return Overlap(
        "ops",
        shape.ranks,
        mean,
        rows,
        hidden / sum(observed) if io and sum(observed) else None,
        lost if waits else None,
        float(waited.mean()) / window if waits else None,
        0.3,
        None,
    )


def _rank_overlap(shape: Shape, rank: int, waited: float, waits: bool, io: bool) -> RankOverlap:
    window = shape.steps * shape.step_s
    in_wait = shape.io_of_wait * waited
    hidden = shape.hidden_share * window
    communication = 1.3 * shape.wait_share * window - waited if shape.ranks > 1 else 0.0
    parts = {
        "unobserved_s": 0.3,
        "in_wait_s": in_wait if waits else None,
        "hidden_s": hidden,
        "behind_communication_s": 0.02 * window if waits else None,
        "other_s": 0.01 * window if waits else None,
    }
    total = sum(part or 0.0 for part in parts.values())
    known = {k: v if io else None for k, v in parts.items()}
    label = trace_label(shape, rank)
    return RankOverlap(
        label=label,
        rank=rank,
        window_s=window,
        io_s=total if io else None,
        exposed_s=total - 0.3 - hidden if io else None,
        compute_s=max(window - waited, 0.0) * 0.8,
        communication_s=max(communication, 0.0),
        input_wait_s=waited if waits else None,
        input_wait_io_s=in_wait if waits and io else None,
        starving_wait_s=waited if waits else None,
        input_wait_metadata_s=0.0 if waits and io else None,
        input_wait_metadata_at_most_s=0.0 if waits and io else None,
        input_wait_rest_s=waited - in_wait if waits and io else None,
        input_wait_rest_at_most_s=waited - in_wait if waits and io else None,
        input_wait_io_at_most_s=in_wait if waits and io else None,
        **known,
    )


def trace_label(shape: Shape, rank: int) -> str:
    return f"rank {rank}" if "{" in shape.host else f"{shape.host}:{4000 + rank}"


def _mean(rows: tuple[RankOverlap, ...]) -> RankOverlap:
    names = [n for n in RankOverlap.__slots__ if n.endswith("_s")]
    columns = {n: [getattr(row, n) for row in rows] for n in names}
    means = {n: None if None in v else float(np.mean(v)) for n, v in columns.items()}
    return RankOverlap(label="mean", rank=None, **means)


def timeline_of(shape: Shape) -> Timeline:
    random = np.random.default_rng(3)
    rows = shape.rows or shape.ranks
    edges = np.linspace(0, shape.run_s, shape.bins + 1)
    last = shape.first_s + shape.steps * shape.step_s
    inside = (edges[:-1] > shape.first_s * 0.4) & (edges[:-1] < last)
    burst = random.random((rows, shape.bins)) < 0.7
    level = random.gamma(2, 9e5, (rows, shape.bins)) * (shape.run_s / 31.4) * (512 / shape.bins)
    read = np.where(inside & burst, level, 0).astype(np.int64)
    written = np.zeros_like(read)
    written[0, int(0.9 * shape.bins) : int(0.94 * shape.bins)] = 2 * level.mean()
    labels = tuple(
        trace_label(shape, r)
        if rows == shape.ranks
        else f"ranks {r * shape.ranks // rows}-{(r + 1) * shape.ranks // rows - 1}"
        for r in range(rows)
    )
    operations = (read // 65536, written // 65536)
    return Timeline(
        edges, labels, shape.ranks, read, written, *operations,
        finest=finest_of(edges, (read, written, *operations)),
    )  # fmt: skip


def finest_of(edges: np.ndarray, amounts: tuple[np.ndarray, ...]) -> JobTimeline:
    """All rows together, each bin divided unevenly into four."""
    fine = np.linspace(edges[0], edges[-1], 4 * (len(edges) - 1) + 1)
    totals = [rows.sum(axis=0) for rows in amounts]
    quarters = [np.stack([t // 2, t // 3, t - t // 2 - t // 3, 0 * t], axis=1) for t in totals]
    return JobTimeline(fine, *(q.ravel() for q in quarters))


def filetimeline_of(shape: Shape, files: FileTotals) -> FileTimeline:
    random = np.random.default_rng(11)
    rows = files.rows[:1000]
    read = random.multinomial(2**20, [1 / 512] * 512, len(rows)) if rows else np.zeros((0, 512))
    share = np.array([row.bytes_read for row in rows], np.int64)[:, None]
    spread = read.astype(np.int64) * (share // 2**20)
    if len(rows):
        spread[:, 0] += share[:, 0] - spread.sum(axis=1)
    paths = tuple(row.path for row in rows)
    edges = np.linspace(0, shape.run_s, 513)
    return FileTimeline(edges, paths, len(files.rows), spread, np.zeros_like(spread))


def sizes_of(timeline: Timeline) -> Sizes:
    read, written = int(timeline.bytes_read.sum()), int(timeline.bytes_written.sum())
    shares = np.array([0.00001, 0.0004, 0.002, 0.01, 0.05, 0.2, 0.4, 0.33])
    lows = [0, 1, *(2**k for k in range(9, 15))]
    highs = [1, 512, *(2 * low for low in lows[2:])]
    reads = [int(read * s / max(high, 2)) for s, high in zip(shares, highs, strict=True)]
    got = [int(read * s) for s in shares[:-1]]
    got.append(read - sum(got))
    bins = tuple(
        SizeBin(
            lows[i],
            highs[i],
            reads[i],
            int(i == 7) * 11,
            0 if i == 0 else got[i] + (got[0] if i == 7 else 0),
            written if i == 7 else 0,
        )
        for i in range(8)
    )
    common = (CommonSize(8192, sum(reads), 11),)
    return Sizes(0, 32768, 9000.5, 8192.0, bins, darshan_bins(sum(reads)), common, 17)


def darshan_bins(reads: int) -> tuple[SizeBin, ...]:
    lows = [0, 100, 1024, 10240, 102400, 2**20, 4 * 2**20, 10 * 2**20, 100 * 2**20, 2**30]
    counts = [0, 5, reads - 5, *[0] * 7] if reads >= 5 else [reads, *[0] * 9]
    highs = [*lows[1:], None]
    return tuple(SizeBin(lows[i], highs[i], counts[i], 0, 0, 0) for i in range(10))


def access_of(ops: int) -> Access:
    jump = ops // 3
    read = AccessCounts(ops, 60, ops - 60 - 2 * jump, jump, jump, ops - jump, ops - 2 * jump)
    write = AccessCounts(11, 1, 10, 0, 0, 10, 10)
    return Access(read, write, (ops - jump, 10), (ops - 2 * jump, None))


def files_of(shape: Shape, read: int) -> FileTotals:
    paths = file_paths(shape)
    share = read // max(len(paths), 1)
    rows = tuple(
        FileRow(
            path, "dataset", "/data", "lustre", 40, 0, share, 0, 0.01 * (i + 1),
            min(shape.ranks, 2), 1.5, 28.0 + i / 100, ("POSIX",),
        )
        for i, path in enumerate(paths)
    )  # fmt: skip
    kinds = (
        GroupRow("dataset", len(rows), share * len(rows), 0, 9.2),
        GroupRow("checkpoint", 2, 0, 44_040_192, 0.4),
        GroupRow("code", 812, 9_400_000, 0, 0.2),
        GroupRow("log", 3, 0, 18_000, 0.01),
    )
    return FileTotals(rows, kinds, (GroupRow("/data", len(rows), share * len(rows), 0, 9.2),))


def summary_of(shape: Shape, timeline: Timeline, busy: float) -> Summary:
    read, written = int(timeline.bytes_read.sum()), int(timeline.bytes_written.sum())
    reads = int(timeline.reads.sum())
    time = BusyTime(busy, 1.2 * busy, 1.5 * busy, shape.ranks * busy, busy / shape.run_s)
    layers = (
        LayerTotals("POSIX", 61, reads, 11, read, written, 9.8, 0.4, 1.1),
        LayerTotals("STDIO", 4, 12, 30, 4096, 90_000, 0.001, 0.02, None),
        LayerTotals("MPI-IO", 0, None, None, None, None, None, None, None),
    )
    return Summary(
        "POSIX", "trace", reads + 11, reads, 11, read, written, time,
        (read + written) / (1.5 * busy), 2.1e8, read + 4096, written + 90_000, layers,
    )  # fmt: skip


def coverage_of(*notices: Notice) -> Coverage:
    layers = (
        LayerCoverage("POSIX", 120_000, 120_000, 1.0, False, 30.9),
        LayerCoverage("STDIO", 42, 0, 0.0, False, None),
    )
    return Coverage(not notices, layers, notices)


def balance_of(shape: Shape, busy: float, read: int) -> Balance:
    level = np.linspace(0.8, 1.2, shape.ranks)
    rows = tuple(
        RankLoad(
            trace_label(shape, r), r, shape.host.format(r // 4), 3, 4000,
            int(read * level[r] / shape.ranks), 44_000 if r == 0 else 0, float(busy * level[r]),
        )
        for r in range(shape.ranks)
    )  # fmt: skip
    return Balance(rows, 1.2, 1.2, 0)


def everything(shape: Shape, *notices: Notice, waits: bool = True) -> Example:
    timeline = timeline_of(shape)
    overlap = overlap_of(shape, waits=waits)
    busy = overlap.mean.io_s or 0.0
    read = int(timeline.bytes_read.sum())
    results = Results(
        coverage_of(*notices),
        summary_of(shape, timeline, busy),
        sizes_of(timeline),
        timeline,
        access_of(4000 * shape.ranks),
        files_of(shape, read),
        balance_of(shape, busy, read),
        steps_of(shape, waits=waits),
        datasets.dataset_of(file_paths(shape), shape.ranks, shape.run_s),
        filetimeline=filetimeline_of(shape, files_of(shape, read)),
        busy=dict.fromkeys(range(shape.ranks), one_span(busy)),
        sum_ns=dict.fromkeys(range(shape.ranks), round(busy * 1e9)),
    )
    phases = datasets.phases_of(shape.run_s, shape.first_s, shape.steps * shape.step_s)
    records = step_records_of(shape, waits=waits)
    return Example(trace_of(shape, waits=waits), results, overlap, phases, records)


def one_span(length_s: float) -> Intervals:
    """A time from the start of the job on."""
    return Intervals(np.array([START_NS]), np.array([START_NS + round(length_s * 1e9)]))


def full() -> Example:
    truncated = Notice(
        "clock_unverified",
        "Profiler and Darshan clocks are both absolute but nothing in the run confirms them: "
        "times may be off by 1 ms.",
    )
    stdio = Notice("stdio_untraced", "42 STDIO operations are counted but not traced.")
    return everything(Shape(), truncated, stdio)


def one_rank() -> Example:
    return everything(Shape(ranks=1, io_of_wait=0.6853, hidden_share=0.0, names=NASTY[:1]))


def decoding() -> Example:
    """Three workers that decode: the wait is hardly I/O."""
    return everything(Shape(ranks=1, io_of_wait=0.03, hidden_share=0.12, wait_share=0.14))


def no_wait_spans() -> Example:
    return everything(Shape(), waits=False)


def long_run() -> Example:
    """Profiled steps are a sliver of a long run."""
    return everything(Shape(ranks=8, steps=30, run_s=988.0, first_s=412.0, bins=4096, files=3))


def no_profile() -> Example:
    made = everything(Shape(run_s=988.0, steps=1500, step_s=0.62))
    trace = replace(made.trace, profiles=(), spans=no_spans())
    return Example(trace, replace(made.results, steps=None), phases=made.phases)


def profile_only() -> Example:
    """Steps and waits, but neither counters nor single operations."""
    shape = Shape()
    summary = Summary("POSIX", "", *[None] * 10, ())  # type: ignore[arg-type]
    results = Results(
        Coverage(False, (), (Notice("no_io_log", "No Darshan log was found."),)),
        summary,
        Sizes(None, None, None, None, (), (), (), 0),
        None,
        None,
        FileTotals((), (), ()),
        None,
        steps_of(shape, io=False),
    )
    trace = replace(trace_of(shape), layers_traced=())
    return Example(trace, results, overlap_of(shape, io=False))


def counters_only() -> Example:
    shape = Shape(run_s=988.0)
    layers = (
        LayerTotals("POSIX", 61, 9_000, 11, 1_620_000_000, 271_000, 11.9, 0.2, 1.1),
        LayerTotals("STDIO", 4, 12, 30, 4096, 1_000_000_000, 0.1, 2.2, None),
    )
    summary = Summary(
        "POSIX", "counters", 9_011, 9_000, 11, 1_620_000_000, 271_000, None, None, None,
        1_620_004_096, 1_000_271_000, layers,
    )  # fmt: skip
    files = FileTotals(
        tuple(replace(f, io_s=None, first_s=None, last_s=None) for f in files_of(shape, 9**9).rows),
        (GroupRow("dataset", 60, 1_620_000_000, 0, None),),
        (),
    )
    layer = LayerCoverage("POSIX", 9_011, 0, 0.0, False, None)
    results = Results(
        Coverage(False, (layer,), (Notice("not_traced", "No single operations: DXT was off."),)),
        summary,
        Sizes(None, None, None, None, (), darshan_bins(9_000), (), 0),
        None,
        None,
        files,
        None,
        None,
    )
    return Example(replace(trace_of(shape, profile=False), layers_traced=()), results)


def nothing() -> Example:
    """A log of a job that did no I/O at all."""
    shape = Shape(ranks=1, files=0)
    time = BusyTime(0.0, 0.0, 0.0, 0.0, 0.0)
    summary = Summary("POSIX", "trace", 0, 0, 0, 0, 0, time, None, None, 0, 0, ())
    zeros = np.zeros((1, 16), np.int64)
    idle = Timeline(np.linspace(0, 31.4, 17), ("rank 0",), 1, zeros, zeros, zeros, zeros)
    none = AccessCounts(0, 0, 0, 0, 0, 0, 0)
    load = RankLoad("rank 0", 0, "node000", 1, 0, 0, 0, 0.0)
    results = Results(
        Coverage(True, (LayerCoverage("POSIX", 0, 0, None, False, None),), ()),
        summary,
        Sizes(None, None, None, None, (), (), (), 0),
        idle,
        Access(none, none, (0, 0), (0, 0)),
        FileTotals((), (), ()),
        Balance((load,), None, None, 1),
        None,
    )
    return Example(trace_of(shape, profile=False), results)


def many_ranks() -> Example:
    """The largest case: 1024 ranks, 256 timeline rows x 4096 bins, 12,345 long file names."""
    notice = Notice("truncated", "DXT dropped the tail of 1,024 logs after 61 % of the operations.")
    names = tuple(f"/lustre/проект/{'数𝔇' * 90}/sample-{i:06d}.npz" for i in range(12_345))
    return everything(
        Shape(ranks=1024, steps=300, run_s=200.0, bins=4096, rows=256, files=0, names=names),
        notice,
    )


def hostile() -> Example:
    bad = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    made = everything(
        Shape(ranks=3, host=bad, names=NASTY, files=20), Notice("partial", bad + " {{7*7}}\n\u2028")
    )
    job = replace(made.trace.job, command=" ".join(NASTY), id=bad)
    files = made.results.files
    files = replace(files, by_kind=(GroupRow(bad, 3, 10**9, 0, 1.0), *files.by_kind))
    return replace(
        made, trace=replace(made.trace, job=job), results=replace(made.results, files=files)
    )


def untraced() -> Example:
    """Counters, a heat map, Lustre stripes and MPI times, as a log without DXT gives them."""
    bins = rng().integers(0, 2**30, (2, 2, 40))
    heatmaps = tuple(HeatmapRecord("POSIX", r, 10**9, *bins[r]) for r in range(2))
    names = {1: "/data/part-1.h5", 2: NASTY[0]}
    log = darshan_log([], pid=None, nprocs=4, names=names, length_ns=40 * 10**9)
    log = replace(log, mpi=tuple(MpiRecord(r, "node01", 2.0 + r, None) for r in range(4)))
    read = np.array([8, 4, 2], np.int64)
    counters = {f"POSIX_{w}": read for w in ("READS", "WRITES", "SEQ_READS", "SEQ_WRITES")}
    counters |= {f"POSIX_BYTES_{w}": read << 20 for w in ("READ", "WRITTEN")}
    counters |= {f"POSIX_CONSEC_{w}": read // 2 for w in ("READS", "WRITES")}
    counters |= {f"POSIX_SIZE_{w}_100K_1M": read for w in ("READ", "WRITE")}
    seconds = {f"POSIX_F_{w}_TIME": read / 10 for w in ("READ", "WRITE", "META")}
    ids, ranks = np.array([1, 1, 2], np.uint64), np.array([0, 1, -1], np.int64)
    table = CounterRecords("POSIX", ids, ranks, counters, seconds)
    stripes = (StripeRecord(1, 1 << 20, 20, tuple(range(20))), StripeRecord(2, 1 << 16, 1, ()))
    trace = assemble(Group((log,), ()), {log.path: CounterFile((table,), (), stripes, heatmaps)})
    return Example(trace, analyse(trace))


def undated_steps() -> Example:
    """Traced operations beside a step table without times."""
    log = darshan_log([Io(i * 10**8, i * 10**8 + 10**7, 0, 4096) for i in range(9)])
    table = StepDurations("t", "tensorboard-input-pipeline", "node01",
                          np.arange(30, dtype=np.int32), np.arange(1, 31) * 10**7)  # fmt: skip
    trace = assemble(Group((log,), ()), {}, durations=[table])
    return Example(trace, analyse(trace))


def placed_steps() -> Example:
    """Steps without times that fit between bursts of reads."""
    random, ios, durations, at = rng(), [], [], 10**9
    for _ in range(30):
        burst = int(random.uniform(30, 90)) * 10**6
        ios += [Io(at + i * burst // 10, at + (i + 1) * burst // 10 - 1000, 0, 4096)
                for i in range(10)]  # fmt: skip
        durations.append(int(random.uniform(300, 900)) * 10**6)
        at += durations[-1] + int(random.uniform(80, 120)) * 10**6
    table = StepDurations("t", "tensorboard-input-pipeline", "node01",
                          np.arange(29, dtype=np.int32), np.array(durations[:-1]))  # fmt: skip
    log = darshan_log(ios, length_ns=60 * 10**9, names={1: f"{NASTY[0]}.h5"})
    trace = assemble(Group((log,), ()), {}, durations=[table])
    results = analyse(trace)
    assert results.placement is not None
    return Example(trace, results)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


EXAMPLES: dict[str, Callable[[], Example]] = {
    make.__name__: cache(make)  # records are frozen: all tests share them
    for make in (
        full,
        one_rank,
        decoding,
        no_wait_spans,
        long_run,
        no_profile,
        profile_only,
        counters_only,
        nothing,
        many_ranks,
        hostile,
        untraced,
        undated_steps,
        placed_steps,
    )
}
