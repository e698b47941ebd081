"""What is compared: one line a metric, each read off a run's results as the report shows it.

None is "not recorded". A metric may be read only from a run that observed it whole, so that
what one side failed to record never looks like an improvement.
"""

from __future__ import annotations

from collections.abc import Callable

from vanidl.analyses.benchmark import BenchmarkResult
from vanidl.analyses.profiled_steps import Steps
from vanidl.analyses.results import Results
from vanidl.breakdown.overlap import Overlap
from vanidl.compare.sides import Sample
from vanidl.model.trace import STDIO, STORAGE_LAYERS
from vanidl.model.warnings import NOT_COMPARABLE, serious_codes
from vanidl.schema.dataclass import dataclass

LOWER, HIGHER, NEITHER = "lower", "higher", "neither"
"""Which direction is an improvement."""

RESULT = "result"
"""What a metric rests on that a benchmark summed up itself; shown of results of benchmarks."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity: how it is named, read, and judged.

    `rests_on` says which evidence must be alike on both sides: "steps" (profiled steps),
    "io" (recorded I/O), "compute" (I/O and what counts as compute), RESULT, or "clock" (nothing
    else).
    `cell` is the key of the cell of the account that it is, "" of none.
    `a_step` marks a sum over the profiled steps, comparable only over equal numbers of them.
    """

    name: str
    title: str
    unit: str
    better: str
    rests_on: str
    read: Callable[[Sample], float | None]
    a_step: bool = False
    cell: str = ""


def _of(read: Callable[[Results], float | None]) -> Callable[[Sample], float | None]:
    return lambda sample: None if sample.results is None else read(sample.results)


def _overlap(read: Callable[[Overlap], float | None]) -> Callable[[Sample], float | None]:
    def read_sample(sample: Sample) -> float | None:
        found = _overlap_of(sample)
        return None if found is None else read(found)

    return read_sample


def _overlap_of(sample: Sample) -> Overlap | None:
    return None if sample.account is None else sample.account.overlap


def _steps(sample: Sample) -> Steps | None:
    return None if sample.results is None else sample.results.steps


def _mean_step_s(results: Results) -> float | None:
    return None if results.steps is None else results.steps.mean_s


def _median_step_s(results: Results) -> float | None:
    return None if results.steps is None else results.steps.median_s


def _steps_per_s(sample: Sample) -> float | None:
    """Profiled steps of one rank over the time of the windows they lie in."""
    steps, overlap = _steps(sample), _overlap_of(sample)
    window_s = sum(row.window_s for row in overlap.per_rank) if overlap is not None else 0.0
    return len(steps.table.step) / window_s if steps is not None and window_s > 0 else None


def _io_s(results: Results) -> float | None:
    time = results.summary.time
    return None if time is None else time.per_rank_mean_s


def _consecutive(results: Results) -> float | None:
    read = None if results.access is None else results.access.read
    if read is None or not read.ops or read.consecutive is None:
        return None
    return read.consecutive / read.ops


def _run_time_s(sample: Sample) -> float | None:
    """As a tracer or `vanidl record` timed it: profiles alone begin and end with their steps."""
    timed = sample.job is not None and (sample.job.tracer or sample.ending is not None)
    return sample.job.run_time_s if sample.job is not None and timed else None


def _benchmark(read: Callable[[BenchmarkResult], float | None]) -> Callable[[Sample], float | None]:
    """Of the one result of a benchmark that the run is."""

    def read_sample(sample: Sample) -> float | None:
        found = () if sample.results is None else sample.results.benchmarks
        return read(found[0]) if len(found) == 1 else None

    return read_sample


def _utilization(result: BenchmarkResult) -> float | None:
    percent = result.utilization_percent
    return None if percent is None else percent / 100


