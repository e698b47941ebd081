"""The options that every command about a RUN shares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from os import PathLike

from vanidl.commands import console
from vanidl.dataset.locate import DataOptions
from vanidl.formatting.names import printable
from vanidl.merge.pipeline import Inputs
from vanidl.model.selection import Selection
from vanidl.parallel.executors import ExecutorOptions, warn_about
from vanidl.readers.format import Progress
from vanidl.run import Run, open_run


def executor_options_from(options: argparse.Namespace) -> ExecutorOptions:
    """Where work runs, as the options say; a warning where strangers could run code there."""
    chosen = ExecutorOptions(options.workers, options.dask)
    _warn_of(chosen)
    return chosen


@cache
def _warn_of(chosen: ExecutorOptions) -> None:
    """Says it once, also where a command reads several runs."""
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
