"""What a benchmark of storage says of a run: its figures, and what they are computed from."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.formatting.from_logs import clean_text, set_clean


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """One epoch of training of one rank, without the steps that the benchmark leaves out.

    Seconds. `total_s` is the sum of compute, load, other and outside; utilization is compute over
    total. Of another rank's slower step is `barrier_s`, a part of outside: None where not all
    ranks are known.
    """

    rank: int
    epoch: int  # as the benchmark numbers them
    steps: int  # with those that are left out
    total_s: float
    compute_s: float  # as recorded: what was set, in releases that do not measure it
    load_s: float  # waiting for the next batch
    other_s: float  # the rest of a step
    outside_s: float  # between steps: barriers, making the loader, its end
    barrier_s: float | None
    utilization_percent: float  # by the benchmark's formula
    recorded_percent: float | None  # what the benchmark wrote
    counted: tuple[tuple[int, int], ...] = ()  # numbers of its steps that are not left out: [a, b)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One result of a benchmark. None: not recorded."""

    folder: str
    name: str  # of the tool
    workload: str
    epochs: tuple[EpochTimes, ...]
    summary_percent: tuple[float, ...]  # utilization of each epoch, as the benchmark summed it up
    threshold_percent: float | None
    accelerators: int | None
    hosts: int | None
    memory_nbytes: int | None  # of all hosts
    dataset_nbytes: int | None
    batch_size: int | None
    steps_per_epoch: int | None
    steps_with_another_file: int | None  # the benchmark rounds the number of files down
    compute_s: float | None  # a step was set to compute that long
    trains: bool = True  # False: it saves and loads checkpoints alone
    saves_s: tuple[float, ...] = ()  # each checkpoint of its first rank
    loads_s: tuple[float, ...] = ()
    cached_nbytes: tuple[tuple[int, int], ...] = ()  # (epoch, page cache of a host as it began)
    framework: str = ""  # whose data loader it ran, in lower case
    samples_per_s: tuple[float, ...] = ()  # of each epoch, as the benchmark summed it up
    io_bytes_per_s: float | None = None  # mean over epochs, by the same
    meets_threshold: bool | None = None  # of utilization, by the same
    save_bytes_per_s: float | None = None  # of checkpoints, mean by the same
    load_bytes_per_s: float | None = None
    checkpoint_nbytes: int | None = None  # of one, by all ranks

    def __post_init__(self) -> None:
        """Texts as they may be shown."""
        for name in ("name", "workload", "framework"):
            set_clean(self, **{name: clean_text(getattr(self, name))})
