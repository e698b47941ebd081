"""The summary for a terminal: the same numbers and words as the report."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from vanidl.analyses import Results
from vanidl.analyses.access import AccessCounts
from vanidl.analyses.by_counters import CounterTime
from vanidl.analyses.coverage import LayerCoverage
from vanidl.analyses.overlap import Overlap, RankOverlap
from vanidl.analyses.perstep import by_kind
from vanidl.analyses.sizes import Sizes
from vanidl.analyses.summary import BusyTime, Summary
from vanidl.figures.sizes import bin_label
from vanidl.formatting.units import bandwidth, count, nbytes, percent, plural, seconds, text
from vanidl.model.trace import Trace
from vanidl.report.advice_text import findings_text, what_if_rows
from vanidl.report.dataset_text import dataset_pairs, phase_table
from vanidl.report.json import iso_time
from vanidl.run import Run
from vanidl.wording.clock import clock_pairs
from vanidl.wording.placement import placement_rows, placement_sentences

WIDTH = 98
_MOST_RANKS = 16
_MOST_FILES = 8

Row = tuple[str, ...]


def summary_text(run: Run) -> str:
    """The headline, warnings and tables of one run, at most WIDTH columns wide."""
    trace, results, answer = run.trace, run.results, run.answer
    blocks = [
        paragraph(answer.title),
        *(paragraph(sentence) for sentence in answer.support),
        "",
        *_warnings(results),
        findings_text(run, WIDTH),
        _section("Job", _job(trace)),
        _section(f"I/O through {results.summary.layer}", _io(results)),
        _section("Transfer sizes", _sizes(results)),
        _section("Dataset", dataset_pairs(trace, results)),
        aligned_table("Phases", phase_table(results)),
        _section("Steps", _steps(results)),
        aligned_table("Steps by kind, means", _step_kinds(results)),
        _overlap(results.overlap),
        aligned_table("What if (replayed with changed input)", what_if_rows(run)),
        *(paragraph(s) for s in placement_sentences(results.placement)),
        aligned_table("Steps without times between bursts of reads", placement_rows(results)),
        aligned_table("By kind of file", _kinds(results)),
        aligned_table("Busiest files", _files(results)),
    ]
    return printable("\n".join(block for block in blocks if block is not None)) + "\n"


def printable(document: str) -> str:
    """Control characters of names shown as escapes: a log cannot drive the terminal."""
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in document
    )


def paragraph(sentence: str) -> str:
    """The sentence in lines of at most WIDTH columns."""
    return textwrap.fill(sentence, WIDTH)


_MARK = {"warning": "!", "info": "-"}


def _warnings(results: Results) -> list[str]:
    return [
        textwrap.fill(f"{_MARK[w.severity]} {w.code}: {w.message}", WIDTH, subsequent_indent="  ")
        + "\n"
        for w in sorted(results.coverage.warnings, key=lambda w: w.severity == "info")
    ]


def _section(title: str, rows: Iterable[tuple[str, str]]) -> str | None:
    pairs = list(rows)
    if not pairs:
        return None
    width = max(len(name) for name, _ in pairs)
    lines = [
        textwrap.fill(f"  {name.ljust(width)}  {value}", WIDTH, subsequent_indent=" " * (width + 4))
        for name, value in pairs
    ]
    return "\n".join([title, *lines, ""])


def aligned_table(title: str, rows: Sequence[Row]) -> str | None:
    """Header and rows in aligned columns under a title; None where there is only a header."""
    if len(rows) < 2:  # a header and nothing under it
        return None
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_aligned(row, widths) for row in rows]
    return "\n".join([title, *lines, ""])


def _aligned(row: Row, widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    first, *rest = row
    cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
    return ("  " + "  ".join(cells)).rstrip()


def _job(trace: Trace) -> list[tuple[str, str]]:
    job = trace.job
    hosts = sorted({p.host for p in trace.processes if p.host})
    shown = ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    people = f"{len(trace.ranks):,} ({plural(len(trace.processes), 'process', 'processes')})"
    return [
        ("id", text(job.id)),
        ("command", text(job.command or None)),
        ("start", f"{iso_time(job.start_ns)}, run time {seconds(job.run_time_s)}"),
        ("ranks", f"{people} on {shown or 'unknown hosts'}"),
        *_mpi(trace),
    ]


def _mpi(trace: Trace) -> list[tuple[str, str]]:
    total = [m.total_s for m in trace.mpi]
    if not total:
        return []
    mean = seconds(sum(total) / len(total))
    return [("MPI calls", f"{mean} a rank on average, {seconds(max(total))} at most")]


def _io(results: Results) -> list[tuple[str, str]]:
    summary = results.summary
    if not summary.source:
        return [("operations", "not recorded")]
    rows = [
        ("read", f"{nbytes(summary.bytes_read)} in {count(summary.reads)} operations"),
        ("written", f"{nbytes(summary.bytes_written)} in {count(summary.writes)} operations"),
        *(_busy(summary.time) or _counter_time(summary.counter_s)),
        *_bandwidth(summary),
        ("storage", f"{nbytes(summary.storage_bytes_read)} read, "
                    f"{nbytes(summary.storage_bytes_written)} written (POSIX and STDIO)"),
    ]  # fmt: skip
    return rows + _access(results) + _coverage(results)


def _busy(time: BusyTime | None) -> list[tuple[str, str]]:
    if time is None:
        return []
    mean, most = seconds(time.per_rank_mean_s), seconds(time.per_rank_max_s)
    anyone, plain = seconds(time.any_rank_s), seconds(time.sum_s)
    return [
        (
            "busy time",
            f"{mean} a rank on average ({percent(time.share)} of the run), {most} at most",
        ),
        ("", f"{anyone} with any rank in I/O, {plain} as a plain sum of durations"),
    ]


def _counter_time(time: CounterTime | None) -> list[tuple[str, str]]:
    rows = [("busy time", "not recorded (no traced operations)")]
    if time is None:
        return rows
    spent = f"{seconds(time.read_s)} reading, {seconds(time.write_s)} writing"
    meta = "" if time.meta_s is None else f", {seconds(time.meta_s)} metadata"
    mean = f"{seconds(time.per_rank_mean_s)} reading and writing a rank on average"
    rows.append(("by counters", f"{spent}{meta}, summed over files and processes"))
    return [*rows, ("", mean)]


def _bandwidth(summary: Summary) -> list[tuple[str, str]]:
    if summary.time is None:
        return []
    both = bandwidth(summary.aggregate_bytes_per_s), bandwidth(summary.per_op_median_bytes_per_s)
    return [("bandwidth", f"{both[0]} while any rank is in I/O, {both[1]} median operation")]


def _access(results: Results) -> list[tuple[str, str]]:
    if results.access is None or not results.access.read.ops:
        return []
    read = results.access.read
    if results.access.source == "counters":
        return [("reads are", _by_darshans_rule(read))]
    parts = [
        f"{percent(getattr(read, name) / read.ops)} {name}"
        for name in ("consecutive", "forward", "backward", "first")
    ]
    return [("reads are", ", ".join(parts))]


def _by_darshans_rule(read: AccessCounts) -> str:
    sequential, consecutive = read.sequential_darshan, read.consecutive_darshan
    if sequential is None or consecutive is None:
        return "in an order that was not recorded"
    return (
        f"{percent(consecutive / read.ops)} consecutive, {percent(sequential / read.ops)} "
        "sequential (those included), by Darshan's counters"
    )


def _coverage(results: Results) -> list[tuple[str, str]]:
    return [
        (f"{c.layer} trace", f"{_traced(c)} operations traced")
        for c in results.coverage.layers
        if c.traced_ops is not None
    ]


def _traced(cover: LayerCoverage) -> str:
    """Traced operations, of how many where the tracer counted them apart."""
    if cover.counted_ops is None:
        return count(cover.traced_ops)
    return f"{count(cover.traced_ops)} of {count(cover.counted_ops)}"


def _sizes(results: Results) -> list[tuple[str, str]]:
    sizes = results.sizes
    if sizes.min is None:
        return _size_classes(sizes)
    common = ", ".join(
        f"{nbytes(c.nbytes)} x {count(c.reads + c.writes)}" for c in sizes.common[:4]
    )
    return [
        ("range", f"{nbytes(sizes.min)} to {nbytes(sizes.max)}, mean {nbytes(sizes.mean)}, "
                  f"median {nbytes(sizes.median)}"),
        ("most frequent", common),
    ]  # fmt: skip


def _size_classes(sizes: Sizes) -> list[tuple[str, str]]:
    """Darshan's classes with any operation in them; that is all that counters know."""
    used = [b for b in sizes.darshan_histogram if b.reads or b.writes]
    return [(bin_label(b), f"{plural(b.reads, 'read')}, {plural(b.writes, 'write')}") for b in used]


