"""What ran: command, start, ranks, hosts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from vanidl.analyses.by_counters import CounterTime
from vanidl.analyses.summary import BusyTime, Summary
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import (
    bandwidth,
    count,
    iso_time,
    nbytes,
    percent,
    plural,
    seconds,
    text,
)
from vanidl.model.counter_tables import MpiTime
from vanidl.model.run_facts import Ending, describe_ending
from vanidl.model.trace import DAOS, DFS, POSIX, STDIO, Trace
from vanidl.run import Run
from vanidl.schema import Maybe, fields_of
from vanidl.sections import coverage, requests
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording import tracing


def list_facts(run: Run) -> tuple[tuple[str, str], ...]:
    """What ran, in a line of small facts at the head of the page."""
    job, trace = run.trace.job, run.trace
    start = datetime.fromtimestamp(job.start_ns / 1e9, tz=timezone.utc)
    hosts = _find_hosts(trace)
    return (
        ("job", elided(job.id or "not recorded", limit=80)),
        ("started", f"{start:%Y-%m-%d %H:%M:%S} UTC"),
        ("run time", seconds(job.run_time_s)),
        ("ranks", count(len(trace.ranks))),
        ("processes", count(len(trace.processes))),
        ("hosts", count(len(hosts)) if hosts else "not recorded"),
        ("tracer", tracing.name_tracer_versions(run.trace)),
        *((("ended", f"exit status {trace.ending.exit_status}"),) if trace.ending else ()),
    )


def _write_job(run: Run) -> str | None:
    job, trace = run.trace.job, run.trace
    hosts = _find_hosts(trace)
    # Eight hosts fit into a line of text.
    shown = ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    processes = plural(len(trace.processes), "process", "processes")
    rows = [
        ("id", text(job.id)),
        ("command", text(job.command or None)),
        ("start", f"{iso_time(job.start_ns)}, run time {seconds(job.run_time_s)}"),
        ("ranks", f"{len(trace.ranks):,} ({processes}) on {shown or 'unknown hosts'}"),
        ("tracer", tracing.name_tracer_versions(trace)),
        *_list_ending(trace),
        *_list_mpi(trace),
    ]
    return named_values("Job", rows)


def _list_ending(trace: Trace) -> list[tuple[str, str]]:
    if trace.ending is None:
        return []
    return [("ended", describe_ending(trace.ending) or "exit status 0")]


def _list_mpi(trace: Trace) -> list[tuple[str, str]]:
    total = [m.total_s for m in trace.mpi]
    if not total:
        return []
    mean = seconds(sum(total) / len(total))
    return [("MPI calls", f"{mean} per rank on average, {seconds(max(total))} at most")]


def _collect_job(run: Run) -> Object:
    job, trace = run.trace.job, run.trace
    return {
        "id": job.id,
        "command": job.command,
        "start": iso_time(job.start_ns),
        "run_time_s": job.run_time_s,
        "ranks": len(trace.ranks),
        "processes": len(trace.processes),
        "hosts": _find_hosts(trace),
        "tracer": job.tracer or None,
        "roles": dict(sorted(Counter(p.role for p in trace.processes).items())),
        "mpi_time_s": _collect_mpi(trace),
        "ending": _collect_ending(trace),
    }


def _collect_ending(trace: Trace) -> Object | None:
    """How the recorded command ended."""
    ending = trace.ending
    if ending is None:
        return None
    return values_of(ending) | {
        "signal": ending.signal or None,
        "last_error": ending.last_error or None,
    }


def _collect_mpi(trace: Trace) -> Object | None:
    """Seconds inside MPI calls by rank, where Darshan's AutoPerf module recorded them."""
    if not trace.mpi:
        return None
    total = [m.total_s for m in trace.mpi]
    per_rank = [
        {"label": trace.processes[m.process].label, **values_of(m, without=("process",))}
        for m in trace.mpi
        if m.process >= 0
    ]
    return {"mean": sum(total) / len(total), "max": max(total), "per_rank": per_rank}


def _find_hosts(trace: Trace) -> list[str]:
    return sorted({p.host for p in trace.processes if p.host})


_MPI = {
    "mean": float,
    "max": float,
    "per_rank": [{"label": str} | fields_of(MpiTime, without=("process",))],
}
_JOB_KIND = {
    "id": str | None,
    "command": str,
    "start": str,
    "run_time_s": float,
    "ranks": int,
    "processes": int,
    "hosts": [str],
    "tracer": str | None,
    "roles": {str: int},
    "mpi_time_s": Maybe(_MPI),
    "ending": Maybe(fields_of(Ending) | {"signal": str | None, "last_error": str | None}),
}
JOB = Section("job", text=_write_job, json={"job": Json(_collect_job, _JOB_KIND)}, traced=False)


# Totals of the run, as one table of quantity, value and meaning.

_TOTALS_COLUMNS = (Column("quantity"), Column("value"), Column("meaning"))


