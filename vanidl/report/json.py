"""The JSON contract "vanidl/1": additions are welcome, renames are not, unknown is null."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

from vanidl.analyses import Results
from vanidl.analyses.access import Access, AccessCounts
from vanidl.analyses.files import GroupRow
from vanidl.analyses.overlap import Overlap, RankOverlap
from vanidl.analyses.perstep import by_kind
from vanidl.analyses.sizes import SizeBin, Sizes
from vanidl.analyses.summary import LayerTotals, Summary
from vanidl.analyses.timeline import Timeline
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.report.dataset_json import (
    dataset_object,
    epoch_rows,
    phase_rows,
    throughput_object,
)
from vanidl.run import Run
from vanidl.wording.placement import placement_object

SCHEMA = "vanidl/1"

Object = dict[str, Any]


def summary_json(run: Run) -> str:
    """The contract as text: one object, two spaces of indent, no NaN."""
    return json.dumps(summary_object(run), indent=2, allow_nan=False)


def summary_object(run: Run) -> Object:
    """The contract as plain Python values."""
    trace, results = run.trace, run.results
    predicted = run.what_if()
    return {
        "schema": SCHEMA,
        "headline": run.headline,
        "job": _job(trace),
        "coverage": _coverage(results),
        "io": _io(results),
        "storage": _storage(results.summary),
        "layers": {t.layer: _layer(t) for t in results.summary.layers},
        "steps": _steps(results),
        "overlap": _overlap(results.overlap),
        "placement": placement_object(results.placement),
        "epochs": epoch_rows(results.phases),
        "phases": phase_rows(results.phases),
        "throughput": throughput_object(trace, results),
        "findings": [asdict(finding) for finding in run.findings()],
        "what_if": None if predicted is None else asdict(predicted),
    }


def iso_time(ns: int) -> str:
    """An instant as ISO 8601 in UTC, to the microsecond."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (epoch + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")


def _job(trace: Trace) -> Object:
    job = trace.job
    return {
        "id": job.id,
        "command": job.command,
        "start": iso_time(job.start_ns),
        "run_time_s": job.run_time_s,
        "ranks": len(trace.ranks),
        "processes": len(trace.processes),
        "hosts": sorted({p.host for p in trace.processes if p.host}),
        "tracer": job.tracer or None,
        "roles": dict(sorted(Counter(p.role for p in trace.processes).items())),
        "mpi_time_s": _mpi(trace),
    }


def _mpi(trace: Trace) -> Object | None:
    """Seconds inside MPI calls by rank, where Darshan's AutoPerf module recorded them."""
    if not trace.mpi:
        return None
    total = [m.total_s for m in trace.mpi]
    per_rank = [
        {"label": trace.processes[m.process].label, **_without(asdict(m), "process")}
        for m in trace.mpi
        if m.process >= 0
    ]
    return {"mean": sum(total) / len(total), "max": max(total), "per_rank": per_rank}


def _coverage(results: Results) -> Object:
    coverage = results.coverage
    return {
        "complete": coverage.complete,
        "warnings": [asdict(w) for w in coverage.warnings],
        "layers": {c.layer: _without(asdict(c), "layer") for c in coverage.layers},
    }


def _io(results: Results) -> Object:
    summary = results.summary
    return {
        "layer": summary.layer,
        "source": summary.source or None,
        "ops": summary.ops,
        "reads": summary.reads,
        "writes": summary.writes,
        "bytes_read": summary.bytes_read,
        "bytes_written": summary.bytes_written,
        "time": None if summary.time is None else asdict(summary.time),
        "counter_s": None if summary.counter_s is None else asdict(summary.counter_s),
        "bandwidth": {
            "aggregate_bytes_per_s": summary.aggregate_bytes_per_s,
            "per_op_median_bytes_per_s": summary.per_op_median_bytes_per_s,
        },
        "sizes": _sizes(results.sizes),
        "access": _access(results.access),
        "files": {
            "count": sum(g.files for g in results.files.by_kind),
            "by_kind": {g.name: _group(g) for g in results.files.by_kind},
            "by_mount": {g.name: _group(g) for g in results.files.by_mount},
            "by_file_system": {g.name: _group(g) for g in results.files.by_file_system},
            "stripes": _stripes(results),
        },
        "dataset": dataset_object(results.dataset),
        "balance": None if results.balance is None else asdict(results.balance),
        "timeline": _timeline(results.timeline),
    }


def _stripes(results: Results) -> list[Object]:
    """One entry a file on Lustre and component of its layout."""
    return [
        {"path": row.path, **_without(asdict(part), "file")}
        for row in results.files.rows
        for part in row.stripes
    ]


def _timeline(timeline: Timeline | None) -> Object | None:
    if timeline is None:
        return None
    bins = len(timeline.edges_s) - 1
    return {"source": timeline.source, "bins": bins,
            "bin_s": float(timeline.edges_s[1] - timeline.edges_s[0])}  # fmt: skip


def _sizes(sizes: Sizes) -> Object:
    return {
        "min": sizes.min,
        "max": sizes.max,
        "mean": sizes.mean,
        "median": sizes.median,
        "histogram": [_bin(b) for b in sizes.histogram],
        "histogram_darshan": [_bin(b) for b in sizes.darshan_histogram],
        "common": [asdict(c) for c in sizes.common],
        "distinct": sizes.distinct,
    }


def _bin(size_bin: SizeBin) -> Object:
    return asdict(size_bin)


def _access(access: Access | None) -> Object | None:
    if access is None:
        return None
    return {
        "read": _counts(access.read, access, 0),
        "write": _counts(access.write, access, 1),
    }


def _counts(counts: AccessCounts, access: Access, op: int) -> Object:
    return asdict(counts) | {
        "sequential_counted": access.counted_sequential[op],
        "consecutive_counted": access.counted_consecutive[op],
    }


def _group(group: GroupRow) -> Object:
    return _without(asdict(group), "name")


def _storage(summary: Summary) -> Object:
    return {
        "bytes_read": summary.storage_bytes_read,
        "bytes_written": summary.storage_bytes_written,
        "by_layer": {t.layer: _layer(t) for t in summary.layers if t.layer in STORAGE_LAYERS},
    }


def _layer(totals: LayerTotals) -> Object:
    return _without(asdict(totals), "layer")


def _steps(results: Results) -> Object | None:
    steps, each = results.steps, results.perstep
    if steps is None:
        return None
    kinds = () if each is None else by_kind(steps.table, each)
    return {
        "source": steps.source,
        "per_rank": {"min": steps.per_rank_min, "max": steps.per_rank_max},
        "ranks": steps.ranks,
        "mean_s": steps.mean_s,
        "median_s": steps.median_s,
        "p99_s": steps.p99_s,
        "clock": asdict(steps.clock),
        "clocks": [asdict(clock) for clock in steps.clocks],
        "by_kind": [asdict(kind) for kind in kinds],
    }


def _overlap(overlap: Overlap | None) -> Object | None:
    if overlap is None:
        return None
    names = ("basis", "ranks_observed", "hidden_fraction", "lost_to_input_s",
             "input_wait_share", "accelerator_utilization", "pipeline_share")  # fmt: skip
    return {name: getattr(overlap, name) for name in names} | {
        "mean": _without(_rank(overlap.mean), "rank", "label"),
        "per_rank": [_rank(row) for row in overlap.per_rank],
    }


def _rank(row: RankOverlap) -> Object:
    return asdict(row)


def _without(values: Mapping[str, Any], *names: str) -> Object:
    return {key: value for key, value in values.items() if key not in names}