def _steps(results: Results) -> list[tuple[str, str]]:
    steps = results.steps
    if steps is None:
        return []
    many = f"{steps.per_rank_min}" if steps.per_rank_min == steps.per_rank_max else (
        f"{steps.per_rank_min} to {steps.per_rank_max}")  # fmt: skip
    return [
        ("profiled", f"{many} a rank on {plural(steps.ranks, 'rank')} ({steps.source})"),
        ("duration", f"mean {seconds(steps.mean_s)}, median {seconds(steps.median_s)}, "
                     f"99 % under {seconds(steps.p99_s)}"),
        *clock_pairs(steps),
    ]  # fmt: skip


def _step_kinds(results: Results) -> Sequence[Row]:
    """First steps of epochs and checkpoint steps beside the others; the header alone without."""
    header = ("kind", "steps", "duration", "input wait", "of it I/O", "in I/O", "read", "written")
    steps, each = results.steps, results.perstep
    kinds = () if steps is None or each is None else by_kind(steps.table, each)
    if len(kinds) < 2:
        return [header]
    return [header] + [
        (
            k.kind, count(k.steps), seconds(k.duration_s), seconds(k.input_wait_s),
            seconds(k.input_wait_io_s), seconds(k.busy_s), nbytes(k.bytes_read),
            nbytes(k.bytes_written),
        )
        for k in kinds
    ]  # fmt: skip


