"""`python -m vanidl_loaders compare`: which loader for these data on this storage?"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..data.served import forget_cached, served_nbytes
from ..errors import LoadersError, UsageError

if TYPE_CHECKING:
    from ..data.samples import SampleSet
    from ..loader.loader import Settings

NAME = "compare"
HELP = "run loaders for some epochs on your data: seconds, and bytes that the storage served"
DEFAULT = "baseline,scheduled,pls"
_OTHER_BATCHES = ("pls", "streaming", "webdataset")


@dataclass(frozen=True)
class Row:
    """What one loader did.

    Attributes:
        loader: Its name.
        seconds: Of each epoch, without a model.
        served_nbytes: Bytes of each epoch that read calls returned, as the kernel counts them for
            this process and its workers; None: the kernel does not say.
        loads: Samples read from storage, as the loader counts.
        hits: Samples served from memory.
        refused: Why it did not run; empty: it did.
    """

    loader: str
    seconds: tuple[float, ...] = ()
    served_nbytes: tuple[int | None, ...] = ()
    loads: int = 0
    hits: int = 0
    refused: str = ""

    @property
    def later_s(self) -> float:
        """Of an epoch after the first, the median; of the first where there is one."""
        return statistics.median(self.seconds[1:] or self.seconds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `settings` declares, which loaders, and how to print."""
    from .settings import add_settings

    add_settings(parser)
    add = parser.add_argument
    add("--loaders", default=DEFAULT, metavar="A,B", help=f"in that order (default {DEFAULT})")
    add("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints a row per loader and what proves the choice; exit status 0.

    Raises:
        UsageError: A loader that is not known, or none that fits the data.
    """
    from ..loader.loader import find_loader
    from .settings import samples_from, settings_from

    samples, settings = samples_from(options), settings_from(options)
    names = list(dict.fromkeys(options.loaders.split(",")))
    for name in names:
        find_loader(name)
    cold = forget_cached(samples.folder)
    rows = [_measured(name, samples, settings, options) for name in names]
    if all(row.refused for row in rows):
        raise UsageError(f"expected a loader that fits the data, found none: {rows[0].refused}")
    if settings.world.rank == 0:
        text = json.dumps({"cold": cold, "loaders": [asdict(row) for row in rows]}, indent=2)
        sys.stdout.write((text if options.json else _text(rows, options, cold=cold)) + "\n")
    return 0


def _measured(
    name: str, samples: SampleSet, settings: Settings, options: argparse.Namespace
) -> Row:
    from ..loader.loader import find_loader
    from .settings import require_sense, require_steps

    forget_cached(samples.folder)
    try:
        require_sense(name, samples, settings)
        loader = find_loader(name).open_loader(samples, settings, options)
    except LoadersError as error:
        return Row(name, refused=str(error))
    seconds, served = list[float](), list[int | None]()
    try:
        require_steps(loader, samples, settings)
        for epoch in range(settings.epochs):
            loader.set_epoch(epoch)
            begin, before = time.perf_counter(), served_nbytes()
            for _batch in loader:
                pass
            seconds.append(time.perf_counter() - begin)
            after = served_nbytes()
            served.append(None if None in (before, after) else (after or 0) - (before or 0))
        stats = loader.stats()
    finally:
        loader.close()
    return Row(name, tuple(seconds), tuple(served), stats.loads, stats.hits)


def _text(rows: list[Row], options: argparse.Namespace, *, cold: bool) -> str:
    done = [row for row in rows if not row.refused]
    first = done[0]
    lines = [
        f"{'loader':<11}{'first s':>9}{'later s':>9}{'ratio':>7}{'first MB':>10}{'later MB':>10}"
    ]
    lines += [_line(row, first) for row in rows]
    lines += [
        "",
        "s and MB: of the first epoch and of one after it, MB as the kernel counts them; "
        f"ratio: later s of {first.loader} / its own",
    ]
    if not cold:
        lines.append("The page cache could not be emptied: some was read from memory.")
    lines += [
        f"{row.loader}: global batches are its own, not the DataLoader's"
        for row in done
        if row.loader in _OTHER_BATCHES
    ]
    best = min(done, key=lambda row: row.later_s)
    lines.append(f"fastest after the first epoch: {best.loader}. " + _proof(first, best, options))
    return "\n".join(lines)


def _line(row: Row, first: Row) -> str:
    if row.refused:
        return f"{row.loader:<11}refused: {row.refused}"
    ratio = first.later_s / max(row.later_s, 1e-9)
    later = row.served_nbytes[-1] if len(row.seconds) > 1 else None
    return (
        f"{row.loader:<11}{row.seconds[0]:>9.2f}{row.later_s:>9.2f}{ratio:>7.2f}"
        f"{_megabytes(row.served_nbytes[0]):>10}{_megabytes(later):>10}"
    )


def _megabytes(nbytes: int | None) -> str:
    return "-" if nbytes is None else f"{nbytes / 1e6:.1f}"


def _proof(first: Row, best: Row, options: argparse.Namespace) -> str:
    """The command that compares both under a model, each run recorded."""
    if best is first:
        return "Nothing to change."
    own = f"python -m vanidl_loaders train --data {shlex.quote(options.data)}"
    own += (
        f" --batch {options.batch} --epochs {options.epochs} --workers {options.workers} --loader "
    )
    a, b = (shlex.quote(own + row.loader) for row in (first, best))
    return f"What it gains with a model:\n  vanidl ab --a {a} --b {b}"
