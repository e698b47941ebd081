"""The files of results -> one profile a rank, and what the benchmark says of each result.

A result is a folder: `N_output.json` and `per_epoch_stats.json` (or `N_per_epoch_stats.json`),
with `summary.json` and the configuration beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vanidl.formatting.units import plural
from vanidl.model.benchmark import Benchmark
from vanidl.model.warnings import Notice
from vanidl.readers.dlio import spans
from vanidl.readers.dlio.kinds import OUTPUT, TIMES
from vanidl.readers.dlio.output import RankOutput, read_output
from vanidl.readers.dlio.settings import Settings, read_settings
from vanidl.readers.dlio.times import Times, read_times
from vanidl.readers.dlio.utilization import (
    BlockStamps,
    Formula,
    Slowest,
    barriers,
    epoch_times,
)
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.records import ProfileTrace, StepDurations


@dataclass(slots=True)
class _Result:
    """The files of one folder."""

    outputs: list[RankOutput] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)


def read(files: Files, reading: Reading) -> Records:
    """Every result among the files of a run."""
    results: dict[Path, _Result] = {}
    for output in reading.each("DLIO results", read_output, files.get(OUTPUT, ())):
        results.setdefault(Path(output.path).parent, _Result()).outputs.append(output)
    of_times = partial(read_times, utc_offset_s=reading.utc_offset_s)
    for times in reading.each("DLIO results", of_times, files.get(TIMES, ())):
        results.setdefault(Path(times.path).parent, _Result()).times.append(times)
    profiles: list[ProfileTrace] = []
    benchmarks: list[Benchmark] = []
    notices: list[Notice] = []
    durations: list[StepDurations] = []
    for folder, result in sorted(results.items()):
        settings = read_settings(folder)
        slowest = _slowest(result.outputs, settings)
        profiles += _profiles(folder, result, settings, slowest)
        if not result.times:
            durations += map(spans.durations, result.outputs)
        benchmarks.append(_benchmark(folder, result, settings, slowest))
        notices += _notices(folder, result, settings)
    return Records(
        profiles=tuple(profiles),
        durations=tuple(each for each in durations if len(each.step)),
        benchmarks=tuple(benchmarks),
        notices=tuple(notices),
    )


def _slowest(outputs: Sequence[RankOutput], settings: Settings) -> Slowest:
    """What barriers wait for: known where every rank wrote its steps."""
    if not outputs or len(outputs) != settings.accelerators:
        return {}
    blocks = {(k, b.name) for o in outputs for k, found in o.epochs.items() for b in found}
    return {(epoch, block): barriers(outputs, epoch, block) for epoch, block in blocks}


def _times_of(rank: int, times: Sequence[Times]) -> Times | None:
    """Those of a rank; older releases wrote them for the first one only."""
    own = [each for each in times if each.rank == rank]
    return next(iter(own or [each for each in times if each.rank is None] or times), None)


def _profiles(
    folder: Path, result: _Result, settings: Settings, slowest: Slowest
) -> Iterator[ProfileTrace]:
    where = str(folder)
    for output in result.outputs:
        times = _times_of(output.rank, result.times)
        if times is not None:
            yield spans.profile(output, times, settings.accelerators, slowest, where)
    known = {output.rank for output in result.outputs}
    for times in result.times:
        if (times.rank or 0) not in known:
            yield spans.profile(None, times, settings.accelerators, slowest, where)


def _benchmark(folder: Path, result: _Result, settings: Settings, slowest: Slowest) -> Benchmark:
    formula = Formula(any(each.rank is not None for each in result.times), settings)
    outputs = sorted(result.outputs, key=lambda each: each.rank)
    first = _times_of(0, result.times)
    epochs = [
        row
        for output in outputs
        for row in epoch_times(
            output, BlockStamps.of(_times_of(output.rank, result.times)), formula, slowest
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


def _notices(folder: Path, result: _Result, settings: Settings) -> Iterator[Notice]:
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
