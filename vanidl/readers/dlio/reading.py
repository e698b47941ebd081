"""The files of results -> one profile a rank, and what the benchmark says of each result.

A result is a folder: `N_output.json` and `per_epoch_stats.json` (or `N_per_epoch_stats.json`),
with `summary.json` and the configuration beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import plural
from vanidl.model.run_facts import Benchmark
from vanidl.model.trace import SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers.dlio import OUTPUT, TIMES
from vanidl.readers.dlio.results import (
    CHECKPOINT,
    EVALUATION,
    Block,
    Interval,
    RankOutput,
    Settings,
    Times,
    read_output,
    read_settings,
    read_times,
)
from vanidl.readers.dlio.utilization import (
    BlockStamps,
    Formula,
    Slowest,
    compute_epoch_times,
    find_slowest,
)
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.records import ProfileTrace, StepDurations
from vanidl.schema.dataclass import dataclass


@dataclass(slots=True)
class _Result:
    """The files of one folder."""

    outputs: list[RankOutput] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)


def read_results(files: Files, reading: Reading) -> Records:
    """Every result among the files of a run."""
    # The files by their folder.
    results: dict[Path, _Result] = {}
    for output in reading.each("DLIO results", read_output, files.get(OUTPUT, ())):
        results.setdefault(Path(output.path).parent, _Result()).outputs.append(output)
    of_times = partial(read_times, utc_offset_s=reading.utc_offset_s)
    for times in reading.each("DLIO results", of_times, files.get(TIMES, ())):
        results.setdefault(Path(times.path).parent, _Result()).times.append(times)

    # A profile a rank, and a benchmark a result; of one without times only how long steps took.
    profiles: list[ProfileTrace] = []
    benchmarks: list[Benchmark] = []
    notices: list[Notice] = []
    durations: list[StepDurations] = []
    for folder, result in sorted(results.items()):
        settings = read_settings(folder)
        # What barriers wait for: known where every rank wrote its steps.
        slowest: Slowest = {}
        if result.outputs and len(result.outputs) == settings.accelerators:
            epochs = (item for output in result.outputs for item in output.epochs.items())
            keys = {(epoch, block.name) for epoch, blocks in epochs for block in blocks}
            slowest = {key: find_slowest(result.outputs, *key) for key in keys}
        profiles += _build_profiles(folder, result, settings, slowest)
        if not result.times:
            durations += map(build_durations, result.outputs)
        benchmarks.append(_build_benchmark(folder, result, settings, slowest))
        notices += _list_warnings(folder, result, settings)
    return Records(
        profiles=tuple(profiles),
        durations=tuple(each for each in durations if len(each.step)),
        benchmarks=tuple(benchmarks),
        notices=tuple(notices),
    )


def _find_times(rank: int, times: Sequence[Times]) -> Times | None:
    """Those of a rank; older releases wrote them for the first one only."""
    own = [each for each in times if each.rank == rank]
    return next(iter(own or [each for each in times if each.rank is None] or times), None)


def _build_profiles(
    folder: Path, result: _Result, settings: Settings, slowest: Slowest
) -> Iterator[ProfileTrace]:
    where = str(folder)
    for output in result.outputs:
        times = _find_times(output.rank, result.times)
        if times is not None:
            yield build_profile(output, times, settings.accelerators, slowest, where)
    ranks = {output.rank for output in result.outputs}
    for times in result.times:
        if (times.rank or 0) not in ranks:
            yield build_profile(None, times, settings.accelerators, slowest, where)


def _build_benchmark(
    folder: Path, result: _Result, settings: Settings, slowest: Slowest
) -> Benchmark:
    formula = Formula(any(each.rank is not None for each in result.times), settings)
    outputs = sorted(result.outputs, key=lambda each: each.rank)
    # The first rank stands for all in what is said of checkpoints.
    first = _find_times(0, result.times)
    epochs = [
        row
        for output in outputs
        for row in compute_epoch_times(
            output, BlockStamps.of(_find_times(output.rank, result.times)), formula, slowest
        )
    ]
    return Benchmark(
        folder=str(folder),
        name="DLIO",
        workload=settings.workload,
        epochs=tuple(epochs),
        summary_percent=settings.utilization_percent,
        threshold_percent=settings.threshold_percent,
        accelerators=settings.accelerators,
        hosts=settings.hosts,
        memory_nbytes=settings.memory_nbytes,
        dataset_nbytes=settings.dataset_nbytes,
        batch_size=settings.batch_size,
        steps_per_epoch=settings.steps_per_epoch,
        steps_with_another_file=settings.steps_with_another_file,
        compute_s=settings.compute_s,
        trains=settings.trains,
        saves_s=first.checkpoints_s(loaded=False) if first else (),
        loads_s=first.checkpoints_s(loaded=True) if first else (),
        cached_nbytes=outputs[0].cached_nbytes if outputs else (),
        framework=settings.framework,
        samples_per_s=settings.samples_per_s,
        io_bytes_per_s=settings.io_bytes_per_s,
        meets_threshold=settings.meets_threshold,
        save_bytes_per_s=settings.save_bytes_per_s,
        load_bytes_per_s=settings.load_bytes_per_s,
        checkpoint_nbytes=settings.checkpoint_nbytes,
    )


def _list_warnings(folder: Path, result: _Result, settings: Settings) -> Iterator[Notice]:
    for loss in settings.losses:
        yield Notice("damaged", f"{folder}: {loss}")
    missing = (settings.accelerators or 0) - len(result.outputs)
    if not result.outputs:
        yield Notice(
            "steps_not_recorded",
            f"{folder}: this result holds the times of its epochs and no N_output.json, so single "
            "steps, and what they waited for, are not known.",
        )
    elif missing > 0:
        yield Notice(
            "steps_not_recorded",
            f"{folder}: {plural(missing, 'rank')} of {settings.accelerators:,} left no "
            "N_output.json: their steps, and waits at barriers, are not known.",
        )
    if not result.times:
        yield Notice(
            "steps_not_recorded",
            f"{folder}: per_epoch_stats.json is missing, so it is not known when steps were.",
        )


# A rank's steps as spans. DLIO writes how long they took, and when their block was.
#
# Steps follow each other from the beginning of their block; between them lies the barrier, in which
# a rank waits for the slowest one. What is left of the block is spread evenly between its steps.

SOURCE = "dlio"
CLOCK = "local time of the results"

Int64Array = NDArray[np.int64]
Number = int | Int64Array

_LOAD, _COMPUTE, _BARRIER, _CHECKPOINT, _STEP = range(5)
_NAMES = ("load", "compute (emulated)", "barrier", "checkpoint", "step")


@dataclass(slots=True)
class _Spans:
    """Spans as they are found."""

    rows: list[tuple[Int64Array, Int64Array, Int64Array, int, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=lambda: list(_NAMES))
    unsure_ns: int = 0
    steps: int = 0

    def add(
        self, start: Number, end: Number, kind: SpanKind, name: int, number: Number = -1
    ) -> None:
        """Spans of one kind and name; those that take no time are left out."""
        begin, until = np.atleast_1d(start), np.atleast_1d(end)
        numbers = np.broadcast_to(np.asarray(number, np.int64), begin.shape)
        some = until > begin
        self.rows.append((begin[some], until[some], numbers[some], int(kind), name))


def build_profile(
    output: RankOutput | None, times: Times, world_size: int | None, slowest: Slowest, folder: str
) -> ProfileTrace:
    """The spans of one rank: its steps where it wrote them, its epochs and checkpoints."""
    # Epochs, checkpoints, and the steps of every block whose time is known.
    spans = _Spans()
    stamps = BlockStamps.of(times)
    for epoch, found in times.epochs.items():
        spans.names.append(f"epoch {epoch}")
        spans.add(*found.whole, SpanKind.EPOCH, len(spans.names) - 1, epoch)
        for part in (part for name, part in found.parts.items() if CHECKPOINT in name):
            spans.add(*part, SpanKind.CHECKPOINT, _CHECKPOINT)
    for epoch, blocks in output.epochs.items() if output else ():
        for block in blocks:
            when = stamps.of_block.get((epoch, block.name))
            if when is not None and len(block):
                _add_block(spans, block, when, slowest.get((epoch, block.name)))
            spans.steps += 0 if block.name == EVALUATION else len(block)
    start, end, number, kind, name = _sort_columns(spans)
    return ProfileTrace(
        path=output.path if output else times.path,
        source=SOURCE,
        host=output.host if output else "",
        pid=None,
        rank=output.rank if output else times.rank or 0,
        world_size=world_size,
        devices=(),
        start_ns=start,
        end_ns=end,
        step=number.astype(np.int32),
        kind=kind.astype(np.uint8),
        thread=np.zeros(len(start), np.int32),
        name=name.astype(np.int32),
        names=tuple(spans.names),
        losses=(*(output.losses if output else ()), *times.losses),
        clock_method=CLOCK,
        clock_uncertainty_ns=spans.unsure_ns,
        recording=folder,
    )


def build_durations(output: RankOutput) -> StepDurations:
    """How long each training step of a rank took, of a result that does not say when."""
    lengths = [b.proc for blocks in output.epochs.values() for b in blocks if b.name != EVALUATION]
    length = np.rint(np.concatenate([*lengths, np.empty(0)]) * 1e9).astype(np.int64)
    step = np.arange(len(length), dtype=np.int32)
    for column in (length, step):
        column.flags.writeable = False
    return StepDurations(output.path, SOURCE, output.host, step, length)


def _add_block(
    spans: _Spans, block: Block, when: Interval, slowest: NDArray[np.float64] | None
) -> None:
    load, proc, compute = (np.rint(c * 1e9) for c in (block.load, block.proc, block.compute))

    # The barrier of each step, shortened where they do not fit into the block; what is spare then
    # lies evenly between the steps, and says how unsure their times are.
    behind = np.zeros(len(proc)) if slowest is None else np.rint(slowest * 1e9) - proc
    rest = when[1] - when[0] - float(proc.sum())
    if behind.sum() > max(rest, 0.0):
        behind *= max(rest, 0.0) / behind.sum()
    spare = max(0.0, rest - float(behind.sum()))
    spans.unsure_ns = max(spans.unsure_ns, int(spare))
    n = len(proc)
    lengths = np.concatenate([[0.0], np.cumsum(proc + behind)])
    edges = when[0] + np.rint(lengths + spare * np.arange(n + 1) / n).astype(np.int64)

    # Within a step: its batch is waited for, then computed; the barrier follows.
    start, ready = edges[:-1], edges[:-1] + np.minimum(load, proc).astype(np.int64)
    done = start + proc.astype(np.int64)
    evaluates = block.name == EVALUATION
    number = np.arange(n) + (0 if evaluates else spans.steps)
    spans.add(start, edges[1:], SpanKind.EVALUATION if evaluates else SpanKind.STEP, _STEP, number)
    if not evaluates:
        spans.add(start, ready, SpanKind.INPUT_WAIT, _LOAD)
        spans.add(done, done + behind.astype(np.int64), SpanKind.COMMUNICATION, _BARRIER)
    busy = np.minimum(compute, proc - np.minimum(load, proc)).astype(np.int64)
    spans.add(ready, ready + busy, SpanKind.OP, _COMPUTE)


def _sort_columns(spans: _Spans) -> list[Int64Array]:
    """(start, end, number, kind, name) of all spans, sorted by start."""
    blocks = [
        (start, end, number, np.full(len(start), kind), np.full(len(start), name))
        for start, end, number, kind, name in spans.rows
    ]
    empty = [np.empty(0, np.int64)] * 5
    columns = [np.concatenate(c) for c in zip(*blocks, strict=True)] if blocks else empty
    order = np.argsort(columns[0], kind="stable")
    ordered = [column[order].astype(np.int64) for column in columns]
    for column in ordered:
        column.flags.writeable = False
    return ordered