def draw_totals(run: Run) -> Figure:
    """Run time, operations, bytes and busy time of the chosen layer, and storage in all."""
    summary = run.summary
    layer = summary.layer
    amounts = (
        ("operations", count(summary.ops), f"reads and writes through {layer}"),
        ("reads", count(summary.reads), f"through {layer}"),
        ("writes", count(summary.writes), f"through {layer}"),
        ("bytes read", nbytes(summary.bytes_read), f"through {layer}"),
        ("bytes written", nbytes(summary.bytes_written), f"through {layer}"),
    )
    rows = (
        ("run time", seconds(run.trace.job.run_time_s), "last end minus first start over its logs"),
        *amounts,
        *_list_times(summary),
        *_list_storage(run),
        *_list_mpi_time(run.trace),
    )
    if not summary.source:  # one sentence for what is not known, not a row for each
        rows = tuple(row for row in rows if row[1] != seconds(None))
    sources = {"trace": "From single operations.", "counters": "From the tracer's totals."}
    nothing = f"No operation through {summary.layer} was recorded; unknown is not zero."
    caption = sources.get(summary.source, nothing)
    return Figure(
        "summary", "Totals", "Totals of the run", caption, None, Table(_TOTALS_COLUMNS, rows)
    )


def _list_times(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    time = summary.time
    # Counters have no single operations: no busy time, and sums only.
    if time is None:
        busy = ("busy time", seconds(None), "needs single operations with their times")
        return (busy, *_list_counter_times(summary.counter_s))
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


def _list_counter_times(time: CounterTime | None) -> tuple[tuple[str, str, str], ...]:
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


def _list_mpi_time(trace: Trace) -> tuple[tuple[str, str, str], ...]:
    """Time inside MPI calls, where Darshan's AutoPerf module recorded it."""
    total = [m.total_s for m in trace.mpi]
    if not total:
        return ()
    return (
        ("time in MPI, mean", seconds(sum(total) / len(total)), "inside MPI calls, over ranks"),
        ("time in MPI, longest", seconds(max(total)), "the rank with most of it"),
    )


def name_storage_layers(run: Run) -> str:
    """The layers whose bytes are storage's, but for unread ones: those of DAOS where used."""
    unread = {module for log in run.trace.logs for module in log.unread_modules}
    summary = run.summary
    # POSIX and STDIO are named even where unused: they were looked at.
    objects = [layer.layer for layer in summary.layers if layer.layer in (DAOS, DFS)]
    read = [layer for layer in (POSIX, STDIO, *objects) if layer not in unread]
    return " and ".join(filter(None, (", ".join(read[:-1]), *read[-1:]))) or "no layer was read"


def _list_storage(run: Run) -> tuple[tuple[str, str, str], ...]:
    summary = run.summary
    return (
        (
            "storage read",
            nbytes(summary.storage_bytes_read),
            f"{name_storage_layers(run)}, by counters",
        ),
        (
            "storage written",
            nbytes(summary.storage_bytes_written),
            f"{name_storage_layers(run)}, by counters",
        ),
    )


def _write_totals(run: Run) -> str | None:
    return named_values(f"I/O through {run.summary.layer}", _list_rows(run))


def _list_rows(run: Run) -> list[tuple[str, str]]:
    summary = run.summary
    if not summary.source:
        return [("operations", "not recorded")]
    # Time in calls that take files away, which is no part of opening them.
    spent_s = sum(layer.remove_s or 0.0 for layer in summary.layers)
    said = f"{seconds(spent_s)} in unlink, remove and rmdir, summed over files and processes"
    removing = [("removing", said)] if spent_s else []
    return [
        ("read", f"{nbytes(summary.bytes_read)} in {count(summary.reads)} operations"),
        ("written", f"{nbytes(summary.bytes_written)} in {count(summary.writes)} operations"),
        # Times by counters stand in for busy time where none is known.
        *(_collect_busy(summary.time) or _collect_counter_time(summary.counter_s)),
        *_list_bandwidth(summary),
        *removing,
        ("storage", f"{nbytes(summary.storage_bytes_read)} read, "
                    f"{nbytes(summary.storage_bytes_written)} written "
                    f"({name_storage_layers(run)})"),
        *requests.list_access(run),
        *coverage.list_coverage(run),
    ]  # fmt: skip


def _collect_busy(time: BusyTime | None) -> list[tuple[str, str]]:
    if time is None:
        return []
    mean, most = seconds(time.per_rank_mean_s), seconds(time.per_rank_max_s)
    anyone, plain = seconds(time.any_rank_s), seconds(time.sum_s)
    share = percent(time.share)
    return [
        ("busy time", f"{mean} per rank on average ({share} of the run), {most} at most"),
        ("", f"{anyone} with any rank in I/O, {plain} as a plain sum of durations"),
    ]


def _collect_counter_time(time: CounterTime | None) -> list[tuple[str, str]]:
    rows = [("busy time", "not recorded (no traced operations)")]
    if time is None:
        return rows
    spent = f"{seconds(time.read_s)} reading, {seconds(time.write_s)} writing"
    meta = "" if time.meta_s is None else f", {seconds(time.meta_s)} metadata"
    mean = f"{seconds(time.per_rank_mean_s)} reading and writing per rank on average"
    rows.append(("by counters", f"{spent}{meta}, summed over files and processes"))
    return [*rows, ("", mean)]


def _list_bandwidth(summary: Summary) -> list[tuple[str, str]]:
    if summary.time is None:
        return []
    both = bandwidth(summary.aggregate_bytes_per_s), bandwidth(summary.per_op_median_bytes_per_s)
    return [("bandwidth", f"{both[0]} while any rank is in I/O, {both[1]} median operation")]


def _collect_totals(run: Run) -> Object:
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


_TOTALS_KIND = {
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
TOTALS = Section(
    "summary", (draw_totals,), _write_totals, {"io": Json(_collect_totals, _TOTALS_KIND)}
)
