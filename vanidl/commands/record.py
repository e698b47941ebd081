"""`vanidl record -- COMMAND...`: runs a command under a tracer and leaves a RUN folder."""

from __future__ import annotations

import argparse
from datetime import datetime

from vanidl.commands import console
from vanidl.readers.run_json import MISSING, UNFINISHED
from vanidl.record import Recorded, record
from vanidl.record.recording import TRACERS
from vanidl.record.steps import PROFILED_STEPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the RUN goes, which tracer, and the command."""
    add = parser.add_argument
    add("-o", "--output", metavar="RUN", help="folder to make (default: vanidl-DATE-TIME)")
    add("--tracer", choices=TRACERS, default="auto", help="auto: Darshan if found, else DFTracer")
    add("--no-steps", action="store_true", help="do not record steps and input waits")
    add("--wait", metavar="MODULE:NAME", action="append", default=[], help="also an iterator")
    add(
        "--profile", metavar="STEPS", type=int, nargs="?", const=PROFILED_STEPS,
        help="switch PyTorch's profiler on for so many steps after a warm-up (default: "
        f"{PROFILED_STEPS}), and for half as many later in a long run",
    )  # fmt: skip
    add("--darshan-lib", metavar="PATH", help="Darshan's libdarshan.so")
    add("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")


def run(options: argparse.Namespace) -> int:
    """Runs the command, says on stderr where the RUN is; the command's exit status."""
    words = options.command_line
    command = words[1:] if words[:1] == ["--"] else words
    folder = options.output or f"vanidl-{datetime.now():%Y%m%d-%H%M%S}"
    recorded = record(
        command,
        folder,
        tracer=options.tracer,
        darshan_lib=options.darshan_lib,
        with_steps=not options.no_steps,
        waits=options.wait,
        profile_steps=options.profile,
    )
    console.tell(_message(recorded))
    return recorded.exit_status


def _message(recorded: Recorded) -> str:
    states = [process.state for process in recorded.run.processes]
    lost = [f"{states.count(state)} {state}" for state in (MISSING, UNFINISHED) if state in states]
    # Processes that live shorter than a look around takes are not seen at all.
    of_processes = f", {' and '.join(lost)} of at least {len(states)} processes" if lost else ""
    said = f"vanidl: recorded with {recorded.tracer}{of_processes}: {recorded.folder}\n"
    return said + (f"vanidl: {recorded.problem}\n" if recorded.problem else "")
