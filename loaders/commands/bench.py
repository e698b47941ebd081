"""`python -m vanidl_loaders bench`: how fast loaders hand out batches, without a model."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import TYPE_CHECKING

from ..errors import counted

if TYPE_CHECKING:
    from ..data.samples import SampleSet
    from ..loader.loader import Settings

NAME = "bench"
HELP = "time loaders alone, in turn, as ratios"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `settings` declares, several loaders, and how often."""
    from ..loader.registry import LOADERS
    from .settings import add_settings

    add_settings(parser)
    add = parser.add_argument
    add("--loader", action="append", choices=list(LOADERS), help="repeat to compare; first: 1.0")
    add("--repeat", type=int, default=3, help="rounds over all loaders (default 3)")


def run(options: argparse.Namespace) -> int:
    """Prints samples per second and ratios to the first loader; exit status 0."""
    from .settings import find_samples, make_settings

    samples, settings = find_samples(options), make_settings(options)
    names = list(dict.fromkeys(options.loader or ["baseline"]))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    lines = dict.fromkeys(names, "")
    for _ in range(options.repeat):
        for name in names:  # in turn, so that all see the same machine
            taken, lines[name] = run_epochs(name, samples, settings, options)
            seconds[name].append(taken)

    # Ratios of medians: one slow round decides nothing.
    first = statistics.median(seconds[names[0]])
    for name in names:
        median = statistics.median(seconds[name])
        sys.stdout.write(f"{name:<12}{median:9.3f} s  ratio {first / median:5.2f}  {lines[name]}\n")
    return 0


def run_epochs(
    name: str, samples: SampleSet, settings: Settings, options: argparse.Namespace
) -> tuple[float, str]:
    """Seconds for all epochs with a fresh loader, and what it counted."""
    from ..loader.registry import find_loader
    from .settings import require_steps

    # The time to open counts: some loaders plan or read there.
    begin = time.perf_counter()
    loader = find_loader(name).open_loader(samples, settings, options)
    try:
        require_steps(loader, samples, settings)
        seen = 0
        for epoch in range(settings.epochs):
            loader.set_epoch(epoch)
            seen += sum(len(batch["sample"]) for batch in loader)
    finally:
        loader.close()
    taken, stats = time.perf_counter() - begin, loader.stats()
    return taken, (
        f"{seen / taken:9.1f} samples/s, {counted(stats.loads, 'load')}, "
        f"{counted(stats.hits, 'hit')}, "
        f"{stats.nbytes} bytes, {counted(stats.requests, 'request')}"
    )
