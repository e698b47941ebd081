"""What the files of a result of DLIO say, whatever release wrote them.

`N_output.json` holds what rank N measured of each step, `per_epoch_stats.json` when epochs were,
`summary.json` and the configuration what was run. All are JSON or the plain YAML that Hydra
writes, checked and within the budget of their file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, bounded_name, read_whole, whole_number
from vanidl.encoding.file_bytes import read_one
from vanidl.errors import InputError
from vanidl.schema.dataclass import dataclass

LONGEST_S = 1e8
"""Three years: no step or epoch is longer."""

_MOST_CONFIG_BYTES = 1 << 20
_LINE = re.compile(r"( *)([\w.+-]+):(?: +(.*))?")
_MOST_DEPTH = 16

Object = dict[str, Any]


def read_object(path: Path, expected: str) -> Object:
    """The JSON object that a file holds.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    try:
        data = read_whole(path)
    except OSError as error:
        raise refuse_file(path, expected, f"no readable file ({error.strerror})") from error

    # Each bracket may become an object, so that few bytes could fill the memory.
    brackets = data.count(b"{") + data.count(b"[")
    budget = Budget.of_file(len(data))
    if not budget.hold(brackets * OBJECT_BYTES):
        found = f"{brackets:,} nested parts, which take more than {budget.memory_limit}"
        raise refuse_file(path, expected, found)
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise refuse_file(path, expected, f"damage ({error})") from error
    if not isinstance(values, dict):
        raise refuse_file(path, expected, "other JSON")
    return values


def refuse_file(path: Path, expected: str, found: str) -> InputError:
    """What to say of a file that is not what its name says."""
    return InputError(
        f"{path}: expected {expected} of DLIO, found {found}; copy the result again, or leave the "
        "file out"
    )


def to_object(values: object) -> Object:
    """The object itself; an empty one for anything else."""
    return values if isinstance(values, dict) else {}


def to_seconds(values: object) -> NDArray[np.float64] | None:
    """A list of durations as an array; None where one is no possible duration."""
    if not isinstance(values, list) or any(type(v) not in (int, float) for v in values):
        return None
    numbers = np.array(values, np.float64)
    return numbers if bool(((numbers >= 0) & (numbers < LONGEST_S)).all()) else None


def to_number(value: object, most: float = 1e18) -> float | None:
    """A number from 0 to `most`, written as one or as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is int or type(value) is float:
        return float(value) if 0 <= value <= most else None
    return None


def to_whole_number(value: object, most: int = 10**12) -> int | None:
    """A whole number from 0 to `most`, written as one or as text."""
    number = to_number(value, most)
    return None if number is None or number != int(number) else int(number)


def to_local_ns(value: object) -> int | None:
    """A time of the benchmark in ns since the epoch, as if its clock showed UTC."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None
    ns = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    return ns if 0 < ns < 4 * 10**18 else None


def read_config(path: Path) -> dict[str, str]:
    """Scalars of a file that Hydra wrote: dotted name -> text. Lists are left out.

    Only what Hydra writes is understood: nested mappings by indentation, and plain scalars.
    """
    try:
        text = read_whole(path)[:_MOST_CONFIG_BYTES].decode(errors="replace")
    except (OSError, InputError):
        return {}
    settings: dict[str, str] = {}
    # Names of the mappings around a line, with their indentation.
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent, name, value = len(match[1]), match[2], match[3]
        while above and above[-1][0] >= indent:
            above.pop()
        if value is None:
            above = [*above[: _MOST_DEPTH - 1], (indent, name)]
        else:
            settings[".".join([*(each for _, each in above), name])] = value.strip("'\"")
    return settings


# `N_output.json`: what rank N measured of each step, in the order of its steps.

STEPS_EXPECTED = "the steps of a rank"
EVALUATION = "eval"
_KIB = 1024

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """Steps between checkpoints, one entry a step in every array; `eval` is that of validation."""

    name: str
    load: Seconds  # until its batch was there
    proc: Seconds  # until it was computed: load and compute are parts of it
    compute: Seconds
    throughput: float | None  # samples/s of this rank, as recorded
    utilization_percent: float | None  # as recorded

    def __len__(self) -> int:
        return len(self.proc)


@dataclass(frozen=True, slots=True)
class RankOutput:
    """One rank's steps: epoch -> its blocks in order."""

    path: str
    rank: int
    host: str
    epochs: dict[int, tuple[Block, ...]]
    cached_nbytes: tuple[tuple[int, int], ...]  # (epoch, page cache of its host as it began)
    losses: tuple[str, ...]


