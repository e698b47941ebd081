"""Which processes a command starts, seen from outside while it runs, and what of them is missing.

A tracer's library knows neither ranks nor the processes that it could not trace or that were
killed. Launchers put ranks into the environment of what they start, whatever they are and
however they start it, and the kernel shows that environment; so the recorder looks at its
descendants every few milliseconds. Nothing is put between launcher and program, and a
process that is too short to be seen is no rank.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from vanidl.formatting.units import plural
from vanidl.readers.names import runs_python
from vanidl.schema.dataclass import dataclass

PROC = "/proc"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID",
                  "MV2_COMM_WORLD_RANK", "HOROVOD_RANK", "SLURM_PROCID")  # fmt: skip
"""Launchers' names for the rank of a process, those closest to the program first."""

KEPT = ("PYTHONPATH", "VANIDL_STEPS")
"""Variables by which a process records its steps."""

_RANK = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(slots=True)
class Seen:
    """One process; `started` (ticks since boot) tells it from a later one with its pid.

    The words of its command end in NUL, as the kernel has them.
    """

    pid: int
    parent_pid: int
    started: int
    first_ns: int
    last_ns: int
    command: str = ""
    rank: int | None = None
    gone: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # of `KEPT`; {}: not seen


class Watch:
    """The processes below one, as far as they were seen.

    Where there is no /proc, only the first is known.
    """

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        now = time.time_ns()
        words = "".join(f"{word}\0" for word in command)
        self.seen: dict[int, Seen] = {
            pid: Seen(pid, os.getpid(), read_start_ticks(pid), now, now, words)
        }

    def look(self) -> None:
        """Sees who is there now."""
        now = time.time_ns()
        pending = [seen for seen in self.seen.values() if not seen.gone]
        while pending:
            seen = pending.pop()
            if not _refresh(seen, now):
                continue
            for child in _list_children(seen.pid):
                if self._is_new(child):
                    self.seen[child] = Seen(child, seen.pid, read_start_ticks(child), now, now)
                    pending.append(self.seen[child])

    def _is_new(self, pid: int) -> bool:
        """Whether no process of this pid was seen, or it was another one, long gone."""
        if pid not in self.seen:
            return True
        return self.seen[pid].gone and read_start_ticks(pid) not in (0, self.seen[pid].started)

    def anyone_left(self) -> bool:
        """Whether a process was still there at the last look."""
        return any(not seen.gone for seen in self.seen.values())

    def ranks(self) -> dict[int, int | None]:
        """Rank of every process seen, by pid."""
        return {pid: seen.rank for pid, seen in self.seen.items()}


def _refresh(seen: Seen, now: int) -> bool:
    """Whether the process is still there; if so, what it is now."""
    if not seen.started or read_start_ticks(seen.pid) != seen.started:
        seen.gone = True
        return False
    seen.last_ns = now
    command = _read_proc(seen.pid, "cmdline")
    # While a program is being started the kernel may show its command and no environment yet.
    if command and (command != seen.command or seen.first_ns == now or not seen.environment):
        seen.command = command
        environment = read_environment(seen.pid)
        seen.rank = find_rank(environment)
        seen.environment = {name: environment.get(name, "") for name in KEPT if environment}
    return True


def read_start_ticks(pid: int) -> int:
    """When a process started, in ticks since boot; 0 for one that is gone or a zombie."""
    fields = _read_proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] != "Z" else 0


def _list_children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return
    for thread in threads:
        yield from map(int, _read_proc(pid, f"task/{thread}/children").split())


def read_environment(pid: int) -> dict[str, str]:
    """That which a process was started with; {} of one that cannot be seen."""
    pairs = (entry.partition("=") for entry in _read_proc(pid, "environ").split("\0"))
    return {key: value for key, mark, value in pairs if mark}


def find_rank(environment: Mapping[str, str]) -> int | None:
    """The rank that a launcher gave a process, None for one that has none."""
    values = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in values if _RANK.fullmatch(value)), None)


def _read_proc(pid: int, name: str) -> str:
    """A file of /proc, "" for a process that is gone or another user's."""
    try:
        with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


