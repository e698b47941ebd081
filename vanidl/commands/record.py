"""`vanidl record -- COMMAND...`: runs a command under a tracer and leaves a RUN folder."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from vanidl.commands import console
from vanidl.commands.arguments import size_of
from vanidl.model.run_facts import describe_ending
from vanidl.readers.run_folder import MISSING, UNFINISHED
from vanidl.record import Recorded, record

_WATCHER_S = 20.0  # to see that the run has ended, and say so


def run(options: argparse.Namespace) -> int:
    """Runs the command, says on stderr where the RUN is; the command's exit status."""
    words = options.command_line
    command = words[1:] if words[:1] == ["--"] else words
    folder = options.output or f"vanidl-{datetime.now():%Y%m%d-%H%M%S}"
    # The command that watches the run, where that was asked for.
    watching: tuple[str, ...] = ()
    if command and (options.watch or options.openmetrics):
        metrics = ("--openmetrics", options.openmetrics) if options.openmetrics else ()
        how = "--plain" if options.watch else "--quiet"
        watching = (sys.executable, "-m", "vanidl", "watch", how, *metrics, "--", folder)
    with _watch_beside(watching):
        recorded = record(
            command,
            folder,
            tracer=options.tracer,
            darshan_lib=options.darshan_lib,
            events=options.events,
            with_steps=not options.no_steps,
            waits=options.wait,
            trains=options.train,
            profile_steps=options.profile,
            in_place=options.in_place,
            calls_on=options.calls_on,
            keep_free_nbytes=size_of(options.keep_free, "--keep-free"),
            tell=lambda sentence: console.tell(f"vanidl: {sentence}\n"),
        )
    console.tell(_describe_recording(recorded))
    return recorded.exit_status


@contextmanager
def _watch_beside(command: Sequence[str]) -> Iterator[None]:
    """Watches in a process of its own, which cannot slow the recorder, or end it.

    It ends by itself once the run has; what it says goes to stderr, as stdout is the program's.
    """
    if not command:
        yield
        return
    watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    finished = False
    try:
        yield
        finished = True
    finally:
        try:
            # A watcher sees the end of the run by itself; one of a run that failed to start is
            # ended.
            watcher.wait(_WATCHER_S if finished else 0)
        except subprocess.TimeoutExpired:
            watcher.terminate()
            watcher.wait()


def _describe_recording(recorded: Recorded) -> str:
    states = [process.state for process in recorded.run.processes]
    lost = [f"{states.count(state)} {state}" for state in (MISSING, UNFINISHED) if state in states]
    # Processes that live shorter than a look around takes are not seen at all.
    of_processes = f", {' and '.join(lost)} of at least {len(states)} processes" if lost else ""
    said = f"vanidl: recorded with {recorded.tracer}{of_processes}: {recorded.folder}\n"
    ending = recorded.ending
    how = describe_ending(ending) if ending.signal or ending.memory_kills else ""
    problems = filter(None, (how, *recorded.unheard, recorded.problem))
    return said + "".join(f"vanidl: {problem}\n" for problem in problems)
