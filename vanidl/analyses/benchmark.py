"""What the accelerators of a benchmark waited for, and whether its rules hold.

The benchmark divides the time of a rank and epoch into compute and waits. A wait for the next
batch is storage's where reads or writes of the rank's processes were under way, the page cache's
where that was so after the first epoch and all data fit into the hosts' memory, and otherwise the
processor's, which decodes and hands over. Without traced operations it is not known which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Operations
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.run_facts import Benchmark, EpochTimes
from vanidl.model.trace import SpanKind, Trace
from vanidl.schema.dataclass import dataclass

LEAST_STEPS = 500
LEAST_MEMORY_FACTOR = 5.0
"""MLPerf Storage asks for so many steps of each rank in an epoch, less than a file short of them,
and that many times the memory of all hosts as data."""

_MEMORY_ROUNDED = 0.01
"""Submitters give MLPerf's tool the memory of a host in whole GB: many valid results have 4.99."""

LEAST_CHECKPOINT_FACTOR = 3.0
"""Rules 4.3.1 of MLPerf Storage 3.0: what is written less may be read from the hosts' memory."""


@dataclass(frozen=True, slots=True)
class _Closed:
    """What the CLOSED division fixes of a workload."""

    least_percent: float
    batch_and_compute_s: tuple[tuple[int, float], ...]  # of V100, A100, H100, B200, MI355


_CLOSED = {
    "unet3d": _Closed(90.0, ((4, 1.3604), (7, 0.636), (7, 0.323), (7, 0.162))),
    "bert": _Closed(90.0, ((48, 0.968),)),
    "resnet50": _Closed(90.0, ((400, 0.435), (400, 0.224))),
    "cosmoflow": _Closed(70.0, ((1, 0.00551), (1, 0.0035))),
    "retinanet": _Closed(85.0, ((24, 0.04755), (32, 0.0634))),
}
"""By model, as configured in mlcommons/storage 0.5 and 1.0 (storage-conf/workload) and 3.0
(configs/dlio/workload)."""

CAUSES = ("storage", "page cache", "processor", "not known", "barrier", "between steps", "in step")
"""What is waited for, in the order of the fields of `EpochWaits`."""