def get_rank(path: Path) -> int | None:
    """The rank in the name of a file, None where it names none."""
    return whole_number(path.name.split("_", 1)[0])


def read_output(path: Path) -> RankOutput:
    """The steps of one rank; of damaged blocks the others.

    Raises:
        InputError: The file cannot be read, or holds no steps.
    """
    values = read_object(path, STEPS_EXPECTED)
    epochs: dict[int, tuple[Block, ...]] = {}
    cached: list[tuple[int, int]] = []
    lost = 0
    for key, epoch in values.items():
        at = whole_number(key)
        # Other keys describe the rank.
        if at is None or not isinstance(epoch, dict):
            continue
        blocks = [_read_block(epoch, str(name)) for name in to_object(epoch.get("proc"))]
        lost += blocks.count(None)
        epochs[at] = tuple(block for block in blocks if block is not None)
        cached += ((at, nbytes) for nbytes in _read_cached_nbytes(epoch))
    if not epochs:
        raise refuse_file(path, STEPS_EXPECTED, "none")
    host = values.get("hostname")
    return RankOutput(
        path=str(path),
        rank=get_rank(path) or 0,
        host=bounded_name(host) if isinstance(host, str) else "",
        epochs=dict(sorted(epochs.items())),
        cached_nbytes=tuple(sorted(cached)),
        losses=(f"blocks of steps left out as their times are damaged: {lost:,}",) if lost else (),
    )


def _read_block(epoch: Object, name: str) -> Block | None:
    """One block; None where its times make no sense."""
    parts = (
        to_seconds(to_object(epoch.get(what)).get(name)) for what in ("load", "proc", "compute")
    )
    load, proc, compute = parts
    if load is None or proc is None or compute is None:
        return None
    # A batch may have been loaded for which training had ended.
    steps = min(len(load), len(proc), len(compute))
    if steps < len(proc) or steps < len(compute) or len(load) > steps + 1:
        return None
    return Block(
        name=bounded_name(name),
        load=load[:steps],
        proc=proc,
        compute=compute,
        throughput=to_number(to_object(epoch.get("throughput")).get(name)),
        utilization_percent=to_number(to_object(epoch.get("au")).get(name)),
    )


def _read_cached_nbytes(epoch: Object) -> Iterator[int]:
    """Bytes in the page cache of the rank's host as the epoch began."""
    text = to_object(epoch.get("host_meminfo")).get("Cached")
    amount, _, unit = text.partition(" ") if isinstance(text, str) else ("", "", "")
    kib = whole_number(amount)
    if kib is not None and unit == "kB":
        yield kib * _KIB


# `per_epoch_stats.json`: when epochs, their blocks, validation and checkpoints began and ended.
#
# Releases of today write one for each rank; older ones one, by rank 0. Times are of the local time
# of the host: without its distance from UTC, which nothing in a result says.

TIMES_EXPECTED = "the times of epochs"
CHECKPOINT, LOAD = "ckpt", "load"

Interval = tuple[int, int]
"""Start and end in ns since the epoch."""


@dataclass(frozen=True, slots=True)
class EpochStamps:
    """When one epoch was, and what happened in it: name -> interval."""

    whole: Interval
    parts: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class Times:
    """Epochs by number; `rank` is None in the only file of an older release."""

    path: str
    rank: int | None
    epochs: dict[int, EpochStamps]
    losses: tuple[str, ...] = ()

    def checkpoints_s(self, *, loaded: bool) -> tuple[float, ...]:
        """How long each save, or each load, of a checkpoint took, in their order."""
        parts = [each for epoch in self.epochs.values() for each in epoch.parts.items()]
        checkpoints = [
            when for name, when in parts if CHECKPOINT in name and (LOAD in name) == loaded
        ]
        return tuple((end - start) / 1e9 for start, end in sorted(checkpoints))


def read_times(path: Path, utc_offset_s: int = 0) -> Times:
    """The times in a file; of epochs that did not end nothing.

    Args:
        path: The file.
        utc_offset_s: Local time minus UTC where it was written.

    Raises:
        InputError: It cannot be read, or holds no times.
    """
    epochs: dict[int, EpochStamps] = {}
    lost = 0
    for key, value in read_object(path, TIMES_EXPECTED).items():
        at = whole_number(key)
        if at is None:
            continue
        interval = _read_interval(value, utc_offset_s)
        if interval is None:
            lost += 1
            continue
        parts = {
            bounded_name(str(name)): part
            for name, inner in to_object(value).items()
            if (part := _read_interval(inner, utc_offset_s)) is not None
        }
        epochs[at] = EpochStamps(interval, parts)
    if not epochs:
        raise refuse_file(path, TIMES_EXPECTED, "none")
    losses = (f"epochs left out as their start or end is missing: {lost:,}",) if lost else ()
    return Times(str(path), get_rank(path), dict(sorted(epochs.items())), losses)


