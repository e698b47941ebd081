"""Totals of the run, as one table of quantity, value and meaning."""

from __future__ import annotations

from vanidl.analyses import Results
from vanidl.analyses.by_counters import CounterTime
from vanidl.analyses.summary import Summary
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.units import bandwidth, count, nbytes, percent, seconds
from vanidl.model.trace import Trace

_COLUMNS = (Column("quantity"), Column("value"), Column("meaning"))


def figure(trace: Trace, results: Results) -> Figure:
    """Run time, operations, bytes and busy time of the chosen layer, and storage in all."""
    summary = results.summary
    rows = (
        ("run time", seconds(trace.job.run_time_s), "last end minus first start over its logs"),
        *_amounts(summary),
        *_times(summary),
        *_storage(summary),
        *_mpi(trace),
    )
    sources = {"trace": "From single operations.", "counters": "From Darshan's totals."}
    caption = sources.get(summary.source, "No I/O was recorded; unknown is not zero.")
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
        ("aggregate bandwidth", bandwidth(summary.aggregate_bytes_per_s), "bytes / any rank"),
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


def _storage(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    return (
        ("storage read", nbytes(summary.storage_bytes_read), "POSIX and STDIO, by counters"),
        ("storage written", nbytes(summary.storage_bytes_written), "POSIX and STDIO, by counters"),
    )
