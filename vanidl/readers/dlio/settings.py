"""What a result folder says of the whole benchmark: `summary.json` and the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vanidl.encoding.budget import bounded_name
from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError
from vanidl.readers.dlio.document import Object, number, objects, read_config, read_object, whole

_GIB = 1 << 30
_CONFIGS = (".hydra/config.yaml", "configs/config.yaml", "dlio_config/config.yaml")
"""Where Hydra, and submitters of results, put it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was run, on what. None: not recorded."""

    workload: str = ""
    framework: str = ""  # whose data loader the benchmark ran
    accelerators: int | None = None
    hosts: int | None = None
    memory_nbytes: int | None = None  # of all hosts
    files: int | None = None
    samples_per_file: int | None = None
    sample_nbytes: float | None = None
    batch_size: int | None = None
    compute_s: float | None = None
    steps: int | None = None  # of an epoch and rank, where they were set
    threshold_percent: float | None = None
    exclude_start: int = 1  # steps of a block that are left out of its figures
    exclude_end: int = 0
    utilization_percent: tuple[float, ...] = ()  # of each epoch, as summed up
    trains: bool = True  # False: checkpoints alone
    losses: tuple[str, ...] = ()
    samples_per_s: tuple[float, ...] = ()  # of each epoch, as summed up
    io_bytes_per_s: float | None = None
    meets_threshold: bool | None = None
    save_bytes_per_s: float | None = None
    load_bytes_per_s: float | None = None
    checkpoint_nbytes: int | None = None

    @property
    def dataset_nbytes(self) -> int | None:
        """Bytes of all samples."""
        if self.files is None or self.samples_per_file is None or self.sample_nbytes is None:
            return None
        return round(self.files * self.samples_per_file * self.sample_nbytes)

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of each rank in an epoch, as the benchmark counts them."""
        most = self._steps_of(self.files)
        return self.steps if most is None else min(self.steps or most, most)

    @property
    def steps_with_another_file(self) -> int | None:
        """The same if there were one file more: MLPerf's tool rounds the number of files down."""
        return None if self.files is None or self.steps else self._steps_of(self.files + 1)

    def _steps_of(self, files: int | None) -> int | None:
        if not files or not self.samples_per_file or not self.batch_size or not self.accelerators:
            return None
        return files * self.samples_per_file // (self.batch_size * self.accelerators)


def read_settings(folder: Path) -> Settings:
    """What the files beside the steps of a result say."""
    config = next((found for name in _CONFIGS if (found := read_config(folder / name))), {})
    path = folder / "summary.json"
    summary: Object = {}
    losses: tuple[str, ...] = ()
    if path.exists():
        try:
            summary = read_one(lambda each: read_object(each, "the summary"), path)
        except InputError as error:
            losses = (f"its summary cannot be used ({error})",)
    return _settings(_Config(config), summary, losses)


@dataclass(frozen=True, slots=True)
class _Config:
    """Scalars by dotted name, under `workload.` as Hydra writes them."""

    values: dict[str, str]

    def text(self, name: str) -> str:
        return self.values.get(f"workload.{name}", "")

    def whole(self, name: str) -> int | None:
        return whole(self.text(name) or None)


def _settings(config: _Config, summary: Object, losses: tuple[str, ...]) -> Settings:
    metric = objects(summary.get("metric"))
    threshold = number(config.text("metric.au"), 1.0)
    saved = _scaled(metric.get("checkpoint_size_GB"), _GIB)
    steps = config.whole("train.total_training_steps")
    start = config.whole("output.metric.exclude_start_steps")
    files = whole(summary.get("num_files_train"))
    samples = whole(summary.get("num_samples_per_file"))
    return Settings(
        workload=bounded_name(
            config.text("model.name") or config.text("model") or str(summary.get("model", ""))
        ),
        framework=bounded_name(config.text("framework")).lower(),
        accelerators=whole(summary.get("num_accelerators")),
        hosts=whole(summary.get("num_hosts")),
        memory_nbytes=_memory(summary.get("host_memory_GB")),
        files=config.whole("dataset.num_files_train") if files is None else files,
        samples_per_file=config.whole("dataset.num_samples_per_file")
        if samples is None
        else samples,
        sample_nbytes=number(config.text("dataset.record_length") or _record_length(config)),
        batch_size=config.whole("reader.batch_size") or None,
        compute_s=number(
            config.text("train.computation_time") or config.text("train.computation_time.mean")
        ),
        steps=steps or None,
        threshold_percent=None if threshold is None else 100 * threshold,
        exclude_start=1 if start is None else start,
        exclude_end=config.whole("output.metric.exclude_end_steps") or 0,
        utilization_percent=_numbers(metric.get("train_au_percentage"), 1e6),
        trains=config.text("workflow.train").lower() != "false",
        losses=losses,
        samples_per_s=_numbers(metric.get("train_throughput_samples_per_second")),
        io_bytes_per_s=_scaled(metric.get("train_io_mean_MB_per_second"), 1 << 20),
        meets_threshold={"success": True, "fail": False}.get(
            str(metric.get("train_au_meet_expectation"))
        ),
        save_bytes_per_s=_scaled(metric.get("save_checkpoint_io_mean_GB_per_second"), _GIB),
        load_bytes_per_s=_scaled(metric.get("load_checkpoint_io_mean_GB_per_second"), _GIB),
        checkpoint_nbytes=None if saved is None else round(saved),
    )


def _record_length(config: _Config) -> str:
    return config.text("dataset.record_length_bytes")


def _memory(value: object) -> int | None:
    """Bytes of all hosts together, however the benchmark spread them over its list."""
    amounts = [number(each) for each in value] if isinstance(value, list) else []
    known = [amount for amount in amounts if amount]
    if not known or len(known) > len(amounts):
        return None
    return round(sum(known) * _GIB)


def _scaled(value: object, factor: int) -> float | None:
    """What DLIO calls MB and GB are 1024^2 and 1024^3 bytes (its utils/statscounter.py)."""
    found = number(value)
    return None if found is None else found * factor


def _numbers(value: object, most: float = 1e15) -> tuple[float, ...]:
    values = value if isinstance(value, list) else []
    found = [number(each, most) for each in values]
    return tuple(each for each in found if each is not None) if None not in found else ()
