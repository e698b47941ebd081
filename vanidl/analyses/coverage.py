"""What the numbers rest on, and what they miss.

Computed from the whole run, before any filter: a filter hides operations, it does not make
a log less complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vanidl.analyses import data_sizes, object_limits, tracer_limits
from vanidl.analyses.rows import Rows
from vanidl.formatting.units import instant, percent
from vanidl.model.counter_totals import counted
from vanidl.model.file_kinds import DATASET
from vanidl.model.trace import Trace
from vanidl.model.warnings import INCOMPLETE, Notice, serious_codes


@dataclass(frozen=True, slots=True)
class LayerCoverage:
    """How much of one layer was traced operation by operation."""

    layer: str
    counted_ops: int | None  # READS + WRITES of the counters
    traced_ops: int | None  # None: no trace of this layer in the log
    traced_fraction: float | None
    partial: bool  # flagged incomplete by Darshan itself
    last_traced_s: float | None  # since the start of the job


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the numbers rest on, and what they miss."""

    complete: bool
    layers: tuple[LayerCoverage, ...]
    warnings: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """Layer -> (operations, latest end in ns, sum of durations in ns)."""

    layers: dict[str, tuple[int, int, int]]


NOTHING = Traced({})


def partial(rows: Rows, trace: Trace) -> Traced:  # noqa: ARG001  (all analyses share this signature)
    """What the rows hold."""
    if len(rows) == 0:
        return NOTHING
    return Traced({rows.layer: (len(rows), int(rows.end.max()), rows.duration_sum)})


def combine(a: Traced, b: Traced) -> Traced:
    """What both hold."""
    layers = dict(a.layers)
    for name, (ops, end, spent) in b.layers.items():
        before = layers.get(name, (0, end, 0))
        layers[name] = (before[0] + ops, max(before[1], end), before[2] + spent)
    return Traced(layers)


def finish(traced: Traced, trace: Trace) -> Coverage:
    """Coverage of every layer, and every warning that applies."""
    names = dict.fromkeys([*trace.counters, *trace.layers_traced, *traced.layers])
    layers = tuple(_layer(name, traced, trace) for name in names)
    cut = {c.layer for c in layers if _is_truncated(c)}
    sums_s = {name: spent / 1e9 for name, (_, _, spent) in traced.layers.items() if name not in cut}
    warnings = (
        *trace.warnings,
        *(_truncated(c, trace) for c in layers if _is_truncated(c)),
        *tracer_limits.find(trace, sums_s),
        *object_limits.find(trace),
        *data_sizes.find(trace),
        *_stand_in(trace),
    )
    whole = all(log.whole for log in trace.logs)
    return Coverage(whole and not INCOMPLETE & serious_codes(warnings), layers, warnings)


def _stand_in(trace: Trace) -> Iterator[Notice]:
    """What is taken for the dataset where hardly a byte of kind dataset was read."""
    files = trace.files
    if files.data_kind != DATASET:
        codes = np.flatnonzero(files.is_data)
        yield Notice(
            "dataset_by_kind",
            f"Hardly any byte of kind dataset was read: what the run read most of, files of kind "
            f"{files.data_kind} ({len(codes):,}, for example {files.path[codes[0]]}), is taken for "
            "the dataset. Name your data with --kind 'GLOB=dataset'.",
            "info",
        )


def _layer(name: str, traced: Traced, trace: Trace) -> LayerCoverage:
    total = _counted_ops(trace, name)
    has_trace = name in traced.layers or name in trace.layers_traced
    ops, end, _ = traced.layers.get(name, (0, None, 0))
    flagged = {layer for log in trace.logs for layer in log.partial_layers}
    return LayerCoverage(
        name,
        total,
        ops if has_trace else None,
        ops / total if has_trace and total else None,
        name in flagged or tracer_limits.DXT_MODULE.get(name) in flagged,
        None if end is None else (end - trace.job.start_ns) / 1e9,
    )


def _counted_ops(trace: Trace, layer: str) -> int | None:
    table = trace.counters.get(layer)
    if table is None or not trace.job.counts_apart:
        return None
    values = [counted(table, what) for what in ("READS", "WRITES")]
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _is_truncated(cover: LayerCoverage) -> bool:
    return cover.traced_fraction is not None and cover.traced_fraction < 1


def _truncated(cover: LayerCoverage, trace: Trace) -> Notice:
    until = (
        ""
        if cover.last_traced_s is None
        else f" The last one ended at {instant(cover.last_traced_s)}."
    )
    return Notice(
        "truncated",
        f"{cover.layer}: {cover.traced_ops:,} of {cover.counted_ops:,} operations were traced "
        f"({percent(cover.traced_fraction)}).{until} "
        + (_FULL if trace.job.tracer == "darshan" else _COUNTED_ONLY),
    )


_COUNTED_ONLY = (
    "Busy time, timeline, access pattern and overlap lack the rest; counters and totals hold it."
)
_FULL = (
    "Darshan traces no more once its trace buffer is full: busy time, timeline, access pattern and "
    "overlap lack the rest; counters and totals hold it. Raise MAX_RECORDS of DXT_POSIX (and "
    "DXT_MPIIO) in Darshan's configuration (3.4 on: 1 KiB or 32 operations each, 2,048 unless "
    "set), or exclude files (NAME_EXCLUDE)."
)
