"""How much I/O there was and how long it took."""

from __future__ import annotations

import numpy as np

from vanidl.analyses import by_counters, operations
from vanidl.analyses.by_counters import CounterTime
from vanidl.analyses.operations import Operations, Totals
from vanidl.model import intervals
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import COUNTED, count_total, prefix_of
from vanidl.model.trace import FILES_NOT_RECORDED, OBJECT, STORAGE_LAYERS, Trace
from vanidl.schema.dataclass import dataclass

REAL_PART = 0.01
"""Share of the bytes at which another layer is named beside the one that is shown."""


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Time in I/O, in seconds.

    Busy time is the length of the union of the operations' intervals: within each rank for
    `per_rank_mean_s` and `per_rank_max_s` (silent ranks count as 0), over the whole job for
    `any_rank_s`. `sum_s` is the plain sum of durations. `share` = per_rank_mean_s / run time.
    """

    per_rank_mean_s: float
    per_rank_max_s: float
    any_rank_s: float
    sum_s: float
    share: float | None


@dataclass(frozen=True, slots=True)
class LayerTotals:
    """The tracer's own totals of one layer; None where not monitored."""

    layer: str
    files: int | None
    reads: int | None
    writes: int | None
    bytes_read: int | None
    bytes_written: int | None
    read_s: float | None
    write_s: float | None
    meta_s: float | None
    remove_s: float | None = None  # in unlink, remove and rmdir, which are not in `meta_s`


@dataclass(frozen=True, slots=True)
class Summary:
    """How much I/O there was and how long it took, on one layer and in all."""

    layer: str
    source: str  # "trace": from single operations; "counters": from Darshan's totals; "" nothing
    ops: int | None
    reads: int | None
    writes: int | None
    bytes_read: int | None
    bytes_written: int | None
    time: BusyTime | None
    aggregate_bytes_per_s: float | None  # bytes / any_rank_s
    per_op_median_bytes_per_s: float | None  # to 0.1 %
    storage_bytes_read: int | None  # POSIX + STDIO
    storage_bytes_written: int | None
    layers: tuple[LayerTotals, ...]
    counter_s: CounterTime | None = None  # by counters; never added to, or taken for, `time`


def has_separate_objects(summary: Summary) -> bool:
    """Whether object storage moved a real part of the bytes and the summary is of another layer."""
    objects = next((t for t in summary.layers if t.layer == OBJECT), None)
    if objects is None or summary.layer == OBJECT:
        return False
    files = (summary.storage_bytes_read or 0) + (summary.storage_bytes_written or 0)
    return sum_moved_bytes(objects) > REAL_PART * files


def sum_moved_bytes(totals: LayerTotals) -> int:
    """Bytes read and written, 0 where not monitored."""
    return (totals.bytes_read or 0) + (totals.bytes_written or 0)


def finish(reduced: Operations, trace: Trace, layer: str) -> Summary:
    """The summary of the traced operations, or of the counters where none was traced."""
    layers = tuple(_make_layer_totals(table, trace) for table in trace.counters.values())
    totals = next((t for t in layers if t.layer == layer), None)
    traced = bool(reduced.totals) or (layer in trace.layers_traced and totals is None)
    counts: LayerTotals | Totals | None = totals

    # Where operations were traced, totals are theirs; only they say when a rank was busy.
    time = aggregate = None
    if traced:
        counts = total = reduced.total
        per_rank = reduced.busy_ns(len(trace.ranks))
        bounds = list(reduced.busy.values())
        mean_s = sum(per_rank) / max(len(per_rank), 1) / 1e9
        run_time = trace.job.run_time_s
        time = BusyTime(
            mean_s,
            max(per_rank, default=0) / 1e9,
            intervals.length_of_all(bounds) / 1e9,
            total.sum_ns / 1e9,
            mean_s / run_time if run_time > 0 else None,
        )
        if time.any_rank_s > 0:
            aggregate = (total.bytes_read + total.bytes_written) / time.any_rank_s
    reads, writes = (counts.reads, counts.writes) if counts is not None else (None, None)
    # Time in metadata calls beyond all that the processes have is none.
    limit_s = trace.job.run_time_s * max(len(trace.processes), 1)
    meta_s = totals.meta_s if totals is not None else None
    return Summary(
        layer=layer,
        source="trace" if traced else "counters" if totals else "",
        ops=None if reads is None or writes is None else reads + writes,
        reads=reads,
        writes=writes,
        bytes_read=None if counts is None else counts.bytes_read,
        bytes_written=None if counts is None else counts.bytes_written,
        time=time,
        aggregate_bytes_per_s=aggregate,
        per_op_median_bytes_per_s=operations.compute_median_speed(reduced),
        storage_bytes_read=_sum_storage(layers, "bytes_read"),
        storage_bytes_written=_sum_storage(layers, "bytes_written"),
        layers=layers,
        counter_s=by_counters.sum_times(
            trace, layer, meta_is_credible=meta_s is None or meta_s <= limit_s
        ),
    )


def _sum_storage(layers: tuple[LayerTotals, ...], name: str) -> int | None:
    known = [getattr(t, name) for t in layers if t.layer in STORAGE_LAYERS]
    values = [v for v in known if v is not None]
    return sum(values) if values else None


def _make_layer_totals(table: CounterTable, trace: Trace) -> LayerTotals:
    prefix = prefix_of(table.layer)
    files = np.unique(table.file).tolist()
    # One path stands for all files that were not recorded: their number is not known.
    all_known = FILES_NOT_RECORDED not in (trace.files.path[code] for code in files)
    reads, writes, bytes_read, bytes_written = (count_total(table, what) for what in COUNTED)
    return LayerTotals(
        table.layer,
        len(files) if all_known else None,
        reads,
        writes,
        bytes_read,
        bytes_written,
        table.total_s(f"{prefix}_F_READ_TIME"),
        table.total_s(f"{prefix}_F_WRITE_TIME"),
        table.total_s(f"{prefix}_F_META_TIME"),
        table.total_s(f"{prefix}_F_REMOVE_TIME"),
    )
