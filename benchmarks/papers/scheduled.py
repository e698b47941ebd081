"""SurrogateTrain's figures: what is read, and what share of training data loading takes.

Counted from plans of the poster's own size (262,896 images, batches of 512 on each of 8 ranks):
what an epoch after the first reads under PyTorch's DataLoader, with an LRU buffer of as many
samples, and under the plan, the least that any policy can (N - C), and how level the reads of
ranks are in a step.

Recorded: PtychoNN's shape in small, two ranks, three epochs on emulated storage (2 ms a request,
5 MB/s: so slow beside this model that loading is most of the baseline's training, as in the
poster), each optimization on top of the one before. Share of data loading, bytes and requests are
vanidl's, of the steps after the first epoch, as the poster's training has many. Speeds are not
judged: they follow from model and machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import vanidl
from benchmarks.loaders.policies import lru
from benchmarks.papers.study import Part, Row, record_program
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.scheduled import PlanSettings, make_plan
from vanidl_loaders.scheduled.plan import measure_costs
from vanidl_loaders.workloads.making import make

IMAGES, RANKS, BATCH, HELD = 262_896, 8, 512, 0.85
COST = Cost(latency_s=0.002, total_bytes_per_s=5e6)
TRAINED_RANKS, TRAINED_BATCH, EPOCHS = 2, 16, 3
ONE_BY_ONE = ["--look-ahead", "1", "--gap", "0", "--read-threads", "1"]
SCHEDULED = ["--loader", "scheduled", "--buffer-fraction", str(HELD)]
STEPS = {
    "V0, DataLoader": ["--loader", "baseline", "--workers", "2"],
    "V1, order of accesses": [*SCHEDULED, *ONE_BY_ONE, "--balance", "batch"],
    "V2, and level loads": [*SCHEDULED, *ONE_BY_ONE, "--balance", "load"],
    "V3, and chunked loading": SCHEDULED,
}
"""Optimization -> its loader and options."""
SPEEDUPS = {"V1": "2.45 times", "V2": "4.60 times", "V3": "4.70 times"}


def count_loads(images: int) -> Iterator[Row]:
    """What plans of so many images read, by count."""
    held = round(HELD * images)
    level = PlanSettings(images, RANKS, BATCH, 3, held, balance="load")
    equal = PlanSettings(images, RANKS, BATCH, 3, held, balance="batch")
    costs, uneven = measure_costs(make_plan(level)), measure_costs(make_plan(equal))
    fewer = images / costs.loads_per_epoch
    yield Row("plan", "fewer samples read than the DataLoader", "6.7 times", fewer,
              abs(fewer / 6.7 - 1) < 0.02, "{:.2f} times")  # fmt: skip
    least = costs.loads_per_epoch / costs.bound
    yield Row("plan", "samples read, of the least possible (N - C)", "not given", least,
              abs(least - 1) < 1e-3, "{:.3f}")  # fmt: skip
    buffered = images / float(np.mean(lru(level)[1:]))
    yield Row("LRU buffer", "fewer samples read than the DataLoader", "not given", buffered,
              buffered < fewer, "{:.2f} times")  # fmt: skip
    yield Row("V1", "reads of a step, most loaded rank less the least", "imbalance",
              uneven.max_imbalance, uneven.max_imbalance > 1, "{:.0f} samples")  # fmt: skip
    yield Row("V2", "the same with level loads", "balanced", costs.max_imbalance,
              costs.max_imbalance <= 1, "{:.0f} samples")  # fmt: skip


@dataclass(frozen=True)
class Later:
    """Epochs after the first of a recorded training: a step, what of it was waiting, and reads."""

    step_s: float
    input_wait_share: float
    epoch_nbytes: float
    epoch_reads: float


def record_steps(scratch: Path, samples: int) -> dict[str, Later]:
    """What vanidl says of training with each optimization."""
    source, target = scratch / "ptycho", scratch / "pfs" / "ptycho"
    make("ptycho", source, samples=samples)
    target.mkdir(parents=True, exist_ok=True)
    later = {}
    for number, (name, options) in enumerate(STEPS.items()):
        with EmulatedStorage(source, target, cost=COST, client_env="RANK") as storage:
            program = ["-m", "vanidl_loaders", "train", "--data", str(storage.target), *options]
            program += ["--batch", str(TRAINED_BATCH), "--epochs", str(EPOCHS), "--threads", "1"]
            run = scratch / f"scheduled-v{number}"
            record_program(program, run, ranks=TRAINED_RANKS)
        later[name] = read_later_epochs(run, samples // (TRAINED_RANKS * TRAINED_BATCH))
    return later


def read_later_epochs(run: Path, epoch_steps: int) -> Later:
    """Sums over the steps, numbered over all epochs, that follow the first epoch."""
    steps = vanidl.open_run(run).frame("steps")
    steps = steps[steps["step"] >= epoch_steps]
    return Later(
        float(steps["duration_s"].mean()),
        float(steps["input_wait_s"].sum() / steps["duration_s"].sum()),
        float(steps["bytes_read"].sum() / (EPOCHS - 1)),
        float(steps["reads"].sum() / (EPOCHS - 1)),
    )


def measure_training(small: bool, scratch: Path) -> Iterator[Row]:
    """Trainings with each optimization: of 128 samples when `small`, else of 512."""
    samples = 128 if small else 512
    later = record_steps(scratch, samples)
    base = later["V0, DataLoader"]
    least = samples - round(HELD * samples)
    for name, own in later.items():
        share = own.input_wait_share
        if own is base:
            yield Row(name, "data loading, of training", "> 80 %", share)
            continue
        less = share < base.input_wait_share
        yield Row(name, "data loading, of training", "less than V0", share, less)
        faster = base.step_s / own.step_s
        yield Row(name, "steps, as fast as V0", SPEEDUPS[name[:2]], faster, None, "{:.2f} times")
        fewer, wanted = base.epoch_nbytes / own.epoch_nbytes, samples / least
        through = 0.3 if name.startswith("V3") else 0.15  # V3 reads gaps between samples, too
        yield Row(name, "fewer bytes an epoch than V0", f"{wanted:.1f} times (N - C)", fewer,
                  abs(fewer / wanted - 1) < through, "{:.1f} times")  # fmt: skip
    aggregated = [own.epoch_reads for own in later.values()]
    yield Row("V3", "fewer requests than V2", "aggregated", aggregated[2] / aggregated[3],
              aggregated[2] > aggregated[3], "{:.2f} times")  # fmt: skip


PARTS = {
    "plan": Part("SurrogateTrain: samples read by plans of the poster's size",
                 lambda _small, _scratch: count_loads(IMAGES)),
    "training": Part("SurrogateTrain: data loading under V0 to V3, recorded", measure_training),
}  # fmt: skip
