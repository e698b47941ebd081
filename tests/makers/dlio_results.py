"""Folders of results as DLIO leaves them, of a simulated clock: before 2.1, since, since 3.0.1."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

START = datetime(2026, 3, 4, 5, 6, 7)  # local time
GIB = 1 << 30
BATCH = 4

Load = Callable[[int, int, int], float]
"""Seconds that a batch of (rank, epoch, step) takes to load."""


@dataclass(frozen=True)
class Plan:
    """A benchmark to simulate: steps compute `compute_s`, and ranks wait for the slowest."""

    ranks: int = 2
    epochs: int = 2
    steps: int = 6
    load: Load = lambda rank, epoch, step: 0.5 if step == 0 else 0.01
    compute_s: float = 0.1
    between_s: float = 0.002  # between steps, beside the barrier
    blocks: int = 1
    later: bool = False  # a release of 2.1 or later
    counts_alike: bool = False  # 3.0.1: throughput is of the steps that utilization is of
    memory_gib: float = 2.0
    sample_nbytes: int = GIB // 16
    threshold: float = 0.9
    evaluation: bool = False
    seed: int = 0


@dataclass
class _Rank:
    output: dict[str, Any]
    stats: dict[str, Any]
    utilization: list[float]


def write(folder: Path, plan: Plan | None = None) -> Path:
    """The files of one result; the folder."""
    plan = plan or Plan()
    folder.mkdir(parents=True, exist_ok=True)
    ranks = _simulated(plan)
    for r, rank in enumerate(ranks):
        _json(folder / f"{r}_output.json", rank.output | {"hostname": f"node{r // 2:02d}"})
        if plan.later:
            _json(folder / f"{r}_per_epoch_stats.json", rank.stats)
    if not plan.later:
        _json(folder / "per_epoch_stats.json", ranks[0].stats)
    _json(folder / "summary.json", _summary(plan, ranks))
    config = folder / (".hydra" if plan.later else "configs") / "config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(_config(plan))
    return folder


def _simulated(plan: Plan) -> list[_Rank]:
    rng = np.random.default_rng(plan.seed)
    ranks = [_Rank({"host_memory_GB": plan.memory_gib}, {}, []) for _ in range(plan.ranks)]
    now = 1.0
    for epoch in range(1, plan.epochs + 1):
        for rank in ranks:
            names = ("load", "proc", "throughput", "au", "compute")
            rank.output[str(epoch)] = {name: {} for name in names}
            rank.output[str(epoch)]["host_meminfo"] = {"Cached": f"{epoch * 1000} kB"}
            rank.stats[str(epoch)] = {"start": _stamp(now)}
        for block in range(1, plan.blocks + 1):
            now = _block(plan, ranks, epoch, block, now, rng)
        if plan.evaluation:
            now = _evaluation(ranks, epoch, now)
        for rank in ranks:
            rank.stats[str(epoch)] |= {"end": _stamp(now), "duration": "1.00"}
            au = rank.output[str(epoch)]["au"]
            rank.utilization.append(float(np.mean([v for name, v in au.items() if name != "eval"])))
        now += 0.05
    return ranks


def _block(
    plan: Plan, ranks: list[_Rank], epoch: int, block: int, begin: float, rng: np.random.Generator
) -> float:
    """Simulates one block of all ranks; when it is over."""
    load = np.array([[plan.load(r, epoch, k) for k in range(plan.steps)]
                     for r in range(plan.ranks)])  # fmt: skip
    load = load + rng.uniform(0, 1e-4, load.shape)
    compute = plan.compute_s + (rng.uniform(0, 1e-4, load.shape) if plan.later else 0 * load)
    proc = load + compute + 1e-5
    end = begin + float((proc.max(axis=0) + plan.between_s).sum())
    for r, rank in enumerate(ranks):
        total = end - begin - proc[r, 0]
        of = rank.output[str(epoch)]
        of["load"][f"block{block}"] = load[r].tolist()
        of["proc"][f"block{block}"] = proc[r].tolist()
        of["compute"][f"block{block}"] = compute[r].tolist()
        of["au"][f"block{block}"] = 100 * float(compute[r, 1:].sum()) / total
        rate = plan.steps / (end - begin)
        if plan.later:
            rate = (plan.steps - (1 if plan.counts_alike else 2)) / total
        of["throughput"][f"block{block}"] = rate * BATCH
        rank.stats[str(epoch)][f"block{block}"] = {
            "start": _stamp(begin), "end": _stamp(end), "duration": f"{end - begin:.2f}",
        }  # fmt: skip
    if block == plan.blocks:
        return end
    for rank in ranks:
        name = f"save_ckpt{block}" if plan.later else f"ckpt{block}"
        rank.stats[str(epoch)][name] = {"start": _stamp(end), "end": _stamp(end + 0.2)}
    return end + 0.2


def _evaluation(ranks: list[_Rank], epoch: int, begin: float) -> float:
    for rank in ranks:
        of = rank.output[str(epoch)]
        of["load"]["eval"], of["proc"]["eval"] = [0.01, 0.01], [0.05, 0.05]
        of["compute"]["eval"] = [0.04, 0.04]
        of["au"]["eval"], of["throughput"]["eval"] = 40.0, 1.0
        rank.stats[str(epoch)]["eval"] = {"start": _stamp(begin), "end": _stamp(begin + 0.1)}
    return begin + 0.1


def _summary(plan: Plan, ranks: list[_Rank]) -> dict[str, Any]:
    percents = [float(np.mean([r.utilization[k] for r in ranks])) for k in range(plan.epochs)]
    return {
        "start": _stamp(0), "num_accelerators": plan.ranks, "num_hosts": (plan.ranks + 1) // 2,
        "hostname": "node00", "num_samples_per_file": 1,
        "metric": {"train_au_percentage": percents,
                   "train_au_mean_percentage": float(np.mean(percents))},
        "num_files_train": plan.steps * plan.blocks * plan.ranks * BATCH, "num_files_eval": 0,
        "host_memory_GB": [plan.memory_gib] * ((plan.ranks + 1) // 2),
        "epochs": plan.epochs, "end": _stamp(99),
    }  # fmt: skip


def _config(plan: Plan) -> str:
    model = "model:\n    name: unet3d\n    type: cnn" if plan.later else "model: unet3d"
    return f"""workload:
  {model}
  framework: pytorch
  dataset:
    data_folder: /data/unet3d
    format: npz
    record_length{"_bytes" if plan.later else ""}: {plan.sample_nbytes}
  reader:
    data_loader: pytorch
    batch_size: {BATCH}
    read_threads: 2
  train:
    epochs: {plan.epochs}
    computation_time: {plan.compute_s}
  metric:
    au: {plan.threshold}
"""


def _stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=4))