_SPLIT = (
    ("window", "window_s"), ("I/O", "io_s"), ("unobserved", "unobserved_s"),
    ("in wait", "in_wait_s"), ("hidden", "hidden_s"), ("behind comm.", "behind_communication_s"),
    ("other", "other_s"), ("wait", "input_wait_s"),
)  # fmt: skip


_BASIS = {"device": "device kernels", "ops": "CPU operators"}


def _overlap(overlap: Overlap | None) -> str | None:
    if overlap is None:
        return None
    rows: list[Row] = [("seconds", *(name for name, _ in _SPLIT))]
    shown = overlap.per_rank[:_MOST_RANKS]
    rows += [_split(row) for row in shown]
    if len(overlap.per_rank) > 1:
        rows.append(_split(overlap.mean))
    cut = len(overlap.per_rank) - len(shown)
    more = f" ({len(shown)} of {len(overlap.per_rank)} ranks shown)" if cut else ""
    basis = _BASIS.get(overlap.basis or "", "not recorded")
    return aligned_table(f"Where the I/O falls; compute: {basis}{more}", rows)


def _split(row: RankOverlap) -> Row:
    values = [getattr(row, name) for _, name in _SPLIT]
    return (row.label, *("not recorded" if v is None else f"{v:.3f}" for v in values))


def _kinds(results: Results) -> Sequence[Row]:
    header = ("kind", "files", "read", "written", "busy a rank")
    return [header] + [
        (g.name, count(g.files), nbytes(g.bytes_read), nbytes(g.bytes_written), seconds(g.busy_s))
        for g in results.files.by_kind
    ]


def _files(results: Results) -> Sequence[Row]:
    header = ("file", "kind", "read", "written", "in I/O")
    rows = results.files.rows[:_MOST_FILES]
    return [header] + [
        (_short(r.path), r.kind, nbytes(r.bytes_read), nbytes(r.bytes_written), seconds(r.io_s))
        for r in rows
    ]


def _short(path: str, width: int = 46) -> str:
    return path if len(path) <= width else "..." + path[3 - width :]
