"""`vanidl watch RUN`: what a run that is being recorded has shown so far."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vanidl.commands import console
from vanidl.commands.arguments import LINE_S, LOOK_S
from vanidl.commands.colour import is_terminal, wants_colour
from vanidl.errors import InputError
from vanidl.files.atomic import write_whole
from vanidl.formatting.names import elided
from vanidl.watch import view
from vanidl.watch.openmetrics import openmetrics
from vanidl.watch.run import WatchedRun
from vanidl.watch.state import RunState

_END_S = 0.5  # in which the end of a run is seen

Show = Callable[[RunState, float], None]


def run(options: argparse.Namespace) -> int:
    """Shows the run until it has ended, or Ctrl-C; exit status 0."""
    live = _is_live(options)
    every_s = max(options.every or (LOOK_S if live else LINE_S), 0.1)
    target = Path(options.openmetrics) if options.openmetrics else None
    watched = WatchedRun(_folder(options.run))
    with suppress(KeyboardInterrupt), _shown(live, quiet=options.quiet) as show:
        _follow(watched, every_s, show, target, quiet=options.quiet)
    return 0


def _folder(named: str) -> Path:
    folder = Path(named)
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{named}: expected the folder of a run that is being recorded, found a file; name the "
            "RUN of vanidl record -o RUN"
        )
    return folder


def _is_live(options: argparse.Namespace) -> bool:
    """Whether a screen is drawn again and again: on a terminal that can."""
    dumb = os.environ.get("TERM", "") in ("", "dumb")
    return is_terminal(sys.stdout) and not (dumb or options.plain or options.quiet)


def _follow(
    watched: WatchedRun, every_s: float, show: Show, target: Path | None, *, quiet: bool
) -> None:
    begun, told = time.monotonic(), quiet
    while True:
        state = watched.look(time.time_ns())
        if not watched.is_there and not told:
            console.tell(f"vanidl: waiting for a recording in {elided(str(watched.folder))}\n")
            told = True
        if target is not None:
            write_whole(target, openmetrics(state).encode(), "metrics", option="--openmetrics")
        if watched.is_there:
            show(state, time.monotonic() - begun)
        if state.ended:
            return
        _rest(watched, every_s)


def _rest(watched: WatchedRun, seconds: float) -> None:
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
    if state.ended:
        lines = [*view.final(state), f"{state.name}: {view.ending(state)}"]
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
            if state.ended:
                lines += [("", ""), *((text, "bold") for text in view.final(state))]
            text = Text("\n").join(Text(text, style) for text, style in lines)
            drawn.update(text, refresh=True)

        yield show
