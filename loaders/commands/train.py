"""`python -m vanidl_loaders train`: trains a workload's model with a loader."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, counted

if TYPE_CHECKING:
    from ..training import Outcome

NAME = "train"
HELP = "train a small model; alone, under torchrun or under mpiexec"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `settings` declares, one loader, and where records go."""
    from ..loader.registry import LOADERS
    from .settings import add_settings

    add_settings(parser)
    add = parser.add_argument
    add("--loader", default="baseline", choices=list(LOADERS))
    add("--profile", metavar="DIR", help="PyTorch profiler trace (default: $VANIDL_RUN/tb)")
    add("--events", metavar="DIR", help="TensorBoard event files (default: $VANIDL_RUN/tb)")
    add("--checkpoints", metavar="DIR", help="the model after each epoch")
    add("--steps", type=int, metavar="N", help="at most N steps an epoch")
    add("--threads", type=int, help="of PyTorch's operators in this process")
    add("--json", action="store_true", help="one JSON object a rank, for programs")


def run(options: argparse.Namespace) -> int:
    """Trains; rank 0 prints what came out (with --json every rank); exit status 0."""
    # A slip in an option is told before PyTorch is imported, which takes time.
    for name in ("steps", "threads"):
        found = getattr(options, name)
        if found is not None and found < 1:
            raise UsageError(
                f"expected --{name} of at least 1, found {found}: leave it out or give more"
            )
    import torch

    from ..loader.registry import find_loader
    from ..ranks.messages import process_group
    from ..training import Places, Plan, train
    from .settings import find_samples, make_settings, require_sense, require_steps

    if options.threads:
        torch.set_num_threads(options.threads)
    samples, settings = find_samples(options), make_settings(options)
    require_sense(options.loader, samples, settings)
    plan = Plan(
        places=Places.chosen(options.profile, options.events, os.environ),
        checkpoints=Path(options.checkpoints) if options.checkpoints else None,
        most_steps=options.steps,
    )
    with process_group(settings.world):  # ranks are connected where a loader wants to know
        loader = find_loader(options.loader).open_loader(samples, settings, options)
        try:
            require_steps(loader, samples, settings)
            outcome = train(samples, loader, settings, plan)
        finally:
            loader.close()
    # For programs each rank speaks, for people the first one.
    if options.json:
        line = {"rank": settings.world.rank, "ranks": settings.world.ranks} | asdict(outcome)
        sys.stdout.write(json.dumps(line) + "\n")
    elif settings.world.rank == 0:
        sys.stdout.write(_format_outcome(outcome, options.loader, settings.world.ranks))
    return 0


def _format_outcome(outcome: Outcome, loader: str, ranks: int) -> str:
    stats = outcome.stats
    wait = sum(stats.exposed_wait_s)
    return (
        f"{loader}: {counted(len(outcome.losses), 'step')} on each of {counted(ranks, 'rank')} in "
        f"{outcome.seconds:.2f} s, loss {outcome.losses[0]:.4f} to {outcome.losses[-1]:.4f}\n"
        f"rank 0: {counted(outcome.samples, 'sample')}, {counted(stats.loads, 'load')}, "
        f"{counted(stats.hits, 'hit')}, {stats.nbytes} bytes in "
        f"{counted(stats.requests, 'request')}, waited {wait:.2f} s for input\n"
    )
