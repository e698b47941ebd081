"""Python processes that cannot have recorded steps, by how they were started.

Python imports the recorder because of the environment. `python -I` and `-E` ignore that, `-S`
imports no `sitecustomize`, and a launcher may start its programs with another environment. Then
nothing is recorded, and nothing fails: what was seen of such a process is all that tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from vanidl.formatting.units import plural
from vanidl.readers.command_lines import runs_python
from vanidl.record.watch import KEPT, PROC, Seen, environment_of

_DEAF = frozenset("IES")
_TAKES_WORD = frozenset("WX")
_ENDS = frozenset("cm")


def losses(seen: Mapping[int, Seen], expected: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each reason why steps of some processes are missing, if they have any.

    Args:
        seen: the processes of the command, by pid.
        expected: the environment of the command; of lists of paths the first entry counts.
    """
    python = [one for one in seen.values() if runs_python(one.command.split("\0")[0])]
    ignoring = [one for one in python if _ignores_environment(one.command)]
    heard = [one for one in python if one not in ignoring]
    path, rest = KEPT
    bare = [one for one in heard if not _has(one.environment, expected, rest)]
    changed = [
        one for one in heard if one not in bare and not _has(one.environment, expected, path)
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
                f"are not recorded (first: {_shown(alone[0])}): {why}."
            )


def tasks_elsewhere(seen: Mapping[int, Seen], folder: Path) -> Iterator[str]:
    """A sentence where `srun` ran and `folder` has no recording of steps.

    Tasks of Slurm are children of its daemon, not of `srun`, so none of them was seen.
    """
    names = {Path(one.command.split("\0")[0]).name for one in seen.values()}
    if "srun" in names and not any(folder.glob("*.steps")):
        yield (
            "No task that srun started recorded steps or waits: if they train in Python, have srun "
            "pass the environment on (--export=ALL), and see to it that its nodes can write to RUN."
        )


def still_running(variable: str, value: str) -> Iterator[str]:
    """A sentence where processes of the command go on after its end, as daemons do.

    They are known by the variable of their environment: who is left alone by its parent is
    nobody's child that was seen.
    """
    pids = [int(path.name) for path in Path(PROC).glob("[1-9]*") if path.name.isdecimal()]
    left = [
        pid for pid in pids if pid != os.getpid() and environment_of(pid).get(variable) == value
    ]
    if left:
        many = plural(len(left), "process of the command is", "processes of the command are")
        yield (
            f"{many} still running (first: process {left[0]}): what is recorded from now on goes "
            "into RUN as well, so look at RUN again later."
        )


def _shown(one: Seen) -> str:
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
            if letter in _DEAF:
                return True
            if letter in _ENDS:
                return False
            if letter in _TAKES_WORD:  # what follows is its word, or the next one is
                if k == len(word) - 2:
                    next(words, None)
                break
    return False


def _has(environment: Mapping[str, str], expected: Mapping[str, str], name: str) -> bool:
    """Whether a process was given a variable as it should; of one that could not be seen: yes."""
    if not environment:
        return True
    return expected[name].split(os.pathsep)[0] in environment[name].split(os.pathsep)
