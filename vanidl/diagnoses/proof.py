"""The command that measures a change: the run's own command against the changed one."""

from __future__ import annotations

import re
import shlex

from vanidl.diagnoses.diagnosis import Remedy
from vanidl.model.trace import Trace
from vanidl.whatif import Predicted

_WORKERS = re.compile(r"--(num[-_])?workers")
_SCRIPT = re.compile(r"(?<!\w)([\w./-]+)\.py$")
UNKNOWN = "python train.py"


def ab_line(trace: Trace, best: Predicted | None, remedies: tuple[Remedy, ...]) -> str:
    """`vanidl ab` with both commands; "" where there is nothing to copy into the second.

    The number of workers is changed where the command has an option for it, else the second
    command runs a copy of the script.
    """
    if not remedies:
        return ""
    command = own_command(trace)
    workers = best.amount if best is not None and best.lever == "workers" else None
    if trace.streams:
        workers = None  # the dataset is to be changed, too
    changed = _with_workers(command, workers) if workers is not None else None
    then = changed or _with_copy(command)
    return f"vanidl ab --repeat 5 -o ab.html --a {shlex.quote(command)} --b {shlex.quote(then)}"


def own_command(trace: Trace) -> str:
    """The command of the run; an example where none is known, as in logs that hold its hash."""
    command = trace.job.command
    return UNKNOWN if not command or command.isdigit() else command


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # logs cut long commands, in the middle of a quote too
        return command.split()


def _with_workers(command: str, workers: float) -> str | None:
    words = _words(command)
    for i, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if not _WORKERS.fullmatch(name):
            continue
        if equals:
            return shlex.join([*words[:i], f"{name}={workers:.0f}", *words[i + 1 :]])
        if i + 1 < len(words):
            return shlex.join([*words[: i + 1], f"{workers:.0f}", *words[i + 2 :]])
    return None


def _with_copy(command: str) -> str:
    """The command with a copy of its script, which is to hold the change."""
    words = _words(command)
    for i, word in enumerate(words):
        if _SCRIPT.search(word):
            return shlex.join([*words[:i], _SCRIPT.sub(r"\1_changed.py", word), *words[i + 1 :]])
    return f"{command} CHANGED"
