"""Totals of the run, as one table of quantity, value and meaning."""

from __future__ import annotations

from vanidl.analyses.by_counters import CounterTime
from vanidl.analyses.summary import BusyTime, Summary
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import bandwidth, count, nbytes, percent, seconds
from vanidl.model.trace import DAOS, DFS, POSIX, STDIO, Trace
from vanidl.run import Run
from vanidl.sections import access, coverage
from vanidl.sections.section import Json, Object, Section, values_of

_COLUMNS = (Column("quantity"), Column("value"), Column("meaning"))


def figure(run: Run) -> Figure:
    """Run time, operations, bytes and busy time of the chosen layer, and storage in all."""
    summary = run.summary
    rows = (
        ("run time", seconds(run.trace.job.run_time_s), "last end minus first start over its logs"),
        *_amounts(summary),
        *_times(summary),
        *_storage(run),
        *_mpi(run.trace),
    )
    if not summary.source:  # one sentence for what is not known, not a row for each
        rows = tuple(row for row in rows if row[1] != seconds(None))
    sources = {"trace": "From single operations.", "counters": "From the tracer's totals."}
    nothing = f"No operation through {summary.layer} was recorded; unknown is not zero."
    caption = sources.get(summary.source, nothing)
    return Figure("summary", "Totals", "Totals of the run", caption, None, Table(_COLUMNS, rows))


