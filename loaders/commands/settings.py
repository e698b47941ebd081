"""The options that `train` and `bench` share: which data, which loader, how to go through them."""

from __future__ import annotations

import argparse
from contextlib import suppress

from ..data.samples import SampleSet, open_samples
from ..errors import UsageError
from ..loader.loader import LOADERS, Settings, find_loader
from ..ranks.world import World


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
    add("--rank", type=int, help="with --ranks; default: from the launcher")
    add("--ranks", type=int)
    for name in LOADERS:
        with suppress(ModuleNotFoundError):  # choosing it says which package is missing
            find_loader(name).add_arguments(parser)


def settings_from(options: argparse.Namespace) -> Settings:
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
    )


def samples_from(options: argparse.Namespace) -> SampleSet:
    """The samples in --data.

    Raises:
        UsageError: They are of another workload than --workload says.
    """
    samples = open_samples(options.data)
    if options.workload not in (None, samples.workload):
        raise UsageError(
            f"expected samples of {options.workload} in {options.data}, found samples of "
            f"{samples.workload}: leave --workload out or name another folder"
        )
    return samples
