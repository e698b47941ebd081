"""Interpreters that vanidl starts, as forks of this process: the same code, ten times as fast.

A fresh interpreter takes 0.1 to 0.5 s to import what it needs, which is most of a case. A fork has
it already. What the child runs, its pipes, limits and signals are those of the real one.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from vanidl.parallel.children import interpreter_command

_HEAD = interpreter_command("")[:-1]
_FIRST, _MOST = 3, 65_536  # descriptors beside the standard streams


def instead_of_interpreters() -> None:
    """From now on; only for a process that does nothing else and has few threads."""
    subprocess.Popen = Forked  # type: ignore[misc]


class Forked(subprocess.Popen[Any]):
    """Starts any command but those of `interpreter_command`, whose code runs in the fork itself."""

    def __init__(self, args: Any, **options: Any) -> None:
        if isinstance(args, Sequence) and list(args[:-1]) == _HEAD:
            options["preexec_fn"] = lambda: _run(args[-1])
        super().__init__(args, **options)


def _run(code: str) -> None:
    """Does what the interpreter would, and leaves the process."""
    status = 1
    os.closerange(_FIRST, _MOST)  # the caller takes it for a program that has started
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    try:
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(number, mode))
            for number, mode in enumerate(("rb", "wb", "wb"))
        )
        exec(code, {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # an interpreter prints it, whatever it is
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
