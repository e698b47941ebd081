"""`python -m vanidl_loaders compare`: which loader for these data on this storage?"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LoadersError, UsageError, report_missing_package

if TYPE_CHECKING:
    from ..data.samples import SampleSet
    from ..loader.loader import Settings


NAME = "compare"
HELP = "run loaders for some epochs on your data: seconds, and bytes that the storage served"
DEFAULT = "baseline,scheduled,pls"
EPOCHS = 2  # the first reads everything; what buffers are worth shows in the second
SHORT_S = 1.0
"""Epochs below say little: starting a thread, or another process of the machine, counts as much."""
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
        later_loads: Of `loads`, those after the first epoch.
        refused: Why it did not run; empty: it did.
    """

    loader: str
    seconds: tuple[float, ...] = ()
    served_nbytes: tuple[int | None, ...] = ()
    loads: int = 0
    hits: int = 0
    later_loads: int = 0
    refused: str = ""

    @property
    def later_s(self) -> float:
        """Of an epoch after the first, the median; of the first where there is no other."""
        return statistics.median(self.seconds[1:] or self.seconds)

    @property
    def kept_all(self) -> bool:
        """Whether no epoch after the first read a sample."""
        return len(self.seconds) > 1 and self.loads > 0 == self.later_loads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `settings` declares, which loaders, and how to print."""
    from .settings import add_settings

    add_settings(parser)
    parser.set_defaults(epochs=EPOCHS)
    add = parser.add_argument
    add("--loaders", default=DEFAULT, metavar="A,B", help=f"in that order (default {DEFAULT})")
    add("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints a row per loader and what proves the choice; exit status 0.

    Raises:
        UsageError: A loader that is not known, or none that fits the data.
    """
    from ..loader.registry import find_loader
    from .settings import find_samples, make_settings

    samples, settings = find_samples(options), make_settings(options)
    names = list(dict.fromkeys(options.loaders.split(",")))
    # A slip in a name is told before anything is measured.
    for name in names:
        with suppress(ModuleNotFoundError):  # its row says so
            find_loader(name)
    cold = forget_cached(samples.folder)
    rows = [_measure_pairs(name, samples, settings, options) for name in names]
    if all(row.refused for row in rows):
        raise UsageError(f"expected a loader that fits the data, found none: {rows[0].refused}")
    ranks = settings.world.ranks
    # Every rank reads, and the first one speaks.
    if settings.world.rank == 0:
        text = json.dumps({"cold": cold, "loaders": [asdict(row) for row in rows]}, indent=2)
        sys.stdout.write(
            (text if options.json else _format_table(rows, options, cold=cold, ranks=ranks)) + "\n"
        )
    return 0


def _measure_pairs(
    name: str, samples: SampleSet, settings: Settings, options: argparse.Namespace
) -> Row:
    from ..loader.registry import find_loader
    from .settings import require_sense, require_steps

    # Each loader begins with a cold page cache, where that can be had.
    forget_cached(samples.folder)
    try:
        require_sense(name, samples, settings)
        loader = find_loader(name).open_loader(samples, settings, options)
    except LoadersError as error:
        return Row(name, refused=str(error))
    except ModuleNotFoundError as error:
        return Row(name, refused=str(report_missing_package(str(error.name).partition(".")[0])))
    # Seconds, bytes that read calls returned and loads, of each epoch.
    seconds, served, loads = list[float](), list[int | None](), list[int]()
    try:
        require_steps(loader, samples, settings)
        for epoch in range(settings.epochs):
            loader.set_epoch(epoch)
            begin, before = time.perf_counter(), count_served_nbytes()
            for _batch in loader:
                pass
            seconds.append(time.perf_counter() - begin)
            after = count_served_nbytes()
            served.append(None if None in (before, after) else (after or 0) - (before or 0))
            loads.append(loader.stats().loads)
        stats = loader.stats()
    finally:
        loader.close()
    later = stats.loads - loads[0]
    return Row(name, tuple(seconds), tuple(served), stats.loads, stats.hits, later)


