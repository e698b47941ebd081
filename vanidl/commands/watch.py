"""`vanidl watch RUN`: what a run that is being recorded has shown so far."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vanidl.commands import console
from vanidl.commands.arguments import LINE_S, LOOK_S
from vanidl.commands.console import is_terminal, wants_colour
from vanidl.errors import InputError
from vanidl.files.atomic import write_whole
from vanidl.formatting.names import elided
from vanidl.record.spool import find_recording_folder
from vanidl.watch import view
from vanidl.watch.openmetrics import openmetrics
from vanidl.watch.state import RunState, State
from vanidl.watch.watched import WatchedRun

STATE_S = 2.0
"""How often the state is looked at, and shown at once where it is another one."""
_END_S = 0.5  # in which the end of a run is seen
_ALERT_S = 10.0  # that the command of an alert may take where watching ends with it
FAILED, DEAD = 3, 4
"""Exit status where the program that was recorded failed, and where its run is dead."""

Show = Callable[[RunState, float], None]


def run(options: argparse.Namespace) -> int:
    """Shows the run until it is over, or Ctrl-C; how it ended is the exit status.

    0: well, or it goes on (Ctrl-C); 3: its program failed, or nobody knows how it ended; 4: dead.

    Raises:
        InputError: RUN is a file.
    """
    # On a terminal that can, a screen is drawn again and again.
    dumb = os.environ.get("TERM", "") in ("", "dumb")
    live = is_terminal(sys.stdout) and not (dumb or options.plain or options.quiet)
    every_s = max(options.every or (LOOK_S if live else LINE_S), 0.1)
    target = Path(options.openmetrics) if options.openmetrics else None
    folder = Path(options.run)
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{options.run}: expected the folder of a run that is being recorded, found a file; "
            "name the RUN of vanidl record -o RUN"
        )
    watched = WatchedRun(find_recording_folder(folder))
    alert = Alert(options.alert) if options.alert else None

    # Until the run is over; Ctrl-C leaves it running, which is no failure.
    with suppress(KeyboardInterrupt), _shown(live, quiet=options.quiet) as show:
        last = _follow(watched, every_s, show, target, alert, quiet=options.quiet)
        if last.condition.state is State.DEAD:
            return DEAD
        return FAILED if last.failed else 0
    return 0


class Alert:
    """A command of the user's that is run when the run comes to need somebody."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._alerted = State.STARTING

    def hear(self, watched: WatchedRun, state: RunState) -> None:
        """Runs the command where this state alerts and the last did not; waits for it at the end.

        Its output goes to stderr, and its exit status is its own affair.
        """
        condition = state.condition
        before, self._alerted = self._alerted, condition.state
        if not condition.alerts or condition.state is before:
            return
        # The command knows the run and its state from its environment: no quoting of names.
        words = {
            "VANIDL_RUN": str(watched.folder.absolute()),
            "VANIDL_STATE": condition.state.value,
            "VANIDL_SAYS": f"{state.name}: {condition}",
        }
        try:
            child = subprocess.Popen(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=2,
                env={**os.environ, **words},
            )
        except OSError as error:
            console.tell(f"vanidl: --alert cannot be run: {error.strerror}\n")
            return
        if condition.is_over:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_ALERT_S)


def _follow(
    watched: WatchedRun,
    every_s: float,
    show: Show,
    target: Path | None,
    alert: Alert | None,
    *,
    quiet: bool,
) -> RunState:
    begun, told = time.monotonic(), quiet
    shown, due_s = State.STARTING, 0.0
    while True:
        state = watched.look(time.time_ns(), time.monotonic_ns())
        if not watched.is_there and not told:
            console.tell(f"vanidl: waiting for a recording in {elided(str(watched.folder))}\n")
            told = True
        elapsed_s = time.monotonic() - begun
        # Shown when it is time, or at once where the state is another one.
        if elapsed_s >= due_s or state.condition.state is not shown:
            shown, due_s = state.condition.state, elapsed_s + 0.9 * every_s
            if target is not None:
                write_whole(target, openmetrics(state).encode(), "metrics", option="--openmetrics")
            if watched.is_there:
                show(state, elapsed_s)
        if alert is not None:
            alert.hear(watched, state)
        if state.condition.is_over:
            return state
        wait_for_next_look(watched, min(every_s, STATE_S))


def wait_for_next_look(watched: WatchedRun, seconds: float) -> None:
    """Waits; no longer than until the run has ended."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not watched.has_ended:
        time.sleep(min(left, _END_S))


@contextmanager
def _shown(live: bool, *, quiet: bool) -> Iterator[Show]:
    """How to show a state."""
    if quiet:
        yield lambda *_: None
    elif not live:
        yield _say
    else:
        with _screen() as show:
            yield show


def _say(state: RunState, elapsed_s: float) -> None:
    columns = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else view.WIDTH
    lines = [view.line(state, elapsed_s, columns)]
    if state.condition.is_over:
        lines = [f"{state.name}: {view.says(state)}", *view.final(state)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Show]:
    """A part of the terminal that is drawn again; texts on it are printable."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    out = console.bare(sys.stdout)
    target = Console(file=out, highlight=False, markup=False, no_color=not wants_colour(sys.stdout))
    with Live(console=target, auto_refresh=False, vertical_overflow="crop") as drawn:

        def show(state: RunState, _elapsed_s: float) -> None:
            lines = view.screen(state, target.width)
            if state.condition.is_over:
                lines += [("", ""), *((text, "bold") for text in view.final(state))]
            text = Text("\n").join(Text(text, style) for text, style in lines)
            drawn.update(text, refresh=True)

        yield show
