"""`vanidl ab --a CMD --b CMD`: runs both alternately under the recorder and compares them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from vanidl.commands.ceiling import add_replay_arguments, replay_of
from vanidl.commands.compare import public_sides, show
from vanidl.commands.inputs import add_read_arguments, open_path
from vanidl.commands.outputs import refuse_input
from vanidl.compare import compare
from vanidl.compare.ab import Plan, Recorded, run_pairs
from vanidl.compare.ab_folder import open_recorded
from vanidl.record import record
from vanidl.record.no_tracer import NAME as NO_TRACER
from vanidl.record.recording import TRACERS
from vanidl.record.steps import Replay

_PLACE = "{run} in it, and VANIDL_RUN in its environment, are the folder of the run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Both commands, how often and how to run them, and where the page goes."""
    add = parser.add_argument
    add("--a", required=True, metavar="CMD", help=f"the command as it was; {_PLACE}")
    add("--b", required=True, metavar="CMD", help="the command with the change")
    add("--repeat", type=int, default=5, metavar="N", help="pairs that count (default 5)")
    add("--drop-caches", action="store_true", help="empty the page cache before every run (root)")
    add("--tracer", choices=TRACERS, default="auto", help="as of vanidl record")
    beside = "beside each pair also --a with batches from memory: what input costs both"
    add("--ceiling", action="store_true", help=beside)
    add_replay_arguments(parser)
    add("--darshan-lib", metavar="PATH", help="Darshan's libdarshan.so")
    add("--runs", metavar="DIR", help="new folder for the runs (default vanidl-ab-DATE-TIME)")
    add("-o", "--output", metavar="FILE", help="write one HTML page")
    add("--label", action="append", default=[], metavar="NAME", help="name of a side, in order")
    add_read_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the pairs, then prints or writes their comparison; exit status 0."""
    folder = Path(options.runs or f"vanidl-ab-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}")
    refuse_input(options.output, options.steps, options.data)
    plan = Plan(
        options.a, options.b, folder, options.repeat, options.drop_caches, options.tracer,
        options.ceiling,
    )  # fmt: skip
    recorder = partial(_recorded, darshan_lib=options.darshan_lib)
    from_memory = partial(_from_memory, replay=replay_of(options))
    run_pairs(plan, recorder, _show if sys.stderr.isatty() else None, from_memory)
    sides, conditions = open_recorded(folder, partial(open_path, options=options), options.label)
    show(compare(public_sides(sides, options), conditions), options.output, as_json=False)
    sys.stdout.write(f"runs: {folder}\n")
    return 0


def _recorded(
    command: Sequence[str], folder: Path, tracer: str, darshan_lib: str | None
) -> Recorded:
    return record(command, folder, tracer=tracer, darshan_lib=darshan_lib)


def _from_memory(command: Sequence[str], folder: Path, _tracer: str, replay: Replay) -> Recorded:
    """There is nothing to trace."""
    return record(command, folder, tracer=NO_TRACER, replay=replay)


def _show(what: str, done: int, total: int) -> None:
    """A line before each run: the commands may print between them."""
    sys.stderr.write(f"vanidl ab: run {done + 1} of {total} ({what})\n")
    sys.stderr.flush()
