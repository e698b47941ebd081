"""What a recorded command says of a process: who started it, and what for.

Recorded with Python 3.10 to 3.13 and PyTorch 2.13: children of `spawn`, the fork server,
the resource tracker and the worker of torch.compile carry no word of the process that
started them, only these commands.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath

HELPER = re.compile(
    r"multiprocessing[.\-/](spawn|forkserver|resource_tracker)|multiprocessing-fork"
    r"|torch/_inductor/compile_worker"
)
"""Commands of processes that Python's multiprocessing or torch.compile starts afresh."""

SERVANT = re.compile(r"resource_tracker|multiprocessing\.forkserver|_inductor/compile_worker")
"""Helpers that keep house for a trainer and load no data themselves (their forks may)."""

LAUNCHER = re.compile(
    r"\btorchrun\b|torch[./]distributed[./](run|launch)|\bmpi(exec|run)\b|accelerate launch"
    r"|^(\S*/)?(sh|bash|dash|zsh|env|timeout|hydra\S*|srun|orted|prted|prterun)(\s|$)"
)
"""Programs that only start others, which work for themselves: launchers of ranks, shells."""

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?$")
_LOCAL_RANK = re.compile(r"--local[-_]rank=")


@lru_cache(1024)  # processes of a job have few different commands
def arguments(command: str) -> tuple[str, ...]:
    """The words of a command from its script, module or program on; () for helpers.

    An interpreter, its flags and the `--local-rank` that launchers insert are left out, so
    that a launcher's words end with the words of what it starts.
    """
    if HELPER.search(command):
        return ()
    words = [word for word in command.split() if not _LOCAL_RANK.match(word)]
    if words and runs_python(command):
        del words[0]
        while words and words[0].startswith("-"):
            del words[0]
    return tuple(words)


@lru_cache(1024)
def runs_python(command: str) -> bool:
    """Whether the program of a command is a Python interpreter."""
    return bool(_PYTHON.search(PurePath(command.split(" ", 1)[0]).name))


@lru_cache(1024)
def runs_another(command: str) -> bool:
    """Whether the command is known and no Python program: `cat`, `ldconfig`, a compiler."""
    return bool(command.strip()) and not runs_python(command) and not HELPER.search(command)
