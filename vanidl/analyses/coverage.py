"""What the numbers rest on, and what they miss.

Computed from the whole run, before any filter: a filter hides operations, it does not make
a log less complete.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import tracer_limits
from vanidl.analyses.reducing import Rows
from vanidl.formatting.units import count, instant, percent, plural
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record, count_total
from vanidl.model.file_kinds import DATASET
from vanidl.model.trace import OBJECT, POSIX, STORAGE_LAYERS, Trace
from vanidl.model.warnings import INCOMPLETE, Notice, serious_codes
from vanidl.schema.dataclass import dataclass


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
    flagged = {layer for log in trace.logs for layer in log.partial_layers}
    covered = []
    for name in names:
        table, total = trace.counters.get(name), None
        # Counts that are made of the trace itself cannot show what it lacks.
        if table is not None and trace.job.counts_apart:
            counted = [count_total(table, what) for what in ("READS", "WRITES")]
            known = [ops for ops in counted if ops is not None]
            total = sum(known) if known else None
        has_trace = name in traced.layers or name in trace.layers_traced
        ops, end, _ = traced.layers.get(name, (0, None, 0))
        covered.append(
            LayerCoverage(
                name,
                total,
                ops if has_trace else None,
                ops / total if has_trace and total else None,
                name in flagged or tracer_limits.DXT_MODULE.get(name) in flagged,
                None if end is None else (end - trace.job.start_ns) / 1e9,
            )
        )
    layers = tuple(covered)
    # A truncated trace falls short of its counters: that is warned of once.
    cut = {c.layer for c in layers if _is_truncated(c)}
    sums_s = {name: spent / 1e9 for name, (_, _, spent) in traced.layers.items() if name not in cut}
    warnings = (
        *trace.warnings,
        *(_warn_of_truncation(c, trace) for c in layers if _is_truncated(c)),
        *tracer_limits.find(trace, sums_s),
        *_warn_of_object_limits(trace),
        *_warn_of_data_sizes(trace),
    )
    # What is taken for the dataset where hardly a byte of kind dataset was read.
    if trace.files.data_kind != DATASET:
        codes = np.flatnonzero(trace.files.is_data)
        stand_in = Notice(
            "dataset_by_kind",
            f"Hardly any byte of kind dataset was read: what the run read most of, files of kind "
            f"{trace.files.data_kind} ({len(codes):,}, for example {trace.files.path[codes[0]]}), "
            "is taken for the dataset. Name your data with --kind 'GLOB=dataset'.",
            "info",
        )
        warnings = (*warnings, stand_in)
    whole = all(log.whole for log in trace.logs)
    return Coverage(whole and not INCOMPLETE & serious_codes(warnings), layers, warnings)


def _is_truncated(cover: LayerCoverage) -> bool:
    return cover.traced_fraction is not None and cover.traced_fraction < 1


def _warn_of_truncation(cover: LayerCoverage, trace: Trace) -> Notice:
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


_REQUESTS = ("READS", "WRITES", "STATS", "LISTS", "OTHERS")


def _warn_of_object_limits(trace: Trace) -> Iterator[Notice]:
    """Every warning that the counters of object storage give reason for."""
    table = trace.counters.get(OBJECT)
    if table is None:
        return
    asked = sum(_sum_counter(table, what) for what in _REQUESTS)
    if failed := _sum_counter(table, "FAILED"):
        yield Notice(
            "object_requests_failed",
            f"{plural(failed, 'request')} of {count(asked)} to object storage failed: no answer, "
            "an error as the status, or a body that broke off. Each counts as an operation of 0 "
            "bytes, its time included; a retry is an operation of its own.",
            "info",
        )
    if unsized := _sum_counter(table, "UNSIZED"):
        yield Notice(
            "object_bytes_unknown",
            f"{plural(unsized, 'request')} of {count(asked)} to object storage did not say how "
            "many bytes it carried: bytes of OBJECT are lower bounds.",
        )


def _sum_counter(table: CounterTable, what: str) -> int:
    values = table.counters.get(f"{OBJECT}_{what}")
    return 0 if values is None else int(values.sum())


Int64Array = NDArray[np.int64]

_LEAST_FITTING = 0.75
_MOST_OPENS_A_VISIT = 4
_LARGEST = 1 << 60  # beyond it a product could leave the integers


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of known size that were opened and never written; one entry each."""

    code: Int64Array
    size: Int64Array
    opens: Int64Array
    nbytes: Int64Array