METRICS: tuple[Metric, ...] = (
    Metric("throughput", "throughput", "steps/s", HIGHER, "steps", _steps_per_s),
    Metric("step_time_s", "median step time", "s", LOWER, "steps", _of(_median_step_s)),
    Metric("step_time_mean_s", "mean step time", "s", LOWER, "steps", _of(_mean_step_s)),
    Metric("wall_time_s", "wall time of the command", "s", LOWER, "clock",
           lambda sample: sample.wall_time_s),
    Metric("run_time_s", "run time of the job", "s", LOWER, "clock", _run_time_s),
    Metric("input_wait_s", "input wait", "s", LOWER, "steps",
           _overlap(lambda o: o.mean.input_wait_s), a_step=True, cell="mean/input_wait/"),
    Metric("lost_to_input_s", "lost to input", "s", LOWER, "steps",
           _overlap(lambda o: o.lost_to_input_s), a_step=True),
    Metric("exposed_io_s", "exposed I/O", "s", LOWER, "compute",
           _overlap(lambda o: o.mean.exposed_s), a_step=True),
    Metric("hidden_io_s", "hidden I/O", "s", NEITHER, "compute",
           _overlap(lambda o: o.mean.hidden_s), a_step=True),
    Metric("io_time_s", "time in I/O", "s", NEITHER, "io", _of(_io_s)),
    Metric("bytes_read", "bytes read", "bytes", NEITHER, "io",
           _of(lambda r: r.summary.bytes_read)),
    Metric("bytes_written", "bytes written", "bytes", NEITHER, "io",
           _of(lambda r: r.summary.bytes_written)),
    Metric("requests", "requests", "count", NEITHER, "io", _of(lambda r: r.summary.ops)),
    Metric("request_size_mean", "request size, mean", "bytes", NEITHER, "io",
           _of(lambda r: r.sizes.mean)),
    Metric("request_size_median", "request size, median", "bytes", NEITHER, "io",
           _of(lambda r: r.sizes.median)),
    Metric("consecutive_reads", "reads that continue the one before", "share", NEITHER, "io",
           _of(_consecutive)),
    Metric("accelerator_utilization", "accelerator utilization", "share", HIGHER, RESULT,
           _benchmark(_utilization)),
    Metric("samples_per_s", "samples a second", "samples/s", HIGHER, RESULT,
           _benchmark(lambda r: r.samples_per_s)),
    Metric("benchmark_bytes_per_s", "read a second", "bytes/s", HIGHER, RESULT,
           _benchmark(lambda r: r.io_bytes_per_s)),
    Metric("save_bytes_per_s", "checkpoints saved a second", "bytes/s", HIGHER, RESULT,
           _benchmark(lambda r: r.save_bytes_per_s)),
    Metric("load_bytes_per_s", "checkpoints loaded a second", "bytes/s", HIGHER, RESULT,
           _benchmark(lambda r: r.load_bytes_per_s)),
)  # fmt: skip
"""Every metric, in the order of the tables."""

PRIMARY = ("throughput", "wall_time_s", "run_time_s", "samples_per_s", "save_bytes_per_s",
           "load_bytes_per_s")  # fmt: skip
"""The metric that answers the question: the first of these that every side recorded.

Throughput, steps per second of the profiled or recorded window, is what people pay for. The
median step is beside it: a loader that removes a few long waits leaves the median alone.
"""


def per_step(metric: Metric) -> Metric:
    """The metric divided by the number of profiled steps of a rank."""

    def read(sample: Sample) -> float | None:
        value, steps = metric.read(sample), steps_a_rank(sample)
        return None if value is None or not steps else value / steps

    title = f"{metric.title} per step"
    return Metric(
        f"{metric.name}_per_step", title, metric.unit, metric.better, metric.rests_on, read
    )


def steps_a_rank(sample: Sample) -> float | None:
    """Profiled steps of a rank, on average over the ranks; None where none was."""
    steps = _steps(sample)
    return None if steps is None else len(steps.table.step) / steps.ranks


def losses(sample: Sample) -> frozenset[str]:
    """Codes of the warnings by which the run's I/O was recorded in part."""
    if sample.results is None:
        return frozenset()
    return NOT_COMPARABLE & serious_codes(sample.results.coverage.warnings)


def stdio_share(sample: Sample) -> float | None:
    """Share of the bytes that went through STDIO, whose operations are not traced."""
    if sample.results is None:
        return None
    moved = {
        layer.layer: (layer.bytes_read or 0) + (layer.bytes_written or 0)
        for layer in sample.results.summary.layers
        if layer.layer in STORAGE_LAYERS
    }
    total = sum(moved.values())
    return moved.get(STDIO, 0) / total if total else None


def basis(sample: Sample) -> str | None:
    """What counts as compute in the run, as `Overlap.basis`; None where unknown."""
    overlap = _overlap_of(sample)
    return None if overlap is None else overlap.basis