# Python processes that cannot have recorded steps, by how they were started.
#
# Python imports the recorder because of the environment. `python -I` and `-E` ignore that, `-S`
# imports no `sitecustomize`, and a launcher may start its programs with another environment. Then
# nothing is recorded, and nothing fails: what was seen of such a process is all that tells.

_DEAF_FLAGS = frozenset("IES")
_FLAGS_WITH_WORD = frozenset("WX")
_LAST_FLAGS = frozenset("cm")


def explain_missing_steps(seen: Mapping[int, Seen], expected: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each reason why steps of some processes are missing, if they have any.

    Args:
        seen: the processes of the command, by pid.
        expected: the environment of the command; of lists of paths the first entry counts.
    """
    python = [one for one in seen.values() if runs_python(one.command.split("\0")[0])]
    ignoring = [one for one in python if _ignores_environment(one.command)]
    heard = [one for one in python if one not in ignoring]
    path, rest = KEPT
    bare = [one for one in heard if not _has_variable(one.environment, expected, rest)]
    changed = [
        one
        for one in heard
        if one not in bare and not _has_variable(one.environment, expected, path)
    ]
    parents = {one.parent_pid for one in heard if one not in (*bare, *changed)}
    for lost, why in (
        (ignoring, "with -I, -E or -S Python does not import the recorder; start it without"),
        (bare, "the environment of vanidl record did not reach them; have their launcher "
               "pass PYTHONPATH and VANIDL_STEPS on, as srun --export=ALL does"),
        (changed, "the recorder's folder is no longer in their PYTHONPATH; have what sets it "
                  "(their launcher, a script of the shell, of a module or of conda) add to it"),
    ):  # fmt: skip
        alone = [one for one in lost if one.pid not in parents]  # not what only launches others
        if alone:
            yield (
                f"Steps and waits of {plural(len(alone), 'Python process', 'Python processes')} "
                f"are not recorded (first: {_shorten_command(alone[0])}): {why}."
            )


def explain_tasks_elsewhere(seen: Mapping[int, Seen], folder: Path) -> Iterator[str]:
    """A sentence where `srun` ran and `folder` has no recording of steps.

    Tasks of Slurm are children of its daemon, not of `srun`, so none of them was seen.
    """
    names = {Path(one.command.split("\0")[0]).name for one in seen.values()}
    if "srun" in names and not any(folder.glob("*.steps")):
        yield (
            "No task that srun started recorded steps or waits: if they train in Python, have srun "
            "pass the environment on (--export=ALL), and see to it that its nodes can write to RUN."
        )


def explain_still_running(variable: str, value: str) -> Iterator[str]:
    """A sentence where processes of the command go on after its end, as daemons do.

    They are known by the variable of their environment: who is left alone by its parent is
    nobody's child that was seen.
    """
    pids = [int(path.name) for path in Path(PROC).glob("[1-9]*") if path.name.isdecimal()]
    left = [
        pid for pid in pids if pid != os.getpid() and read_environment(pid).get(variable) == value
    ]
    if left:
        many = plural(len(left), "process of the command is", "processes of the command are")
        yield (
            f"{many} still running (first: process {left[0]}): what is recorded from now on goes "
            "into RUN as well, so look at RUN again later."
        )


def _shorten_command(one: Seen) -> str:
    """Interpreter and flags alone: further words may be secrets."""
    words = one.command.split("\0")
    flags = [word for word in words[1:] if word.startswith("-")][:1]
    return f"process {one.pid}, {' '.join([words[0], *flags])}"


def _ignores_environment(command: str) -> bool:
    words = iter(command.split("\0")[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return False
        for k, letter in enumerate(word[1:] if word[1] != "-" else ""):
            if letter in _DEAF_FLAGS:
                return True
            if letter in _LAST_FLAGS:
                return False
            if letter in _FLAGS_WITH_WORD:  # what follows is its word, or the next one is
                if k == len(word) - 2:
                    next(words, None)
                break
    return False


def _has_variable(environment: Mapping[str, str], expected: Mapping[str, str], name: str) -> bool:
    """Whether a process was given a variable as it should; of one that could not be seen: yes."""
    if not environment:
        return True
    return expected[name].split(os.pathsep)[0] in environment[name].split(os.pathsep)
