"""The options that `train` and `bench` share: which data, which loader, how to go through them."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import UsageError, counted
from ..loader.loader import Loader, Settings
from ..loader.registry import LOADERS, OPTIONS, add_limits, find_loader
from ..loader.stalls import ATTEMPTS, WaitWatch
from ..ranks.world import World

if TYPE_CHECKING:
    from ..data.samples import SampleSet

WHOLE_ONLY = ("ptycho",)
"""Workloads whose models take samples of one size."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Data, batches and ranks, and the options of each loader that is installed."""
    add = parser.add_argument
    add("--workload", help="what the data are (read from the data when left out)")
    add("--data", required=True, metavar="DIR", help="folder written by make")
    add("--batch", type=int, default=16, help="samples of a rank in a step (default 16)")
    add("--epochs", type=int, default=1)
    add("--seed", type=int, default=0, help="of the order and of the model")
    add("--no-shuffle", dest="shuffle", action="store_false", help="ids in order")
    add("--drop-last", action="store_true", help="drop the incomplete global batch")
    add("--workers", type=int, default=0, help="processes that read ahead (default 0)")
    add("--pin-memory", action="store_true")
    add_limits(parser)
    add("--rank", type=int, help="with --ranks; default: from the launcher")
    add("--ranks", type=int)
    # Options of some loaders are known here, so that these need not be imported.
    for name in LOADERS:
        if name in OPTIONS:
            OPTIONS[name](parser)
            continue
        with suppress(ModuleNotFoundError):  # choosing it says which package is missing
            find_loader(name).add_arguments(parser)


def make_settings(options: argparse.Namespace) -> Settings:
    """The settings that the options describe, in the world of this process."""
    return Settings(
        world=World.detect(rank=options.rank, ranks=options.ranks),
        batch=options.batch,
        epochs=options.epochs,
        seed=options.seed,
        shuffle=options.shuffle,
        drop_last=options.drop_last,
        workers=options.workers,
        pin_memory=options.pin_memory,
        memory_nbytes=options.memory,
        read_timeout_s=options.read_timeout_s,
    )


def require_sense(loader: str, samples: SampleSet, settings: Settings) -> None:
    """Nothing; what cannot work is refused here, before anything is read, on every rank alike.

    Raises:
        UsageError: Ranks would train on blocks that the workload's model cannot use.
    """
    if loader == "spatial" and settings.world.ranks > 1 and samples.workload in WHOLE_ONLY:
        raise UsageError(
            f"expected a workload whose model trains on blocks, found {samples.workload}, whose "
            "model needs whole samples: choose another loader, or one rank"
        )


def require_steps(opened: Loader, samples: SampleSet, settings: Settings) -> None:
    """Nothing; raises UsageError where an epoch has no step: nothing has been read yet."""
    if not len(opened):
        raise UsageError(
            "expected at least one step per epoch, found none: "
            f"{counted(len(samples), 'sample')} cannot fill a batch of {settings.world.ranks} x "
            f"{settings.batch}; lower --batch or do not set --drop-last"
        )


def find_samples(options: argparse.Namespace) -> SampleSet:
    """The samples in --data.

    Raises:
        UsageError: They are of another workload than --workload says.
    """
    from ..data.samples import open_samples

    # Storage that does not answer is reported after a while, and given up in the end.
    begin, most_s = time.perf_counter(), ATTEMPTS * options.read_timeout_s
    with WaitWatch(lambda: begin, f"opening {options.data}", most_s):
        samples = open_samples(options.data)
    if options.workload not in (None, samples.workload):
        raise UsageError(
            f"expected samples of {options.workload} in {options.data}, found samples of "
            f"{samples.workload}: leave --workload out or name another folder"
        )
    return samples
