"""The command line: parses, dispatches, and turns errors into one line and a status.

Exit status: 0 done, 1 the input is unusable, 2 wrong usage, 3 a comparison with
--fail-on found what it looks for, 128 + N ended by signal N.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import vanidl
from vanidl.commands import console
from vanidl.commands.arguments import READING, find_command, parser, size_of
from vanidl.encoding.budget import VARIABLE as MAX_MEMORY
from vanidl.errors import SeveralJobsError, VanidlError
from vanidl.parallel.children import (
    address_space_is_limited,
    ended_with_block,
    keep_freed_memory,
    run_supervised,
    without_threads_of_numpy,
)
from vanidl.parallel.storage import RemoteMounts

if TYPE_CHECKING:
    from vanidl.anonymize.pseudonyms import Pseudonyms

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_NO_MEMORY = (
    "expected memory for the result, found none left; give the command more (ulimit -v, the job's "
    "limit), or look at less: --from, --to, --only, or a part of the folder"
)
_GARBAGE = 1_000_000  # new objects before the collector looks, 700 unless set: logs are none


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status. Never raises for a bad input."""
    # What is imported and read stays until the end, so looking through it for garbage finds none.
    gc.set_threshold(_GARBAGE)
    keep_freed_memory()
    with console.prepared():
        if note := mixed_up():
            console.tell(f"vanidl: {note}\n")
        options = argparse.Namespace()
        try:
            options = parser().parse_args(arguments)
            # Imported here, not deeper: there Python 3.11 maps and unmaps a piece of its stack for
            # each call that crosses its end, a thousand times, 3 % of a report.
            with without_threads_of_numpy():
                command = find_command(options.command)
            if allowed := getattr(options, "max_memory", None):
                os.environ[MAX_MEMORY] = str(size_of(allowed, "--max-memory"))
            with ended_with_block():
                status = command.run(options)
            sys.stdout.flush()
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as error:
            # What is left to go wrong once the input was read: standard output.
            console.discard(sys.stdout)
            if isinstance(error, BrokenPipeError):  # the reader went away: as other tools do
                return 1
            return _fail(VanidlError(f"cannot write the output: {error.strerror or error}"))
        except (VanidlError, ImportError, MemoryError, RuntimeError) as error:
            return _fail(_as_ours(error), getattr(options, "names", None))
        return status


def _as_ours(error: Exception) -> VanidlError:
    """The error in words of ours; one that nobody foresaw is raised again."""
    if isinstance(error, VanidlError):
        return error
    if isinstance(error, ImportError):
        return _cannot_load(error)
    if isinstance(error, MemoryError) or "start new thread" in str(error):
        return VanidlError(_NO_MEMORY)
    raise error


def _cannot_load(error: ImportError) -> VanidlError:
    """A required package that is missing, damaged, or more than the memory that is left."""
    while isinstance(error.__cause__, ImportError):  # NumPy's own text is a page of advice
        error = error.__cause__
    first = str(error).strip().partition("\n")[0]
    return VanidlError(
        f"expected the packages that vanidl needs, found one that cannot be loaded here ({first}); "
        "reinstall vanidl-io, or give the command more memory (ulimit -v, the job's limit)"
    )


def entry() -> None:
    """The console script."""
    words = sys.argv[1:]
    remote = _remote_paths(words) if set(words[:1]) & READING else {}
    try:
        status = run_supervised(main, remote) if remote or _may_crash(words[:1]) else main()
    except VanidlError as error:
        status = _fail(error)
    gc.freeze()  # else the end looks through all modules: a fifth of the time of a small summary
    sys.exit(status)


def _remote_paths(words: Sequence[str]) -> dict[str, str]:
    """Paths among the words that lie on storage of elsewhere, which may not answer; its mounts."""
    mounts = RemoteMounts()
    paths = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    return {path: mount for path in paths if path and (mount := mounts.of(path))}


def _may_crash(command: Sequence[str]) -> bool:
    """Whether a library could end this process for want of memory, in a command that reads."""
    return address_space_is_limited() and bool(set(command) & READING)


def _fail(error: VanidlError, names: Pseudonyms | None = None) -> int:
    """Says the error in one line; with `names` as little of whose the input is as any output."""
    message = " ".join(str(error).split())
    table = f"{error.table}\n" if isinstance(error, SeveralJobsError) and error.table else ""
    if names is not None:
        message, table = names.text(message), names.text(table)
    console.tell(f"vanidl: {message}\n{table}")
    return error.exit_status


# Another project: PyPI's `vanidl` (0.0.8, 2021) installs modules of its own into the same folder
# `vanidl`. Installed after this package it replaces `__init__.py` by an empty file, and uninstalled
# later it takes `__init__.py` away.

_ITS_MODULE = "configuraton.py"  # sic: a name that only that package has
_MEND = "pip uninstall vanidl, then pip install --force-reinstall --no-deps vanidl-io"


def mixed_up(folder: Path = Path(__file__).parent) -> str:
    """One line on what is wrong and how to mend it; "" where the folder is this package's own."""
    if (folder / _ITS_MODULE).exists():
        return (
            "expected vanidl-io alone, found the package vanidl 0.0.8 of PyPI, another project, in "
            f"the same folder: {_MEND}."
        )
    if not hasattr(vanidl, "__version__"):
        return (
            "expected vanidl-io whole, found its __init__.py removed or replaced, as by "
            f"uninstalling the package vanidl of PyPI: {_MEND}."
        )
    return ""
