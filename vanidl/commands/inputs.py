"""The runs that a command reads, as its options say, and what it must not write over."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vanidl.commands import console
from vanidl.errors import InputError, UsageError
from vanidl.formatting.names import printable
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions
from vanidl.model.selection import Selection
from vanidl.readers import discover, run_folder
from vanidl.readers.format import Progress
from vanidl.run import Run, open_run

if TYPE_CHECKING:
    from vanidl.parallel.executors import ExecutorOptions


def executor_options_from(options: argparse.Namespace) -> ExecutorOptions | None:
    """Where work runs, None where no option says; a warning where strangers could run code."""
    if options.workers is None and options.dask is None:
        return None
    from vanidl.parallel.executors import ExecutorOptions

    chosen = ExecutorOptions(options.workers, options.dask)
    _warn_of(chosen)
    return chosen


@cache
def _warn_of(chosen: ExecutorOptions) -> None:
    """Says it once, also where a command reads several runs."""
    from vanidl.parallel.executors import warn_about

    warning = warn_about(chosen)
    if warning is not None:
        sys.stderr.write(f"vanidl: warning: {warning}\n")


def open_from(options: argparse.Namespace) -> Run:
    """The run that the options describe, with progress on a terminal."""
    return open_path(options.run, options)


def open_path(path: str | PathLike[str], options: argparse.Namespace) -> Run:
    """The run at a path, read as the options say, with progress on a terminal."""
    selection = Selection(
        options.layer,
        options.only,
        tuple(options.include),
        tuple(options.exclude),
        options.from_s,
        options.to_s,
    )
    inputs = Inputs(
        tuple(options.steps),
        tuple(options.job),
        tuple(options.wait_name),
        tuple(options.kind),
        options.clock_offset,
        DataOptions(
            tuple(options.data), options.inspect, options.record_size, options.samples_per_step
        ),
    )
    with progress_line() as progress:
        return open_run(
            path,
            selection=selection,
            inputs=inputs,
            progress=progress,
            names=options.names,
            executor_options=executor_options_from(options),
        )


@contextmanager
def progress_line() -> Iterator[Progress | None]:
    """What to tell of progress: a line on a terminal, gone at the end; None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield _show
    finally:
        console.unescaped().write("\r\033[K")


def _show(what: str, done: int, total: int) -> None:
    """One line that overwrites itself: a bar, and how many of how many."""
    filled = 24 * done // max(total, 1)
    line = f"reading {printable(what)} [{'#' * filled}{'.' * (24 - filled)}] {done}/{total}"
    stream = console.unescaped()
    stream.write(f"\r{line}\033[K")
    stream.flush()


# Where a command writes: never over what it reads.

_RECORDS = (run_folder.RECORD_NAME, run_folder.AB_FILE)


def refuse_input(
    output: str | PathLike[str] | None,
    runs: Sequence[str | PathLike[str]],
    data: Sequence[str | PathLike[str]] = (),
) -> None:
    """Nothing where the output is none of the files that belong to the runs and their data.

    One that is there already is named: it will be replaced. A run may be PATH:TAG, as of --steps.

    Raises:
        UsageError: it is one of them, under this name or another.
    """
    if output is None or not Path(output).is_file():
        return
    target = Path(output)
    places = [place for run in runs for place in (str(run), str(run).rpartition(":")[0]) if place]
    if any(_is_input(target, Path(place)) for place in places) or any(
        _is_below(target, Path(folder)) for folder in data
    ):
        raise UsageError(
            f"-o {printable(str(output))}: expected a file to make or to replace, found one that "
            "is read here; choose another name."
        )
    console.tell(f"vanidl: {printable(str(output))} is there already, and will be replaced\n")


def _is_input(target: Path, run: Path) -> bool:
    """Whether it is the run's file, or one in its folder that a run consists of."""
    if not _is_below(target, run):
        return False
    return not run.is_dir() or target.name in _RECORDS or _is_of_a_run(target)


def _is_below(target: Path, place: Path) -> bool:
    if place.is_dir():
        return place.resolve() in target.resolve().parents
    return place.exists() and target.samefile(place)


def _is_of_a_run(path: Path) -> bool:
    try:
        discover.find(path)
    except InputError:
        return False
    return True
