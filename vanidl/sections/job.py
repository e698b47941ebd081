"""What ran (command, start, ranks, hosts), and the totals of its I/O."""

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
from vanidl.schema.schema import Maybe, fields_of
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
    ]
    if trace.ending is not None:
        rows.append(("ended", describe_ending(trace.ending) or "exit status 0"))
    # Time inside MPI calls, where Darshan's AutoPerf module recorded it.
    if total := [m.total_s for m in trace.mpi]:
        mean = seconds(sum(total) / len(total))
        rows.append(("MPI calls", f"{mean} per rank on average, {seconds(max(total))} at most"))
    return named_values("Job", rows)


def _collect_job(run: Run) -> Object:
    job, trace = run.trace.job, run.trace
    # How the recorded command ended.
    ending = None
    if trace.ending is not None:
        ending = values_of(trace.ending) | {
            "signal": trace.ending.signal or None,
            "last_error": trace.ending.last_error or None,
        }
    # Seconds inside MPI calls by rank, where Darshan's AutoPerf module recorded them.
    mpi = None
    if total := [m.total_s for m in trace.mpi]:
        per_rank = [
            {"label": trace.processes[m.process].label, **values_of(m, without=("process",))}
            for m in trace.mpi
            if m.process >= 0
        ]
        mpi = {"mean": sum(total) / len(total), "max": max(total), "per_rank": per_rank}
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
        "mpi_time_s": mpi,
        "ending": ending,
    }


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
    # Bytes that reached storage, whichever layer the run is seen through.
    by_layers = f"{name_storage_layers(run)}, by counters"
    rows = (
        ("run time", seconds(run.trace.job.run_time_s), "last end minus first start over its logs"),
        *amounts,
        *_list_times(summary),
        ("storage read", nbytes(summary.storage_bytes_read), by_layers),
        ("storage written", nbytes(summary.storage_bytes_written), by_layers),
    )
    # Time inside MPI calls, where Darshan's AutoPerf module recorded it.
    if total := [m.total_s for m in run.trace.mpi]:
        rows += (
            ("time in MPI, mean", seconds(sum(total) / len(total)), "inside MPI calls, over ranks"),
            ("time in MPI, longest", seconds(max(total)), "the rank with most of it"),
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
    time, counted = summary.time, summary.counter_s
    # Counters have no single operations: no busy time, and sums only.
    if time is None:
        busy = ("busy time", seconds(None), "needs single operations with their times")
        if counted is None:
            return (busy,)
        meaning = "by counters, summed over files and processes: not busy time"
        return (
            busy,
            ("reading", seconds(counted.read_s), meaning),
            ("writing", seconds(counted.write_s), meaning),
            ("metadata", seconds(counted.meta_s), meaning),
            ("reading and writing, mean", seconds(counted.per_rank_mean_s),
             "by counters, over ranks"),
            ("reading and writing, longest", seconds(counted.per_rank_max_s),
             "not known where Darshan adds up files over all ranks"),
        )  # fmt: skip
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


def name_storage_layers(run: Run) -> str:
    """The layers whose bytes are storage's, but for unread ones: those of DAOS where used."""
    unread = {module for log in run.trace.logs for module in log.unread_modules}
    summary = run.summary
    # POSIX and STDIO are named even where unused: they were looked at.
    objects = [layer.layer for layer in summary.layers if layer.layer in (DAOS, DFS)]
    read = [layer for layer in (POSIX, STDIO, *objects) if layer not in unread]
    return " and ".join(filter(None, (", ".join(read[:-1]), *read[-1:]))) or "no layer was read"


def _write_totals(run: Run) -> str | None:
    """Bytes, time and order of the operations of the chosen layer, and what storage moved."""
    summary = run.summary
    title, time, counted = f"I/O through {summary.layer}", summary.time, summary.counter_s
    if not summary.source:
        return named_values(title, [("operations", "not recorded")])
    rows = [
        ("read", f"{nbytes(summary.bytes_read)} in {count(summary.reads)} operations"),
        ("written", f"{nbytes(summary.bytes_written)} in {count(summary.writes)} operations"),
    ]
    if time is not None:
        mean, most = seconds(time.per_rank_mean_s), seconds(time.per_rank_max_s)
        anyone, plain = seconds(time.any_rank_s), seconds(time.sum_s)
        share = percent(time.share)
        whole = bandwidth(summary.aggregate_bytes_per_s)
        median = bandwidth(summary.per_op_median_bytes_per_s)
        rows += [
            ("busy time", f"{mean} per rank on average ({share} of the run), {most} at most"),
            ("", f"{anyone} with any rank in I/O, {plain} as a plain sum of durations"),
            ("bandwidth", f"{whole} while any rank is in I/O, {median} median operation"),
        ]
    else:
        rows.append(("busy time", "not recorded (no traced operations)"))
    # Times by counters stand in for busy time where none is known.
    if time is None and counted is not None:
        spent = f"{seconds(counted.read_s)} reading, {seconds(counted.write_s)} writing"
        meta = "" if counted.meta_s is None else f", {seconds(counted.meta_s)} metadata"
        mean = f"{seconds(counted.per_rank_mean_s)} reading and writing per rank on average"
        rows.append(("by counters", f"{spent}{meta}, summed over files and processes"))
        rows.append(("", mean))
    # Time in calls that take files away, which is no part of opening them.
    if spent_s := sum(layer.remove_s or 0.0 for layer in summary.layers):
        removing = f"{seconds(spent_s)} in unlink, remove and rmdir"
        rows.append(("removing", f"{removing}, summed over files and processes"))
    moved = (
        f"{nbytes(summary.storage_bytes_read)} read, {nbytes(summary.storage_bytes_written)} "
        f"written ({name_storage_layers(run)})"
    )
    rows += [("storage", moved), *requests.list_access(run), *coverage.list_coverage(run)]
    return named_values(title, rows)


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
