"""`python -m vanidl_loaders make`: writes the samples of a workload."""

from __future__ import annotations

import argparse
import sys

from ..console import show_progress
from ..errors import counted

NAME = "make"
HELP = "write synthetic samples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which workload, where to, how many, how large."""
    from ..workloads.registry import WORKLOADS

    add = parser.add_argument
    add("--workload", required=True, choices=sorted(WORKLOADS))
    add("--data", required=True, metavar="DIR", help="where the samples go")
    add("--samples", type=int, required=True)
    add("--seed", type=int, default=0)
    add("--size", type=int, help="pixels or voxels a side; default: the paper's")


def run(options: argparse.Namespace) -> int:
    """Writes what is not there yet; exit status 0."""
    from ..workloads.making import make

    with show_progress(f"making {options.workload}") as progress:
        dataset = make(
            options.workload,
            options.data,
            samples=options.samples,
            seed=options.seed,
            size=options.size,
            progress=progress,
        )
    total = len(dataset) * dataset.sample_nbytes
    held = f"{counted(len(dataset), 'sample')} of {dataset.sample_nbytes} bytes"
    sys.stdout.write(f"{held}, {total} in all\n")
    return 0