def _read_interval(value: object, utc_offset_s: int) -> Interval | None:
    inner = to_object(value)
    start, end = to_local_ns(inner.get("start")), to_local_ns(inner.get("end"))
    if start is None or end is None or end < start:
        return None
    shift = utc_offset_s * 10**9
    return start - shift, end - shift


# What a result folder says of the whole benchmark: `summary.json` and the configuration.

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
    return _build_settings(_Config(config), summary, losses)


@dataclass(frozen=True, slots=True)
class _Config:
    """Scalars by dotted name, under `workload.` as Hydra writes them."""

    values: dict[str, str]

    def text(self, name: str) -> str:
        return self.values.get(f"workload.{name}", "")

    def whole_number(self, name: str) -> int | None:
        return to_whole_number(self.text(name) or None)


def _build_settings(config: _Config, summary: Object, losses: tuple[str, ...]) -> Settings:
    metric = to_object(summary.get("metric"))
    threshold = to_number(config.text("metric.au"), 1.0)
    saved = _scale(metric.get("checkpoint_size_GB"), _GIB)
    steps = config.whole_number("train.total_training_steps")
    start = config.whole_number("output.metric.exclude_start_steps")

    # What was counted wins over what was set.
    files = to_whole_number(summary.get("num_files_train"))
    samples = to_whole_number(summary.get("num_samples_per_file"))
    return Settings(
        workload=bounded_name(
            config.text("model.name") or config.text("model") or str(summary.get("model", ""))
        ),
        framework=bounded_name(config.text("framework")).lower(),
        accelerators=to_whole_number(summary.get("num_accelerators")),
        hosts=to_whole_number(summary.get("num_hosts")),
        memory_nbytes=_read_memory_nbytes(summary.get("host_memory_GB")),
        files=config.whole_number("dataset.num_files_train") if files is None else files,
        samples_per_file=config.whole_number("dataset.num_samples_per_file")
        if samples is None
        else samples,
        sample_nbytes=to_number(
            config.text("dataset.record_length") or config.text("dataset.record_length_bytes")
        ),
        batch_size=config.whole_number("reader.batch_size") or None,
        compute_s=to_number(
            config.text("train.computation_time") or config.text("train.computation_time.mean")
        ),
        steps=steps or None,
        threshold_percent=None if threshold is None else 100 * threshold,
        exclude_start=1 if start is None else start,
        exclude_end=config.whole_number("output.metric.exclude_end_steps") or 0,
        utilization_percent=_read_numbers(metric.get("train_au_percentage"), 1e6),
        trains=config.text("workflow.train").lower() != "false",
        losses=losses,
        samples_per_s=_read_numbers(metric.get("train_throughput_samples_per_second")),
        io_bytes_per_s=_scale(metric.get("train_io_mean_MB_per_second"), 1 << 20),
        meets_threshold={"success": True, "fail": False}.get(
            str(metric.get("train_au_meet_expectation"))
        ),
        save_bytes_per_s=_scale(metric.get("save_checkpoint_io_mean_GB_per_second"), _GIB),
        load_bytes_per_s=_scale(metric.get("load_checkpoint_io_mean_GB_per_second"), _GIB),
        checkpoint_nbytes=None if saved is None else round(saved),
    )


def _read_memory_nbytes(value: object) -> int | None:
    """Bytes of all hosts together, however the benchmark spread them over its list."""
    amounts = [to_number(each) for each in value] if isinstance(value, list) else []
    stated = [amount for amount in amounts if amount]
    if not stated or len(stated) > len(amounts):
        return None
    return round(sum(stated) * _GIB)


def _scale(value: object, factor: int) -> float | None:
    """What DLIO calls MB and GB are 1024^2 and 1024^3 bytes (its utils/statscounter.py)."""
    number = to_number(value)
    return None if number is None else number * factor


def _read_numbers(value: object, most: float = 1e15) -> tuple[float, ...]:
    values = value if isinstance(value, list) else []
    numbers = [to_number(each, most) for each in values]
    return tuple(each for each in numbers if each is not None) if None not in numbers else ()
