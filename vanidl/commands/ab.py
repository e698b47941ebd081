"""`vanidl ab --a CMD --b CMD`: runs both alternately under the recorder and compares them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from vanidl.commands.ceiling import replay_of
from vanidl.commands.compare import public_sides, show
from vanidl.commands.inputs import open_path, refuse_input
from vanidl.compare import compare
from vanidl.compare.ab import Plan, Recorded, run_pairs
from vanidl.compare.runs import open_recorded
from vanidl.readers.run_folder import NO_TRACER
from vanidl.record import record
from vanidl.record.steps import Replay


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