def _amounts(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    layer = summary.layer
    return (
        ("operations", count(summary.ops), f"reads and writes through {layer}"),
        ("reads", count(summary.reads), f"through {layer}"),
        ("writes", count(summary.writes), f"through {layer}"),
        ("bytes read", nbytes(summary.bytes_read), f"through {layer}"),
        ("bytes written", nbytes(summary.bytes_written), f"through {layer}"),
    )


def _times(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    time = summary.time
    if time is None:
        busy = ("busy time", seconds(None), "needs single operations with their times")
        return (busy, *_counter_times(summary.counter_s))
    return (
        ("busy time, mean", seconds(time.per_rank_mean_s), "union of operations in each rank"),
        ("busy time, longest", seconds(time.per_rank_max_s), "the rank with most of it"),
        ("busy share", percent(time.share), "mean busy time / run time"),
        ("busy time, any rank", seconds(time.any_rank_s), "union over the job"),
        ("sum of durations", seconds(time.sum_s), "operations side by side count twice"),
        (
            "aggregate bandwidth",
            bandwidth(summary.aggregate_bytes_per_s),
            "bytes / busy time of any rank",
        ),
        (
            "median bandwidth",
            bandwidth(summary.per_op_median_bytes_per_s),
            "of single operations",
        ),
    )


def _counter_times(time: CounterTime | None) -> tuple[tuple[str, str, str], ...]:
    if time is None:
        return ()
    meaning = "by counters, summed over files and processes: not busy time"
    return (
        ("reading", seconds(time.read_s), meaning),
        ("writing", seconds(time.write_s), meaning),
        ("metadata", seconds(time.meta_s), meaning),
        ("reading and writing, mean", seconds(time.per_rank_mean_s), "by counters, over ranks"),
        ("reading and writing, longest", seconds(time.per_rank_max_s), "not known where Darshan "
         "adds up files over all ranks"),
    )  # fmt: skip


def _mpi(trace: Trace) -> tuple[tuple[str, str, str], ...]:
    """Time inside MPI calls, where Darshan's AutoPerf module recorded it."""
    total = [m.total_s for m in trace.mpi]
    if not total:
        return ()
    return (
        ("time in MPI, mean", seconds(sum(total) / len(total)), "inside MPI calls, over ranks"),
        ("time in MPI, longest", seconds(max(total)), "the rank with most of it"),
    )


def storage_layers(run: Run) -> str:
    """The layers whose bytes are storage's, but for unread ones: those of DAOS where used."""
    unread = {module for log in run.trace.logs for module in log.unread_modules}
    summary = run.summary
    objects = [layer.layer for layer in summary.layers if layer.layer in (DAOS, DFS)]
    read = [layer for layer in (POSIX, STDIO, *objects) if layer not in unread]
    return " and ".join(filter(None, (", ".join(read[:-1]), *read[-1:]))) or "no layer was read"


def _storage(run: Run) -> tuple[tuple[str, str, str], ...]:
    summary = run.summary
    return (
        (
            "storage read",
            nbytes(summary.storage_bytes_read),
            f"{storage_layers(run)}, by counters",
        ),
        (
            "storage written",
            nbytes(summary.storage_bytes_written),
            f"{storage_layers(run)}, by counters",
        ),
    )


def _text(run: Run) -> str | None:
    return named_values(f"I/O through {run.summary.layer}", _text_rows(run))


def _text_rows(run: Run) -> list[tuple[str, str]]:
    summary = run.summary
    if not summary.source:
        return [("operations", "not recorded")]
    return [
        ("read", f"{nbytes(summary.bytes_read)} in {count(summary.reads)} operations"),
        ("written", f"{nbytes(summary.bytes_written)} in {count(summary.writes)} operations"),
        *(_busy(summary.time) or _counter_time(summary.counter_s)),
        *_bandwidth(summary),
        *_removing(summary),
        ("storage", f"{nbytes(summary.storage_bytes_read)} read, "
                    f"{nbytes(summary.storage_bytes_written)} written ({storage_layers(run)})"),
        *access.text_rows(run),
        *coverage.text_rows(run),
    ]  # fmt: skip


def _busy(time: BusyTime | None) -> list[tuple[str, str]]:
    if time is None:
        return []
    mean, most = seconds(time.per_rank_mean_s), seconds(time.per_rank_max_s)
    anyone, plain = seconds(time.any_rank_s), seconds(time.sum_s)
    share = percent(time.share)
    return [
        ("busy time", f"{mean} per rank on average ({share} of the run), {most} at most"),
        ("", f"{anyone} with any rank in I/O, {plain} as a plain sum of durations"),
    ]


def _counter_time(time: CounterTime | None) -> list[tuple[str, str]]:
    rows = [("busy time", "not recorded (no traced operations)")]
    if time is None:
        return rows
    spent = f"{seconds(time.read_s)} reading, {seconds(time.write_s)} writing"
    meta = "" if time.meta_s is None else f", {seconds(time.meta_s)} metadata"
    mean = f"{seconds(time.per_rank_mean_s)} reading and writing per rank on average"
    rows.append(("by counters", f"{spent}{meta}, summed over files and processes"))
    return [*rows, ("", mean)]


def _removing(summary: Summary) -> list[tuple[str, str]]:
    """Time in calls that take files away, which is no part of opening them."""
    spent_s = sum(layer.remove_s or 0.0 for layer in summary.layers)
    said = f"{seconds(spent_s)} in unlink, remove and rmdir, summed over files and processes"
    return [("removing", said)] if spent_s else []


def _bandwidth(summary: Summary) -> list[tuple[str, str]]:
    if summary.time is None:
        return []
    both = bandwidth(summary.aggregate_bytes_per_s), bandwidth(summary.per_op_median_bytes_per_s)
    return [("bandwidth", f"{both[0]} while any rank is in I/O, {both[1]} median operation")]


def _json(run: Run) -> Object:
    summary = run.summary
    return {
        "layer": summary.layer,
        "source": summary.source or None,
        "ops": summary.ops,
        "reads": summary.reads,
        "writes": summary.writes,
        "bytes_read": summary.bytes_read,
        "bytes_written": summary.bytes_written,
        "time": None if summary.time is None else values_of(summary.time),
        "counter_s": None if summary.counter_s is None else values_of(summary.counter_s),
        "bandwidth": {
            "aggregate_bytes_per_s": summary.aggregate_bytes_per_s,
            "per_op_median_bytes_per_s": summary.per_op_median_bytes_per_s,
        },
    }


_KIND = {
    "layer": str,
    "source": str | None,
    "ops": int | None,
    "reads": int | None,
    "writes": int | None,
    "bytes_read": int | None,
    "bytes_written": int | None,
    "time": BusyTime | None,
    "counter_s": CounterTime | None,
    "bandwidth": {
        "aggregate_bytes_per_s": float | None,
        "per_op_median_bytes_per_s": float | None,
    },
}
SECTION = Section("summary", (figure,), _text, {"io": Json(_json, _KIND)})
