"""`vanidl ceiling -- COMMAND...`: what input costs, measured with batches from memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from vanidl.ceiling import measure
from vanidl.commands import console
from vanidl.commands.arguments import PLACEHOLDER, size_of
from vanidl.readers.run_folder import NO_TRACER, write_ceiling
from vanidl.record import Recorded, record
from vanidl.record.steps import Replay
from vanidl.wording.results import write_ceiling_lines

_NO_VALUE = (
    "vanidl: now with batches from memory; workers of loaders are stopped once these are warm.\n"
    "vanidl: what this run trains is of no value, as its batches repeat. Its checkpoints and logs "
    "go to where the command says: over those of the run before, unless that is in {run}.\n"
)


def replay_of(options: argparse.Namespace) -> Replay:
    """How batches are to be kept.

    Raises:
        UsageError: a number makes no sense.
    """
    return Replay(options.warm_up, size_of(options.memory, "--memory"), options.epoch_batches)


def run(options: argparse.Namespace) -> int:
    """Runs the command, twice unless --against says with what to compare; its exit status."""
    words = options.command_line
    command = words[1:] if words[:1] == ["--"] else words
    replay = replay_of(options)
    # The run as it trains, unless one is there.
    if options.against is not None:
        folder = Path(options.against)
        target = Path(options.output or f"{folder}-ceiling")
    else:
        folder = Path(options.output or f"vanidl-{datetime.now():%Y%m%d-%H%M%S}")
        target = folder.with_name(f"{folder.name}-ceiling")
        done = record(
            _place_in(command, folder),
            folder,
            tracer=options.tracer,
            darshan_lib=options.darshan_lib,
            waits=options.wait,
        )
        if done.exit_status:
            return _report_failure(done, "the run as it trains")
    # The same command with batches from memory, and what it is faster by.
    console.tell(_NO_VALUE)
    done = record(
        _place_in(command, target), target, tracer=NO_TRACER, waits=options.wait, replay=replay
    )
    if done.exit_status:
        return _report_failure(done, "the run with batches from memory")
    ceiling = measure(folder, target)
    write_ceiling(folder, ceiling)
    console.tell(write_ceiling_lines(ceiling) + f"vanidl: the ceiling is part of {folder} now\n")
    return 0


def _place_in(command: Sequence[str], folder: Path) -> list[str]:
    """The command with the folder of its run where it names that."""
    return [word.replace(PLACEHOLDER, str(folder.absolute())) for word in command]


def _report_failure(done: Recorded, what: str) -> int:
    console.tell(f"vanidl: {what} ended with exit status {done.exit_status}: no ceiling\n")
    return done.exit_status
