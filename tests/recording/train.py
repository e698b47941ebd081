"""A training run of seconds: a DataLoader reads records of one raw file, gloo under torchrun."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, multiprocessing
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset

RECORDS, VALUES = 96, 4096


class Records(Dataset[torch.Tensor]):
    """Records of a raw file, read with pread; every process opens it for itself."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor: int | None = None

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.descriptor is None:
            self.descriptor = os.open(self.path, os.O_RDONLY)
        data = os.pread(self.descriptor, 4 * VALUES, 4 * VALUES * index)
        return torch.frombuffer(bytearray(data), dtype=torch.float32)


def main() -> None:
    """Train two epochs under the profiler."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--tb", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start-method", default=None)
    parser.add_argument("--ranks", type=int, default=0, help="start them here, without torchrun")
    options = parser.parse_args()
    if not Path(options.data).exists():
        torch.rand(RECORDS, VALUES).numpy().tofile(options.data)
    if options.ranks:
        multiprocessing.start_processes(_rank, (options,), options.ranks, start_method="spawn")
    else:
        _train(options)


def _rank(rank: int, options: argparse.Namespace) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    os.environ.update(address, RANK=str(rank), WORLD_SIZE=str(options.ranks))
    _train(options)


def _train(options: argparse.Namespace) -> None:
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    activities = [ProfilerActivity.CPU]
    handler = tensorboard_trace_handler(options.tb, use_gzip=True)
    plan = schedule(wait=1, warmup=1, active=100)
    with profile(activities=activities, schedule=plan, on_trace_ready=handler) as profiler:
        for _ in range(2):
            _epoch(options, profiler)
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _epoch(options: argparse.Namespace, profiler: profile) -> None:
    loader = DataLoader(
        Records(options.data),
        batch_size=8,
        num_workers=options.workers,
        multiprocessing_context=options.start_method if options.workers else None,
    )
    weights = torch.rand(VALUES, 64)
    for batch in loader:
        loss = (batch @ weights).sum()
        if distributed.is_initialized():
            distributed.all_reduce(loss)
        profiler.step()


if __name__ == "__main__":
    main()
