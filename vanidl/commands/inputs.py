"""The options that every command about a RUN shares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from os import PathLike

from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.commands import console
from vanidl.dataset.locate import DataOptions
from vanidl.formatting.names import printable
from vanidl.merge.load import Inputs
from vanidl.model.selection import Selection
from vanidl.parallel.executors import ExecutorOptions, warning_about
from vanidl.readers.format import Progress
from vanidl.run import Run, open_run


def add_run_arguments(
    parser: argparse.ArgumentParser, *, window_end: Sequence[str] = ("--to", "--until")
) -> None:
    """Declares RUN and the options that choose what to read and what to look at.

    `window_end` are the names of the option that ends the time window.
    """
    parser.add_argument(
        "run", metavar="RUN", help="a Darshan log, or a folder of logs and profiler output"
    )
    add_read_arguments(parser, window_end=window_end)


def add_read_arguments(
    parser: argparse.ArgumentParser, *, window_end: Sequence[str] = ("--to", "--until")
) -> None:
    """Declares the options that choose what to read of a run and what to look at."""
    add = parser.add_argument_group("what to look at").add_argument
    add(
        "--layer",
        default="",
        help="layer of the I/O: POSIX (default), MPI-IO, or OBJECT, requests to object storage "
        "(default where they alone were recorded)",
    )
    add("--only", metavar="KIND", help="only files of one kind, for example dataset")
    add("--include", action="append", default=[], metavar="GLOB", help="only paths that match")
    add("--exclude", action="append", default=[], metavar="GLOB", help="no paths that match")
    add("--from", dest="from_s", type=float, metavar="T", help="from T seconds into the job")
    add(*window_end, dest="to_s", type=float, metavar="T", help="up to T seconds into the job")
    _add_inputs(parser)
    add_executor_arguments(parser)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to read, and how").add_argument
    add(
        "--job", action="append", default=[], metavar="ID",
        help="this job of several, by its id or, as @2, its number in the table that is shown",
    )  # fmt: skip
    add(
        "--steps",
        action="append",
        default=[],
        metavar="PATH[:TAG]",
        help="more profiler output, or event files (TAG: which scalar marks steps)",
    )
    add("--kind", action="append", default=[], metavar="GLOB=KIND", help="kind of such files")
    add("--wait-name", action="append", default=[], metavar="REGEX", help="spans that are waits")
    add("--clock-offset", type=float, metavar="SECONDS", help="added to every profiler time")
    add("--data", action="append", default=[], metavar="PATH", help="the dataset as it lies here")
    add("--inspect", action="store_true", help="open the dataset files, for records and chunks")
    add("--record-size", type=int, metavar="BYTES", help="bytes of one sample")
    add("--samples-per-step", type=int, metavar="N", help="samples of one rank in one step")
    add(
        "--anonymize",
        dest="names",
        action="store_const",
        const=Pseudonyms(),
        help="replace paths, hosts, users and commands by numbers, the same in all output",
    )


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options that choose where work runs: a Dask cluster."""
    who = parser.add_argument_group("where work runs").add_mutually_exclusive_group()
    who.add_argument(
        "--dask", metavar="ADDRESS", help="work on this Dask scheduler, for example tls://HOST:8786"
    )
    who.add_argument(
        "--workers", type=_positive, metavar="N", help="work on a Dask cluster of N processes here"
    )


def executor_options_from(options: argparse.Namespace) -> ExecutorOptions:
    """Where work runs, as the options say; a warning where strangers could run code there."""
    chosen = ExecutorOptions(options.workers, options.dask)
    _warn_of(chosen)
    return chosen


@cache
def _warn_of(chosen: ExecutorOptions) -> None:
    """Says it once, also where a command reads several runs."""
    warning = warning_about(chosen)
    if warning is not None:
        sys.stderr.write(f"vanidl: warning: {warning}\n")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


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