@dataclass(frozen=True, slots=True)
class EpochWaits:
    """One rank's epoch, in seconds that add up to `total_s`. None: not recorded.

    As the benchmark does, without the steps that it leaves out. The wait for batches is
    `storage_s`, `page_cache_s`, `processor_s` and `not_known_s`.
    """

    rank: int
    epoch: int
    steps: int
    utilization_percent: float
    recorded_percent: float | None
    total_s: float
    compute_s: float
    storage_s: float | None
    page_cache_s: float | None
    processor_s: float | None
    not_known_s: float
    barrier_s: float | None
    between_steps_s: float
    in_step_s: float

    @property
    def waits_s(self) -> tuple[float | None, ...]:
        """In the order of CAUSES."""
        return (
            self.storage_s, self.page_cache_s, self.processor_s, self.not_known_s, self.barrier_s,
            self.between_steps_s, self.in_step_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchmarkRule:
    """A rule of the benchmark; `holds` is None where what it needs was not recorded."""

    name: str
    found: float | None
    least: float | None
    unit: str
    holds: bool | None
    exact: bool = False  # `least` is what it has to be


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One result. Times are of its mean rank, over all epochs; None: no rank left its steps."""

    name: str
    workload: str
    accelerators: int | None
    hosts: int | None
    utilization_percent: float | None  # mean over epochs of the mean over ranks
    summary_percent: float | None  # the same, as the benchmark summed it up
    compute_set_s: float | None  # that a step was set to compute: it is emulated
    total_s: float | None
    compute_s: float | None
    waits_s: Mapping[str, float | None]  # by cause
    largest_wait: str | None
    dataset_nbytes: int | None
    memory_nbytes: int | None
    saves_s: tuple[float, ...]  # each checkpoint of the first rank
    loads_s: tuple[float, ...]
    page_cache_nbytes: tuple[tuple[int, int], ...]  # (epoch, of one host as it began)
    rules: tuple[BenchmarkRule, ...]
    epochs: tuple[EpochWaits, ...]
    samples_per_s: float | None = None  # mean over epochs, as the benchmark summed it up
    io_bytes_per_s: float | None = None  # the same, of what it read
    meets_threshold: bool | None = None  # whether it found its utilization met
    save_bytes_per_s: float | None = None  # of checkpoints, mean
    load_bytes_per_s: float | None = None
    checkpoint_nbytes: int | None = None
    epochs_from_memory: tuple[int, ...] = ()  # that may have come from the hosts' memory


def finish(reduced: Operations, trace: Trace) -> tuple[BenchmarkResult, ...]:
    """Every result of a benchmark among the files of the run."""
    return tuple(_make_result(benchmark, reduced, trace) for benchmark in trace.benchmarks)


def _make_result(benchmark: Benchmark, reduced: Operations, trace: Trace) -> BenchmarkResult:
    position = {trace.processes[p].rank: i for i, p in enumerate(trace.ranks)}
    rows = tuple(
        _attribute_waits(
            row, benchmark, _extract_rank_waits(trace, position.get(row.rank), reduced)
        )
        for row in benchmark.epochs
    )
    ranks = len({row.rank for row in rows})
    waits = _average_waits(rows, ranks) if rows else {}
    known = {cause: wait for cause, wait in waits.items() if wait}
    # By what ranks recorded of each epoch; else as the benchmark sums it up.
    own = _average_over_epochs([(row.epoch, row.utilization_percent) for row in rows])
    summed = benchmark.summary_percent
    utilization = own if own is not None else _mean(summed)
    return BenchmarkResult(
        name=benchmark.name,
        workload=benchmark.workload,
        accelerators=benchmark.accelerators,
        hosts=benchmark.hosts,
        utilization_percent=utilization,
        summary_percent=_mean(summed),
        compute_set_s=benchmark.compute_s,
        total_s=sum(row.total_s for row in rows) / ranks if rows else None,
        compute_s=sum(row.compute_s for row in rows) / ranks if rows else None,
        waits_s=waits,
        largest_wait=max(known, key=lambda cause: known[cause] or 0.0) if known else None,
        dataset_nbytes=benchmark.dataset_nbytes,
        memory_nbytes=benchmark.memory_nbytes,
        saves_s=benchmark.saves_s,
        loads_s=benchmark.loads_s,
        page_cache_nbytes=benchmark.cached_nbytes,
        rules=_check_rules(benchmark, utilization),
        epochs=rows,
        samples_per_s=_mean(benchmark.samples_per_s),
        io_bytes_per_s=benchmark.io_bytes_per_s,
        meets_threshold=benchmark.meets_threshold,
        save_bytes_per_s=benchmark.save_bytes_per_s,
        load_bytes_per_s=benchmark.load_bytes_per_s,
        checkpoint_nbytes=benchmark.checkpoint_nbytes,
        epochs_from_memory=tuple(range(2, len(summed or benchmark.samples_per_s) + 1))
        if _can_fit_in_memory(benchmark)
        else (),
    )


def _mean(values: tuple[float, ...]) -> float | None:
    return sum(values) / len(values) if values else None


def _average_over_epochs(rows: list[tuple[int, float]]) -> float | None:
    """Mean over epochs of the mean over ranks."""
    found: dict[int, list[float]] = {}
    for epoch, value in rows:
        found.setdefault(epoch, []).append(value)
    return _mean(tuple(sum(each) / len(each) for each in found.values()))


def _average_waits(rows: tuple[EpochWaits, ...], ranks: int) -> dict[str, float | None]:
    """The wait of the mean rank for each cause; None where no rank's is known."""
    found: dict[str, float | None] = {}
    for cause, column in zip(CAUSES, zip(*(row.waits_s for row in rows), strict=True), strict=True):
        known = [wait for wait in column if wait is not None]
        found[cause] = sum(known) / ranks if known else None
    return found


@dataclass(frozen=True, slots=True)
class _RankWaits:
    """The waits for batches of one rank, with the number of their step, and its time in I/O."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    step: NDArray[np.int64]
    busy: Intervals


def _extract_rank_waits(
    trace: Trace, position: int | None, reduced: Operations
) -> _RankWaits | None:
    """None for a rank without traced operations, or whose clock was not aligned with theirs."""
    if position is None or position not in reduced.busy or not len(reduced.busy[position].start):
        return None
    mine = trace.spans.pick(trace.spans.process == trace.ranks[position])
    steps = mine.pick(mine.kind == SpanKind.STEP)
    waits = mine.pick(mine.kind == SpanKind.INPUT_WAIT)
    if not len(steps) or not len(waits):
        return None
    # The step that a wait lies in, -1 before the first.
    of_step = np.searchsorted(steps.start, waits.start, side="right") - 1
    number = np.where(of_step >= 0, steps.step[of_step], -1).astype(np.int64)
    return _RankWaits(waits.start, waits.end, number, reduced.busy[position])


def _attribute_waits(row: EpochTimes, benchmark: Benchmark, rank: _RankWaits | None) -> EpochWaits:
    in_io_s = None if rank is None else _estimate_io_s(row, rank)
    # From the second epoch on data that fit into memory come from the page cache.
    cached = row.epoch > 1 and _can_fit_in_memory(benchmark)
    barrier_s = row.barrier_s
    return EpochWaits(
        rank=row.rank,
        epoch=row.epoch,
        steps=row.steps,
        utilization_percent=row.utilization_percent,
        recorded_percent=row.recorded_percent,
        total_s=row.total_s,
        compute_s=row.compute_s,
        storage_s=None if in_io_s is None else 0.0 if cached else in_io_s,
        page_cache_s=None if in_io_s is None else in_io_s if cached else 0.0,
        processor_s=None if in_io_s is None else row.load_s - in_io_s,
        not_known_s=row.load_s if in_io_s is None else 0.0,
        barrier_s=barrier_s,
        between_steps_s=row.outside_s - (barrier_s or 0.0),
        in_step_s=row.other_s,
    )


def _estimate_io_s(row: EpochTimes, rank: _RankWaits) -> float:
    """How much of the waits for batches of an epoch was in I/O."""
    counted = np.zeros(len(rank.step), bool)
    for low, high in row.counted:
        counted |= (rank.step >= low) & (rank.step < high)
    inside = intervals.covered_within(rank.busy, rank.start[counted], rank.end[counted])
    return min(float(inside.sum()) / 1e9, row.load_s)


def _can_fit_in_memory(benchmark: Benchmark) -> bool:
    """Whether all data can be in the page caches of the hosts."""
    data, memory = benchmark.dataset_nbytes, benchmark.memory_nbytes
    return data is not None and memory is not None and data <= memory


def _check_rules(benchmark: Benchmark, utilization: float | None) -> tuple[BenchmarkRule, ...]:
    """Those of training, and of checkpoints where nothing else was done."""
    data, memory = benchmark.dataset_nbytes, benchmark.memory_nbytes
    if not benchmark.trains:
        saved, saves = benchmark.checkpoint_nbytes, len(benchmark.saves_s)
        factor = saves * saved / memory if saved and saves and memory else None
        name = "checkpoints written / memory of all hosts"
        return (_check_rule(name, factor, LEAST_CHECKPOINT_FACTOR, "times"),)
    factor = data / memory if data is not None and memory else None
    steps, another = benchmark.steps_per_epoch, benchmark.steps_with_another_file
    of_steps = _check_rule("steps of an epoch", steps, LEAST_STEPS, "steps")
    # The benchmark rounds the number of files down: one more may make up the steps.
    if another is not None and another >= LEAST_STEPS:
        of_steps = replace(of_steps, holds=True)
    of_data = _check_rule("data / memory of all hosts", factor, LEAST_MEMORY_FACTOR, "times")
    # Memory is given in rounded GB: what falls short by no more than that holds.
    if factor is not None and factor * (1 + _MEMORY_ROUNDED) >= LEAST_MEMORY_FACTOR:
        of_data = replace(of_data, holds=True)
    closed = _CLOSED.get(benchmark.workload)
    threshold = benchmark.threshold_percent
    if threshold is None and closed is not None:
        threshold = closed.least_percent
    return (
        _check_rule("accelerator utilization", utilization, threshold, "%"),
        of_data,
        of_steps,
        *(_check_closed_rules(benchmark, closed) if closed is not None else ()),
    )


def _check_closed_rules(benchmark: Benchmark, closed: _Closed) -> tuple[BenchmarkRule, ...]:
    """That a batch and its compute are those of an accelerator of the CLOSED division."""
    batch, compute_s = benchmark.batch_size, benchmark.compute_s
    pairs = closed.batch_and_compute_s
    sizes, times = {size for size, _ in pairs}, [s for size, s in pairs if size == batch]
    # Several pairs are allowed: the nearest one is held against the run.
    asked = min(sizes, key=lambda size: abs(size - (batch or 0)))
    asked_s = min(times, key=lambda s: abs(s - (compute_s or 0.0))) if times else None
    found = (
        ("CLOSED: samples of a batch", batch, asked, "samples"),
        ("CLOSED: compute of a step", compute_s, asked_s, "s"),
    )
    return tuple(
        BenchmarkRule(
            name,
            None if value is None else float(value),
            None if least is None else float(least),
            unit,
            None if value is None or least is None else value == least,
            exact=True,
        )
        for name, value, least, unit in found
    )


def _check_rule(name: str, found: float | None, least: float | None, unit: str) -> BenchmarkRule:
    holds = None if found is None or least is None else found >= least
    return BenchmarkRule(name, None if found is None else float(found), least, unit, holds)