def _warn_of_data_sizes(trace: Trace) -> Iterator[Notice]:
    """A warning where files that other files are read like hold too few or too many bytes.

    A job that reads its files whole reads, of each file, its size times how often it was opened (or
    a whole part of that, where each visit opens a file several times). Where nearly all files fit
    one such rule, those that do not were read in part, or the tracer lost reads of them, or
    counted reads for the wrong file, as Darshan does among threads.
    """
    files = _collect_files(trace)
    # Bytes of whole readings of each file, by the rule that most fit.
    for opens_a_visit in range(1, _MOST_OPENS_A_VISIT + 1):
        expected = files.size * files.opens // opens_a_visit
        fitting = int((files.nbytes * opens_a_visit == files.size * files.opens).sum())
        if fitting >= max(2.0, _LEAST_FITTING * len(files.code)):
            break
    else:
        return

    # The files that break this rule: how many bytes they miss or have too many, and an example.
    short, over = files.nbytes < expected, files.nbytes > expected
    wrong = np.flatnonzero(short | over)
    if not len(wrong):
        return
    lacking = int((expected - files.nbytes)[short].sum())
    beyond = int((files.nbytes - expected)[over].sum())
    first = wrong[0]
    path, nbytes = trace.files.path[files.code[first]], files.nbytes[first]
    yield Notice(
        "sizes_differ",
        f"{len(wrong):,} of {len(files.code):,} files whose size is known do not hold the bytes "
        f"that reading them whole at each visit gives, as of the others: {lacking:,} bytes are "
        f"missing in {plural(int(short.sum()), 'file')}, {beyond:,} are too many in "
        f"{plural(int(over.sum()), 'file')} (for example {path}: {nbytes:,} bytes recorded, "
        f"{expected[first]:,} expected). Unless the job read these in part, the tracer "
        "lost reads or counted them for the wrong file, as happens where threads open and close "
        "files at the same time: bytes of single files are not right. Read with one thread of "
        "each process to compare.",
    )


def _collect_files(trace: Trace) -> _Files:
    number = len(trace.files.path)
    size = np.array([trace.user_data.sizes.get(p, 0) for p in trace.files.path], np.int64)
    opens, nbytes, written = (np.zeros(number, np.int64) for _ in range(3))
    for layer in STORAGE_LAYERS:
        table = trace.counters.get(layer)
        if table is not None and f"{layer}_OPENS" in table.counters:
            # Darshan counts a duplicated descriptor as an open, too.
            again = table.counters.get("POSIX_DUPS") if layer == POSIX else None
            opened = np.maximum(table.counters[f"{layer}_OPENS"], 0)
            opened -= 0 if again is None else np.maximum(again, 0)
            np.add.at(opens, table.file, opened)
            np.add.at(nbytes, table.file, count_by_record(table, "BYTES_READ"))
            np.add.at(written, table.file, count_by_record(table, "BYTES_WRITTEN"))
    unused = np.array([kind == "other" for kind in trace.files.kind], bool)
    wanted = (trace.files.is_data | unused) & (size > 0) & (opens > 0) & (written == 0)
    # Size times opens has to fit into 64 bits.
    wanted &= (opens < _LARGEST // np.maximum(size, 1)) & (nbytes < _LARGEST)
    code = np.flatnonzero(wanted)
    return _Files(code, size[code], opens[code], nbytes[code])