def _format_table(rows: list[Row], options: argparse.Namespace, *, cold: bool, ranks: int) -> str:
    # Loaders that were refused have a row, and are compared with none.
    done = [row for row in rows if not row.refused]
    first, best = done[0], min(done, key=lambda row: row.later_s)
    several = len(first.seconds) > 1
    lines = [
        f"{'loader':<11}{'first s':>9}{'later s':>9}{'ratio':>7}{'first MB':>10}{'later MB':>10}"
    ]
    lines += [_format_row(row, first) for row in rows]
    lines += ["", *_list_notes(first, best, cold=cold, ranks=ranks), *_list_kept_notes(done)]
    lines += [
        f"{row.loader}: global batches are its own, not the DataLoader's"
        for row in done
        if row.loader in _OTHER_BATCHES
    ]
    when = "after the first epoch" if several else "in the first epoch"
    lines.append(f"fastest {when}: {best.loader}. " + _format_proof(first, best, options, ranks))
    return "\n".join(lines)


def _list_notes(first: Row, best: Row, *, cold: bool, ranks: int) -> Iterator[str]:
    """What the numbers are, and why they may say little."""
    what = "of the first epoch and of one after it" if len(first.seconds) > 1 else "of the epoch"
    of_rank = f" on rank 0 of {ranks}" if ranks > 1 else ""
    yield (
        f"s and MB: {what}{of_rank}, MB as read calls returned them, from memory or not; ratio: "
        f"s of {first.loader} / its own"
    )
    if not cold:
        yield "The page cache could not be emptied: some was read from memory."
    if max(first.later_s, best.later_s) < SHORT_S:
        yield (
            f"Epochs of less than {SHORT_S:g} s say little, and later ones may come from the page "
            "cache: take more data."
        )


def _list_kept_notes(done: list[Row]) -> Iterator[str]:
    kept = [row.loader for row in done if row.kept_all]
    if kept:
        yield (
            f"{', '.join(kept)}: read no sample after the first epoch, as all fit in memory: later "
            "epochs say nothing about this storage. For data that do not fit, set --memory to the "
            "same share of these."
        )


def _format_row(row: Row, first: Row) -> str:
    if row.refused:
        return f"{row.loader:<11}refused: {row.refused}"
    ratio = first.later_s / max(row.later_s, 1e-9)
    several = len(row.seconds) > 1
    later_s = f"{row.later_s:.3g}" if several else "-"
    later = _format_megabytes(row.served_nbytes[-1]) if several else "-"
    return (
        f"{row.loader:<11}{row.seconds[0]:>9.3g}{later_s:>9}{ratio:>7.3g}"
        f"{_format_megabytes(row.served_nbytes[0]):>10}{later:>10}"
    )


def _format_megabytes(nbytes: int | None) -> str:
    return "-" if nbytes is None else f"{nbytes / 1e6:.1f}"


def _format_proof(first: Row, best: Row, options: argparse.Namespace, ranks: int) -> str:
    """The command that compares both under a model, each run recorded."""
    if best is first:
        return "Nothing to change."
    own = "python -m vanidl_loaders " + (f"launch --ranks {ranks} -- " if ranks > 1 else "")
    own += f"train --data {shlex.quote(options.data)} --batch {options.batch}"
    own += f" --epochs {options.epochs} --workers {options.workers} --loader "
    a, b = (shlex.quote(own + row.loader) for row in (first, best))
    return f"What it gains with a model:\n  vanidl ab --a {a} --b {b}"


_PROC = Path("/proc")


def count_served_nbytes() -> int | None:
    """Bytes that read calls returned so far, of this process, its children, and those that ended.

    From the page cache or not; pages of mapped files are not in it. None: this kernel does not
    count.
    """
    try:
        own = _read_nbytes(_PROC / "self")
    except (OSError, ValueError):
        return None
    return own + sum(map(_read_child_nbytes, _list_children()))


def forget_cached(folder: Path) -> bool:
    """Has the kernel forget the cached pages of all files in a folder; False where it may not."""
    if not hasattr(os, "posix_fadvise"):
        return False
    # Pages that were written and not synced stay.
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
    except OSError:
        return False
    return True


def _list_children() -> list[str]:
    with suppress(OSError):
        lists = [path.read_text() for path in (_PROC / "self/task").glob("*/children")]
        return [pid for each in lists for pid in each.split()]
    return []


def _read_child_nbytes(pid: str) -> int:
    with suppress(OSError, ValueError):
        return _read_nbytes(_PROC / pid)
    return 0


def _read_nbytes(process: Path) -> int:
    """`rchar`: what read, pread and their like returned."""
    fields = (line.partition(":") for line in (process / "io").read_text().splitlines())
    return int({name: value for name, _, value in fields}["rchar"])
