"""Sub-commands of `vanidl`: one module each, with `run`; `arguments` says what each takes.

A module is imported when its command is run: no command pays for another, and help for none.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Protocol, cast

COMMANDS: dict[str, str] = {
    "summary": "print where the time went to I/O",
    "report": "write one self-contained HTML page",
    "view": "serve the report to this machine's browser, with every operation behind it",
    "compare": "compare runs: what changed, by how much, and how sure that is",
    "record": "run a command under a tracer and leave a RUN for report and compare",
    "watch": "show what a run that is being recorded does: its state, steps, waits, reads",
    "ab": "run two commands alternately under the recorder and compare them",
    "ceiling": "measure what input costs: run a command with batches from memory",
    "check": "say of each log whether it is whole, and what it misses; exit status 0, or 1 where "
    "no file could be read at all",
    "export": "write operations, results or figures as files for other programs",
    "demo": "write the report of a recorded training that comes with vanidl",
    "completion": "print the completion script of a shell",
    "schema": "print the JSON Schema of the JSON outputs: every field, its meaning and unit",
    "mcp": "answer assistants about runs, by the Model Context Protocol",
    "survey": "read the Darshan logs of many jobs: a table with one row per job, and one page "
    "for all",
}
"""Name, which is that of the module, and help, in the order of `vanidl --help`."""


GROUPS: dict[str, tuple[str, ...]] = {
    "look at a run": ("summary", "report", "view", "export", "check", "demo"),
    "compare": ("compare", "ab", "survey"),
    "record": ("record", "watch", "ceiling"),
    "set up": ("completion", "schema", "mcp"),
}
"""Commands as `vanidl --help` shows them; those in no group come last."""

READING = frozenset(("summary", "report", "export", "check", "demo", "compare", "survey"))
"""Commands that only read and write files: they start no program and serve nobody."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "summary": ("vanidl summary RUN", "vanidl summary RUN --full --only dataset"),
    "report": ("vanidl report RUN -o report.html",),
    "compare": ("vanidl compare before after -o compare.html",),
    "record": ("vanidl record -o RUN -- python train.py",),
    "watch": (
        "vanidl watch RUN",
        "vanidl watch RUN --quiet --openmetrics /var/lib/node_exporter/textfile/train.prom",
    ),
    "ab": ('vanidl ab --a "python train.py --workers 0" --b "python train.py --workers 4"',),
    "check": ("vanidl check logs/",),
    "ceiling": (
        "vanidl ceiling -o RUN -- python train.py",
        "vanidl ceiling --against RUN -- python train.py",
    ),
    "export": ("vanidl export RUN --to parquet -o tables",),
    "survey": ("vanidl survey /logs/2026 -o survey",),
    "mcp": ("vanidl mcp runs/",),
    "schema": ("vanidl schema summary",),
    "completion": (
        "source <(vanidl completion bash)",
        "vanidl completion fish > ~/.config/fish/completions/vanidl.fish",
    ),
}
"""Lines to copy, shown at the end of a command's help."""


class Command(Protocol):
    """What a module of this folder offers."""

    def run(self, options: argparse.Namespace) -> int:
        """Does the work; the exit status."""


def find_command(name: str) -> Command:
    """The module of a command, one of COMMANDS."""
    return cast(Command, import_module(f"{__name__}.{name}"))
