"""What ran: command, start, ranks, hosts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from vanidl.formatting.names import elided
from vanidl.formatting.terminal import named_values
from vanidl.formatting.units import count, iso_time, plural, seconds, text
from vanidl.model.counter_tables import MpiTime
from vanidl.model.ending import Ending
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.schema import Maybe, fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording import tracing
from vanidl.wording.ending import ending_words


def facts(run: Run) -> tuple[tuple[str, str], ...]:
    """What ran, in a line of small facts at the head of the page."""
    job, trace = run.trace.job, run.trace
    start = datetime.fromtimestamp(job.start_ns / 1e9, tz=timezone.utc)
    hosts = _hosts(trace)
    return (
        ("job", elided(job.id or "not recorded", limit=80)),
        ("started", f"{start:%Y-%m-%d %H:%M:%S} UTC"),
        ("run time", seconds(job.run_time_s)),
        ("ranks", count(len(trace.ranks))),
        ("processes", count(len(trace.processes))),
        ("hosts", count(len(hosts)) if hosts else "not recorded"),
        ("tracer", tracing.named(run.trace)),
        *((("ended", f"exit status {trace.ending.exit_status}"),) if trace.ending else ()),
    )


def _text(run: Run) -> str | None:
    job, trace = run.trace.job, run.trace
    hosts = _hosts(trace)
    shown = ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    processes = plural(len(trace.processes), "process", "processes")
    rows = [
        ("id", text(job.id)),
        ("command", text(job.command or None)),
        ("start", f"{iso_time(job.start_ns)}, run time {seconds(job.run_time_s)}"),
        ("ranks", f"{len(trace.ranks):,} ({processes}) on {shown or 'unknown hosts'}"),
        ("tracer", tracing.named(trace)),
        *_ending_rows(trace),
        *_mpi_rows(trace),
    ]
    return named_values("Job", rows)


def _ending_rows(trace: Trace) -> list[tuple[str, str]]:
    if trace.ending is None:
        return []
    return [("ended", ending_words(trace.ending) or "exit status 0")]


def _mpi_rows(trace: Trace) -> list[tuple[str, str]]:
    total = [m.total_s for m in trace.mpi]
    if not total:
        return []
    mean = seconds(sum(total) / len(total))
    return [("MPI calls", f"{mean} per rank on average, {seconds(max(total))} at most")]


def _json(run: Run) -> Object:
    job, trace = run.trace.job, run.trace
    return {
        "id": job.id,
        "command": job.command,
        "start": iso_time(job.start_ns),
        "run_time_s": job.run_time_s,
        "ranks": len(trace.ranks),
        "processes": len(trace.processes),
        "hosts": _hosts(trace),
        "tracer": job.tracer or None,
        "roles": dict(sorted(Counter(p.role for p in trace.processes).items())),
        "mpi_time_s": _mpi(trace),
        "ending": _ending(trace),
    }


def _ending(trace: Trace) -> Object | None:
    """How the recorded command ended."""
    ending = trace.ending
    if ending is None:
        return None
    return values_of(ending) | {
        "signal": ending.signal or None,
        "last_error": ending.last_error or None,
    }


def _mpi(trace: Trace) -> Object | None:
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


def _hosts(trace: Trace) -> list[str]:
    return sorted({p.host for p in trace.processes if p.host})


_MPI = {
    "mean": float,
    "max": float,
    "per_rank": [{"label": str} | fields_of(MpiTime, without=("process",))],
}
_KIND = {
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
SECTION = Section("job", text=_text, json={"job": Json(_json, _KIND)}, traced=False)
